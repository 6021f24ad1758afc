// Package contract checks the server's responses against its OpenAPI document.
//
// It compiles the schemas (JSON Schema 2020-12) once. Undocumented statuses, headers,
// content types and fields are errors too, as are error codes of another status.
package contract

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Validator checks responses. It is safe for concurrent use.
type Validator struct {
	routes    *http.ServeMux    // finds the operation
	shared    map[int]*response // errors of paths and methods without an operation
	retryable map[string]bool   // error codes

	anthropicError  *jsonschema.Schema
	anthropicModels map[string]*jsonschema.Schema // by path
}

// operation is an http.Handler so that a ServeMux can find it by the server's rules.
type operation struct {
	request   *jsonschema.Schema // nil without a body
	foreign   bool               // the provider validates the request
	form      *jsonschema.Schema // of a form body; nil if forms aren't accepted
	responses map[int]*response
}

func (*operation) ServeHTTP(http.ResponseWriter, *http.Request) {}

type response struct {
	headers map[string]header
	content map[string]media
}

type header struct {
	required bool
	schema   *jsonschema.Schema
}

type media struct {
	schema   *jsonschema.Schema
	event    *jsonschema.Schema // of a stream
	last     []string           // of a stream with named events: the final ones
	unnamed  bool               // last are types, not names
	numbered bool               // of a resumable stream
	columns  []string           // of CSV
}

var load = sync.OnceValues(newValidator)

// New returns the validator of the embedded document.
func New(t testing.TB) *Validator {
	t.Helper()
	v, err := load()
	if err != nil {
		t.Fatalf("API document: %v", err)
	}
	return v
}

// Check fails the test if a response doesn't match the document. It ignores paths
// outside the document, except under /v1, where they must get a documented error. The
// request of a 200 must be documented too, if its body can be read again (GetBody) and
// isn't forwarded to a provider.
func (v *Validator) Check(t testing.TB, req *http.Request, res *http.Response, body []byte) {
	t.Helper()
	v.report(t, req, res, body, true)
}

func (v *Validator) report(t testing.TB, req *http.Request, res *http.Response, body []byte, whole bool) {
	t.Helper()
	for _, problem := range v.problems(req, res, body, whole) {
		shown := body[:min(len(body), 2000)]
		t.Errorf("%s %s answered %d against the API document: %s\n%s", req.Method, req.URL.Path, res.StatusCode, problem, shown)
	}
}

// Transport checks every response. It reads and checks ordinary bodies first. It passes
// streams on as they arrive and checks them when they end.
func (v *Validator) Transport(t testing.TB, base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{v, t, base}
}

type transport struct {
	v    *Validator
	t    testing.TB
	base http.RoundTripper
}

func (tr transport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := tr.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		res.Body = &stream{ReadCloser: res.Body, end: func(seen []byte, whole bool) { tr.v.report(tr.t, req, res, seen, whole) }}
		return res, nil
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil { // the caller reports it
		res.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), broken{err}))
		return res, nil
	}
	tr.v.report(tr.t, req, res, body, true)
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// stream records a stream for the check at its end. If it is closed early, the last
// event may be missing.
type stream struct {
	io.ReadCloser
	seen bytes.Buffer
	once sync.Once
	end  func(seen []byte, whole bool)
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.seen.Write(p[:n])
	if err != nil {
		s.once.Do(func() { s.end(s.seen.Bytes(), err == io.EOF) })
	}
	return n, err
}

func (s *stream) Close() error {
	s.once.Do(func() { s.end(s.seen.Bytes(), false) })
	return s.ReadCloser.Close()
}

// problems returns how a response differs from the document.
func (v *Validator) problems(req *http.Request, res *http.Response, body []byte, whole bool) []string {
	if req.Method == http.MethodOptions && req.Header.Get("Access-Control-Request-Method") != "" {
		return preflightProblems(res, body)
	}
	var expected *response
	handler, _ := v.routes.Handler(req)
	op, found := handler.(*operation)
	switch {
	case found:
		expected = op.responses[res.StatusCode]
	case req.URL.Path == "/v1" || strings.HasPrefix(req.URL.Path, "/v1/"):
		expected = v.shared[res.StatusCode]
	default:
		return nil
	}
	if expected == nil {
		return []string{"the status is not documented"}
	}
	out := expected.headerProblems(res.Header)
	out = append(out, v.bodyProblems(req, res, expected, body, whole)...)
	if found && res.StatusCode == http.StatusOK {
		out = append(out, op.requestProblems(req)...)
	}
	return out
}

func preflightProblems(res *http.Response, body []byte) []string {
	if res.StatusCode != http.StatusNoContent || len(body) > 0 {
		return []string{"a preflight is answered with 204 and no body"}
	}
	return nil
}

// undocumented are transport, cache and browser headers, which other standards define, and the name
// of X-Request-Id in Anthropic's SDKs.
var undocumented = []string{"Request-Id", "Content-Type", "Content-Length", "Content-Encoding", "Date", "Vary", "Cache-Control", "Connection",
	"Transfer-Encoding", "X-Accel-Buffering", "X-Content-Type-Options", "Content-Security-Policy", "Referrer-Policy", "Strict-Transport-Security"}

func (r *response) headerProblems(got http.Header) []string {
	var out []string
	for name, h := range r.headers {
		values := got.Values(name)
		if len(values) == 0 && h.required {
			out = append(out, fmt.Sprintf("the header %s is missing", name))
		}
		if len(values) > 1 {
			out = append(out, fmt.Sprintf("the header %s is there %d times", name, len(values)))
		}
		for _, value := range values {
			if err := h.schema.Validate(headerValue(h.schema, value)); err != nil {
				out = append(out, fmt.Sprintf("the header %s: %v", name, err))
			}
		}
	}
	for name := range got {
		if _, ok := r.headers[name]; !ok && !slices.Contains(undocumented, name) && !strings.HasPrefix(name, "Access-Control-") {
			out = append(out, fmt.Sprintf("the header %s is not documented for this answer", name))
		}
	}
	return out
}

// headerValue parses a header for its schema.
func headerValue(s *jsonschema.Schema, text string) any {
	s = target(s)
	if s.Types != nil && (slices.Contains(s.Types.ToStrings(), "integer") || slices.Contains(s.Types.ToStrings(), "number")) {
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			return json.Number(text)
		}
	}
	return text
}

func (v *Validator) bodyProblems(req *http.Request, res *http.Response, expected *response, body []byte, whole bool) []string {
	if len(expected.content) == 0 {
		if len(body) > 0 {
			return []string{"there is a body, and the document has none for this answer"}
		}
		return nil
	}
	contentType, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil {
		return []string{fmt.Sprintf("the content type cannot be read: %v", err)}
	}
	m, ok := expected.content[contentType]
	if !ok {
		family, _, _ := strings.Cut(contentType, "/")
		m, ok = expected.content[family+"/*"]
	}
	if !ok {
		return []string{fmt.Sprintf("the content type %s is not documented for this answer", contentType)}
	}
	if req.Method == http.MethodHead {
		return nil
	}
	switch {
	case m.event != nil:
		return m.eventProblems(body, whole)
	case m.columns != nil:
		return csvProblems(m.columns, body)
	case contentType != "application/json":
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return []string{fmt.Sprintf("the body is not JSON: %v", err)}
	}
	if res.StatusCode >= 400 && isAnthropic(req) {
		return v.anthropicErrorProblems(value, res.Header)
	}
	var out []string
	schema := m.schema
	if isAnthropic(req) && v.anthropicModels[req.URL.Path] != nil {
		schema = v.anthropicModels[req.URL.Path]
	} else if isAnthropic(req) && strings.HasPrefix(req.URL.Path, "/v1/models/") {
		schema = v.anthropicModels["/v1/models/{id}"]
	}
	if err := schema.Validate(value); err != nil {
		out = append(out, fmt.Sprintf("the body: %v", err))
	}
	if res.StatusCode >= 400 {
		out = append(out, v.errorProblems(value, res.Header)...)
	}
	return out
}

// isAnthropic reports whether a request gets errors in Anthropic's format.
func isAnthropic(req *http.Request) bool {
	under := func(root string) bool { return req.URL.Path == root || strings.HasPrefix(req.URL.Path, root+"/") }
	return under("/v1/messages") || under("/v1/models") && req.Header.Get("Anthropic-Version") != ""
}

// anthropicErrorProblems is errorProblems for errors in Anthropic's format.
func (v *Validator) anthropicErrorProblems(body any, h http.Header) []string {
	if err := v.anthropicError.Validate(body); err != nil {
		return []string{fmt.Sprintf("the body: %v", err)}
	}
	object, _ := body.(map[string]any)
	e, _ := object["error"].(map[string]any)
	details, _ := e["details"].(map[string]any)
	return v.errorProblems(map[string]any{"error": map[string]any{"code": details["code"], "request_id": object["request_id"]}}, h)
}

// errorProblems checks that an error's body and headers match.
func (v *Validator) errorProblems(body any, h http.Header) []string {
	object, _ := body.(map[string]any)
	e, _ := object["error"].(map[string]any)
	if _, ok := object["error"].(string); ok { // OAuth's format
		e = object
	}
	var out []string
	code, _ := e["code"].(string)
	// Some errors with these codes can change, and others can't.
	either := code == "" || code == "insufficient_credits" || code == "budget_exceeded" || code == "upstream_error"
	if !either && v.retryable[code] == (h.Get("X-Should-Retry") == "false") {
		out = append(out, fmt.Sprintf("x-should-retry is %q, which is wrong for %s", h.Get("X-Should-Retry"), code))
	}
	// A replayed response has the ID of the original request.
	if e["request_id"] != h.Get("X-Request-Id") && h.Get("Idempotent-Replayed") == "" {
		out = append(out, fmt.Sprintf("the body has the request id %v, the header %s", e["request_id"], h.Get("X-Request-Id")))
	}
	return out
}

// eventProblems checks a stream of server-sent events. A complete stream ends with
// [DONE] or an error. If its events are named after the type of their data, it ends
// with one of the final names; unnamed events end with one of the final types. Numbered events have names too, but end with [DONE] or
// an error.
func (m media) eventProblems(body []byte, whole bool) []string {
	text := string(body)
	if end := strings.LastIndex(text, "\n\n"); !whole {
		text = text[:max(end, 0)]
	} else if end != len(text)-2 {
		return []string{"the stream does not end with a whole event"}
	}
	var out []string
	ended := false
	number := int64(0)
	for i, lines := range strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		if lines == "" && !whole || m.numbered && strings.HasPrefix(lines, ": ") {
			continue // empty or a comment
		}
		e, ok := m.readEvent(lines)
		switch {
		case ended:
			return append(out, fmt.Sprintf("event %d comes after the last", i))
		case !ok:
			out = append(out, fmt.Sprintf("event %d is not one data line", i))
			continue
		case e == sentEvent{data: "[DONE]"} && m.last == nil:
			ended = true
			continue
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(e.data))
		if err == nil {
			err = m.event.Validate(value)
		}
		if err != nil {
			out = append(out, fmt.Sprintf("event %d: %v", i, err))
		}
		object, _ := value.(map[string]any)
		switch {
		case m.numbered && object["error"] != nil:
			ended = true
			if e.name != "error" || e.id != "" {
				out = append(out, fmt.Sprintf("event %d is an error with the name %q and the id %q", i, e.name, e.id))
			}
			continue
		case m.numbered:
			n, err := strconv.ParseInt(e.id, 10, 64)
			if err != nil || fmt.Sprint(object["seq"]) != e.id || number > 0 && n != number+1 {
				out = append(out, fmt.Sprintf("event %d has the id %q and the number %v, after %d", i, e.id, object["seq"], number))
			}
			number = n
		case m.last == nil, e.name == "" && object["error"] != nil:
			ended = object["error"] != nil
			continue
		case m.unnamed:
			kind, _ := object["type"].(string)
			ended = object["error"] != nil || slices.Contains(m.last, kind)
			continue
		}
		if object["type"] != e.name {
			out = append(out, fmt.Sprintf("event %d has the name %q and the type %v", i, e.name, object["type"]))
		}
		ended = slices.Contains(m.last, e.name)
	}
	if whole && !ended {
		out = append(out, fmt.Sprintf("the stream ends without [DONE] and without an error, or without one of %v", m.last))
	}
	return out
}

type sentEvent struct{ id, name, data string }

// readEvent parses the lines of an event: ID and name, if the stream has them, and one
// line of data.
func (m media) readEvent(lines string) (e sentEvent, ok bool) {
	if rest, found := strings.CutPrefix(lines, "id: "); found && m.numbered {
		e.id, lines, _ = strings.Cut(rest, "\n")
	}
	if rest, found := strings.CutPrefix(lines, "event: "); found && (m.numbered || m.last != nil) {
		e.name, lines, _ = strings.Cut(rest, "\n")
	}
	e.data, ok = strings.CutPrefix(lines, "data: ")
	return e, ok && !strings.Contains(e.data, "\n")
}

func csvProblems(columns []string, body []byte) []string {
	rows, err := csv.NewReader(bytes.NewReader(body)).ReadAll() // rows of different lengths are an error
	if err != nil {
		return []string{fmt.Sprintf("the body is not CSV: %v", err)}
	}
	if len(rows) == 0 || !slices.Equal(rows[0], columns) {
		return []string{fmt.Sprintf("the first line does not have the documented columns %v", columns)}
	}
	return nil
}

func (op *operation) requestProblems(req *http.Request) []string {
	if req.GetBody == nil {
		return nil
	}
	r, err := req.GetBody()
	if err != nil {
		return nil
	}
	defer r.Close()
	body, err := io.ReadAll(r)
	if err != nil || len(body) == 0 {
		return nil
	}
	if fields, err := formFields(req.Header.Get("Content-Type"), body); err != nil {
		return []string{fmt.Sprintf("the form cannot be read: %v", err)}
	} else if fields != nil {
		return op.formProblems(fields)
	}
	if op.foreign {
		return nil
	}
	if op.request == nil {
		body = bytes.TrimSpace(body)
		if string(body) == "{}" {
			return nil
		}
		return []string{"the request has a body, which is accepted but not documented"}
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err == nil {
		err = op.request.Validate(value)
	}
	if err != nil {
		return []string{fmt.Sprintf("the request was accepted, but the document does not allow its body: %v", err)}
	}
	return nil
}
