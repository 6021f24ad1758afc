package api

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"unicode"

	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/keyring"
	"turnpike/internal/web"
)

func createChatCompletion(c *Call) error {
	body, err := c.readModelBody()
	if err != nil {
		return err
	}
	return c.serveModel(body, func(call gateway.Call) (*gateway.Response, error) { return c.s.Gateway.Chat(c.Context(), call) }, c.stream)
}

// createCompletion implements the predecessor of chat completions.
func createCompletion(c *Call) error {
	body, err := c.readModelBody()
	if err != nil {
		return err
	}
	return c.serveModel(body, func(call gateway.Call) (*gateway.Response, error) { return c.s.Gateway.Completions(c.Context(), call) }, c.stream)
}

// serveModel makes a model call and sends its response. stream sends one that is a stream; it is nil
// if none can be.
func (c *Call) serveModel(body []byte, ask func(gateway.Call) (*gateway.Response, error), stream func(*gateway.Stream, *eventWriter) error) error {
	out := &eventWriter{c: c, batch: true}
	call := c.modelCall(body)
	call.BeforeWait = out.beforeWait
	response, err := ask(call)
	if err != nil {
		return err
	}
	if response.Stream != nil {
		c.nameModel(response)
		return stream(response.Stream, out)
	}
	c.sendModelResponse(response, response.Body)
	return nil
}

// tokenValuesFactor multiplies the limit on JSON values for embeddings, because a
// body may have arrays of tokens, each of them a number.
const tokenValuesFactor = 5

func createEmbeddings(c *Call) error {
	body, err := c.readValues(c.Limits.ModelBody, tokenValuesFactor*c.Limits.JSONValues)
	if err != nil {
		return err
	}
	return c.serveModel(body, func(call gateway.Call) (*gateway.Response, error) { return c.s.Gateway.Embeddings(c.Context(), call) }, nil)
}

func createModeration(c *Call) error {
	body, err := c.readModelBody()
	if err != nil {
		return err
	}
	return c.serveModel(body, func(call gateway.Call) (*gateway.Response, error) { return c.s.Gateway.Moderate(c.Context(), call) }, nil)
}

func createRerank(c *Call) error {
	body, err := c.readModelBody()
	if err != nil {
		return err
	}
	return c.serveModel(body, func(call gateway.Call) (*gateway.Response, error) { return c.s.Gateway.Rerank(c.Context(), call) }, nil)
}

func (c *Call) nameModel(r *gateway.Response) {
	c.successHeaders = append(c.successHeaders, header{"Service-Model", r.Model}, header{"Service-Provider", r.Provider})
	if len(r.Ignored) > 0 {
		c.successHeaders = append(c.successHeaders, header{"Service-Ignored-Fields", ignoredFields(r.Ignored)})
	}
}

// maxIgnoredFields limits the header, because clients choose the names.
const maxIgnoredFields = 32

// ignoredFields returns the value of the header that lists fields without effect.
func ignoredFields(names []string) string {
	var list []string
	for _, name := range names[:min(len(names), maxIgnoredFields)] {
		list = append(list, strings.Map(func(r rune) rune {
			if r == ',' || r == ' ' || r > unicode.MaxASCII {
				return '_'
			}
			return r
		}, keyring.Mask(web.Sanitize(name, 64))))
	}
	return strings.Join(list, ", ")
}

// sendModelResponse responds to a model request that isn't streamed.
func (c *Call) sendModelResponse(r *gateway.Response, body []byte) {
	c.nameModel(r)
	c.successHeaders = append(c.successHeaders, header{"Service-Credits", r.Credits.String()})
	c.send(http.StatusOK, cmp.Or(r.ContentType, jsonType), body)
}

func (c *Call) modelCall(body []byte) gateway.Call {
	return gateway.Call{Principal: c.Principal, Project: c.Project, Record: c.record, Body: body, Header: c.W.Header(), UseProject: c.createProject,
		Session: cmp.Or(c.R.Header.Get("Service-Session"), c.R.Header.Get("X-Session-Id")), TraceParent: c.R.Header.Get("Traceparent"), Defer: func(do func()) { c.deferred = append(c.deferred, do) }}
}

// stream forwards events to the client as they arrive. An error before the first
// event is an ordinary error response; a later one is the stream's last event.
func (c *Call) stream(s *gateway.Stream, out *eventWriter) error {
	defer s.Close()
	for out.err == nil {
		data, err := s.Next()
		if out.err != nil { // sending the events before this one failed
			break
		}
		if err == io.EOF {
			return c.endStream(s, out, nil, out.end)
		}
		if err != nil {
			if !out.begun() {
				return err
			}
			f := c.Fault(err)
			return c.endStream(s, out, f, func() { out.event(c.errorJSON(f)) })
		}
		out.named(s.Event(), data)
	}
	return c.abandonStream(s, out)
}

// endStream ends a stream with its last events. By the time the client has them,
// the request's concurrency slot and reserved credits are released.
func (c *Call) endStream(s *gateway.Stream, out *eventWriter, f *fault.Error, last func()) error {
	_ = s.Close() // before the log entry is settled, so that it has the usage
	c.settleStream(f)
	last()
	if out.write(); !c.Started {
		c.failUnlogged(out.err)
	}
	return nil
}

// settleStream settles the log entry of a stream before its last event. f is the error that ends the stream, or nil.
func (c *Call) settleStream(f *fault.Error) {
	if f != nil && c.content != nil {
		c.content.AddEvent("error", c.errorJSON(f))
	}
	c.logContent()
	c.settle(http.StatusOK, f)
}

// abandonStream ends a stream that can't be written to.
func (c *Call) abandonStream(s *gateway.Stream, out *eventWriter) error {
	if !c.Started {
		// The log can't be written. Closing the stream would charge what it has sent so far.
		c.failUnlogged(out.err)
		return nil
	}
	return c.endStream(s, out, nil, func() {})
}

// eventWriter sends events, at once unless they are batched.
type eventWriter struct {
	c       *Call
	batch   bool // collect events until flush is called
	endless bool // the last event says so itself
	err     error
	buf     *[]byte // from eventBuffers; nil if it is empty, because most streams wait most of the time
}

const (
	// maxBatch is how much is collected of a response that has already arrived.
	maxBatch = 16 << 10
	// eventBuffer is enough for the events of most batches.
	eventBuffer = 4 << 10
)

var eventBuffers = sync.Pool{New: func() any { return new(make([]byte, 0, eventBuffer)) }}

// begun reports whether the client gets an event, even if it hasn't been sent yet.
func (w *eventWriter) begun() bool { return w.c.Started || w.buf != nil }

var errClientGone = errors.New("the client disconnected")

// end writes the end of a stream in OpenAI's format.
func (w *eventWriter) end() {
	if !w.endless {
		w.event([]byte("[DONE]"))
	}
}

func (w *eventWriter) event(data []byte) { w.named("", data) }

func (w *eventWriter) named(name string, data []byte) { w.numbered("", name, data) }

// numbered writes an event with an ID, after which a client can resume.
func (w *eventWriter) numbered(id, name string, data []byte) {
	w.c.content.AddEvent(name, data)
	b := w.open()
	for _, field := range [...][2]string{{"id: ", id}, {"event: ", name}} {
		if field[1] != "" {
			*b = append(append(append(*b, field[0]...), field[1]...), '\n')
		}
	}
	*b = append(append(append(*b, "data: "...), data...), "\n\n"...)
	if !w.batch || len(*b) >= maxBatch {
		w.flush()
	}
}

// open returns the buffer.
func (w *eventWriter) open() *[]byte {
	if w.buf == nil {
		w.buf = eventBuffers.Get().(*[]byte)
	}
	return w.buf
}

// keepAlive writes a comment, so that proxies don't time out the connection.
func (w *eventWriter) keepAlive() {
	b := w.open()
	*b = append(*b, ": still there\n\n"...)
	w.flush()
}

// flush sends the events written so far.
func (w *eventWriter) flush() {
	if w.buf == nil {
		return
	}
	if w.write(); w.err != nil {
		return
	}
	if err := http.NewResponseController(w.c.W).Flush(); err != nil {
		w.err = errClientGone
	}
	w.c.clearWriteDeadline()
	w.c.scanBodyForKeys()
}

// beforeWait sends the events before the stream waits for the provider. It cancels the call if the log can't be written:
// nothing was sent, and nothing will be.
func (w *eventWriter) beforeWait() error {
	if w.flush(); w.err != nil && !w.c.Started {
		return context.Canceled
	}
	return nil
}

// write leaves the events to net/http, which sends them with the end of the response.
func (w *eventWriter) write() {
	if w.err != nil || w.buf == nil {
		return
	}
	if !w.c.Started {
		// Send no byte before the request is in the log.
		if w.err = w.c.waitUntilLogged(); w.err != nil {
			return
		}
		h := w.c.W.Header()
		w.c.setSuccessHeaders(h)
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // proxies must not buffer events
		w.c.WriteHeader(http.StatusOK)
	}
	if err := w.c.writeChunks(*w.buf); err != nil {
		w.err = errClientGone
	}
	if *w.buf = (*w.buf)[:0]; cap(*w.buf) <= 2*maxBatch {
		eventBuffers.Put(w.buf)
	}
	w.buf = nil
}
