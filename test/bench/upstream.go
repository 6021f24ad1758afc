package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"time"
)

// upstreamOrder is how the mock of a provider answers. The first order starts
// it, and later ones change it.
type upstreamOrder struct {
	Plain  []byte        `json:"plain"`
	Events [][]byte      `json:"events"`
	Delay  time.Duration `json:"delay"` // before an answer
	Every  time.Duration `json:"every"` // between a stream's events
}

// playUpstream is the process of a model provider that has nothing to compute.
func playUpstream(in orders) error {
	var now upstreamOrder
	var address string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o := now
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // it has left
		}
		time.Sleep(o.Delay)
		if !bytes.Contains(body, []byte(`"stream":true`)) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(o.Plain)))
			_, _ = w.Write(o.Plain) // the generator notices
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		control := http.NewResponseController(w)
		for i, event := range o.Events {
			if i > 0 && o.Every > 0 {
				select {
				case <-time.After(o.Every):
				case <-r.Context().Done():
					return
				}
			}
			_, _ = w.Write(event)
			_ = control.Flush()
		}
	})
	return obey(in, func(o upstreamOrder) (string, error) {
		now = o // orders come between measurements
		var err error
		if address == "" {
			address, err = serve(handler)
		}
		return address, err
	})
}

// proxyOrder names whom the proxy stands before.
type proxyOrder struct {
	Upstream string `json:"upstream"`
}

// playProxy is the process that the gateway is compared with: Go's own reverse
// proxy, which has no keys, no budgets and no log.
func playProxy(in orders) error {
	return obey(in, func(o proxyOrder) (address string, err error) {
		p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: o.Upstream})
		p.Transport = &http.Transport{MaxIdleConnsPerHost: 10_000, DisableCompression: true}
		p.FlushInterval = -1
		return serve(p)
	})
}
