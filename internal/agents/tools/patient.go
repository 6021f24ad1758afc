package tools

import (
	"net/http"
	"time"

	"turnpike/internal/safehttp"
)

// patience is how often a request waits for a file descriptor, a second each.
const patience = 5

// patient is a transport that waits a little when this server has no descriptor
// for a connection: the tool was not asked, and a model that hears of it would
// take the tool for broken.
type patient struct{ base http.RoundTripper }

func (p patient) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := p.base.RoundTrip(req)
	for range patience {
		if !safehttp.Exhausted(err) || req.Body != nil && req.GetBody == nil {
			break
		}
		select {
		case <-time.After(time.Second):
		case <-req.Context().Done():
			return nil, err
		}
		again := req.Clone(req.Context())
		if req.GetBody != nil {
			again.Body, _ = req.GetBody() // bytes in memory
		}
		resp, err = p.base.RoundTrip(again)
	}
	return resp, err
}
