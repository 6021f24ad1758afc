package openai

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// HasResponses reports whether the server has the Responses API.
func (p *Provider) HasResponses() bool { return p.hasResponses }

// Respond makes a request to the Responses API.
func (p *Provider) Respond(ctx context.Context, req *providers.ResponsesRequest) (*providers.Response, error) {
	index := req.Index.Of(req.Body)
	if err := p.dialect.checkObjects(index); err != nil {
		return nil, err
	}
	if !p.dialect.private && req.Input != nil {
		if err := providers.CheckStateObjects(req.Input); err != nil {
			return nil, err
		}
	}
	body, err := responsesBody(req, index)
	if err != nil {
		return nil, err
	}
	resp, err := p.post(ctx, req.Model, "/responses", body)
	if err != nil {
		return nil, err
	}
	if req.Stream && mayBeEvents(resp) {
		return &providers.Response{Native: true, Stream: &responseStream{provider: p, fields: req.Fields, events: wire.NewEvents(resp, req.BeforeWait)}}, nil
	}
	result, err := p.readNativeResponse(resp, req.Fields)
	if err == nil && req.Stream {
		return nil, wire.ProtocolFailure("the response isn't a stream (%s)", resp.Header.Get("Content-Type"))
	}
	return result, err
}

const (
	maxOutputTokens    = "max_output_tokens"
	maxToolCalls       = "max_tool_calls"
	encryptedReasoning = `"reasoning.encrypted_content"`
)

// responsesBody returns the client's body with the fields that the provider must get otherwise.
func responsesBody(req *providers.ResponsesRequest, index *jsonbody.Index) ([]byte, error) {
	var o object
	if err := o.parseBody(index, req.Model); err != nil {
		return nil, err
	}
	o.set("store", "false")
	o.drop("previous_response_id")
	o.drop("conversation")
	o.drop("background")
	if req.Input != nil {
		o.set("input", string(req.Input))
	}
	if req.MaxOutput > 0 {
		o.set(maxOutputTokens, string(atMost(o.get(maxOutputTokens), req.MaxOutput)))
	}
	if req.MaxToolCalls > 0 {
		o.set(maxToolCalls, string(atMost(o.get(maxToolCalls), req.MaxToolCalls)))
	}
	if req.Tools != nil {
		o.set("tools", string(req.Tools))
	}
	// Other models reject it.
	if req.Stored && (isReasoning(req.Model) || isReasoning(req.ID)) {
		if err := includeReasoning(&o); err != nil {
			return nil, invalidBody(err)
		}
	}
	return o.bytes(), nil
}

func includeReasoning(o *object) error {
	var list []jsontext.Value
	if given := o.get("include"); given != nil && given.Kind() != 'n' {
		if err := json.Unmarshal(given, &list); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(list, func(v jsontext.Value) bool { return string(v) == encryptedReasoning }) {
		list = append(list, jsontext.Value(encryptedReasoning))
	}
	text, err := json.Marshal(list)
	o.set("include", string(text))
	return err
}

func (p *Provider) readNativeResponse(resp *http.Response, fields []providers.Field) (*providers.Response, error) {
	body, err := wire.ReadAll(resp)
	if err != nil {
		return nil, err
	}
	var o object
	if err := o.parse(body); err != nil {
		return nil, wire.ProtocolFailure("the response (%s) isn't a JSON object: %w", resp.Header.Get("Content-Type"), err)
	}
	if e, failed := findError(&o); failed {
		return nil, e.failure(resp.StatusCode, p.secrets())
	}
	if o.get("output").Kind() != '[' {
		return nil, wire.ProtocolFailure("the response has no output")
	}
	usage, ok := responsesUsage(o.get("usage"))
	if !ok {
		usage.OutputTokens, usage.Estimated = wire.EstimateTokens(len(o.get("output"))), true
	}
	usage.ToolCalls = countToolCalls(o.get("output"))
	o.setFields(fields)
	return &providers.Response{Native: true, Body: o.bytes(), Usage: usage}, nil
}

func (o *object) setFields(fields []providers.Field) {
	for _, f := range fields {
		o.set(f.Name, string(f.Value))
	}
}

// responsesUsage reads the usage of a response. It isn't ok if that is missing or invalid.
func responsesUsage(value jsontext.Value) (u providers.Usage, ok bool) {
	var in struct {
		Input   float64 `json:"input_tokens"`
		Output  float64 `json:"output_tokens"`
		Details struct {
			Cached  float64 `json:"cached_tokens"`
			Written float64 `json:"cache_write_tokens"`
		} `json:"input_tokens_details"`
	}
	if value.Kind() != '{' || json.Unmarshal(value, &in, wire.Lenient) != nil || in.Input <= 0 || in.Input > maxPlausible || in.Output < 0 || in.Output > maxPlausible {
		return u, false
	}
	u.InputTokens, u.OutputTokens = int64(in.Input), int64(in.Output)
	u.CachedInput = int64(max(0, min(in.Details.Cached, in.Input)))
	u.CacheWrite = int64(max(0, min(in.Details.Written, in.Input-float64(u.CachedInput))))
	return u, true
}

// responseStream forwards the events of a response unchanged, except for the fields that Turnpike sets.
type responseStream struct {
	provider   *Provider
	events     *wire.Events
	fields     []providers.Field
	event      object
	response   object // of the event
	done       bool
	deltas     int64
	characters int64
	tools      toolCounter
}

// Next returns the next event. The last one has the usage, if the server reports it.
func (s *responseStream) Next() (providers.Chunk, error) {
	for {
		name, data, err := s.events.Next()
		if err == io.EOF && !s.done {
			return providers.Chunk{}, &providers.Failure{Kind: providers.KindCut, Err: errors.New("the stream ended before the response")}
		}
		if s.done && (err == nil || isCut(err)) {
			err = io.EOF // some servers send [DONE]
		}
		if err != nil {
			return providers.Chunk{}, err
		}
		if text, ok := deltaText(name, data); ok {
			s.count(text)
			return providers.Chunk{Event: name, Data: oneLine(data)}, nil
		}
		if len(bytes.TrimSpace(data)) == 0 || string(data) == "[DONE]" {
			continue
		}
		if err := s.event.parse(data); err != nil {
			return providers.Chunk{}, wire.ProtocolFailure("an event isn't a JSON object: %w", err)
		}
		return s.forward(data)
	}
}

func (s *responseStream) forward(data []byte) (chunk providers.Chunk, err error) {
	kind := text(s.event.get("type"))
	chunk.Event = kind
	switch kind {
	case "error":
		e, nested := findError(&s.event)
		if !nested {
			e = readError(&s.event)
		}
		return chunk, e.failure(0, s.provider.secrets())
	case "response.failed", "response.cancelled":
		e, _ := errorIn(s.event.nested("response", "error"))
		return chunk, e.failure(0, s.provider.secrets())
	case "response.completed", "response.incomplete":
		s.done = true
	}
	if delta := s.event.get("delta"); delta.Kind() == '"' {
		s.count(delta[1 : len(delta)-1])
	}
	if kind == "response.output_item.done" {
		s.tools.add(s.event.get("item"))
	}
	if s.event.get("response").Kind() != '{' {
		chunk.Data, chunk.Whole = oneLine(data), strings.HasSuffix(kind, "output_item.done")
		return chunk, nil
	}
	response := &s.response
	if err := response.parse(s.event.get("response")); err != nil {
		return chunk, wire.ProtocolFailure("the event %s has no response: %w", kind, err)
	}
	if s.done {
		if usage, ok := responsesUsage(response.get("usage")); ok {
			usage.ToolCalls = s.tools.calls
			for i, n := range countToolCalls(response.get("output")) { // some servers send no items before
				usage.ToolCalls[i] = max(usage.ToolCalls[i], n)
			}
			chunk.Usage = &usage
		}
	}
	response.setFields(s.fields)
	s.event.set("response", string(response.bytes()))
	chunk.Data = oneLine(s.event.bytes())
	return chunk, nil
}

// deltaText finds the text of an event that only adds some, without parsing it: most of a stream are such events.
func deltaText(name string, data []byte) (quoted []byte, ok bool) {
	if !strings.HasPrefix(name, "response.") || !strings.HasSuffix(name, ".delta") {
		return nil, false
	}
	_, quoted, ok = bytes.Cut(data, []byte(`"delta":"`))
	for i := 0; ok && i < len(quoted); i++ {
		switch quoted[i] {
		case '"':
			return quoted[:i], true
		case '\\':
			i++
		}
	}
	return nil, false
}

func (s *responseStream) count(quoted []byte) {
	s.deltas++
	s.characters += int64(countCharacters(quoted))
}

// SoFar returns an estimate of the output, with four characters per token and at least one token per delta.
func (s *responseStream) SoFar() providers.Usage {
	return providers.Usage{OutputTokens: max(s.deltas, (s.characters+3)/4), ToolCalls: s.tools.calls}
}

// Close ends the request, and keeps the connection if the stream has ended.
func (s *responseStream) Close() error {
	if s.done {
		s.events.Drain()
	}
	return s.events.Close()
}
