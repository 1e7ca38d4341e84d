// Members of consumer groups that are Go clients. The lines that it speaks: ../members/__init__.py.
//
// These clients call the application, or have no position to ask for, so a member knows `make`, `run`, `stop`
// and `close` only. It joins when it is made. Settings of its own: retry.at=VALUE and reject.at=VALUE name
// messages that it cannot handle, the first only at its first delivery. It says so (failures.go) before it
// commits past them.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

type record struct {
	topic     string
	offset    int64
	timestamp int64
	value     string
	attempt   string
}

type client interface {
	close() error
}

type member struct {
	name     string
	commands chan []string
	client   client
	lock     sync.Mutex
	running  bool
	changed  *sync.Cond
	pause    time.Duration
	settings map[string]string
}

var writing sync.Mutex

func write(lines ...[]string) {
	var text strings.Builder
	for _, line := range lines {
		for i, field := range line {
			if i > 0 {
				text.WriteByte('\t')
			}
			text.WriteString(strings.Join(strings.Fields(field), " "))
		}
		text.WriteByte('\n')
	}
	writing.Lock()
	defer writing.Unlock()
	os.Stdout.WriteString(text.String())
}

// handle is called by the clients for each message, before it is committed.
func (m *member) handle(r record) {
	write([]string{m.name, "polled"})
	m.show(r)
}

func (m *member) show(r record) {
	m.lock.Lock()
	for !m.running {
		m.changed.Wait()
	}
	m.lock.Unlock()
	place := []string{strconv.FormatInt(r.offset, 10), strconv.FormatInt(r.timestamp, 10), r.value}
	place = append(place, r.attempt, strconv.FormatInt(time.Now().UnixMilli(), 10))
	write(append([]string{m.name, "record", r.topic}, place...))
	time.Sleep(m.pause)
}

func (m *member) tell(kind string, topics []string) {
	write(append([]string{m.name, kind}, topics...))
}

func (m *member) broken(err error) {
	write([]string{m.name, "broken", fmt.Sprintf("%T", err), err.Error()})
}

func (m *member) set(running bool, pause time.Duration) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.running, m.pause = running, pause
	m.changed.Broadcast()
}

func (m *member) do(command string, arguments []string) error {
	switch command {
	case "make":
		return m.make(arguments[0], arguments[1:])
	case "run":
		milliseconds, err := strconv.ParseFloat(arguments[1], 64)
		m.set(true, time.Duration(milliseconds*float64(time.Millisecond)))
		return err
	case "stop":
		m.set(false, 0)
		return nil
	case "close":
		m.set(true, 0)
		return m.client.close()
	}
	return fmt.Errorf("no command %s", command)
}

func (m *member) make(variant string, pairs []string) (err error) {
	settings := map[string]string{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		settings[name] = value
	}
	m.settings = settings
	library, balancer, _ := strings.Cut(variant, "-")
	if variant == "franz-share" {
		m.client, err = newFranzShare(m, settings)
		return err
	}
	switch library {
	case "sarama":
		m.client, err = newSarama(m, balancer, settings)
	case "franz":
		m.client, err = newFranz(m, balancer, settings)
	default:
		m.client, err = newKafkaGo(m, balancer, settings)
	}
	return err
}

func (m *member) work() {
	for line := range m.commands {
		number, command := line[0], line[1]
		if err := m.do(command, line[2:]); err != nil {
			write([]string{m.name, "failed", number, fmt.Sprintf("%T", err), err.Error()})
		} else {
			write([]string{m.name, "done", number})
		}
	}
}

func milliseconds(settings map[string]string, name string, otherwise time.Duration) time.Duration {
	if number, err := strconv.Atoi(settings[name]); err == nil {
		return time.Duration(number) * time.Millisecond
	}
	return otherwise
}

func main() {
	members := map[string]*member{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		m, known := members[fields[0]]
		if !known {
			m = &member{name: fields[0], commands: make(chan []string, 100)}
			m.changed = sync.NewCond(&m.lock)
			members[m.name] = m
			go m.work()
		}
		m.commands <- fields[1:]
	}
}
