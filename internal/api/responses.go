package api

import (
	"cmp"
	"io"

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
	r, err := c.decodeResponse(body)
	if err != nil {
		return err
	}
	r.ID, r.Now = c.ID, c.s.Now
	if c.Context().Value(prepareOnly{}) != nil {
		return c.prepareResponse(r, body)
	}
	state, err := c.prepareState(r)
	if err != nil {
		return err
	}
	if r.Background() {
		c.content = nil // the response comes later
		return c.createInBackground(body, state)
	}
	out := &eventWriter{c: c, batch: true}
	call := c.modelCall(body)
	call.BeforeWait = out.beforeWait
	response, err := c.s.Gateway.Responses(c.Context(), call, r)
	if err != nil {
		return r.TranslateFault(err)
	}
	c.warn(r.Warning(response.Native))
	if response.Stream != nil {
		c.nameModel(response)
		return c.streamResponse(gateway.NewResponseEvents(r, response), state, out)
	}
	if c.stored, err = c.saveResponse(state, response.Body); err != nil {
		return err
	}
	c.sendModelResponse(response, response.Body)
	return nil
}

// decodeResponse decodes a request to the Responses API, which is kept beside its body.
func (c *Call) decodeResponse(body []byte) (*responses.Request, error) {
	if err := c.budget.Reserve(int64(len(body))); err != nil {
		return nil, err
	}
	return responses.Read(body)
}

// warn reports in a header what was left out of the request.
func (c *Call) warn(warning string) {
	if warning != "" {
		c.successHeaders = append(c.successHeaders, header{"Service-Warning", warning})
	}
}

// streamResponse is stream for the events of the Responses API.
func (c *Call) streamResponse(events *gateway.ResponseEvents, state *responseState, out *eventWriter) error {
	s := events.Stream
	defer s.Close()
	write := func(list []responses.Event) {
		for _, e := range list {
			out.named(e.Type, e.Data)
		}
	}
	for out.err == nil {
		list, err := events.Next()
		if out.err != nil { // sending the events before this one failed
			break
		}
		if err == io.EOF || err == gateway.ErrCut {
			last := events.End(err)
			if c.Started && state.kept > 0 {
				out.flush() // storing the response takes time
			}
			for _, e := range last {
				c.content.AddEvent(e.Type, e.Data)
			}
			stored, err := c.saveResponse(state, responses.ResponseOf(last))
			return c.endStream(s, out, nil, func() {
				if err = cmp.Or(err, waitUntilStored(stored)); err != nil {
					f := c.Fault(web.StorageFault(err))
					last = []responses.Event{responses.ErrorEvent(string(f.Code), f.Message)}
				}
				write(last)
			})
		}
		if err != nil {
			if !out.begun() {
				return state.request.TranslateFault(err)
			}
			f := c.Fault(err)
			return c.endStream(s, out, f, func() { write(events.Fail(string(f.Code), f.Message)) })
		}
		write(list)
	}
	return c.abandonStream(s, out)
}
