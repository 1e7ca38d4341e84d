// A member that is sarama. Settings of its own: reset.invalid=false turns Offsets.ResetInvalidOffsets off.
package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

var balancers = map[string]sarama.BalanceStrategy{
	"range":      sarama.NewBalanceStrategyRange(),
	"roundrobin": sarama.NewBalanceStrategyRoundRobin(),
	"sticky":     sarama.NewBalanceStrategySticky(),
}

type saramaClient struct {
	member *member
	group  sarama.ConsumerGroup
	cancel context.CancelFunc
	ended  chan struct{}
}

func newSarama(m *member, balancer string, settings map[string]string) (client, error) {
	config := sarama.NewConfig()
	if id := settings["client.id"]; id != "" {
		config.ClientID = id
	}
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{balancers[balancer]}
	config.Consumer.Group.Session.Timeout = milliseconds(settings, "session.timeout.ms", 10*time.Second)
	config.Consumer.Group.Heartbeat.Interval = milliseconds(settings, "heartbeat.interval.ms", 3*time.Second)
	config.Consumer.Group.ResetInvalidOffsets = settings["reset.invalid"] != "false"
	config.Consumer.Offsets.AutoCommit.Interval = milliseconds(settings, "auto.commit.interval.ms", time.Second)
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	if settings["auto.offset.reset"] == "latest" {
		config.Consumer.Offsets.Initial = sarama.OffsetNewest
	}
	config.Consumer.Return.Errors = true
	group, err := sarama.NewConsumerGroup([]string{settings["bootstrap.servers"]}, settings["group.id"], config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &saramaClient{m, group, cancel, make(chan struct{})}
	go func() {
		for err := range group.Errors() {
			m.broken(err)
		}
	}()
	go c.consume(ctx, strings.Split(settings["topics"], ","))
	return c, nil
}

func (c *saramaClient) consume(ctx context.Context, topics []string) {
	defer close(c.ended)
	for ctx.Err() == nil {
		err := c.group.Consume(ctx, topics, c)
		if err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
			c.member.broken(err)
		}
	}
}

func (c *saramaClient) Setup(session sarama.ConsumerGroupSession) error {
	c.member.tell("assigned", topics(session))
	return nil
}

func (c *saramaClient) Cleanup(session sarama.ConsumerGroupSession) error {
	c.member.tell("revoked", topics(session))
	return nil
}

func topics(session sarama.ConsumerGroupSession) []string {
	var found []string
	for topic := range session.Claims() {
		found = append(found, topic)
	}
	return found
}

func (c *saramaClient) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		c.member.handle(record{message.Topic, message.Offset, message.Timestamp.UnixMilli(), string(message.Value)})
		session.MarkMessage(message, "")
	}
	return nil
}

func (c *saramaClient) close() error {
	c.cancel()
	<-c.ended
	return c.group.Close()
}
