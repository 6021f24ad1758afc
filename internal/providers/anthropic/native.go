package anthropic

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

var _ providers.MessageCreator = (*Provider)(nil)

// Messages forwards a request in Anthropic's own format, and the response byte for byte.
func (p *Provider) Messages(ctx context.Context, req *providers.MessagesRequest) (*providers.Response, error) {
	resp, size, err := p.forward(ctx, req, false)
	if err != nil {
		return nil, err
	}
	if req.Stream {
		if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
			resp.Body.Close()
			return nil, p.protocolFailure("%.80q instead of a stream", kind)
		}
		return &providers.Response{Stream: &nativeStream{events: wire.NewEvents(resp, req.BeforeWait), provider: p, info: requestInfo{bytes: size}}}, nil
	}
	body, err := wire.ReadAll(resp)
	if err != nil {
		return nil, err
	}
	u, err := p.nativeUsage(body, size)
	return &providers.Response{Body: body, Usage: u}, err
}

// CountMessageTokens forwards a request to count its input tokens, which is free.
func (p *Provider) CountMessageTokens(ctx context.Context, req *providers.MessagesRequest) (*providers.Response, error) {
	resp, _, err := p.forward(ctx, req, true)
	if err != nil {
		return nil, err
	}
	body, err := wire.ReadAll(resp)
	if err != nil {
		return nil, err
	}
	var counted struct {
		InputTokens *int64 `json:"input_tokens"`
		Bedrock     *int64 `json:"inputTokens"`
	}
	err = json.Unmarshal(body, &counted, wire.Lenient)
	if err == nil && counted.Bedrock != nil {
		return &providers.Response{Body: []byte(`{"input_tokens":` + strconv.FormatInt(*counted.Bedrock, 10) + `}`)}, nil
	}
	if err != nil || counted.InputTokens == nil {
		return nil, p.protocolFailure("the response has no input_tokens")
	}
	return &providers.Response{Body: body}, nil
}

// forward sends the client's body and returns the size of what was sent.
func (p *Provider) forward(ctx context.Context, req *providers.MessagesRequest, count bool) (*http.Response, int, error) {
	if !p.private {
		if err := providers.CheckObjects(req.Index.Of(req.Body)); err != nil {
			return nil, 0, err
		}
	}
	body, err := spliceBody(req)
	if err != nil {
		return nil, 0, err
	}
	header := p.header()
	if req.Version != "" {
		header.Set("Anthropic-Version", req.Version)
	}
	if len(req.Beta) > 0 {
		header["Anthropic-Beta"] = req.Beta
	}
	call := messageCall{model: req.Model, stream: req.Stream && !count, header: header, body: body, count: count}
	if req.BetaQuery {
		call.query = "?beta=true"
	}
	resp, err := p.send(ctx, call, explainNative)
	return resp, len(body), err
}

// spliceBody returns the client's body with the provider's name of the model, without Turnpike's
// fallbacks, and with at most the output tokens that credits are reserved for. All other bytes stay
// the same.
func spliceBody(req *providers.MessagesRequest) ([]byte, error) {
	var out []byte
	copied, last := int64(0), int64(0) // offsets of the body: copied to out, end of the last member
	replace := func(from, to int64, value []byte) {
		out = append(append(out, req.Body[copied:from]...), value...)
		copied = to
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(req.Body), wire.Lenient) // a Buffer is decoded without a copy
	if open, err := d.ReadToken(); err != nil || open.Kind() != '{' {
		return nil, invalidBody(err)
	}
	last = d.InputOffset()
	for first := true; d.PeekKind() == '"'; first = false {
		before := last
		name, err := d.ReadToken()
		if err != nil {
			return nil, invalidBody(err)
		}
		field := name.String()
		value, err := d.ReadValue()
		if err != nil {
			return nil, invalidBody(err)
		}
		last = d.InputOffset()
		start := last - int64(len(value))
		switch field {
		case "model":
			if quoted, _ := jsontext.AppendQuote(nil, req.Model); !bytes.Equal(value, quoted) {
				replace(start, last, quoted)
			}
		case "models":
			if first { // the comma after it goes, too
				rest := req.Body[last:]
				last += int64(len(rest) - len(bytes.TrimLeft(rest, " \t\r\n,")))
			}
			replace(before, last, nil)
		case "max_tokens":
			if n, err := strconv.ParseFloat(string(value), 64); req.MaxOutput > 0 && err == nil && n > float64(req.MaxOutput) {
				replace(start, last, strconv.AppendInt(nil, req.MaxOutput, 10))
			}
		}
	}
	if out == nil {
		return req.Body, nil
	}
	return append(out, req.Body[copied:]...), nil
}

// invalidBody doesn't reach clients: the API has rejected such bodies before.
func invalidBody(err error) error {
	return fault.New(fault.InvalidJSON, "The body must be a JSON object.").Because(err)
}

// nativeUsage returns the usage of a plain response.
func (p *Provider) nativeUsage(body []byte, requestSize int) (providers.Usage, error) {
	var r struct {
		Type    string         `json:"type"`
		Content jsontext.Value `json:"content"`
		Usage   *usage         `json:"usage"`
	}
	if err := json.Unmarshal(body, &r, wire.Lenient); err != nil {
		return providers.Usage{}, p.protocolFailure("not a message: %w", err)
	}
	switch r.Type {
	case "message":
	case "error":
		return providers.Usage{}, p.nativeFailure(body)
	default:
		return providers.Usage{}, p.protocolFailure("a %.40q instead of a message", r.Type)
	}
	var counted usage
	if r.Usage != nil {
		counted.merge(r.Usage)
	}
	if counted.Output == 0 {
		counted.estimateOutput(len(r.Content))
	}
	counted.estimateInput(requestInfo{bytes: requestSize})
	return counted.total(), nil
}

// explainNative is explain for clients that use Anthropic's names themselves.
func explainNative(f *providers.Failure, body []byte) string {
	message := explain(f, body)
	e := readError(body)
	f.Param = e.nativeParam()
	return message
}

func (p *Provider) nativeFailure(text []byte) error {
	err := p.failureIn(text)
	var f *providers.Failure
	if errors.As(err, &f) {
		e := readError(text)
		f.Param = e.nativeParam()
	}
	return err
}

// nativeParam returns the field that the message names, as a path in Turnpike's form.
func (e *apiError) nativeParam() string {
	path, _, _ := strings.Cut(e.Error.Message, ":")
	top, _, _ := strings.Cut(path, ".")
	switch {
	case fields[top] == "":
		return e.param() // of messages without a path
	case strings.ContainsFunc(path, isNotPath):
		return top
	}
	var out strings.Builder
	for i, name := range strings.Split(path, ".") {
		switch {
		case name != "" && strings.Trim(name, "0123456789") == "":
			out.WriteString("[" + name + "]")
		case i > 0:
			out.WriteString("." + name)
		default:
			out.WriteString(name)
		}
	}
	return out.String()
}

func isNotPath(c rune) bool {
	return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.')
}

// nativeStream forwards events unchanged. It parses only those that report usage.
type nativeStream struct {
	events   *wire.Events
	provider *Provider
	info     requestInfo
	started  bool
	counted  usage
	final    bool // counted has the total of the output
	bytes    int  // of the output, to estimate its tokens
	stopped  bool // message_stop has arrived
	err      error
}

// Next returns the next event. After an error it returns that error again.
func (s *nativeStream) Next() (providers.Chunk, error) {
	if s.err != nil {
		return providers.Chunk{}, s.err
	}
	var chunk providers.Chunk
	if chunk, s.err = s.read(); s.err != nil {
		return providers.Chunk{}, s.err
	}
	return chunk, nil
}

func (s *nativeStream) read() (providers.Chunk, error) {
	if s.stopped {
		s.events.Drain()
		return providers.Chunk{}, io.EOF
	}
	name, data, err := s.events.Next()
	if err == io.EOF {
		err = &providers.Failure{Kind: providers.KindCut, Err: errors.New("the stream ended before message_stop")}
	}
	if err != nil {
		return providers.Chunk{}, err
	}
	if name == "" {
		name = eventType(data)
	}
	chunk := providers.Chunk{Event: name, Data: oneLine(data)}
	switch name {
	case "content_block_delta", "content_block_start":
		s.bytes += outputSize(data)
	case "message_start", "message_delta":
		chunk.Usage, err = s.readUsage(name, data)
	case "message_stop":
		s.stopped = true
	case "error":
		err = s.provider.nativeFailure(data)
	}
	if err == nil && !s.started && name != "message_start" && name != "ping" {
		err = s.provider.protocolFailure("%.40q before message_start", name)
	}
	return chunk, err
}

// oneLine makes an event fit behind one "data:". Line ends in JSON are always outside of strings.
func oneLine(data []byte) []byte {
	for i := bytes.IndexByte(data, '\n'); i >= 0; i = bytes.IndexByte(data, '\n') {
		data[i] = ' '
	}
	return data
}

// eventType reads the type of an event that a server sends without its name.
func eventType(data []byte) string {
	var e struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(data, &e, wire.Lenient)
	return e.Type
}

// readUsage reads message_start, and message_delta, which has the final usage.
func (s *nativeStream) readUsage(name string, data []byte) (*providers.Usage, error) {
	var e struct {
		Message struct {
			Usage *usage `json:"usage"`
		} `json:"message"`
		Usage *usage `json:"usage"`
	}
	if err := json.Unmarshal(data, &e, wire.Lenient); err != nil {
		return nil, s.provider.protocolFailure("event %.40q: %w", name, err)
	}
	if name == "message_start" {
		s.started = true
		if e.Message.Usage != nil {
			s.counted.merge(e.Message.Usage)
		}
		return nil, nil
	}
	if e.Usage == nil {
		return nil, nil
	}
	s.counted.merge(e.Usage)
	s.final = true
	u := s.SoFar()
	return &u, nil
}

// SoFar returns the input as counted by the provider and, until it counts the
// output at the end, an estimate of that.
func (s *nativeStream) SoFar() providers.Usage {
	u := s.counted
	if !s.final || u.Output == 0 { // a total of 0 is wrong if something was sent
		u.estimateOutput(s.bytes)
	}
	u.estimateInput(s.info)
	return u.total()
}

// Close ends the request.
func (s *nativeStream) Close() error { return s.events.Close() }

// outputSize returns about how many bytes of output an event has: its strings but for names and types.
func outputSize(data []byte) int {
	at := bytes.Index(data, []byte(`"delta":`))
	if at < 0 {
		at = bytes.Index(data, []byte(`"content_block":`))
	}
	if at < 0 {
		return 0
	}
	const around = len(`"delta":{"type":"text_delta","text":""}}`)
	return max(0, len(data)-at-around)
}
