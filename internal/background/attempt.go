package background

import (
	"context"
	"io"
	"log/slog"
	"net/http"

	"turnpike/internal/access"
	"turnpike/internal/audit"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/gateway/responses"
)

// attempt calls the model.
func (s *Service) attempt(ctx context.Context, j *job, p *access.Principal, r *responses.Request) (*end, error) {
	calling, done := s.startWorking(ctx, j)
	defer done()
	record := audit.Unlogged()
	response, err := s.Gateway.Responses(calling, gateway.Call{Principal: p, Project: j.Project, Record: record, Body: r.Body(), Header: http.Header{},
		Prepaid: &gateway.Prepaid{Amount: j.Reserved, MaxOutput: j.MaxOutput}}, r)
	switch {
	case calling.Err() != nil:
		if response != nil && response.Stream != nil {
			_ = response.Stream.Close()
		}
		return s.interrupted(ctx, j, r.NewStream(), record)
	case err != nil:
		return j.fail(r.NewStream(), faultOf(j, r.TranslateFault(err)), record.Entry()), nil
	case response.Stream == nil:
		return &end{job: j, status: statusOf(response.Body), response: response.Body, call: record.Entry()}, nil
	}
	events := gateway.NewResponseEvents(r, response)
	return s.stream(calling, ctx, j, events, record)
}

// stream stores the events of a stream until it ends.
func (s *Service) stream(calling, ctx context.Context, j *job, events *gateway.ResponseEvents, record *audit.Record) (*end, error) {
	stream, out := events.Stream, &partWriter{service: s, job: j}
	defer stream.Close()
	for {
		list, err := events.Next()
		switch {
		case err == io.EOF || err == gateway.ErrCut:
			last := events.End(err)
			_ = stream.Close() // records the usage
			response := responses.ResponseOf(last)
			return &end{job: j, status: statusOf(response), response: response, events: last, call: record.Entry()}, nil
		case calling.Err() != nil:
			_ = stream.Close()
			return s.interrupted(ctx, j, events, record)
		case err != nil:
			_ = stream.Close()
			return j.fail(events, faultOf(j, err), record.Entry()), nil
		}
		if err := out.add(list, stream); err != nil {
			return nil, err
		}
	}
}

// interrupted returns the end of a response whose call was canceled: by the deadline, by a
// cancellation, which has ended it already, or because the server stops.
func (s *Service) interrupted(ctx context.Context, j *job, events failer, record *audit.Record) (*end, error) {
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !s.Now().Before(j.DeadlineAt):
		return j.fail(events, errDeadline, record.Entry()), nil
	}
	return nil, errStale
}

// failer returns the last events of a response that fails.
type failer interface {
	Fail(code, message string) []responses.Event
}

// fail ends a response with an error.
func (j *job) fail(events failer, f *fault.Error, call *audit.Entry) *end {
	last := events.Fail(string(f.Code), f.Message)
	call.Fail(f)
	return &end{job: j, status: Failed, response: responses.ResponseOf(last), events: last, call: call}
}

func faultOf(j *job, err error) *fault.Error {
	if f, ok := fault.As(err); ok {
		return f
	}
	slog.Error("background response failed", "response", j.ID, "error", err)
	return fault.New(fault.Internal, "The server failed.")
}
