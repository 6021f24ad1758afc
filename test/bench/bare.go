package main

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
)

// bareOrder is what the bare server answers: the bytes that Turnpike did.
type bareOrder struct {
	Plain  []byte   `json:"plain"`
	Events [][]byte `json:"events"` // a stream's, written and flushed one by one
}

// playBare is the process of the server that everything is compared with: what
// net/http alone can do with the same bytes. It does not even read the request.
func playBare(in orders) error {
	return obey(in, func(o bareOrder) (address string, err error) {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /plain", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(o.Plain)))
			_, _ = w.Write(o.Plain) // the generator notices
		})
		mux.HandleFunc("POST /stream", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			control := http.NewResponseController(w)
			for _, event := range o.Events {
				_, _ = w.Write(event)
				_ = control.Flush()
			}
		})
		return serve(mux)
	})
}

// serve answers on a free port of this machine until the process ends.
func serve(h http.Handler) (address string, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { _ = http.Serve(ln, h) }()
	return ln.Addr().String(), nil
}

// splitEvents cuts a stream into its events.
func splitEvents(stream []byte) [][]byte {
	var events [][]byte
	for event := range bytes.SplitAfterSeq(stream, []byte("\n\n")) {
		if len(event) > 0 {
			events = append(events, event)
		}
	}
	return events
}
