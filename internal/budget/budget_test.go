package budget_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"turnpike/internal/budget"
	"turnpike/internal/fault"
)

const mib = 1 << 20

func begin(t *testing.T, p *budget.Pool, workspace string) *budget.Budget {
	t.Helper()
	_, b := budget.Begin(p.With(t.Context()), workspace)
	t.Cleanup(b.Release)
	return b
}

// reserveAll reserves MiB by MiB until the pool refuses.
func reserveAll(b *budget.Budget) (n int) {
	for b.Reserve(mib) == nil {
		n++
	}
	return n
}

func TestTwoWorkspacesLeaveMemoryForAThird(t *testing.T) {
	t.Parallel()
	p := budget.New(64 * mib)
	var all []*budget.Budget
	for i, workspace := range []string{"a", "b", "c"} {
		all = append(all, begin(t, p, workspace))
		if got, want := reserveAll(all[i]), []int{32, 16, 8}[i]; got != want {
			t.Errorf("workspace %s got %d MiB, want %d", workspace, got, want)
		}
	}
	for _, b := range all {
		b.Release()
	}
	if got := reserveAll(begin(t, p, "")); got != 4 {
		t.Errorf("requests without a key got %d MiB, want a sixteenth (4)", got)
	}
	if got := reserveAll(begin(t, p, "d")); got != 30 {
		t.Errorf("after all releases a workspace got %d MiB, want half of what is left (30)", got)
	}
}

func TestReturnedMemoryIsFree(t *testing.T) {
	t.Parallel()
	p := budget.New(4 * mib)
	b := begin(t, p, "a")
	for range 100 {
		if err := b.Reserve(2 * mib); err != nil {
			t.Fatal(err)
		}
		b.Return(2 * mib)
	}
	if got := reserveAll(b); got != 2 {
		t.Errorf("got %d MiB after returning all, want 2", got)
	}
}

func TestBodyTakesMemoryAsItArrives(t *testing.T) {
	t.Parallel()
	p := budget.New(4 * mib)
	// The length is a lie: nothing follows.
	liar := begin(t, p, "a")
	if body, err := liar.ReadAll(budget.Source{From: strings.NewReader("short"), Limit: 100 * mib, Expected: 50 * mib}); string(body) != "short" || err != nil {
		t.Errorf("got %q, %v", body, err)
	}
	if got := reserveAll(begin(t, p, "a")); got != 2 {
		t.Errorf("beside an announced body got %d MiB, want 2", got)
	}
	large := begin(t, p, "b")
	_, err := large.ReadAll(budget.Source{From: endless{}, Limit: 100 * mib})
	if f, ok := fault.As(err); !ok || f.Code != fault.Overloaded {
		t.Errorf("an endless body: %v, want %s", err, fault.Overloaded)
	}
}

// A response of a provider with a million empty objects took a hundred times its size.
func TestLargeJSONTakesTheMemoryOfItsValues(t *testing.T) {
	t.Parallel()
	objects, text := []byte("["+strings.Repeat("{},", 50_000)+"null]"), []byte(`"`+strings.Repeat("x", 150_000)+`"`)
	for name, read := range map[string]func(b *budget.Budget, body []byte) error{
		"ReadAll": func(b *budget.Budget, body []byte) error {
			_, err := b.ReadAll(budget.Source{From: bytes.NewReader(body), Limit: mib, JSON: true})
			return err
		},
		"ChargeJSON": func(b *budget.Budget, body []byte) error {
			_, err := io.Copy(io.Discard, b.ChargeJSON(bytes.NewReader(body), mib))
			return err
		},
		"Decoded": func(b *budget.Budget, body []byte) error { return b.Reserve(budget.Decoded(body)) },
	} {
		p := budget.New(8 * mib)
		if err := read(begin(t, p, "a"), text); err != nil {
			t.Errorf("%s of a long text: %v", name, err)
		}
		err := read(begin(t, p, "b"), objects)
		if f, ok := fault.As(err); !ok || f.Code != fault.RequestTooLarge {
			t.Errorf("%s of many objects: %v, want %s", name, err, fault.RequestTooLarge)
		}
		if err := read(begin(t, p, "b"), objects[:60_000]); err != nil {
			t.Errorf("%s of less than 64 KiB: %v", name, err)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestSourcesHaveALimit(t *testing.T) {
	t.Parallel()
	_, own := budget.Begin(t.Context(), "a")
	defer own.Release()
	for name, b := range map[string]*budget.Budget{"own": own, "none": budget.Of(t.Context())} {
		for size, tooLarge := range map[int]bool{0: false, 999: false, 1000: false, 1001: true, 5000: true} {
			source := func() budget.Source { return budget.Source{From: bytes.NewReader(make([]byte, size)), Limit: 1000} }
			var limit *budget.TooLargeError
			body, err := b.ReadAll(source())
			if errors.As(err, &limit) != tooLarge || !tooLarge && len(body) != size {
				t.Errorf("%s budget: ReadAll of %d bytes: %d, %v", name, size, len(body), err)
			}
			if _, err = io.Copy(io.Discard, budget.Stream(source())); errors.As(err, &limit) != tooLarge {
				t.Errorf("%s budget: Stream of %d bytes: %v", name, size, err)
			}
			if _, err = io.Copy(io.Discard, b.Charge(source().From, 1000)); errors.As(err, &limit) != tooLarge {
				t.Errorf("%s budget: Charge of %d bytes: %v", name, size, err)
			}
		}
	}
}

func TestWithoutABudgetLittleCanBeRead(t *testing.T) {
	t.Parallel()
	for name, ctx := range map[string]context.Context{"no pool": t.Context(), "no budget": budget.New(1 << 40).With(t.Context())} {
		var limit *budget.TooLargeError
		if _, err := budget.Of(ctx).ReadAll(budget.Source{From: endless{}, Limit: 1 << 40}); !errors.As(err, &limit) {
			t.Errorf("%s: reading an endless source: %v, want a limit", name, err)
		}
	}
}

func TestLargeBodiesMustArriveFaster(t *testing.T) {
	t.Parallel()
	start := time.Now()
	for size, most := range map[int]time.Duration{1: 0, 8<<10 + 1: time.Second, mib + 1: 128 * time.Second, 65*mib + 1: (128 + 1024) * time.Second} {
		var last time.Time
		ended := false
		s := budget.Stream(budget.Source{From: bytes.NewReader(make([]byte, size)), Limit: 100 * mib, Patience: time.Hour, Deadline: func(at time.Time) {
			if ended = at.IsZero(); !ended {
				last = at
			}
		}})
		if _, err := io.CopyN(io.Discard, s, int64(size-1)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if got := last.Sub(start) - time.Hour; got < most || got > most+time.Minute {
			t.Errorf("%d bytes may take %s, want %s", size-1, got, most)
		}
		if _, err := s.Read(make([]byte, 1)); err != io.EOF || !ended {
			t.Errorf("at the end: %v; deadline removed: %t", err, ended)
		}
	}
}

// A workspace with many Decodes in the queue delays another one by those that run, and by one.
func TestOwnersTakeTurnsToDecode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := budget.New(mib)
		var order []string
		var mu sync.Mutex
		finish := make(chan struct{})
		decode := func(workspace string) {
			_ = begin(t, p, workspace).Decode(t.Context(), budget.MaxDecode, func() error {
				mu.Lock()
				order = append(order, workspace)
				mu.Unlock()
				<-finish
				return nil
			})
		}
		for range 20 {
			go decode("busy")
		}
		synctest.Wait()
		running := len(order)
		go decode("other")
		synctest.Wait()
		close(finish)
		synctest.Wait()
		if at := slices.Index(order, "other"); len(order) != 21 || at < 0 || at > running+1 {
			t.Errorf("with %d of 20 running, another workspace was number %d of %d, want one to be before it", running, at, len(order))
		}
	})
}

func TestDecodeIsBoundedAndEndsWithTheRequest(t *testing.T) {
	t.Parallel()
	b := begin(t, budget.New(mib), "a")
	none := func() error { return nil }
	if f, ok := fault.As(b.Decode(t.Context(), budget.MaxDecode+1, none)); !ok || f.Code != fault.RequestTooLarge {
		t.Errorf("decoding more than the limit: %v", f)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Decode(ctx, 0, none); !errors.Is(err, context.Canceled) {
		t.Errorf("decoding for a request that has ended: %v, want %v", err, context.Canceled)
	}
	if err := b.Decode(t.Context(), budget.MaxDecode, none); err != nil {
		t.Errorf("after both: %v", err)
	}
}

// A retry helps only a request that other requests leave no memory for.
func TestRequestThatNeverFitsIsTooLarge(t *testing.T) {
	t.Parallel()
	p := budget.New(64 * mib)
	for owner, c := range map[string]struct {
		bytes int64
		want  fault.Code
	}{"a": {33 * mib, fault.RequestTooLarge}, "": {5 * mib, fault.RequestTooLarge}} {
		if f, ok := fault.As(begin(t, p, owner).Reserve(c.bytes)); !ok || f.Code != c.want {
			t.Errorf("%q: got %v, want %s", owner, f, c.want)
		}
	}
	if err := begin(t, p, "a").Reserve(30 * mib); err != nil {
		t.Fatal(err)
	}
	if f, ok := fault.As(begin(t, p, "b").Reserve(30 * mib)); !ok || f.Code != fault.Overloaded {
		t.Errorf("beside another request: got %v, want overloaded", f)
	}
}

// Tasks get up to half of the pool, in turn. A live request always gets some of the rest.
func TestTasksAwaitMemoryInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := budget.New(64 * mib)
		got := make(chan *budget.Budget, 9)
		await := func(workspace string, bytes int64) {
			b := begin(t, p, workspace)
			if err := b.Await(t.Context(), bytes); err != nil {
				t.Error(err)
			}
			got <- b
		}
		for range 3 {
			go await("busy", 20*mib)
			synctest.Wait()
		}
		go await("other", mib)
		synctest.Wait()
		if len(got) != 1 {
			t.Fatalf("%d of 4 tasks have memory, want 1", len(got))
		}
		if n := reserveAll(begin(t, p, "live")); n != 22 {
			t.Errorf("beside a task a workspace got %d MiB, want half of what is left (22)", n)
		}
		(<-got).Release()
		synctest.Wait()
		if len(got) != 1 {
			t.Fatalf("%d tasks have memory after the first one, want the second", len(got))
		}
		(<-got).Release()
		synctest.Wait()
		if len(got) != 2 {
			t.Errorf("%d tasks have memory after the second one, want the third and a small one", len(got))
		}
		p.SetLimit(256 * mib)
		go await("large", 1000*mib)
		synctest.Wait()
		(<-got).Release()
		(<-got).Release()
		synctest.Wait()
		if b := <-got; p.Used() != 128*mib+22*mib-freeMemory {
			t.Errorf("a task that wants too much has %d bytes with a live request, want half", p.Used())
		} else {
			b.Release()
		}
	})
}

// freeMemory is what a budget has without a reservation.
const freeMemory = 64 << 10

func TestAwaitedMemoryIsThereForLaterReservations(t *testing.T) {
	t.Parallel()
	p := budget.New(64 * mib)
	b := begin(t, p, "task")
	if err := b.Await(t.Context(), 8*mib); err != nil {
		t.Fatal(err)
	}
	full := begin(t, p, "live")
	for reserveAll(full) > 0 {
		full = begin(t, p, "another"+strconv.Itoa(int(p.Used())))
	}
	for range 3 {
		if err := b.Reserve(8 * mib); err != nil {
			t.Fatalf("awaited memory: %v", err)
		}
		if err := b.Reserve(8 * mib); !errors.Is(err, budget.ErrFull) {
			t.Errorf("more than that: %v, want %v", err, budget.ErrFull)
		}
		b.Return(8 * mib)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := begin(t, p, "task").Await(ctx, 32*mib); !errors.Is(err, context.Canceled) {
		t.Errorf("a task that ends while it waits: %v, want %v", err, context.Canceled)
	}
	used := p.Used()
	b.Release()
	if got := used - p.Used(); got != 8*mib-freeMemory {
		t.Errorf("%d bytes were released, want all", got)
	}
}
