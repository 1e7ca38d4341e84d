// A member of a share group that is franz-go.
package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

type franzShare struct {
	member *member
	client *kgo.Client
	ended  chan struct{}
	failed bool
}

func newFranzShare(m *member, settings map[string]string) (client, error) {
	c := &franzShare{member: m, ended: make(chan struct{})}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(settings["bootstrap.servers"]),
		kgo.ShareGroup(settings["group.id"]),
		kgo.ConsumeTopics(strings.Split(settings["topics"], ",")...),
		kgo.ClientID(settings["client.id"]),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			if err := results.Error(); err != nil {
				c.failed = true
				write([]string{m.name, "uncommitted", fmt.Sprintf("%T", err), err.Error()})
			}
		}),
	)
	if err != nil {
		return nil, err
	}
	c.client = client
	go c.consume()
	return c, nil
}

// consume waits after each poll until the broker has answered all acknowledgements: only then a callback runs.
func (c *franzShare) consume() {
	defer close(c.ended)
	for {
		fetches := c.client.PollRecords(context.Background(), 50)
		if fetches.IsClientClosed() {
			return
		}
		for _, failure := range fetches.Errors() {
			c.member.broken(failure.Err)
		}
		write([]string{c.member.name, "polled"})
		fetches.EachRecord(func(r *kgo.Record) {
			got := franzRecord(r)
			c.member.show(got)
			switch c.member.verdict(got) {
			case "retry":
				r.Ack(kgo.AckRelease)
			case "reject":
				r.Ack(kgo.AckReject)
			default:
				r.Ack(kgo.AckAccept)
			}
		})
		if err := c.client.FlushAcks(context.Background()); err != nil {
			c.member.broken(err)
		} else if !c.failed && !fetches.Empty() {
			write([]string{c.member.name, "committed"})
		}
		c.failed = false
	}
}

func (c *franzShare) close() error {
	c.client.Close()
	<-c.ended
	return nil
}
