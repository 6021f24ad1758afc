package gateway

import (
	"bytes"

	"turnpike/internal/gateway/responses"
)

// ResponseEvents are the events of a streamed response: those of a provider with the Responses API,
// or translated ones.
type ResponseEvents struct {
	Stream     *Stream
	native     *responses.NativeStream // nil for a translated response
	translated *responses.Stream
	last       []responses.Event // of a provider, to be sent when the call is settled
}

// NewResponseEvents returns the events of a response with a stream.
func NewResponseEvents(r *responses.Request, response *Response) *ResponseEvents {
	e := &ResponseEvents{Stream: response.Stream}
	if response.Native {
		e.native = &responses.NativeStream{}
	} else {
		e.translated = r.NewStream()
	}
	return e
}

// Next returns the next events, which are valid until the next call, or io.EOF before the last ones.
func (e *ResponseEvents) Next() ([]responses.Event, error) {
	for {
		data, err := e.Stream.Next()
		if err != nil {
			return nil, err
		}
		if e.native == nil {
			return e.translated.Push(data)
		}
		event := responses.Event{Type: e.Stream.Event(), Data: data}
		e.native.Observe(event.Type, data)
		if !event.Terminal() {
			return []responses.Event{event}, nil
		}
		event.Data = bytes.Clone(data)
		e.last = append(e.last, event)
	}
}

// End returns the last events of a stream that ended with io.EOF or ErrCut.
func (e *ResponseEvents) End(err error) []responses.Event {
	switch {
	case e.native == nil:
		return e.translated.End()
	case err == ErrCut:
		return e.native.Cut()
	}
	return e.last
}

// Fail returns the last events of a stream that failed.
func (e *ResponseEvents) Fail(code, message string) []responses.Event {
	if e.native != nil {
		return e.native.Fail(code, message)
	}
	return e.translated.Fail(code, message)
}
