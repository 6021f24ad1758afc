package batches

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/budget"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/gateway/responses"
	"turnpike/internal/ids"
	"turnpike/internal/limits"
	"turnpike/internal/spend"
)

// recordTimeout is how long a result waits for its log entry. Later it counts as interrupted.
const recordTimeout = 10 * time.Second

// call starts a line and makes its request.
func (s *Service) call(ctx context.Context, b *Batch, l *line, p *access.Principal, body []byte) (*result, error) {
	st := &start{line: l, requestID: ids.New(ids.Request)}
	if err := s.begin(ctx, st); err != nil {
		return nil, err
	}
	began := s.Now()
	record := s.Log.Open(audit.Entry{RequestID: st.requestID, Tenant: b.Tenant, KeyID: p.KeyID, KeyHint: p.KeyHint, IP: b.Options.IP, Method: http.MethodPost,
		Path: b.path(), Project: b.Project, UserAgent: b.Options.UserAgent, CreatedAt: began})
	response, err := s.send(ctx, b, gateway.Call{Principal: p, Project: b.Project, Record: record, Body: body, Header: http.Header{}, Step: true}, st.requestID)
	if waits(err) {
		return s.postponed(b, st, err), nil // without an entry in the log: nothing was called
	}
	record.Settle(func(e *audit.Entry) { e.End(err, s.Now().Sub(began)) })
	if unlogged := record.Settled(recordTimeout); unlogged != nil {
		return nil, unlogged // the next attempt looks it up in the log
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return s.failed(b, st, err)
	}
	return s.completed(st, record.Entry(), response)
}

// path returns where the batch is, for the request log.
func (b *Batch) path() string {
	if b.isMessageBatch() {
		return "/v1/messages/batches/" + b.ID
	}
	return "/v1/batches/" + b.ID
}

// begin stores that a line is started, before its provider is called.
func (s *Service) begin(ctx context.Context, st *start) error {
	written := s.starts.Add(st)
	if err := written.Wait(ctx); err != nil {
		return err
	}
	if st.stale {
		return errStale
	}
	return nil
}

// send makes the request at its endpoint.
func (s *Service) send(ctx context.Context, b *Batch, c gateway.Call, requestID string) (*gateway.Response, error) {
	switch b.Endpoint {
	case ChatCompletions:
		return s.Gateway.Chat(ctx, c)
	case Embeddings:
		return s.Gateway.Embeddings(ctx, c)
	case Messages:
		return s.Gateway.Messages(ctx, c, gateway.MessageOptions{ID: ids.Message + strings.TrimPrefix(requestID, ids.Request), Version: b.Options.Version, Beta: b.Options.Beta})
	}
	r, err := responses.Read(c.Body)
	if err != nil {
		return nil, err
	}
	if r.Background() {
		return nil, fault.Invalid("background", "background true has no effect in a batch. Omit it.")
	}
	if r.NeedsState() {
		return nil, fault.New(fault.InvalidParameter, "Responses in a batch aren't stored and can't refer to stored ones. Omit previous_response_id, conversation and item_reference, and send all items in input.")
	}
	r.ID, r.Now = requestID, s.Now
	response, err := s.Gateway.Responses(ctx, c, r)
	if err != nil {
		return nil, r.TranslateFault(err)
	}
	return response, nil
}

// completed returns the result of a line whose request succeeded.
func (s *Service) completed(st *start, e *audit.Entry, response *gateway.Response) (*result, error) {
	body := jsontext.Value(response.Body)
	if err := body.Compact(); err != nil { // a line of the output must not have newlines
		return nil, err
	}
	sealed, err := s.seal(st.line, lineOutput{Status: http.StatusOK, RequestID: st.requestID, Body: body})
	if err != nil {
		return nil, err
	}
	r := &result{line: st.line, attempts: st.attempts(), status: lineCompleted, requestID: st.requestID, output: sealed, cost: e.Credits}
	if e.InputTokens != nil && e.OutputTokens != nil {
		r.inputTokens, r.outputTokens = *e.InputTokens, *e.OutputTokens
	}
	return r, nil
}

// retryDelays are the delays after failures of a provider. Lines of test batches aren't retried, so
// that tests of failures see them.
var retryDelays = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}

// waits reports whether a line may run later: the key's own limit is reached, or only requests in
// progress keep the line from its credits.
func waits(err error) bool { return limits.Refused(err) || spend.Transient(err) }

// Lines that wait are spread over a time that grows with their number, so that a large batch
// doesn't try all of them every second.
const (
	spreadPerLine = 10 * time.Millisecond
	maxSpread     = time.Minute
)

// postponed returns the result of a line that waits.
func (s *Service) postponed(b *Batch, st *start, err error) *result {
	delay := time.Second + rand.N(min(maxSpread, time.Duration(b.Pending()+1)*spreadPerLine))
	if f, ok := fault.As(err); ok {
		delay += f.RetryAfter
	}
	return &result{line: st.line, attempts: st.attempts(), status: lineWaiting, tries: st.line.Tries, due: new(s.Now().Add(delay)), upstream: true}
}

// failed returns the result of a line whose request failed: a retry, or an error.
func (s *Service) failed(b *Batch, st *start, err error) (*result, error) {
	f, known := fault.As(err)
	if !known {
		slog.Warn("request of a batch failed", "batch", b.ID, "line", st.line.Position, "error", err)
		f = fault.New(fault.Internal, "The server failed.")
	}
	now := s.Now()
	retry := &result{line: st.line, attempts: st.attempts(), status: lineWaiting, tries: st.line.Tries}
	transient := fault.FamilyOf(f.Code).Status >= http.StatusInternalServerError && f.Code != fault.NoProvider
	tries := min(int(st.line.Tries), len(retryDelays)-1)
	if transient && b.Environment == accounts.Live && int(st.line.Tries) < len(retryDelays) || errors.Is(err, budget.ErrFull) {
		retry.due = new(now.Add(max(retryDelays[tries], f.RetryAfter)))
		retry.tries++
		retry.upstream = true
		return retry, nil
	}
	r, err := s.fail(b, st.line, f, st.requestID)
	if err == nil {
		r.attempts, r.upstream = st.attempts(), transient
	}
	return r, err
}

// fail returns the result of a line that fails with an error. requestID is empty if no request was
// made.
func (s *Service) fail(b *Batch, l *line, f *fault.Error, requestID string) (*result, error) {
	o := lineOutput{RequestID: requestID, Body: s.RenderError(b.Endpoint, f, requestID), Error: &lineError{string(f.Code), f.Message}}
	if requestID != "" {
		o.Status = fault.FamilyOf(f.Code).Status
	}
	sealed, err := s.seal(l, o)
	if err != nil {
		return nil, err
	}
	r := &result{line: l, attempts: l.Attempts, status: lineFailed, requestID: requestID, output: sealed}
	if requestID == "" {
		r.refund = l.RequestID
	}
	return r, nil
}
