package batches

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/ids"
	"turnpike/internal/providers"
)

// A batch whose requests all fit one provider with a batch API is submitted there, at its batch price.
// The work on the batch itself then does everything, step by step:
//
//	reserve ─▶ submit ─▶ poll ─▶ collect ─▶ finish, like any other batch
//
// A line owns its reservation, as a job does, from the transaction that stores it to the one that
// stores the line's result. Before the batch is submitted, the intent is stored. If the outcome is
// unknown, the batch is looked up at the provider before it is submitted again.

const (
	// maxUpstreamBytes limits the input of a batch at a provider, because the upload is in memory.
	maxUpstreamBytes = 64 << 20
	// reserveChunk and collectChunk are how many lines a transaction reserves or ends. The lines of a
	// reserveChunk are prepared concurrently.
	reserveChunk = 100
	reserveBytes = 8 << 20
	collectChunk = 200
	// submitTimeout limits a submission. submitSettled is after how long the provider lists a batch
	// whose submission was interrupted.
	submitTimeout = 5 * time.Minute
	submitSettled = submitTimeout + time.Minute
	pollInterval  = 30 * time.Second
	// upstreamRetry is the delay after a failure of the provider's batch API.
	upstreamRetry = time.Minute
	// giveUpAfter is how long after the end of its window a batch waits for its provider.
	giveUpAfter = 24 * time.Hour
)

// chooseUpstream returns the provider whose batch API runs the batch, or an empty string.
func (s *Service) chooseUpstream(b *Batch, models []string) string {
	if b.Environment != accounts.Live || len(models) == 0 || b.InputBytes > maxUpstreamBytes {
		return ""
	}
	kind := catalog.Chat
	if b.Endpoint == Embeddings {
		kind = catalog.Embedding
	}
	return s.Gateway.BatchProvider(models, kind)
}

// advanceUpstream does the next thing for a batch that a provider runs, and returns when the batch is
// due next.
func (s *Service) advanceUpstream(ctx context.Context, b *Batch) (*time.Time, error) {
	if err := s.awaitUpload(ctx, b); err != nil {
		return nil, err
	}
	now := s.Now()
	stopping := b.Status == Cancelling || !now.Before(b.ExpiresAt)
	if b.UpstreamID != "" {
		return s.follow(ctx, b, stopping)
	}
	if stopping {
		if _, err := s.endLines(ctx, b); err != nil {
			return nil, err
		}
	} else if n, err := s.reserveLines(ctx, b); err != nil || n > 0 {
		return &now, err
	}
	return s.submit(ctx, b, stopping)
}

// postpone makes the work on the batch due later, unless its state has changed.
func (s *Service) postpone(ctx context.Context, b *Batch, delay time.Duration) (*time.Time, error) {
	due := s.Now().Add(delay)
	return &due, s.change(ctx, b, func(tx *db.Tx, b *Batch, _ time.Time) error { return s.wakeBatch(ctx, tx, b, due) })
}

// preparedLine is a line whose request is ready for the provider, or has failed.
type preparedLine struct {
	line   *line
	record *audit.Record
	batch  *gateway.BatchCall
	failed *result
}

// reserveLines reserves the maximum cost of the next lines. A line that doesn't fit a budget fails.
func (s *Service) reserveLines(ctx context.Context, b *Batch) (n int, err error) {
	list, err := s.linesIn(ctx, b, lineWaiting, reserveChunk)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	list = firstBytes(list)
	p, denied, err := s.authorize(ctx, b, s.Now())
	if err != nil {
		return 0, err
	}
	var prepared []*preparedLine
	stored := errors.New("not stored")
	defer func() {
		for _, l := range prepared {
			if r := l.batch.Reservation; r != nil {
				r.Transferred(stored)
			}
		}
	}()
	// Concurrently, because lines that don't fit a budget wait together for credits of other nodes.
	all := make([]*preparedLine, len(list))
	failed := make([]error, len(list))
	var lines sync.WaitGroup
	for i, l := range list {
		lines.Go(func() { all[i], failed[i] = s.prepare(ctx, b, l, p, denied) })
	}
	lines.Wait()
	prepared = slices.DeleteFunc(all, func(l *preparedLine) bool { return l == nil })
	if err := errors.Join(failed...); err != nil {
		return 0, err
	}
	done := false
	err = s.change(ctx, b, func(tx *db.Tx, b *Batch, _ time.Time) error {
		done = true
		return s.storeReserved(ctx, tx, b, prepared)
	})
	if done {
		stored = err
	}
	return len(list), err
}

// firstBytes returns the first lines, which together have at most reserveBytes, and at least one.
func firstBytes(list []*line) []*line {
	bytes := int64(0)
	for i, l := range list {
		if bytes += l.Length; bytes > reserveBytes && i > 0 {
			return list[:i]
		}
	}
	return list
}

// prepare reserves the maximum cost of a line, and checks that the provider's format can express it.
func (s *Service) prepare(ctx context.Context, b *Batch, l *line, p *access.Principal, denied *fault.Error) (*preparedLine, error) {
	out := &preparedLine{line: l, batch: &gateway.BatchCall{Provider: b.Provider}}
	failed := denied
	l.RequestID = ""
	if failed == nil {
		body, err := s.body(ctx, b, l)
		if err != nil {
			return nil, err
		}
		l.RequestID = ids.New(ids.Request)
		out.record = s.Log.Open(audit.Entry{RequestID: l.RequestID, Tenant: b.Tenant, KeyID: p.KeyID, KeyHint: p.KeyHint, IP: b.Options.IP, Method: http.MethodPost,
			Path: b.path(), Project: b.Project, UserAgent: b.Options.UserAgent, CreatedAt: *b.InProgressAt})
		_, err = s.send(ctx, b, gateway.Call{Principal: p, Project: b.Project, Record: out.record, Body: body, Header: http.Header{}, Batch: out.batch}, l.RequestID)
		if err == nil {
			return out, nil
		}
		var known bool
		if failed, known = fault.As(err); !known || fault.FamilyOf(failed.Code).Status >= http.StatusInternalServerError {
			return nil, err
		}
		out.record.Settle(func(e *audit.Entry) {
			e.Status = fault.FamilyOf(failed.Code).Status
			e.Fail(failed)
		})
	}
	var err error
	requestID := l.RequestID
	l.RequestID = ""
	out.failed, err = s.fail(b, l, failed, requestID)
	return out, err
}

// storeReserved stores lines with their reservations and their entries in the log. The caller holds the
// lock of the batch's row.
func (s *Service) storeReserved(ctx context.Context, tx *db.Tx, b *Batch, list []*preparedLine) error {
	var failed []*result
	for _, l := range list {
		if l.failed != nil {
			failed = append(failed, l.failed)
			continue
		}
		c := l.batch
		charged := c.Reservation.Accounts()
		n, err := tx.Exec(ctx, "UPDATE batch_lines SET status = $3, request_id = $4, reserved = $5, max_output = $6, accounts = $7 WHERE batch_id = $1 AND position = $2 AND status = $8",
			b.ID, l.line.Position, lineReserved, l.line.RequestID, int64(c.Reservation.Amount), c.MaxOutput, string(charged), lineWaiting)
		if err != nil {
			return fmt.Errorf("reserve lines: %w", err)
		}
		if n == 0 {
			return errStale
		}
		c.Reservation.TransferToJob(tx, l.line.lease())
		b.Accounts = string(charged)
		err = l.record.SettleIn(ctx, tx, func(e *audit.Entry) {
			e.Status, e.Model, e.Provider, e.PriceVersion = http.StatusOK, c.Model, b.Provider, c.PriceVersion
			e.Reserved, e.Accounts = c.Reservation.Amount, charged
		})
		if err != nil {
			return err
		}
	}
	if err := s.writeBatch(ctx, tx, b, failed); err != nil {
		return err
	}
	return save(ctx, tx, b)
}

// lease names the line's reservation in the ledger.
func (l *line) lease() string { return l.BatchID + "-" + strconv.FormatInt(l.Position, 10) }

// linesIn returns the first lines in a state.
func (s *Service) linesIn(ctx context.Context, b *Batch, status string, limit int) ([]*line, error) {
	list, err := db.List(ctx, s.DB, scanLine, "SELECT "+lineColumns+" FROM batch_lines WHERE batch_id = $1 AND position IN "+firstIn(status, limit)+" ORDER BY position", b.ID)
	return list, db.Wrap(err, "read lines")
}

// firstIn selects the positions of the first lines of batch $1 in a state, which is waiting or reserved. The state isn't an
// argument, because the index has only these. SQLite uses it for positions only.
func firstIn(status string, limit int) string {
	return fmt.Sprintf("(SELECT position FROM batch_lines WHERE batch_id = $1 AND position > 0 AND status = '%s' ORDER BY position LIMIT %d)", status, limit)
}

// submit submits the reserved lines, after it has made sure that they weren't before.
func (s *Service) submit(ctx context.Context, b *Batch, stopping bool) (*time.Time, error) {
	now := s.Now()
	lines, err := s.linesIn(ctx, b, lineReserved, int(b.Total))
	if err != nil || len(lines) == 0 {
		return &now, err // all of them have failed
	}
	maker := s.Gateway.BatchMaker(b.Provider)
	if b.SubmittingAt == nil && (stopping || maker == nil) {
		return &now, s.endReserved(ctx, b, b.unfinished(), nil)
	}
	if maker == nil {
		return s.retryUpstream(ctx, b, errNoMaker)
	}
	order := &providers.BatchSubmission{Marker: b.ID, Count: len(lines)}
	if b.SubmittingAt != nil {
		id, due, err := s.findSubmitted(ctx, b, maker, order)
		if id != "" || due != nil || err != nil {
			return due, err
		}
		if stopping {
			return &now, s.endReserved(ctx, b, b.unfinished(), nil)
		}
	}
	if order.Requests, err = s.upstreamRequests(ctx, b, lines); err != nil {
		return nil, err
	}
	if err := s.noteUpstream(ctx, b, func(b *Batch) { b.SubmittingAt = &now }); err != nil {
		return nil, err
	}
	calling, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	id, err := maker.SubmitBatch(calling, order)
	if rejected(err) {
		slog.Warn("provider rejected a batch", "batch", b.ID, "provider", b.Provider, "error", err)
		return &now, s.endReserved(ctx, b, providers.BatchFailed, errUpstreamRejected)
	}
	if err != nil {
		return s.retryUpstream(ctx, b, err)
	}
	return &now, s.noteUpstream(ctx, b, func(b *Batch) { b.UpstreamID = id })
}

// rejected reports whether the provider has certainly not created the batch, and never will.
func rejected(err error) bool {
	var f *providers.Failure
	return errors.As(err, &f) && f.Status >= 400 && f.Status < 500 && f.Status != http.StatusRequestTimeout && f.Status != http.StatusConflict && f.Status != http.StatusTooManyRequests
}

var (
	errNoMaker          = errors.New("the configuration no longer has the provider with a batch price")
	errUpstreamRejected = fault.New(fault.Upstream, "The provider rejected the batch.")
	errUpstreamFailed   = fault.New(fault.Upstream, "The provider did not process the request.")
)

// noteUpstream stores what happened at the provider, even if the batch was canceled meanwhile.
func (s *Service) noteUpstream(ctx context.Context, b *Batch, note func(b *Batch)) error {
	return s.DB.Write(ctx, func(tx *db.Tx) error {
		list, err := lock(ctx, tx, b.ID)
		if err != nil || len(list) == 0 {
			return err
		}
		note(list[0])
		return save(ctx, tx, list[0])
	})
}

// findSubmitted looks for the batch at the provider, whose submission was interrupted. It stores the ID,
// or returns when to look again. If it returns neither, the provider doesn't have the batch.
func (s *Service) findSubmitted(ctx context.Context, b *Batch, maker providers.BatchMaker, order *providers.BatchSubmission) (id string, due *time.Time, err error) {
	now := s.Now()
	if wait := b.SubmittingAt.Add(submitSettled).Sub(now); wait > 0 {
		due, err = s.postpone(ctx, b, wait)
		return "", due, err
	}
	order.StartedAt = *b.SubmittingAt
	order.Known, err = db.Strings(s.DB.Query(ctx, "SELECT upstream_id FROM batches WHERE provider = $1 AND upstream_id IS NOT NULL AND id <> $2 AND expires_at > $3",
		b.Provider, b.ID, now.Add(-giveUpAfter).UnixMicro()))
	if err != nil {
		return "", nil, err
	}
	id, undecided, err := maker.FindBatch(ctx, order)
	switch {
	case err != nil:
		due, err = s.retryUpstream(ctx, b, err)
		return "", due, err
	case id != "":
		return id, &now, s.noteUpstream(ctx, b, func(b *Batch) { b.UpstreamID = id })
	case undecided && now.Before(b.ExpiresAt.Add(giveUpAfter)):
		due, err = s.postpone(ctx, b, upstreamRetry)
	}
	return "", due, err
}

// upstreamRequests returns the requests of lines as the provider gets them.
func (s *Service) upstreamRequests(ctx context.Context, b *Batch, lines []*line) ([]providers.BatchRequest, error) {
	out := make([]providers.BatchRequest, len(lines))
	for i, l := range lines {
		body, err := s.body(ctx, b, l)
		if err != nil {
			return nil, err
		}
		call := &gateway.BatchCall{Provider: b.Provider}
		if _, err := s.send(ctx, b, s.prepaidCall(b, l, body, call), l.RequestID); err != nil {
			return nil, err
		}
		out[i] = providers.BatchRequest{ID: l.lease(), RawRequest: call.Request}
	}
	return out, nil
}

// prepaidCall returns the call of a line that owns its reservation. The key was checked when that was
// made.
func (s *Service) prepaidCall(b *Batch, l *line, body []byte, call *gateway.BatchCall) gateway.Call {
	return gateway.Call{Principal: &access.Principal{Tenant: b.Tenant, KeyID: b.KeyID}, Project: b.Project, Record: audit.Unlogged(), Body: body, Header: http.Header{},
		Prepaid: &gateway.Prepaid{Amount: l.Reserved, MaxOutput: l.MaxOutput}, Batch: call}
}

// retryUpstream postpones a batch whose provider fails, until its time is long over.
func (s *Service) retryUpstream(ctx context.Context, b *Batch, err error) (*time.Time, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	now := s.Now()
	slog.Warn("batch API of a provider failed; retrying", "batch", b.ID, "provider", b.Provider, "error", err, "retry_in", upstreamRetry)
	if !now.Before(b.ExpiresAt.Add(giveUpAfter)) {
		return &now, s.endReserved(ctx, b, providers.BatchExpired, nil)
	}
	return s.postpone(ctx, b, upstreamRetry)
}
