// A member that is kafka-go. Settings of its own: out.of.range.error=true is its OffsetOutOfRangeError.
// `assigned` names all that it subscribes to, whichever topic of them it was given.
package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

var groupBalancers = map[string]kafka.GroupBalancer{
	"range":      kafka.RangeGroupBalancer{},
	"roundrobin": kafka.RoundRobinGroupBalancer{},
	"rack":       kafka.RackAffinityGroupBalancer{Rack: "a"},
}

type kafkaGo struct {
	member *member
	reader *kafka.Reader
	broker string
	ended  chan struct{}
}

func newKafkaGo(m *member, balancer string, settings map[string]string) (client, error) {
	start := kafka.FirstOffset
	if settings["auto.offset.reset"] == "latest" {
		start = kafka.LastOffset
	}
	config := kafka.ReaderConfig{
		Brokers:               []string{settings["bootstrap.servers"]},
		GroupID:               settings["group.id"],
		GroupTopics:           strings.Split(settings["topics"], ","),
		GroupBalancers:        []kafka.GroupBalancer{groupBalancers[balancer]},
		HeartbeatInterval:     milliseconds(settings, "heartbeat.interval.ms", 3*time.Second),
		SessionTimeout:        milliseconds(settings, "session.timeout.ms", 30*time.Second),
		CommitInterval:        milliseconds(settings, "auto.commit.interval.ms", 100*time.Millisecond),
		MaxWait:               milliseconds(settings, "fetch.max.wait.ms", 500*time.Millisecond),
		StartOffset:           start,
		OffsetOutOfRangeError: settings["out.of.range.error"] == "true",
	}
	if id := settings["client.id"]; id != "" {
		config.Dialer = &kafka.Dialer{ClientID: id, Timeout: 10 * time.Second, DualStack: true}
	}
	config.Logger = kafka.LoggerFunc(func(line string, _ ...any) {
		// It has no callbacks; its log says when a generation begins and ends.
		if strings.HasPrefix(line, "initializing kafka reader") {
			m.tell("assigned", config.GroupTopics)
		} else if strings.HasPrefix(line, "stopped commit") {
			m.tell("revoked", config.GroupTopics)
		}
	})
	c := &kafkaGo{m, kafka.NewReader(config), settings["bootstrap.servers"], make(chan struct{})}
	go c.consume()
	return c, nil
}

func (c *kafkaGo) consume() {
	defer close(c.ended)
	for {
		message, err := c.reader.FetchMessage(context.Background())
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			c.member.broken(err)
			continue
		}
		attempt := firstAttempt
		for _, header := range message.Headers {
			if header.Key == attemptHeader {
				attempt = string(header.Value)
			}
		}
		got := record{message.Topic, message.Offset, message.Time.UnixMilli(), string(message.Value), attempt}
		c.member.handle(got)
		c.member.complain(got, c.say)
		if err := c.reader.CommitMessages(context.Background(), message); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			c.member.broken(err)
		}
	}
}

// say uses a Conn: a kafka.Writer does not see topics that are marked as internal.
func (c *kafkaGo) say(headers [][2]string) error {
	conn, err := kafka.DialLeader(context.Background(), "tcp", c.broker, retryTopic, 0)
	if err != nil {
		return err
	}
	command := kafka.Message{}
	for _, header := range headers {
		command.Headers = append(command.Headers, kafka.Header{Key: header[0], Value: []byte(header[1])})
	}
	_, err = conn.WriteMessages(command)
	return errors.Join(err, conn.Close())
}

func (c *kafkaGo) close() error {
	err := c.reader.Close()
	<-c.ended
	return err
}
