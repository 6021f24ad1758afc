package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"turnpike/internal/providers"
)

// A provider that returns invalid HTTP was reached and may have processed the
// request. So the failure must not look like a connection failure.
func TestInvalidResponsesAreProtocolFailures(t *testing.T) {
	t.Parallel()
	const hint, final = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
	for name, c := range map[string]struct {
		response string
		want     providers.Kind
	}{
		"negative length":     {"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", providers.KindProtocol},
		"empty length":        {"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", providers.KindProtocol},
		"two lengths":         {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", providers.KindProtocol},
		"unknown encoding":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", providers.KindProtocol},
		"chunked twice":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", providers.KindProtocol},
		"invalid trailer":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\n", providers.KindProtocol},
		"status not a number": {"HTTP/1.1 2x0 OK\r\n\r\n", providers.KindProtocol},
		"invalid version":     {"HTTP/x 200 OK\r\n\r\n", providers.KindProtocol},
		"header not a field":  {"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", providers.KindProtocol},
		"status below 100":    {"HTTP/1.1 099 Hm\r\nContent-Length: 0\r\n\r\n" + final, providers.KindProtocol},
		"upgrade":             {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n{}", providers.KindProtocol},
		"endless headers":     {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Long: "+strings.Repeat("x", 1000)+"\r\n", maxHeaders/1000+100) + "\r\n", providers.KindProtocol},
		"broken chunk":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", providers.KindCut},
		"short body":          {"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}", providers.KindCut},
		"early hints":         {strings.Repeat(hint, 3) + final, ""},
		"body until close":    {"HTTP/1.0 200 OK\r\n\r\n{}", ""},
		"chunks":              {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nTrailer: x\r\n\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, err := post(t.Context(), NewClient(Timeouts{}), rawServer(t, c.response))
			var body []byte
			if err == nil {
				body, err = ReadAll(resp)
			}
			if kindOf(err) != c.want || c.want == "" && string(body) != "{}" {
				t.Errorf("got %q and error %v, want kind %q", body, err, c.want)
			}
		})
	}
}

func TestErrorSentBeforeBodyIsReadIsReported(t *testing.T) {
	t.Parallel()
	done := make(chan bool)
	defer close(done)
	url := listen(t, func(conn net.Conn, in *bufio.Reader) {
		_, _ = http.ReadRequest(in)
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
		<-done
	})
	_, err := NewClient(Timeouts{}).Post(t.Context(), url, nil, bytes.Repeat([]byte("x"), 32<<20), nil)
	var f *providers.Failure
	if !errors.As(err, &f) || f.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("got %v, want status 413", err)
	}
}

// A server may close a connection while the next request arrives. The request
// may have been processed, so only idempotent ones are sent again.
func TestOnlyIdempotentRequestsAreSentAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call    Call
		partial string // response sent before the connection closes
		want    int32
	}{
		"GET":                     {Call{Method: http.MethodGet}, "", 3},
		"GET with response begun": {Call{Method: http.MethodGet}, "HTTP/1.1 200 OK\r\n", 2},
		"POST with key":           {Call{Method: http.MethodPost, Header: http.Header{"Idempotency-Key": {"k"}}, Body: []byte(`{"a":1}`)}, "", 3},
		"POST":                    {Call{Method: http.MethodPost, Body: []byte(`{"a":1}`)}, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			c.call.URL = listen(t, func(conn net.Conn, in *bufio.Reader) {
				for readRequest(in) {
					if requests.Add(1) == 2 {
						_, _ = io.WriteString(conn, c.partial)
						return
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
				}
			})
			client := NewClient(Timeouts{})
			var err error
			for range 2 {
				var resp *http.Response
				if resp, err = client.Do(t.Context(), c.call); err == nil {
					_, err = ReadAll(resp)
				}
			}
			if requests.Load() != c.want || (err == nil) != (c.want == 3) {
				t.Errorf("got %d requests and error %v, want %d requests", requests.Load(), err, c.want)
			}
		})
	}
}

func TestProxyIsUsed(t *testing.T) {
	t.Parallel()
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Host) })
	via, _ := url.Parse(proxy)
	client := NewClient(Timeouts{})
	client.http.Transport.(*http.Transport).Proxy = http.ProxyURL(via)
	resp, err := post(t.Context(), client, "http://model.invalid/v1")
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := ReadAll(resp); string(body) != "model.invalid" {
		t.Errorf("got %q, want the host that the proxy saw", body)
	}
}
