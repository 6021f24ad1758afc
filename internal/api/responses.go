package api

import (
	"io"

	"turnpike/internal/gateway"
	"turnpike/internal/gateway/responses"
)

// createResponse implements the Responses API on top of chat completions.
func createResponse(c *Call) error {
	body, err := c.readModelBody()
	if err != nil {
		return err
	}
	r, err := responses.ToChat(body)
	if err != nil {
		return err
	}
	r.ID = c.ID
	call := c.modelCall(r.Chat)
	call.TransformBody = r.ToResponse
	response, err := c.s.Gateway.Chat(c.Context(), call)
	if err != nil {
		return r.TranslateFault(err)
	}
	if response.Stream != nil {
		c.nameModel(response)
		return c.streamResponse(r, response.Stream)
	}
	c.sendModelResponse(response, response.Body)
	return nil
}

// streamResponse is stream for the events of the Responses API.
func (c *Call) streamResponse(r *responses.Request, s *gateway.Stream) error {
	defer s.Close()
	out, events := &eventWriter{c: c}, r.NewStream()
	write := func(list []responses.Event) {
		for _, e := range list {
			out.named(e.Type, e.Data)
		}
	}
	for {
		data, err := s.Next()
		if err == io.EOF {
			return c.endStream(s, out, "", func() { write(events.End()) })
		}
		var list []responses.Event
		if err == nil {
			list, err = events.Push(data)
		}
		if err != nil {
			if !c.Started {
				return r.TranslateFault(err)
			}
			f := c.Fault(err)
			return c.endStream(s, out, string(f.Code), func() { write(events.Fail(string(f.Code), f.Message)) })
		}
		if write(list); out.err != nil {
			return c.abandonStream(s, out)
		}
	}
}
