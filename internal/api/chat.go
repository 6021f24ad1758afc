package api

import (
	"errors"
	"io"
	"net/http"

	"turnpike/internal/gateway"
)

func createChatCompletion(c *Call) error {
	body, err := c.readModelBody()
	if err != nil {
		return err
	}
	response, err := c.s.Gateway.Chat(c.Context(), c.modelCall(body))
	if err != nil {
		return err
	}
	if response.Stream != nil {
		c.nameModel(response)
		return c.stream(response.Stream)
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
	response, err := c.s.Gateway.Embeddings(c.Context(), c.modelCall(body))
	if err != nil {
		return err
	}
	c.sendModelResponse(response, response.Body)
	return nil
}

func (c *Call) nameModel(r *gateway.Response) {
	c.successHeaders = append(c.successHeaders, header{"Service-Model", r.Model}, header{"Service-Provider", r.Provider})
}

// sendModelResponse responds to a model request that isn't streamed.
func (c *Call) sendModelResponse(r *gateway.Response, body []byte) {
	c.nameModel(r)
	c.successHeaders = append(c.successHeaders, header{"Service-Credits", r.Credits.String()})
	c.send(http.StatusOK, jsonType, body)
}

func (c *Call) modelCall(body []byte) gateway.Call {
	return gateway.Call{Principal: c.Principal, Project: c.Project, Record: c.record, Body: body, Header: c.W.Header(), UseProject: c.createProject,
		TraceParent: c.R.Header.Get("Traceparent"), Defer: func(do func()) { c.deferred = append(c.deferred, do) }}
}

// stream forwards events to the client as they arrive. An error before the first
// event is an ordinary error response; a later one is the stream's last event.
func (c *Call) stream(s *gateway.Stream) error {
	defer s.Close()
	out := &eventWriter{c: c}
	for {
		data, err := s.Next()
		if err == io.EOF {
			return c.endStream(s, out, "", func() { out.event([]byte("[DONE]")) })
		}
		if err != nil {
			if !c.Started {
				return err
			}
			f := c.Fault(err)
			return c.endStream(s, out, string(f.Code), func() { out.event(c.errorJSON(f)) })
		}
		if out.event(data); out.err != nil {
			return c.abandonStream(s, out)
		}
	}
}

// endStream ends a stream with its last events. By the time the client has them,
// the request's concurrency slot and reserved credits are released.
func (c *Call) endStream(s *gateway.Stream, out *eventWriter, code string, last func()) error {
	_ = s.Close() // before the log entry is settled, so that it has the usage
	c.settle(http.StatusOK, code)
	if last(); !c.Started { // no event was sent, and the log can't be written
		return out.err
	}
	return nil
}

// abandonStream ends a stream that can't be written to.
func (c *Call) abandonStream(s *gateway.Stream, out *eventWriter) error {
	if !c.Started { // the log can't be written
		return out.err
	}
	return c.endStream(s, out, "", func() {})
}

type eventWriter struct {
	c   *Call
	err error
	buf []byte
}

var errClientGone = errors.New("the client disconnected")

func (w *eventWriter) event(data []byte) { w.named("", data) }

func (w *eventWriter) named(name string, data []byte) { w.numbered("", name, data) }

// numbered writes an event with an ID, after which a client can resume.
func (w *eventWriter) numbered(id, name string, data []byte) {
	w.buf = w.buf[:0]
	for _, field := range [...][2]string{{"id: ", id}, {"event: ", name}} {
		if field[1] != "" {
			w.buf = append(append(append(w.buf, field[0]...), field[1]...), '\n')
		}
	}
	w.buf = append(append(append(w.buf, "data: "...), data...), "\n\n"...)
	w.flush()
}

// keepAlive writes a comment, so that proxies don't time out the connection.
func (w *eventWriter) keepAlive() {
	w.buf = append(w.buf[:0], ": still there\n\n"...)
	w.flush()
}

func (w *eventWriter) flush() {
	if w.err != nil {
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
		defer w.c.scanBodyForKeys()
	}
	err := w.c.writeChunks(w.buf)
	if err == nil {
		err = http.NewResponseController(w.c.W).Flush()
	}
	if err != nil {
		w.err = errClientGone
	}
	w.c.clearWriteDeadline()
}
