package batches

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/providers"
	"turnpike/internal/spend"
)

// follow polls a batch at the provider, cancels it, and collects its results when it has ended.
func (s *Service) follow(ctx context.Context, b *Batch, stopping bool) (*time.Time, error) {
	maker := s.Gateway.BatchMaker(b.Provider)
	if maker == nil {
		return s.retryUpstream(ctx, b, errNoMaker)
	}
	now := s.Now()
	state, err := maker.GetBatch(ctx, b.UpstreamID)
	if err != nil {
		return s.retryUpstream(ctx, b, err)
	}
	if !state.Ended && stopping && b.UpstreamCancelAt == nil {
		if err := maker.CancelBatch(ctx, b.UpstreamID); err != nil {
			return s.retryUpstream(ctx, b, err)
		}
		return &now, s.noteUpstream(ctx, b, func(b *Batch) { b.UpstreamCancelAt = &now })
	}
	if !state.Ended {
		return s.postpone(ctx, b, pollInterval)
	}
	if err := s.collect(ctx, b, maker, state); err != nil {
		var f *providers.Failure
		if errors.As(err, &f) {
			return s.retryUpstream(ctx, b, err)
		}
		return nil, err
	}
	failure := errUpstreamFailed
	if state.Problem != "" {
		failure = errUpstreamRejected
		slog.Warn("provider rejected a batch", "batch", b.ID, "provider", b.Provider, "error", state.Problem)
	}
	return &now, s.endReserved(ctx, b, state.Default, failure)
}

// unfinished returns how lines end that the provider doesn't process because the batch stops.
func (b *Batch) unfinished() providers.BatchOutcome {
	if b.Status == Cancelling {
		return providers.BatchCanceled
	}
	return providers.BatchExpired
}

// collect stores the results of a batch that has ended at the provider. It may be repeated.
func (s *Service) collect(ctx context.Context, b *Batch, maker providers.BatchMaker, state *providers.BatchState) error {
	results := map[int64]providers.BatchResult{}
	flush := func() error {
		if len(results) == 0 {
			return nil
		}
		positions := make([]int64, 0, len(results))
		for position := range results {
			positions = append(positions, position)
		}
		places, args := db.Places([]any{b.ID, lineReserved}, positions)
		lines, err := db.List(ctx, s.DB, scanLine, "SELECT "+lineColumns+" FROM batch_lines WHERE batch_id = $1 AND status = $2 AND position IN "+places, args...)
		if err != nil {
			return fmt.Errorf("read lines: %w", err)
		}
		ends := make([]*upstreamEnd, len(lines))
		for i, l := range lines {
			if ends[i], err = s.endOf(ctx, b, l, results[l.Position]); err != nil {
				return err
			}
		}
		clear(results)
		return s.storeEnds(ctx, b, ends)
	}
	err := maker.ReadBatch(ctx, state, func(r providers.BatchResult) error {
		number, found := strings.CutPrefix(r.ID, b.ID+"-")
		position, err := strconv.ParseInt(number, 10, 64)
		if !found || err != nil {
			return nil // not a request of this batch
		}
		if results[position] = r; len(results) < collectChunk {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// upstreamEnd is the end of a line, with the usage that it is charged for.
type upstreamEnd struct {
	result *result
	call   *audit.Entry
}

// endOf returns the end of a line with a result of the provider.
func (s *Service) endOf(ctx context.Context, b *Batch, l *line, r providers.BatchResult) (*upstreamEnd, error) {
	if r.Outcome != providers.BatchAnswered {
		return s.unanswered(b, l, r.Outcome, errUpstreamFailed)
	}
	body, err := s.body(ctx, b, l)
	if err != nil {
		return nil, err
	}
	call := s.prepaidCall(b, l, body, &gateway.BatchCall{Provider: b.Provider, Result: r.Response})
	response, err := s.send(ctx, b, call, l.RequestID)
	if err != nil {
		f, known := fault.As(err)
		if !known {
			return nil, err
		}
		return s.failedUpstream(b, l, f)
	}
	e := call.Record.Entry()
	out, err := s.completed(&start{line: l, requestID: l.RequestID}, e, response)
	if err != nil {
		return nil, err
	}
	out.attempts = 0
	e.Status = http.StatusOK
	return &upstreamEnd{out, e}, nil
}

func (s *Service) failedUpstream(b *Batch, l *line, f *fault.Error) (*upstreamEnd, error) {
	out, err := s.fail(b, l, f, l.RequestID)
	e := &audit.Entry{Status: fault.FamilyOf(f.Code).Status}
	e.Fail(f)
	return &upstreamEnd{out, e}, err
}

// unanswered returns the end of a line that the provider didn't process.
func (s *Service) unanswered(b *Batch, l *line, outcome providers.BatchOutcome, f *fault.Error) (*upstreamEnd, error) {
	if outcome == providers.BatchCanceled {
		outcome = b.unfinished() // a batch that expires is canceled at the provider
	}
	switch outcome {
	case providers.BatchCanceled:
		return &upstreamEnd{&result{line: l, status: lineCancelled}, &audit.Entry{ErrorCode: errCancelled.Code}}, nil
	case providers.BatchExpired:
		return &upstreamEnd{&result{line: l, status: lineExpired}, &audit.Entry{ErrorCode: errExpired.Code}}, nil
	}
	return s.failedUpstream(b, l, f)
}

// endReserved ends the lines that have a reservation and no result.
func (s *Service) endReserved(ctx context.Context, b *Batch, outcome providers.BatchOutcome, f *fault.Error) error {
	for {
		lines, err := s.linesIn(ctx, b, lineReserved, collectChunk)
		if err != nil || len(lines) == 0 {
			return err
		}
		ends := make([]*upstreamEnd, len(lines))
		for i, l := range lines {
			if ends[i], err = s.unanswered(b, l, outcome, f); err != nil {
				return err
			}
		}
		if err := s.storeEnds(ctx, b, ends); err != nil {
			return err
		}
	}
}

// storeEnds stores the ends of lines, and charges them from their reservations, in one transaction.
func (s *Service) storeEnds(ctx context.Context, b *Batch, ends []*upstreamEnd) error {
	return s.DB.Write(ctx, func(tx *db.Tx) error {
		list, err := lock(ctx, tx, b.ID)
		if err != nil || len(list) == 0 {
			return err
		}
		b := list[0]
		results := make([]*result, len(ends))
		for i, e := range ends {
			results[i] = e.result
		}
		open, err := lineStates(ctx, tx, b.ID, results)
		if err != nil {
			return err
		}
		results = results[:0]
		for _, e := range ends {
			l := e.result.line
			if have := open[l.Position]; have == nil || have.Status != lineReserved {
				continue // another worker has stored it
			}
			e.result.requestID = l.RequestID // in any case: it has an entry in the log
			results = append(results, e.result)
			s.Settler.SettleJob(tx, spend.JobCharge{JobID: l.lease(), RequestID: l.RequestID, Tenant: b.Tenant, Project: b.Project, KeyID: b.KeyID, CreatedAt: *b.InProgressAt,
				Accounts: []byte(cmp.Or(l.Accounts, b.Accounts)), Model: e.call.Model, Provider: cmp.Or(e.call.Provider, b.Provider), Reserved: l.Reserved, Cost: e.call.Credits + e.call.UnbilledCredits,
				Call: e.call})
		}
		return s.writeBatch(ctx, tx, b, results)
	})
}
