// A member that is franz-go.
package main

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var kgoBalancers = map[string]kgo.GroupBalancer{
	"range":       kgo.RangeBalancer(),
	"roundrobin":  kgo.RoundRobinBalancer(),
	"sticky":      kgo.StickyBalancer(),
	"cooperative": kgo.CooperativeStickyBalancer(),
}

type franz struct {
	member *member
	client *kgo.Client
	ended  chan struct{}
}

func newFranz(m *member, balancer string, settings map[string]string) (client, error) {
	start := kgo.NewOffset().AtStart()
	if settings["auto.offset.reset"] == "latest" {
		start = kgo.NewOffset().AtEnd()
	}
	tell := func(kind string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(ctx context.Context, client *kgo.Client, held map[string][]int32) {
			if kind == "revoked" {
				if err := client.CommitMarkedOffsets(ctx); err != nil {
					m.broken(err)
				}
			}
			var topics []string
			for topic := range held {
				topics = append(topics, topic)
			}
			m.tell(kind, topics)
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(settings["bootstrap.servers"]),
		kgo.ConsumerGroup(settings["group.id"]),
		kgo.ConsumeTopics(strings.Split(settings["topics"], ",")...),
		kgo.ConsumeResetOffset(start),
		kgo.Balancers(kgoBalancers[balancer]),
		kgo.SessionTimeout(milliseconds(settings, "session.timeout.ms", 45*time.Second)),
		kgo.HeartbeatInterval(milliseconds(settings, "heartbeat.interval.ms", 3*time.Second)),
		kgo.AutoCommitMarks(),
		kgo.AutoCommitInterval(milliseconds(settings, "auto.commit.interval.ms", 100*time.Millisecond)),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(tell("assigned")),
		kgo.OnPartitionsRevoked(tell("revoked")),
		kgo.OnPartitionsLost(tell("lost")),
	}
	if id := settings["client.id"]; id != "" {
		options = append(options, kgo.ClientID(id))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	c := &franz{m, client, make(chan struct{})}
	go c.consume()
	return c, nil
}

func (c *franz) consume() {
	defer close(c.ended)
	for {
		fetches := c.client.PollRecords(context.Background(), 500)
		if fetches.IsClientClosed() {
			return
		}
		for _, failure := range fetches.Errors() {
			c.member.broken(failure.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got := franzRecord(r)
			c.member.handle(got)
			c.member.complain(got, c.say)
			c.client.MarkCommitRecords(r)
		})
		c.client.AllowRebalance()
	}
}

func franzRecord(r *kgo.Record) record {
	attempt := firstAttempt
	for _, header := range r.Headers {
		if header.Key == attemptHeader {
			attempt = string(header.Value)
		}
	}
	return record{r.Topic, r.Offset, r.Timestamp.UnixMilli(), string(r.Value), attempt}
}

func (c *franz) say(headers [][2]string) error {
	command := &kgo.Record{Topic: retryTopic}
	for _, header := range headers {
		command.Headers = append(command.Headers, kgo.RecordHeader{Key: header[0], Value: []byte(header[1])})
	}
	return c.client.ProduceSync(context.Background(), command).FirstErr()
}

func (c *franz) close() error {
	c.client.CloseAllowingRebalance()
	<-c.ended
	return nil
}
