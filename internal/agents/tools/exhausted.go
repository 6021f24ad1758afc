package tools

import (
	"net/http"
	"time"

	"turnpike/internal/safehttp"
)

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
