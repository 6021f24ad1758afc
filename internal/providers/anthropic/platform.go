package anthropic

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// Platform is where the Messages API runs. Clouds have it at other URLs, without the model in the body.
type Platform int

// The platforms.
const (
	Direct  Platform = iota // Anthropic's own API, or a compatible one
	Vertex                  // Google Vertex AI
	Bedrock                 // Amazon Bedrock
)

const (
	vertexVersion  = "vertex-2023-10-16"
	bedrockVersion = "bedrock-2023-05-31"
	eventStream    = "application/vnd.amazon.eventstream"
)

// address returns the URL that requests begin with.
func (f Platform) address(base string) string {
	if f == Direct {
		return strings.TrimSuffix(base, "/v1") + "/v1/messages"
	}
	return base
}

// messageCall is a request to the Messages API.
type messageCall struct {
	model  string
	stream bool
	header http.Header
	body   []byte
	query  string // of Anthropic's own API
	count  bool   // counts tokens instead
}

// send sends a message in the form of the platform. The events of a stream are always server-sent ones.
func (p *Provider) send(ctx context.Context, m messageCall, explain wire.Explain) (*http.Response, error) {
	switch p.platform {
	case Vertex:
		m.header.Del("Anthropic-Version")
		if m.count {
			m.body = reshape(m.body, nil, versionField(vertexVersion))
			return p.client.Post(ctx, p.url+"/models/count-tokens:rawPredict", m.header, m.body, explain)
		}
		m.body = reshape(m.body, []string{"model"}, versionField(vertexVersion))
		method := ":rawPredict"
		if m.stream {
			method = ":streamRawPredict"
		}
		return p.client.Post(ctx, p.url+"/models/"+escapeModel(m.model)+method, m.header, m.body, explain)
	case Bedrock:
		return p.sendBedrock(ctx, m, explain)
	}
	address := p.url
	if m.count {
		address += "/count_tokens"
	}
	return p.client.Post(ctx, address+m.query, m.header, m.body, explain)
}

// sendBedrock has the beta features in the body.
func (p *Provider) sendBedrock(ctx context.Context, m messageCall, explain wire.Explain) (*http.Response, error) {
	fields := []providers.Field{versionField(bedrockVersion)}
	if betas := m.header["Anthropic-Beta"]; len(betas) > 0 {
		var names []string
		for _, value := range betas {
			for name := range strings.SplitSeq(value, ",") {
				names = append(names, strings.TrimSpace(name))
			}
		}
		list, err := json.Marshal(names)
		if err != nil {
			return nil, err
		}
		fields = append(fields, providers.Field{Name: "anthropic_beta", Value: list})
	}
	m.body = reshape(m.body, []string{"model", "stream"}, fields...)
	path, header := "/invoke", http.Header{"Accept": {"application/json"}}
	switch {
	case m.count:
		path = "/count-tokens"
		body, err := json.Marshal(map[string]any{"input": map[string]any{"invokeModel": map[string]any{"body": base64.StdEncoding.EncodeToString(m.body)}}})
		if err != nil {
			return nil, err
		}
		m.body = body
	case m.stream:
		path, header = "/invoke-with-response-stream", http.Header{"Accept": {eventStream}}
	}
	resp, err := p.client.Post(ctx, p.url+"/model/"+escapeModel(m.model)+path, header, m.body, explain)
	if err != nil || !m.stream {
		return resp, err
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != eventStream {
		resp.Body.Close()
		return nil, p.protocolFailure("%.80q instead of an event stream", kind)
	}
	resp.Header.Set("Content-Type", "text/event-stream")
	resp.Body = &bedrockEvents{body: resp.Body, decoder: eventstream.NewDecoder()}
	return resp, nil
}

// escapeModel makes a model's name or ARN one segment of a path.
func escapeModel(model string) string {
	return strings.ReplaceAll(url.PathEscape(model), ":", "%3A")
}

// reshape returns an object without some members and with others.
func reshape(body []byte, drop []string, add ...providers.Field) []byte {
	out := []byte{'{'}
	member := func(name string, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, name)
		out = append(append(out, ':'), value...)
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(body), wire.Lenient)
	if open, err := d.ReadToken(); err != nil || open.Kind() != '{' {
		return body
	}
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return body
		}
		name := token.String()
		value, err := d.ReadValue()
		if err != nil {
			return body
		}
		if !slices.Contains(drop, name) && !slices.ContainsFunc(add, func(f providers.Field) bool { return f.Name == name }) {
			member(name, value)
		}
	}
	for _, f := range add {
		member(f.Name, f.Value)
	}
	return append(out, '}')
}

func versionField(version string) providers.Field {
	return providers.Field{Name: "anthropic_version", Value: jsontext.Value(strconv.Quote(version))}
}

// bedrockEvents turns Bedrock's binary event stream into server-sent events.
type bedrockEvents struct {
	body    io.ReadCloser
	decoder *eventstream.Decoder
	payload []byte // reused
	text    bytes.Buffer
	err     error
}

// Read returns the text of the next events.
func (e *bedrockEvents) Read(p []byte) (int, error) {
	for e.text.Len() == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.err = e.decode()
	}
	return e.text.Read(p)
}

// decode reads one message. The library checks its checksums.
func (e *bedrockEvents) decode() error {
	m, err := e.decoder.Decode(e.body, e.payload[:0])
	if err == io.EOF {
		return io.EOF
	}
	if err != nil {
		if known := asFailure(err); known != nil {
			return known
		}
		return wire.ProtocolFailure("the event stream is damaged: %w", err)
	}
	e.payload = m.Payload
	switch headerOf(m, ":message-type") {
	case "event":
		var chunk struct {
			Bytes []byte `json:"bytes"`
		}
		if headerOf(m, ":event-type") != "chunk" {
			return nil // of a later version
		}
		if err := json.Unmarshal(m.Payload, &chunk, wire.Lenient); err != nil {
			return wire.ProtocolFailure("a chunk of the event stream isn't JSON")
		}
		e.write(eventType(chunk.Bytes), oneLine(chunk.Bytes))
	case "exception":
		e.writeError(bedrockErrors[headerOf(m, ":exception-type")], m.Payload)
	default: // error
		e.writeError("api_error", []byte(`{"message":`+strconv.Quote(headerOf(m, ":error-message"))+`}`))
	}
	return nil
}

func (e *bedrockEvents) write(name string, data []byte) {
	e.text.WriteString("event: " + name + "\ndata: ")
	e.text.Write(data)
	e.text.WriteString("\n\n")
}

// bedrockErrors are the types that Anthropic's API has for Bedrock's exceptions. Others are api_error.
var bedrockErrors = map[string]string{"throttlingException": "rate_limit_error", "validationException": "invalid_request_error",
	"serviceUnavailableException": "overloaded_error", "modelTimeoutException": "timeout_error"}

func (e *bedrockEvents) writeError(kind string, payload []byte) {
	var problem struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(payload, &problem, wire.Lenient)
	if kind == "" {
		kind = "api_error"
	}
	data, err := json.Marshal(map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": problem.Message}}, json.Deterministic(true))
	if err != nil {
		data = []byte(`{"type":"error","error":{"type":"api_error","message":""}}`)
	}
	e.write("error", data)
}

func headerOf(m eventstream.Message, name string) string {
	if v, ok := m.Headers.Get(name).(eventstream.StringValue); ok {
		return string(v)
	}
	return ""
}

// Close ends the request.
func (e *bedrockEvents) Close() error { return e.body.Close() }

// asFailure returns the failure that an error contains, or nil.
func asFailure(err error) error {
	var known *providers.Failure
	if errors.As(err, &known) {
		return known
	}
	return nil
}
