package api

import (
	"io"
	"net/http"

	"turnpike/internal/gateway"
	"turnpike/internal/gateway/responses"
)

// createResponse is the Responses API as a face on chat completions.
func createResponse(c *Call) error {
	body, err := c.readJSON(c.s.Limits.ModelBody)
	if err != nil {
		return err
	}
	if err := c.still(); err != nil {
		return err
	}
	r, err := responses.ToChat(body)
	if err != nil {
		return err
	}
	r.ID = c.id
	call := c.modelCall(r.Chat)
	call.TransformBody = r.ToResponse
	response, err := c.s.Gateway.Chat(c.Context(), call)
	if err != nil {
		return r.TranslateFault(err)
	}
	c.success = append(c.success, headerLine{"Service-Model", response.Model}, headerLine{"Service-Provider", response.Provider})
	if response.Stream != nil {
		return c.streamResponse(r, response.Stream)
	}
	c.success = append(c.success, headerLine{"Service-Credits", response.Credits.String()})
	c.send(http.StatusOK, jsonType, response.Body)
	return nil
}

// streamResponse is stream with the events of the Responses API.
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
			if !c.wrote {
				return r.TranslateFault(err)
			}
			f := c.faultOf(err)
			return c.endStream(s, out, string(f.Code), func() { write(events.Fail(string(f.Code), f.Message)) })
		}
		if write(list); out.err != nil {
			return c.leftStream(s, out)
		}
	}
}
