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

	"turnpike/internal/safehttp"
)

const (
	// readBytes is how much of an answer is read. It is more than what is
	// shown, so that no secret is cut in two and then not found.
	readBytes = maxOutput + longestSecret
	maxQuery  = 8 << 10
)

// runHTTP sends one request. The guarded transport follows no redirect.
func (x *Executor) runHTTP(ctx context.Context, c Invocation) (Output, error) {
	headers := c.headers()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	req, bad := newRequest(ctx, c.Spec, c.Arguments)
	if bad != "" {
		return Output{Text: bad, IsError: true}, nil
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
	// Closed before its end, the body takes the connection with it.
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, readBytes))
	if err != nil {
		return Output{}, &Failure{Message: "the answer broke off: " + safehttp.Explain(err), Unknown: true, Cause: err}
	}
	return answer(resp, body, headers), nil
}

// newRequest makes the request, or says in words for the model why there is none.
func newRequest(ctx context.Context, spec Spec, arguments json.RawMessage) (*http.Request, string) {
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	u, err := url.Parse(spec.URL)
	if err != nil {
		return nil, "the tool's url cannot be used any more"
	}
	var body io.Reader
	if spec.Method == http.MethodGet {
		if bad := addQuery(u, arguments); bad != "" {
			return nil, bad
		}
	} else {
		body = bytes.NewReader(arguments)
	}
	req, err := http.NewRequestWithContext(ctx, spec.Method, u.String(), body)
	if err != nil {
		return nil, "the tool's url cannot be used any more"
	}
	req.Header.Set("Accept", "application/json, text/*;q=0.9, */*;q=0.1")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, ""
}

// addQuery adds the arguments to a URL: texts as they are, lists by repeating
// the name, everything else as JSON. What is null is left out. What stands in
// the URL is the customer's, and the model says nothing about it.
func addQuery(u *url.URL, arguments json.RawMessage) (bad string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(arguments, &members) != nil {
		return "the arguments must be an object"
	}
	query := u.Query()
	for name, value := range members {
		if u.Query().Has(name) {
			return fmt.Sprintf("the argument %q cannot be given, as the tool's url has it already", cut(clean(name), maxName))
		}
		items := []json.RawMessage{value}
		if len(value) > 0 && value[0] == '[' {
			items = nil
			_ = json.Unmarshal(value, &items) // it is a list: it was read above
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

// answer is what the model sees of a response.
func answer(resp *http.Response, body []byte, headers map[string]string) Output {
	text, ok := readable(resp.Header.Get("Content-Type"), body, headers)
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return Output{Text: text, IsError: !ok}
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return Output{Text: "the tool answered with " + statusText(resp.StatusCode) + ", a redirect, which is not followed", IsError: true}
	}
	said := "the tool answered with " + statusText(resp.StatusCode)
	if text != "" {
		said += ":\n" + cut(text, maxPage)
	}
	return Output{Text: said, IsError: true}
}
