package db_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"turnpike/internal/db"
)

// TestBatcherServesWhatArrivedMeanwhileTogether: the first item alone, then those that waited for it in batches,
// without one whose caller has left.
func TestBatcherServesWhatArrivedMeanwhileTogether(t *testing.T) {
	t.Parallel()
	type item struct{ n, served int }
	var sizes []int
	begun, proceed := make(chan struct{}), make(chan struct{})
	b := db.NewBatcher(2, func(list []*item) {
		if sizes = append(sizes, len(list)); len(sizes) == 1 {
			close(begun)
			<-proceed
		}
		for _, i := range list {
			i.served++
		}
	})
	items := make([]*item, 4)
	var callers sync.WaitGroup
	do := func(i int) {
		items[i] = &item{n: i}
		callers.Go(func() {
			if err := b.Do(t.Context(), items[i]); err != nil || items[i].served != 1 {
				t.Errorf("item %d was served %d times (%v)", i, items[i].served, err)
			}
		})
	}
	do(0)
	<-begun
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	left := &item{}
	if err := b.Do(canceled, left); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left got %v", err)
	}
	for i := 1; i < len(items); i++ {
		do(i)
	}
	close(proceed)
	callers.Wait()
	total := 0
	for _, n := range sizes {
		total += n
	}
	if total != len(items) || slices.Max(sizes) > 2 || left.served != 0 {
		t.Errorf("batches have %v items, and the caller that left was served %d times", sizes, left.served)
	}
}
