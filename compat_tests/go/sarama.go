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
	member   *member
	group    sarama.ConsumerGroup
	producer sarama.SyncProducer
	cancel   context.CancelFunc
	ended    chan struct{}
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
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer([]string{settings["bootstrap.servers"]}, config)
	if err != nil {
		return nil, err
	}
	group, err := sarama.NewConsumerGroup([]string{settings["bootstrap.servers"]}, settings["group.id"], config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &saramaClient{m, group, producer, cancel, make(chan struct{})}
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
		attempt := firstAttempt
		for _, header := range message.Headers {
			if string(header.Key) == attemptHeader {
				attempt = string(header.Value)
			}
		}
		got := record{message.Topic, message.Offset, message.Timestamp.UnixMilli(), string(message.Value), attempt}
		c.member.handle(got)
		c.member.complain(got, c.say)
		session.MarkMessage(message, "")
	}
	return nil
}

func (c *saramaClient) say(headers [][2]string) error {
	command := &sarama.ProducerMessage{Topic: retryTopic}
	for _, header := range headers {
		command.Headers = append(command.Headers, sarama.RecordHeader{Key: []byte(header[0]), Value: []byte(header[1])})
	}
	_, _, err := c.producer.SendMessage(command)
	return err
}

func (c *saramaClient) close() error {
	c.cancel()
	<-c.ended
	if err := c.producer.Close(); err != nil {
		return err
	}
	return c.group.Close()
}
