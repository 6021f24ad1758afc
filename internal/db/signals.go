package db

import (
	"slices"
	"sync"
)

// A signal invalidates caches on every node. It can be lost with a connection, so
// caches also expire.
type signal struct{ topic, payload string }

type signals struct {
	mu   sync.RWMutex
	subs map[string][]func(payload string)
}

// OnSignal calls fn for each signal of the topic on any node. The payload is empty if
// signals may have been lost.
func (d *DB) OnSignal(topic string, fn func(payload string)) {
	d.signals.mu.Lock()
	defer d.signals.mu.Unlock()
	if d.signals.subs == nil {
		d.signals.subs = map[string][]func(string){}
	}
	d.signals.subs[topic] = append(d.signals.subs[topic], fn)
}

// Signal sends the payload to the topic's listeners after the commit: on this node
// before Write returns, on others soon after.
func (t *Tx) Signal(topic, payload string) {
	s := signal{topic, payload}
	if !slices.Contains(t.signals, s) {
		t.signals = append(t.signals, s)
	}
}

// dispatch calls the listeners. An empty topic means all.
func (s *signals) dispatch(topic, payload string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if topic != "" {
		for _, fn := range s.subs[topic] {
			fn(payload)
		}
		return
	}
	for _, fns := range s.subs {
		for _, fn := range fns {
			fn("")
		}
	}
}
