package api

import (
	"bytes"
	"cmp"
	"io"
	"net/http"

	"turnpike/internal/gateway"
	"turnpike/internal/gateway/responses"
	"turnpike/internal/web"
)

const responsesPath = "/v1/responses"

// createResponse implements the Responses API.
func createResponse(c *Call) error {
	body, err := c.readModelBody()
	if err != nil {
		return err
	}
	r, err := responses.Read(body)
	if err != nil {
		return err
	}
	r.ID, r.Now = c.ID, c.s.Now
	state, err := c.prepareState(r)
	if err != nil {
		return err
	}
	out := &eventWriter{c: c, batch: true}
	call := c.modelCall(body)
	call.BeforeWait = out.flush
	response, err := c.s.Gateway.Responses(c.Context(), call, r)
	if err != nil {
		return r.TranslateFault(err)
	}
	c.warn(r.Warning(response.Native))
	if response.Stream != nil {
		c.nameModel(response)
		return c.streamResponse(newResponseEvents(r, response), state, out)
	}
	stored, err := c.saveResponse(state, response.Body)
	if err != nil {
		return err
	}
	c.settle(http.StatusOK, "")
	if err := waitUntilStored(stored); err != nil {
		c.failUnlogged(err)
		return nil
	}
	c.sendModelResponse(response, response.Body)
	return nil
}

// warn reports in a header what was left out of the request.
func (c *Call) warn(warning string) {
	if warning != "" {
		c.successHeaders = append(c.successHeaders, header{"Service-Warning", warning})
	}
}

// responseEvents are the events of a streamed response: those of a provider with the Responses API,
// or translated ones.
type responseEvents struct {
	request    *responses.Request
	stream     *gateway.Stream
	native     *responses.NativeStream // nil for a translated response
	translated *responses.Stream
	last       []responses.Event // of a provider, to be sent when the call is settled
}

func newResponseEvents(r *responses.Request, response *gateway.Response) *responseEvents {
	e := &responseEvents{request: r, stream: response.Stream}
	if response.Native {
		e.native = &responses.NativeStream{}
	} else {
		e.translated = r.NewStream()
	}
	return e
}

// next returns the next events, or io.EOF before the last ones.
func (e *responseEvents) next() ([]responses.Event, error) {
	for {
		data, err := e.stream.Next()
		if err != nil {
			return nil, err
		}
		if e.native == nil {
			return e.translated.Push(data)
		}
		event := responses.Event{Type: e.stream.Event(), Data: data}
		e.native.Observe(event.Type, data)
		if !event.Terminal() {
			return []responses.Event{event}, nil
		}
		event.Data = bytes.Clone(data)
		e.last = append(e.last, event)
	}
}

// end returns the last events of a stream that ended with io.EOF or gateway.ErrCut.
func (e *responseEvents) end(err error) []responses.Event {
	switch {
	case e.native == nil:
		return e.translated.End()
	case err == gateway.ErrCut:
		return e.native.Cut()
	}
	return e.last
}

func (e *responseEvents) fail(code, message string) []responses.Event {
	if e.native != nil {
		return e.native.Fail(code, message)
	}
	return e.translated.Fail(code, message)
}

// streamResponse is stream for the events of the Responses API.
func (c *Call) streamResponse(events *responseEvents, state *responseState, out *eventWriter) error {
	s := events.stream
	defer s.Close()
	write := func(list []responses.Event) {
		for _, e := range list {
			out.named(e.Type, e.Data)
		}
	}
	for out.err == nil {
		list, err := events.next()
		if out.err != nil { // sending the events before this one failed
			break
		}
		if err == io.EOF || err == gateway.ErrCut {
			last := events.end(err)
			out.flush() // storing the response takes time
			stored, err := c.saveResponse(state, responses.ResponseOf(last))
			return c.endStream(s, out, "", func() {
				if err = cmp.Or(err, waitUntilStored(stored)); err != nil {
					f := c.Fault(web.StorageFault(err))
					last = []responses.Event{responses.ErrorEvent(string(f.Code), f.Message)}
				}
				write(last)
			})
		}
		if err != nil {
			if !c.Started {
				return events.request.TranslateFault(err)
			}
			f := c.Fault(err)
			return c.endStream(s, out, string(f.Code), func() { write(events.fail(string(f.Code), f.Message)) })
		}
		write(list)
	}
	return c.abandonStream(s, out)
}
