package web

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const testBodyTimeout = 100 * time.Millisecond

// serveLimited runs a handler behind LimitUnreadBody.
func serveLimited(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer LimitUnreadBody(w, r, testBodyTimeout)()
		h(w, r)
	}))
	s.EnableHTTP2 = true
	t.Cleanup(s.Close)
	return s
}

// dial sends text on a new connection and returns it with a reader for the response.
func dial(t *testing.T, s *httptest.Server, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func TestUnreadBodyGetsAResponseAndClosesItsConnection(t *testing.T) {
	t.Parallel()
	handlers := map[string]http.HandlerFunc{
		"small response": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"large response": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, strings.Repeat("x", 10_000)) // net/http reads the body before it sends
		},
		"own deadlines": func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
			w.WriteHeader(http.StatusUnauthorized)
		},
	}
	for name, h := range handlers {
		s := serveLimited(t, h)
		s.Start()
		for _, request := range []string{
			"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf",
			"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
			"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n",
			"HEAD / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
		} {
			method, _, _ := strings.Cut(request, " ")
			_, in := dial(t, s, request)
			res, err := http.ReadResponse(in, &http.Request{Method: method})
			if err != nil || res.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s, %.40q: %v, %v; want 401", name, request, res, err)
				continue
			}
			// Nothing of the body is taken for a request, and the connection ends.
			if _, err := io.ReadAll(res.Body); err != nil {
				t.Errorf("%s, %.40q: %v", name, request, err)
			}
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("%s, %.40q: then %q, %v; want EOF", name, request, rest, err)
			}
		}
	}
}

func TestUnreadBodyThatArrivesKeepsItsConnection(t *testing.T) {
	t.Parallel()
	s := serveLimited(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	s.Start()
	for _, method := range []string{"GET", "POST"} {
		conn, in := dial(t, s, "")
		for i := range 3 {
			fmt.Fprintf(conn, "%s / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody", method)
			res, err := http.ReadResponse(in, nil)
			if err != nil || res.StatusCode != http.StatusUnauthorized {
				t.Fatalf("%s %d: %v, %v; want 401", method, i+1, res, err)
			}
		}
	}
}

func TestStreamOutlivesTheDeadlineOfItsBody(t *testing.T) {
	t.Parallel()
	s := serveLimited(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if r.Method == http.MethodPost {
			_, _ = io.ReadAll(r.Body)
			_ = control.SetReadDeadline(time.Time{}) // as the handlers do that read a body
		}
		for range 4 {
			_, _ = io.WriteString(w, "x")
			_ = control.Flush()
			select {
			case <-time.After(testBodyTimeout):
			case <-r.Context().Done():
				_, _ = io.WriteString(w, context.Cause(r.Context()).Error())
				return
			}
		}
	})
	s.StartTLS()
	for _, h2 := range []bool{false, true} {
		client := s.Client()
		transport := client.Transport.(*http.Transport).Clone()
		transport.ForceAttemptHTTP2 = h2
		if !h2 {
			transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
		}
		for _, method := range []string{"GET", "POST"} {
			req, err := http.NewRequestWithContext(t.Context(), method, s.URL, strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			res, err := (&http.Client{Transport: transport}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil || string(body) != "xxxx" || (res.ProtoMajor == 2) != h2 {
				t.Errorf("%s by %s: %q, %v; want xxxx", method, res.Proto, body, err)
			}
		}
		transport.CloseIdleConnections()
	}
}
