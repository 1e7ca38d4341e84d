// What a member says of a message that it could not handle: a record with plain headers, of any client.
package main

import "strconv"

const (
	retryTopic    = "__kumquat_retry"
	attemptHeader = "qmq-attempt"
	firstAttempt  = "1"
)

// verdict is `retry`, `reject`, or nothing: the message is handled.
func (m *member) verdict(r record) string {
	switch {
	case r.value == m.settings["retry.at"] && r.attempt == firstAttempt:
		return "retry"
	case r.value == m.settings["reject.at"]:
		return "reject"
	}
	return ""
}

// complain says so, and returns when the broker has answered.
func (m *member) complain(r record, say func([][2]string) error) {
	verdict := m.verdict(r)
	if verdict == "" {
		return
	}
	headers := [][2]string{
		{"qmq-retry-group", m.settings["group.id"]},
		{"qmq-retry-subject", r.topic},
		{"qmq-retry-offset", strconv.FormatInt(r.offset, 10)},
		{"qmq-retry-action", verdict},
		{"qmq-retry-reason", "it failed"},
	}
	if after := m.settings["retry.after.ms"]; after != "" && verdict == "retry" {
		headers = append(headers, [2]string{"qmq-retry-after-ms", after})
	}
	if err := say(headers); err != nil {
		m.broken(err)
	}
}
