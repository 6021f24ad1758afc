package api

import (
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/docsite"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
)

// createMessage implements Anthropic's Messages API.
func createMessage(c *Call) error {
	body, options, err := c.readMessage()
	if err != nil {
		return err
	}
	thread := &messageThread{c: c, id: options.ID}
	options.ResumeThread = thread.resume
	return c.serveModel(body, func(call gateway.Call) (*gateway.Response, error) {
		response, err := c.s.Gateway.Messages(c.Context(), call, options)
		if err == nil {
			err = thread.finish(response)
		}
		return response, err
	}, thread.stream)
}

func countMessageTokens(c *Call) error {
	body, options, err := c.readMessage()
	if err != nil {
		return err
	}
	options.ResumeThread = (&messageThread{c: c, counts: true}).resume
	response, err := c.s.Gateway.CountTokens(c.Context(), c.modelCall(body), options)
	if err != nil {
		return err
	}
	c.sendModelResponse(response, response.Body)
	return nil
}

func (c *Call) readMessage() ([]byte, gateway.MessageOptions, error) {
	o := gateway.MessageOptions{ID: ids.Message + strings.TrimPrefix(c.ID, ids.Request), Beta: c.R.Header.Values("Anthropic-Beta"), BetaQuery: c.R.URL.Query().Get("beta") == "true"}
	var err error
	if o.Version, err = readAnthropicVersion(c.R); err != nil {
		return nil, o, err
	}
	body, err := c.readModelBody()
	return body, o, err
}

// stream is Call.stream for the events of the Messages API.
func (t *messageThread) stream(s *gateway.Stream, out *eventWriter) error {
	c := t.c
	defer s.Close()
	for out.err == nil {
		data, err := s.Next()
		if out.err != nil { // sending the events before this one failed
			break
		}
		if err == io.EOF {
			return t.end(s, out)
		}
		if err != nil {
			if !out.begun() {
				return err
			}
			f := c.Fault(err)
			return c.endStream(s, out, f, func() { out.named("error", c.errorJSON(f)) })
		}
		if data = t.add(s.Event(), data); data != nil {
			out.named(s.Event(), data)
		}
	}
	return c.abandonStream(s, out)
}

// anthropicError is an error in Anthropic's format. Its details have what Turnpike adds.
type anthropicError struct {
	Type      string               `json:"type"`
	Error     anthropicErrorObject `json:"error"`
	RequestID string               `json:"request_id"`
}

type anthropicErrorObject struct {
	Type    string                `json:"type"`
	Message string                `json:"message"`
	Details anthropicErrorDetails `json:"details"`
}

type anthropicErrorDetails struct {
	Code   fault.Code     `json:"code"`
	Param  *string        `json:"param"`
	DocURL string         `json:"doc_url"`
	More   jsontext.Value `json:",embed"` // of budgets and limits
}

// anthropicTypes are the types of errors that Anthropic names otherwise.
var anthropicTypes = map[fault.Code]string{
	fault.RequestTooLarge:    "request_too_large",
	fault.RequestTimeout:     "timeout_error",
	fault.UpstreamTimeout:    "timeout_error",
	fault.Upstream:           "api_error",
	fault.NoProvider:         "api_error",
	fault.StorageUnavailable: "api_error",
	fault.Overloaded:         "overloaded_error",
}

func anthropicErrorJSON(f *fault.Error, requestID, publicURL string) []byte {
	kind, known := anthropicTypes[f.Code]
	if !known {
		kind = fault.FamilyOf(f.Code).Type
	}
	details := anthropicErrorDetails{Code: f.Code, DocURL: publicURL + docsite.ErrorsPage + "#" + string(f.Code)}
	if f.Param != "" {
		param := keyring.Mask(f.Param)
		details.Param = &param
	}
	if more, err := json.Marshal(f.Details); err == nil && jsontext.Value(more).Kind() == jsontext.KindBeginObject {
		details.More = more
	}
	e := anthropicError{Type: "error", RequestID: requestID, Error: anthropicErrorObject{Type: kind, Message: keyring.Mask(f.Message), Details: details}}
	body, err := json.Marshal(e, jsontext.AllowInvalidUTF8(true))
	if err != nil { // the details have a name twice
		e.Error.Details.More = nil
		body, _ = json.Marshal(e, jsontext.AllowInvalidUTF8(true))
	}
	return body
}
