// Package watch wakes clients that watch a record when it changes on this node.
package watch

import (
	"slices"
	"sync"
)

// Watchers are woken when a record grows on this node. They poll for what other nodes write.
type Watchers struct {
	mu     sync.Mutex
	by     map[string][]chan struct{} // by the record's ID
	owners map[string]int             // number of watchers by owner
}

// New returns a set without watchers.
func New() *Watchers { return &Watchers{by: map[string][]chan struct{}{}, owners: map[string]int{}} }

// Acquire takes one of the owner's limited slots, unless all are taken. The caller releases it.
func (w *Watchers) Acquire(owner string, limit int) (release func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owners[owner] >= limit {
		return nil, false
	}
	w.owners[owner]++
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.owners[owner]--; w.owners[owner] == 0 {
			delete(w.owners, owner)
		}
	}), true
}

// Watch returns a channel that receives when the record may have grown. The caller stops it.
func (w *Watchers) Watch(id string) (grown <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by[id] = append(w.by[id], c)
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.by[id] = slices.DeleteFunc(w.by[id], func(other chan struct{}) bool { return other == c })
		if len(w.by[id]) == 0 {
			delete(w.by, id)
		}
	}
}

// Wake wakes the watchers of a record.
func (w *Watchers) Wake(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.by[id] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
