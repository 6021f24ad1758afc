package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/budget"
	"turnpike/internal/fault"
	"turnpike/internal/gateway/responses"
)

const (
	// maxSocketAge is OpenAI's limit. Clients then connect again.
	maxSocketAge = time.Hour
	// socketWriteTimeout is how long a client may take to accept an event.
	socketWriteTimeout = 30 * time.Second
)

// openResponseSocket serves the Responses API over a WebSocket. Each message is a request with its own
// ID, log entry and budget check, as if it had been sent by POST.
func openResponseSocket(c *Call) error {
	if c.R.ProtoMajor != 1 || !strings.EqualFold(c.R.Header.Get("Upgrade"), "websocket") || c.R.Header.Get("Sec-WebSocket-Key") == "" {
		c.W.Header().Set("Upgrade", "websocket")
		return fault.New(fault.UpgradeRequired, "GET %s is a WebSocket over HTTP/1.1. Send a POST request, or open a WebSocket.", responsesPath)
	}
	c.settle(http.StatusSwitchingProtocols, nil)
	if err := c.waitUntilLogged(); err != nil {
		c.failUnlogged(err)
		return nil
	}
	c.Started = true
	// The API uses no cookies, so pages of other origins are harmless.
	conn, err := websocket.Accept(c.W, c.R, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return nil // the client disconnected, or got a response that says what is wrong
	}
	conn.SetReadLimit(c.Limits.ModelBody)
	c.watchCredential()
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	// Canceling a read drops the connection, and a revoked key gets an error first.
	reading, drop := context.WithCancel(context.WithoutCancel(ctx))
	defer drop()
	s := &responseSocket{call: c, conn: conn, reading: reading, drop: drop}
	s.serve(ctx, cancel)
	return nil
}

// responseSocket is an open WebSocket. It has one response at a time.
type responseSocket struct {
	call    *Call
	conn    *websocket.Conn
	reading context.Context // of messages
	drop    context.CancelFunc
	// last is the previous response of this connection, which the next one can continue even if it
	// isn't stored. Its items count toward the budget of the connection.
	last struct {
		id    string
		items []jsontext.Value
		bytes int64
	}
}

// socketMessage is a message, with the budget that it was read with.
type socketMessage struct {
	ctx    context.Context
	budget *budget.Budget
	data   []byte
}

func (s *responseSocket) serve(ctx context.Context, cancel context.CancelCauseFunc) {
	messages := make(chan socketMessage)
	go func() { // pings and the end of the connection are noticed while a response is in progress
		for {
			m, err := s.read(ctx)
			if err != nil {
				cancel(err)
				return
			}
			select {
			case messages <- m:
			case <-ctx.Done():
				m.budget.Release()
				return
			}
		}
	}()
	age := time.NewTimer(maxSocketAge)
	defer age.Stop()
	for {
		select {
		case m := <-messages:
			s.create(m.ctx, m.data)
			m.budget.Release()
		case <-age.C:
			_ = s.conn.Close(websocket.StatusNormalClosure, "the connection is an hour old; connect again")
			return
		case <-s.call.s.watching.Done():
			_ = s.conn.Close(websocket.StatusServiceRestart, "the server is stopping; connect again")
			return
		case <-ctx.Done():
			s.end(context.Cause(ctx))
			return
		}
	}
}

// read reads a message within the limits of a body.
func (s *responseSocket) read(ctx context.Context) (m socketMessage, err error) {
	_, from, err := s.conn.Reader(s.reading) // waits for the first byte
	if err != nil {
		return m, err
	}
	late := time.AfterFunc(s.call.Limits.BodyTimeout, s.drop)
	defer late.Stop()
	m.ctx, m.budget = budget.Begin(ctx, s.call.workspace())
	m.data, err = m.budget.ReadAll(budget.Source{From: from, Limit: s.call.Limits.ModelBody, Patience: s.call.Limits.BodyTimeout,
		Deadline: func(at time.Time) {
			if late.Stop(); !at.IsZero() {
				late.Reset(time.Until(at))
			}
		}})
	if err != nil {
		m.budget.Release()
	}
	return m, err
}

// end closes the connection, and says why if that was the server's decision.
func (s *responseSocket) end(cause error) {
	f, ok := fault.As(cause)
	if !ok {
		_ = s.conn.CloseNow()
		return
	}
	s.fail(context.WithoutCancel(s.call.Context()), f)
	code := websocket.StatusTryAgainLater
	if fault.FamilyOf(f.Code).Status < http.StatusInternalServerError {
		code = websocket.StatusPolicyViolation
	}
	_ = s.conn.Close(code, string(f.Code))
}

func (s *responseSocket) send(ctx context.Context, event []byte) error {
	ctx, cancel := context.WithTimeout(ctx, socketWriteTimeout)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, event)
}

// fail sends an error that no request has.
func (s *responseSocket) fail(ctx context.Context, err error) {
	f := s.call.Fault(err)
	s.sendError(ctx, fault.FamilyOf(f.Code).Status, f.Final(), s.call.errorJSON(f))
}

// sendError sends an error. Its status is 400 if a retry can't change it, because clients such as Codex connect again
// after any other; the code says what it is.
func (s *responseSocket) sendError(ctx context.Context, status int, final bool, body []byte) {
	if final {
		status = http.StatusBadRequest
	}
	var e struct {
		Error jsontext.Value `json:"error"`
	}
	_ = json.Unmarshal(body, &e) // it is ours
	event, err := json.Marshal(struct {
		Type   string         `json:"type"`
		Status int            `json:"status"`
		Error  jsontext.Value `json:"error"`
	}{"error", status, e.Error})
	if err == nil {
		_ = s.send(ctx, event) // a client that is gone ends the connection
	}
}

// create handles a message. Fields of the request are next to its type.
func (s *responseSocket) create(ctx context.Context, message []byte) {
	var fields map[string]jsontext.Value
	if err := json.Unmarshal(message, &fields); err != nil || fields == nil {
		s.fail(ctx, fault.New(fault.InvalidJSON, "A message must be a JSON object.").Because(err))
		return
	}
	if string(fields["type"]) != `"response.create"` {
		s.fail(ctx, fault.Invalid("type", "type must be response.create."))
		return
	}
	if string(fields["background"]) == "true" {
		s.fail(ctx, fault.Invalid("background", "background true is not supported over a WebSocket. Send a POST request."))
		return
	}
	generate := string(fields["generate"]) != "false"
	delete(fields, "type")
	delete(fields, "generate")
	fields["stream"] = jsontext.Value("true")
	items, err := s.resume(fields)
	if err != nil {
		s.fail(ctx, err)
		return
	}
	body, err := json.Marshal(fields, json.Deterministic(true))
	if err != nil {
		s.fail(ctx, err)
		return
	}
	s.forget()
	if !generate {
		ctx = context.WithValue(ctx, prepareOnly{}, true)
	}
	s.keep(items, s.post(ctx, body))
}

// resume replaces a reference to the last response of this connection by its items. It returns all
// items of the request.
func (s *responseSocket) resume(fields map[string]jsontext.Value) ([]jsontext.Value, error) {
	var previous string
	_ = json.Unmarshal(fields["previous_response_id"], &previous) // another type is rejected later
	body, err := json.Marshal(map[string]jsontext.Value{"input": fields["input"]})
	if err != nil || fields["input"] == nil {
		return nil, nil // the request fails with a better error
	}
	r, err := responses.Read(body)
	if err != nil {
		return nil, err
	}
	own, err := r.Items()
	if err != nil || previous == "" || previous != s.last.id {
		return own, err
	}
	all := append(append([]jsontext.Value{}, s.last.items...), own...)
	delete(fields, "previous_response_id")
	fields["input"], err = json.Marshal(all)
	return all, err
}

// prepareOnly marks the context of a request that only announces its input for the next one.
type prepareOnly struct{}

// prepareResponse answers such a request, which counts toward the limits like any other.
func (c *Call) prepareResponse(r *responses.Request, body []byte) error {
	if err := c.s.Gateway.CheckRateLimit(c.Context(), c.modelCall(body)); err != nil {
		return err
	}
	out := &eventWriter{c: c, batch: true}
	c.settle(http.StatusOK, nil)
	for _, e := range r.NewStream().End() {
		out.named(e.Type, e.Data)
	}
	out.flush()
	return out.err
}

// post makes the request and returns the response, or nil if it failed.
func (s *responseSocket) post(ctx context.Context, body []byte) (response []byte) {
	r := s.call.R.Clone(ctx)
	r.Method, r.Body, r.ContentLength = http.MethodPost, io.NopCloser(bytes.NewReader(body)), int64(len(body))
	for _, name := range []string{"Connection", "Upgrade", "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Extensions", "Sec-Websocket-Protocol", "Idempotency-Key"} {
		r.Header.Del(name)
	}
	r.Header.Set("Content-Type", jsonType)
	w := &socketWriter{socket: s, ctx: ctx, header: http.Header{}}
	s.call.s.ServeHTTP(w, r)
	if w.status >= http.StatusBadRequest {
		s.sendError(ctx, w.status, w.header.Get("X-Should-Retry") == "false", w.buffer)
		return nil
	}
	return w.response
}

// keep remembers the response for the next request of this connection, if there is memory for it.
func (s *responseSocket) keep(items []jsontext.Value, response []byte) {
	var read struct {
		ID     string           `json:"id"`
		Output []jsontext.Value `json:"output"`
	}
	if response == nil || json.Unmarshal(response, &read) != nil {
		return
	}
	items = append(items, read.Output...)
	bytes := int64(0)
	for _, item := range items {
		bytes += int64(len(item))
	}
	if s.call.budget.Reserve(bytes) == nil {
		s.last.id, s.last.items, s.last.bytes = read.ID, items, bytes
	}
}

func (s *responseSocket) forget() {
	s.call.budget.Return(s.last.bytes)
	s.last.id, s.last.items, s.last.bytes = "", nil, 0
}

// socketWriter is the http.ResponseWriter of a request in a WebSocket. It sends the data of
// server-sent events as messages.
type socketWriter struct {
	socket   *responseSocket
	ctx      context.Context
	header   http.Header
	status   int
	buffer   []byte // of an incomplete event, or of an error
	response []byte // of the last event
}

func (w *socketWriter) Header() http.Header { return w.header }

func (w *socketWriter) WriteHeader(status int) { w.status = status }

// Flush does nothing: every event is sent as soon as it is complete.
func (w *socketWriter) Flush() {}

func (w *socketWriter) Write(p []byte) (int, error) {
	w.buffer = append(w.buffer, p...)
	if w.status >= http.StatusBadRequest {
		return len(p), nil
	}
	for {
		event, rest, complete := bytes.Cut(w.buffer, []byte("\n\n"))
		if !complete {
			return len(p), nil
		}
		for line := range bytes.Lines(event) {
			data, ok := bytes.CutPrefix(bytes.TrimRight(line, "\n"), []byte("data: "))
			if !ok {
				continue
			}
			name, _, _ := bytes.Cut(bytes.TrimPrefix(event, []byte("event: ")), []byte("\n"))
			if e := (responses.Event{Type: string(name), Data: bytes.Clone(data)}); e.Terminal() && e.Type != "response.failed" {
				w.response = responses.ResponseOf([]responses.Event{e})
			}
			if err := w.socket.send(w.ctx, data); err != nil {
				return 0, err
			}
		}
		w.buffer = append(w.buffer[:0], rest...)
	}
}
