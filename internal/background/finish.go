package background

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/conversations"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/gateway/responses"
	"turnpike/internal/spend"
	"turnpike/internal/visibility"
)

// Status is the final state of a response.
type Status string

// The final states.
const (
	Completed  Status = "completed"
	Incomplete Status = "incomplete"
	Failed     Status = "failed"
	Cancelled  Status = "cancelled"
)

// published are the events about the final states.
var published = map[Status]events.Type{
	Completed: events.ResponseCompleted, Incomplete: events.ResponseIncomplete, Failed: events.ResponseFailed, Cancelled: events.ResponseCancelled,
}

// statusOf returns the final state that a provider reports.
func statusOf(response jsontext.Value) Status {
	var read struct {
		Status Status `json:"status"`
	}
	if err := json.Unmarshal(response, &read, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err == nil && published[read.Status] != "" {
		return read.Status
	}
	return Completed
}

// end is how a response ends.
type end struct {
	job      *job
	status   Status
	response jsontext.Value
	events   []responses.Event // the last ones of a stream
	call     *audit.Entry      // what the model call used
}

// cost returns the cost of the response at list prices. The settlement charges at most what is
// reserved, and nothing in the test environment.
func (e *end) cost() credits.Micro {
	if e.job.Environment == accounts.Test {
		return e.call.SimulatedCredits
	}
	return e.call.Credits + e.call.UnbilledCredits
}

// writeEnds is the group commit of ends. An end counts only if the response is still in the attempt in
// which the work began.
func (s *Service) writeEnds(ctx context.Context, tx *db.Tx, list []*end) error {
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = e.job.ID
	}
	stored, err := lock(ctx, tx, names)
	if err != nil {
		return err
	}
	for _, e := range list {
		now := stored[e.job.ID]
		if now == nil || now.Attempts != e.job.Attempts {
			continue
		}
		delete(stored, e.job.ID) // a second end of the same attempt is stale
		if err := s.finish(ctx, tx, e); err != nil {
			return err
		}
	}
	return nil
}

// finish ends a response: its content, charge and event change in one transaction. The caller holds
// the lock of its row.
func (s *Service) finish(ctx context.Context, tx *db.Tx, e *end) error {
	j := e.job
	if last := withoutQueued(e.events); j.streamed() && len(last) > 0 {
		for i := range last {
			last[i] = renumber(last[i], j.NextEvent+int64(i))
		}
		if err := s.Store.AddEvents(ctx, tx, []conversations.Events{pack(j.ID, j.NextEvent, last)}); err != nil {
			return err
		}
	}
	stored, err := s.Store.Queued(ctx, tx, j.ID)
	switch {
	case errors.Is(err, db.ErrNotFound): // its retention has ended
	case err != nil:
		return err
	default:
		if err := s.Store.Finish(ctx, tx, stored, responses.WithStatus(e.response, string(e.status))); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, "DELETE FROM background_responses WHERE id = $1", j.ID); err != nil {
		return fmt.Errorf("end background response: %w", err)
	}
	s.Settler.SettleJob(tx, spend.JobCharge{JobID: j.ID, RequestID: j.RequestID, Tenant: j.Tenant, Project: j.Project, KeyID: j.KeyID, CreatedAt: j.CreatedAt,
		Accounts: j.Accounts, Model: cmp.Or(e.call.Model, j.Model), Provider: cmp.Or(e.call.Provider, j.Provider), Reserved: j.Reserved, Cost: e.cost(),
		PriceVersion: j.PriceVersion, Call: e.call})
	if _, err := s.Publisher.Publish(ctx, tx, events.Origin{Tenant: j.Tenant, Project: j.Project}, events.Response{ID: j.ID, Type: published[e.status]}); err != nil {
		return err
	}
	tx.OnCommit(func() {
		s.ended.WithLabelValues(string(e.status)).Inc()
		s.watchers.Wake(j.ID)
	})
	return nil
}

// Cancel ends a response and returns it. If the model was called, its input and the output so far are
// charged. A response that has ended stays as it is.
func (s *Service) Cancel(ctx context.Context, tx *db.Tx, f visibility.Filter, id string) (jsontext.Value, error) {
	if _, err := s.Store.Get(ctx, tx, f, id); err != nil {
		return nil, err
	}
	locked, err := lock(ctx, tx, []string{id})
	if err != nil {
		return nil, err
	}
	r, err := s.Store.Get(ctx, tx, f, id) // again, because it may have ended before it was locked
	if err != nil {
		return nil, err
	}
	j := locked[id]
	switch {
	case j == nil && !isBackground(r.Response):
		return nil, fault.New(fault.InvalidState, "Only background responses can be canceled. This one has ended.")
	case j == nil:
		return r.Response, nil
	}
	call := &audit.Entry{}
	if j.Attempts > 0 {
		call = &audit.Entry{InputTokens: &j.InputTokens, OutputTokens: &j.OutputTokens, UsageSource: audit.UsagePartial, Credits: j.Cost}
		if j.Environment == accounts.Test {
			call.SimulatedCredits = j.Cost
		}
	}
	response := responses.WithStatus(r.Response, string(Cancelled))
	e := &end{job: j, status: Cancelled, response: response, events: []responses.Event{responses.CancelledEvent(int(j.NextEvent), response)}, call: call}
	if err := s.finish(ctx, tx, e); err != nil {
		return nil, err
	}
	tx.Signal(signalCancel, id)
	return response, nil
}

func isBackground(response jsontext.Value) bool {
	var read struct {
		Background bool `json:"background"`
	}
	return json.Unmarshal(response, &read, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) == nil && read.Background
}
