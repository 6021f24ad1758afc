package db

import (
	"slices"
	"sync"
)

// A signal tells every node that something cached may have changed. It is a
// hint, never the only copy of anything: it can be lost with a connection, so
// what depends on it has a time limit of its own.
type signal struct{ topic, payload string }

type signals struct {
	mu   sync.RWMutex
	subs map[string][]func(payload string)
}

// OnSignal calls fn for each signal of the topic, from this node and from
// others. The payload is empty when it is not known what changed.
func (d *DB) OnSignal(topic string, fn func(payload string)) {
	d.signals.mu.Lock()
	defer d.signals.mu.Unlock()
	if d.signals.subs == nil {
		d.signals.subs = map[string][]func(string){}
	}
	d.signals.subs[topic] = append(d.signals.subs[topic], fn)
}

// Signal sends the payload to the topic's listeners when the transaction has
// committed: on this node before Write returns, on others a moment later.
func (t *Tx) Signal(topic, payload string) {
	s := signal{topic, payload}
	if !slices.Contains(t.signals, s) {
		t.signals = append(t.signals, s)
	}
}

// dispatch calls the listeners; an empty topic means all of them.
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
