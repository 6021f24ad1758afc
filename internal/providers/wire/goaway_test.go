package wire

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"turnpike/internal/providers"
)

// TestUnprocessedRequestIsResentOnlyAFewTimes covers a server that closes every
// connection in order without processing its request. net/http repeats such
// requests without a limit, which was seventy times a second.
func TestUnprocessedRequestIsResentOnlyAFewTimes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuses int32 // number of requests left unprocessed
		want    int32
		kind    providers.Kind
	}{
		"one":   {1, 2, ""},
		"every": {1 << 30, 1 + maxResends, providers.KindConnect},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			server := httptest.NewUnstartedServer(nil)
			server.TLS = &tls.Config{NextProtos: []string{"h2"}}
			server.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": func(_ *http.Server, conn *tls.Conn, _ http.Handler) {
				serveGoingAway(conn, func() bool { return asked.Add(1) <= c.refuses })
			}}
			server.StartTLS()
			defer server.Close()
			client := NewClient(Timeouts{})
			client.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
			resp, err := post(t.Context(), client, server.URL)
			if err == nil {
				_ = resp.Body.Close()
			}
			if n := asked.Load(); kindOf(err) != c.kind || n > c.want || n < 2 {
				t.Errorf("asked %d times, want %d: %v", n, c.want, err)
			}
		})
	}
}

// serveGoingAway leaves the connection's first request unprocessed, or responds
// to it.
func serveGoingAway(conn io.ReadWriter, refuse func() bool) {
	_, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface)))
	frames := http2.NewFramer(conn, conn)
	if err != nil || frames.WriteSettings() != nil {
		return
	}
	for {
		frame, err := frames.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.HeadersFrame:
			if refuse() {
				err = frames.WriteGoAway(0, http2.ErrCodeNo, nil)
			} else { // 0x88 is a status of 200
				err = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: f.StreamID, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true})
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = frames.WriteSettingsAck()
			}
		}
		if err != nil {
			return
		}
	}
}
