package harness

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Request is a request to the API.
type Request struct {
	Method string
	Path   string
	Key    string
	Body   any // a string is sent unchanged, anything else as JSON
	Header http.Header
}

// Response is a complete response.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do sends the request and validates the response against openapi.yaml.
func (s *Server) Do(t testing.TB, r Request) *Response {
	t.Helper()
	req := s.request(t, r)
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	s.validator.Check(t, req, res, body)
	return &Response{res.StatusCode, res.Header, body}
}

// Open sends the request and returns the response for streaming. It is validated
// against openapi.yaml as it's read.
func (s *Server) Open(t testing.TB, r Request) *http.Response {
	t.Helper()
	res, err := s.validator.Transport(t, nil).RoundTrip(s.request(t, r))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func (s *Server) request(t testing.TB, r Request) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.Method, s.URL+r.Path, bodyOf(t, r.Body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range r.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if r.Key != "" {
		req.Header.Set("Authorization", "Bearer "+r.Key)
	}
	if r.Body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

func bodyOf(t testing.TB, body any) io.Reader {
	t.Helper()
	switch b := body.(type) {
	case nil:
		return nil
	case string:
		return strings.NewReader(b)
	}
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b)
}

// Want fails the test unless the response has the status and, for an error, the code.
func (r *Response) Want(t testing.TB, status int, code string) *Response {
	t.Helper()
	if r.Status != status || r.Code() != code {
		t.Fatalf("got %d %q, want %d %q\n%s", r.Status, r.Code(), status, code, r.Body)
	}
	return r
}

// Code is the error code, or empty for a success: objects may have an error field, too.
func (r *Response) Code() string {
	if r.Status < http.StatusBadRequest {
		return ""
	}
	if r.Text("type") == "error" { // in Anthropic's format
		return r.Text("error.details.code")
	}
	return r.Text("error.code")
}

// Text is the string at a path such as error.code or data.0.id.
func (r *Response) Text(path string) string {
	s, _ := r.At(path).(string)
	return s
}

// At is the value at a path in the JSON body, or nil.
func (r *Response) At(path string) any {
	var v any
	if json.Unmarshal(r.Body, &v) != nil {
		return nil
	}
	for name := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[name]
		case []any:
			var i int
			if json.Unmarshal([]byte(name), &i) != nil || i >= len(at) {
				return nil
			}
			v = at[i]
		default:
			return nil
		}
	}
	return v
}
