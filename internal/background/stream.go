package background

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/access"
	"turnpike/internal/conversations"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/gateway/responses"
	"turnpike/internal/jsonbody"
)

// lastQueuedEvent is the number of the last event that exists before the response is in progress.
const lastQueuedEvent = 1

// part is what a stream has added to its response.
type part struct {
	id      string
	attempt int64
	first   int64 // its sequence number
	events  []responses.Event
	output  int64 // tokens so far
	cost    credits.Micro
	stale   bool // the response has ended, or another node creates it
}

// partWriter queues the events of one attempt.
type partWriter struct {
	service *Service
	job     *job
	last    *part
	pending *db.Pending
}

// add queues events. It returns errStale if earlier ones could not be stored.
func (w *partWriter) add(list []responses.Event, s *gateway.Stream) error {
	if w.last != nil && w.pending.Ended() && w.last.stale {
		return errStale
	}
	j := w.job
	list = withoutQueued(list)
	if len(list) == 0 {
		return nil
	}
	used, cost := s.SoFar()
	p := &part{id: j.ID, attempt: j.Attempts, first: j.NextEvent, output: used.OutputTokens, cost: cost}
	for _, e := range list {
		p.events = append(p.events, renumber(e, j.NextEvent))
		j.NextEvent++
	}
	w.last, w.pending = p, w.service.parts.Add(p)
	return nil
}

// withoutQueued leaves out the events that a background response already has.
func withoutQueued(list []responses.Event) []responses.Event {
	return slices.DeleteFunc(slices.Clone(list), func(e responses.Event) bool { return e.Type == "response.created" || e.Type == "response.queued" })
}

const sequenceNumber = "sequence_number"

// renumber returns a copy of an event with another sequence number.
func renumber(e responses.Event, n int64) responses.Event {
	number := strconv.FormatInt(n, 10)
	if bytes.Contains(e.Data, []byte(`"`+sequenceNumber+`"`)) {
		e.Data = bytes.Clone(jsonbody.ReplaceMember(e.Data, sequenceNumber, number))
		return e
	}
	e.Data = slices.Concat([]byte(`{"`+sequenceNumber+`":`+number+`,`), bytes.TrimPrefix(bytes.TrimSpace(e.Data), []byte("{")))
	return e
}

// pack returns events for storage, whose first has the given number.
func pack(id string, first int64, list []responses.Event) conversations.Events {
	out := conversations.Events{ResponseID: id, Last: first + int64(len(list)) - 1}
	for _, e := range list {
		out.Data = append(out.Data, jsontext.Value(e.Data))
	}
	return out
}

var updateParts = db.NewBulkUpdate("background_responses", "next_event = v.next_event, output_tokens = v.output_tokens, cost = v.cost",
	"background_responses.id = v.id", "id text", "next_event bigint", "output_tokens bigint", "cost bigint")

// writeParts is the group commit of events. The parts of a response become one row.
func (s *Service) writeParts(ctx context.Context, tx *db.Tx, list []*part) error {
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = p.id
	}
	stored, err := lock(ctx, tx, names)
	if err != nil {
		return err
	}
	merged := map[string]*part{}
	for _, p := range list {
		j := stored[p.id]
		if p.stale = j == nil || j.Attempts != p.attempt; p.stale {
			continue
		}
		if m := merged[p.id]; m == nil {
			merged[p.id] = &part{id: p.id, first: p.first, events: slices.Clone(p.events), output: p.output, cost: p.cost}
		} else {
			m.events, m.output, m.cost = append(m.events, p.events...), p.output, p.cost
		}
	}
	var rows [][]any
	var batches []conversations.Events
	for _, id := range slices.Sorted(maps.Keys(merged)) {
		p := merged[id]
		b := pack(id, p.first, p.events)
		batches = append(batches, b)
		rows = append(rows, []any{id, b.Last + 1, p.output, int64(p.cost)})
	}
	if len(rows) == 0 {
		return nil
	}
	if err := s.Store.AddEvents(ctx, tx, batches); err != nil {
		return err
	}
	if _, err := updateParts.Write(ctx, tx, rows); err != nil {
		return fmt.Errorf("store events: %w", err)
	}
	tx.OnCommit(func() {
		for id := range merged {
			s.watchers.Wake(id)
		}
	})
	return nil
}

const (
	// maxWatchers limits the streams of a key on a node. Each reads the database twice a second.
	maxWatchers = 100
	// watchRetryAfter is the Retry-After of a rejected stream.
	watchRetryAfter = 5 * time.Second
)

// AcquireWatcher takes a watcher slot of the principal. The caller releases it.
func (s *Service) AcquireWatcher(p *access.Principal) (release func(), err error) {
	release, ok := s.watchers.Acquire(p.RootID(), maxWatchers)
	if !ok {
		f := fault.New(fault.RateLimitExceeded, "The key already streams %d background responses, which is the limit. Close some of these streams, or poll the response.", maxWatchers)
		f.RetryAfter = watchRetryAfter
		return nil, f
	}
	return release, nil
}

// Watch returns a channel that receives when the response may have more events. The caller stops it.
func (s *Service) Watch(id string) (grown <-chan struct{}, stop func()) { return s.watchers.Watch(id) }
