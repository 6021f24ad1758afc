package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/safehttp"
)

const (
	// readBytes is how much of a response is read. It is more than the model
	// sees, so that no secret is cut and then not redacted.
	readBytes = maxOutput + maxSecretForm
	maxQuery  = 8 << 10
)

func (x *Executor) runHTTP(ctx context.Context, c Invocation) (Output, error) {
	headers := c.headers()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	req, problem := newRequest(ctx, c.Spec, c.Arguments)
	if problem != "" {
		return Output{Text: problem, IsError: true}, nil
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("User-Agent", x.agent)
	req.Header.Set("Idempotency-Key", c.IdempotencyKey)
	resp, err := x.single.RoundTrip(req)
	if err != nil {
		return Output{}, &Failure{Message: safehttp.Explain(err), Unknown: sent.Load(), Cause: err}
	}
	// Closing the body before its end closes the connection.
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, readBytes))
	if err != nil {
		return Output{}, &Failure{Message: "the response was cut off: " + safehttp.Explain(err), Unknown: true, Cause: err}
	}
	return responseOutput(resp, body, headers), nil
}

// newRequest creates the request, or returns a message for the model why it can't.
func newRequest(ctx context.Context, spec Spec, arguments json.RawMessage) (*http.Request, string) {
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	u, err := url.Parse(spec.URL)
	if err != nil {
		return nil, "the tool's url is no longer valid"
	}
	var body io.Reader
	if spec.Method == http.MethodGet {
		if problem := addQuery(u, arguments); problem != "" {
			return nil, problem
		}
	} else {
		body = bytes.NewReader(arguments)
	}
	req, err := http.NewRequestWithContext(ctx, spec.Method, u.String(), body)
	if err != nil {
		return nil, "the tool's url is no longer valid"
	}
	req.Header.Set("Accept", "application/json, text/*;q=0.9, */*;q=0.1")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, ""
}

// addQuery adds the arguments to a URL: strings as they are, arrays by repeating the name, other
// values as JSON, null not at all. The model can't override parameters that the customer's URL has.
func addQuery(u *url.URL, arguments json.RawMessage) (problem string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(arguments, &members) != nil {
		return "the arguments must be an object"
	}
	query := u.Query()
	for name, value := range members {
		if u.Query().Has(name) {
			return fmt.Sprintf("the argument %q is not allowed, because the tool's url already has it", truncate(db.Storable(name), maxName))
		}
		items := []json.RawMessage{value}
		if len(value) > 0 && value[0] == '[' {
			items = nil
			_ = json.Unmarshal(value, &items) // it was parsed above
		}
		for _, item := range items {
			if text, ok := queryText(item); ok {
				query.Add(name, text)
			}
		}
	}
	if u.RawQuery = query.Encode(); len(u.RawQuery) > maxQuery {
		return "the arguments are too long for a GET request; use fewer or shorter ones"
	}
	return ""
}

func queryText(value json.RawMessage) (string, bool) {
	if string(value) == "null" {
		return "", false
	}
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text, true
	}
	return string(value), true
}

func responseOutput(resp *http.Response, body []byte, headers map[string]string) Output {
	text, ok := readText(resp.Header.Get("Content-Type"), body, headers)
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return Output{Text: text, IsError: !ok}
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return Output{Text: "the tool returned " + statusText(resp.StatusCode) + ", a redirect, which is not followed", IsError: true}
	}
	message := "the tool returned " + statusText(resp.StatusCode)
	if text != "" {
		message += ":\n" + truncate(text, maxPage)
	}
	return Output{Text: message, IsError: true}
}

// exhaustedRetries is how often a request waits a second for a file descriptor.
const exhaustedRetries = 5

// retryExhausted is a transport that retries if this server has no file descriptor
// for a connection. Otherwise the model would read that the tool is broken.
type retryExhausted struct{ base http.RoundTripper }

func (p retryExhausted) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := p.base.RoundTrip(req)
	for range exhaustedRetries {
		if !safehttp.Exhausted(err) || req.Body != nil && req.GetBody == nil {
			break
		}
		select {
		case <-time.After(time.Second):
		case <-req.Context().Done():
			return nil, err
		}
		retry := req.Clone(req.Context())
		if req.GetBody != nil {
			retry.Body, _ = req.GetBody() // bytes in memory
		}
		resp, err = p.base.RoundTrip(retry)
	}
	return resp, err
}
