package archive

import (
	"context"
	"errors"
	"testing"
	"unsafe"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/visibility"
)

// TestPagesDontKeepRowGroups: a page of a few entries must not keep the memory of thousands.
func TestPagesDontKeepRowGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, dbtest.Address(t, "sqlite")))
	insert(t, w.DB, sample(60))
	w.now = lastDay.AddDate(0, 0, 10)
	w.run()
	found, err := w.List(t.Context(), w.DB, visibility.Filter{Tenant: tenants[0]}, audit.Filter{}, db.Page{Limit: 5})
	if err != nil {
		t.Fatal(err)
	}
	texts := map[*byte]bool{}
	for _, group := range w.cache.groups.values {
		for _, e := range group {
			for _, s := range []string{e.RequestID, e.KeyID, e.UserAgent, string(e.Environment)} {
				texts[unsafe.StringData(s)] = true
			}
		}
	}
	if len(found.Rows) == 0 || len(texts) == 0 {
		t.Fatalf("the page has %d entries, and the cache %d texts", len(found.Rows), len(texts))
	}
	for _, e := range found.Rows {
		for _, s := range []string{e.RequestID, e.KeyID, e.UserAgent, string(e.Environment)} {
			if texts[unsafe.StringData(s)] {
				t.Errorf("%s of the page is in the memory of its row group", s)
			}
		}
	}
}

// TestReadsWaitForMemory: all requests together read groups of a limited size, and a client that gives up doesn't wait.
func TestReadsWaitForMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, dbtest.Address(t, "sqlite")))
	insert(t, w.DB, sample(60))
	w.now = lastDay.AddDate(0, 0, 10)
	w.run()
	files, err := (&worker{Archive: w.Archive}).currentFiles(t.Context(), dayOf(firstDay), 1)
	if err != nil {
		t.Fatal(err)
	}
	read := func(ctx context.Context) (entries int, err error) {
		for group, err := range (&query{Archive: w.Archive}).groups(ctx, files[0], dayOf(firstDay).ids(), false) {
			if err != nil {
				return entries, err
			}
			entries += len(group)
		}
		return entries, nil
	}
	if n, err := read(t.Context()); err != nil || n == 0 {
		t.Fatalf("got %d entries, %v", n, err)
	}
	if !w.cache.memory.TryAcquire(readMemory) {
		t.Fatal("memory isn't released after a read")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %d entries, %v without memory, want that it waits until it is canceled", n, err)
	}
}
