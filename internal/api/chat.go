package api

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"turnpike/internal/gateway"
)

func createChatCompletion(c *Call) error {
	body, err := c.readJSON(c.s.Limits.ModelBody)
	if err != nil {
		return err
	}
	if err := c.still(); err != nil {
		return err
	}
	response, err := c.s.Gateway.Chat(c.Context(), c.modelCall(body))
	if err != nil {
		return err
	}
	c.success = append(c.success, headerLine{"Service-Model", response.Model}, headerLine{"Service-Provider", response.Provider})
	if response.Stream != nil {
		return c.stream(response.Stream)
	}
	c.success = append(c.success, headerLine{"Service-Credits", response.Credits.String()})
	c.send(http.StatusOK, jsonType, response.Body)
	return nil
}

// modelCall is the request as the gateway sees it.
func (c *Call) modelCall(body []byte) gateway.Call {
	return gateway.Call{Principal: c.Principal, Project: c.Project, Record: c.record, Body: body, Header: c.w.Header(), UseProject: c.createProject,
		TraceParent: c.r.Header.Get("Traceparent"), Defer: func(do func()) { c.later = append(c.later, do) }}
}

// stream copies events to the client as they arrive. An error before the first
// one is an ordinary answer; after it, it is the stream's last event.
func (c *Call) stream(s *gateway.Stream) error {
	defer s.Close()
	out := &eventWriter{c: c}
	for {
		data, err := s.Next()
		if err == io.EOF {
			return c.endStream(s, out, "", func() { out.event([]byte("[DONE]")) })
		}
		if err != nil {
			if !c.wrote {
				return err
			}
			f := c.faultOf(err)
			return c.endStream(s, out, string(f.Code), func() { out.event(c.errorJSON(f)) })
		}
		if out.event(data); out.err != nil {
			return c.leftStream(s, out)
		}
	}
}

// endStream ends a stream with its last events. Whoever has those may call
// again at once: by then the place and the credits of this call are free.
func (c *Call) endStream(s *gateway.Stream, out *eventWriter, code string, last func()) error {
	_ = s.Close() // before the entry is settled, so that it knows what was used
	c.settle(http.StatusOK, code)
	if last(); !c.wrote { // nothing was before, and the log cannot be written
		return out.err
	}
	return nil
}

// leftStream ends a stream that could not be written.
func (c *Call) leftStream(s *gateway.Stream, out *eventWriter) error {
	if !c.wrote { // the log could not be written
		return out.err
	}
	return c.endStream(s, out, "", func() {})
}

// eventWriter writes server-sent events.
type eventWriter struct {
	c   *Call
	err error
	buf []byte
}

var errLeft = errors.New("the client left")

func (w *eventWriter) event(data []byte) { w.named("", data) }

// named writes an event with a type of its own.
func (w *eventWriter) named(name string, data []byte) {
	w.buf = w.buf[:0]
	if name != "" {
		w.buf = append(append(append(w.buf, "event: "...), name...), '\n')
	}
	w.buf = append(append(append(w.buf, "data: "...), data...), "\n\n"...)
	w.flush()
}

// numbered writes an event that a client can go on after.
func (w *eventWriter) numbered(id int64, name string, data []byte) {
	w.buf = append(strconv.AppendInt(append(w.buf[:0], "id: "...), id, 10), "\nevent: "...)
	w.buf = append(append(append(append(w.buf, name...), "\ndata: "...), data...), "\n\n"...)
	w.flush()
}

// comment says nothing, so that nobody on the way takes the line for dead.
func (w *eventWriter) comment() {
	w.buf = append(w.buf[:0], ": still there\n\n"...)
	w.flush()
}

func (w *eventWriter) flush() {
	if w.err != nil {
		return
	}
	if !w.c.wrote {
		// No byte leaves before the request is in the log.
		if w.err = w.c.logged(); w.err != nil {
			return
		}
		w.c.wrote = true
		h := w.c.w.Header()
		w.c.setSuccess(h)
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // a proxy must not hold events back
		w.c.w.WriteHeader(http.StatusOK)
		defer w.c.lookForKeys()
	}
	err := w.c.writePieces(w.buf)
	if err == nil {
		err = http.NewResponseController(w.c.w).Flush()
	}
	if err != nil {
		w.err = errLeft
	}
	w.c.expectNothing()
}
