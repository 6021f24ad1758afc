package wire

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"weak"

	"turnpike/internal/providers"
	"turnpike/test/fakes/safehttptest"
)

const apiKey = "sk-secret-0123456789"

func TestConnectionFailureHasItsKind(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(nil)
	closed.Close()
	for name, c := range map[string]struct {
		url  string
		want providers.Kind
	}{
		"refused":      {closed.URL, providers.KindConnect},
		"unknown name": {"http://nowhere.invalid", providers.KindConnect},
		"no TLS":       {"https" + strings.TrimPrefix(rawServer(t, "hello\r\n"), "http"), providers.KindConnect},
		"hung up":      {rawServer(t, ""), providers.KindConnect},
		"not HTTP":     {rawServer(t, "SSH-2.0-OpenSSH_9.6\r\n\r\n"), providers.KindProtocol},
	} {
		if _, err := post(t.Context(), NewClient(Timeouts{}), c.url); kindOf(err) != c.want {
			t.Errorf("%s is %v, want %s", name, err, c.want)
		}
	}
}

func TestInvalidHTTP2IsAProtocolFailure(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"endless headers": func(w http.ResponseWriter, _ *http.Request) {
			for i := range 200 {
				w.Header().Set(fmt.Sprintf("X-Long-%d", i), strings.Repeat("x", 10_000))
			}
		},
		"endless hints": func(w http.ResponseWriter, _ *http.Request) {
			for range 200 {
				w.Header().Set("Link", strings.Repeat("x", 10_000))
				w.WriteHeader(http.StatusEarlyHints)
			}
		},
	} {
		server := httptest.NewUnstartedServer(answer)
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)
		client := NewClient(Timeouts{})
		client.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
		if _, err := post(t.Context(), client, server.URL); kindOf(err) != providers.KindProtocol || strings.Contains(err.Error(), "malformed") {
			t.Errorf("%s is %v", name, err)
		}
	}
}

func TestExhaustedDescriptorsAreALocalFailure(t *testing.T) {
	t.Parallel()
	client := NewClient(Timeouts{})
	client.http.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	}
	for _, url := range []string{"http://provider.example", "https://provider.example"} {
		if _, err := post(t.Context(), client, url); kindOf(err) != providers.KindLocal {
			t.Errorf("%s is %v", url, err)
		}
	}
}

func TestSlowProviderTimesOut(t *testing.T) {
	t.Parallel()
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	half := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}
	short := 150 * time.Millisecond

	_, err := post(t.Context(), NewClient(Timeouts{FirstByte: short, Idle: 2 * short}), serve(t, hang))
	if kindOf(err) != providers.KindTimeout || !strings.Contains(err.Error(), "no response within 150ms") {
		t.Errorf("before the headers: %v", err)
	}
	resp, err := post(t.Context(), NewClient(Timeouts{Idle: short}), serve(t, half(200, `{"a":`)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAll(resp); kindOf(err) != providers.KindTimeout || !strings.Contains(err.Error(), "no more data of the response within 150ms") {
		t.Errorf("inside a body: %v", err)
	}
	resp, err = post(t.Context(), NewClient(Timeouts{Idle: short}), serve(t, half(200, "data: a\n\ndata: b")))
	if err != nil {
		t.Fatal(err)
	}
	events := NewEvents(resp, nil)
	defer events.Close()
	if _, data, err := events.Next(); string(data) != "a" || err != nil {
		t.Errorf("before the pause: %q, %v", data, err)
	}
	if _, _, err := events.Next(); kindOf(err) != providers.KindTimeout {
		t.Errorf("inside a stream: %v", err)
	}
	// The error's status is already known. Its text may be lost, the status may
	// not.
	_, err = post(t.Context(), NewClient(Timeouts{Idle: short}), serve(t, half(503, "half of the reason")))
	if kindOf(err) != providers.KindOverloaded || !strings.Contains(err.Error(), "half of the reason") {
		t.Errorf("inside an error: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	if _, err = post(ctx, NewClient(Timeouts{}), serve(t, hang)); kindOf(err) != providers.KindTimeout || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller's deadline: %v", err)
	}
}

// TestSlowReaderIsNotATimeout covers a client that reads slowly while the
// provider waits.
func TestSlowReaderIsNotATimeout(t *testing.T) {
	t.Parallel()
	patience := time.Second // enough for a busy machine; only the test's own pauses are longer
	second := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: a\n\n")
		w.(http.Flusher).Flush()
		<-second
		_, _ = io.WriteString(w, "data: b\n\n")
	})
	resp, err := post(t.Context(), NewClient(Timeouts{FirstByte: patience, Idle: patience}), url)
	if err != nil {
		t.Fatal(err)
	}
	events := NewEvents(resp, nil)
	defer events.Close()
	for _, want := range []string{"a", "b"} {
		if _, data, err := events.Next(); string(data) != want || err != nil {
			t.Errorf("%q came, and %v", data, err)
		}
		time.Sleep(patience + patience/2)
		if want == "a" {
			close(second)
		}
	}
	if _, _, err := events.Next(); err != io.EOF {
		t.Errorf("the end is %v", err)
	}
}

func TestCanceledRequestEndsTheUpstreamRequest(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{"before the headers": "", "inside the stream": "data: a\n\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began, ended := make(chan bool), make(chan bool)
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if begin != "" {
					_, _ = io.WriteString(w, begin)
					w.(http.Flusher).Flush()
				}
				close(began)
				<-r.Context().Done()
				close(ended)
			})
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-began; cancel() }()
			resp, err := post(ctx, NewClient(Timeouts{}), url)
			if err == nil {
				events := NewEvents(resp, nil)
				defer events.Close()
				for err == nil {
					_, _, err = events.Next()
				}
			}
			if err != context.Canceled {
				t.Errorf("got %v, want context.Canceled", err)
			}
			<-ended
		})
	}
}

func TestRedirectsStayOnTheServer(t *testing.T) {
	t.Parallel()
	var got atomic.Value
	got.Store("")
	elsewhere := serve(t, func(_ http.ResponseWriter, r *http.Request) { got.Store(r.Header.Get("Authorization")) })
	here := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slash":
			http.Redirect(w, r, "/slash/", http.StatusPermanentRedirect)
		case "/get":
			http.Redirect(w, r, "/slash/", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
		case "/away":
			http.Redirect(w, r, elsewhere+"?token=very-private", http.StatusPermanentRedirect)
		case "/slash/":
			body, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "%s %s", r.Method, body)
		}
	})
	client := NewClient(Timeouts{})
	resp, err := post(t.Context(), client, here+"/slash")
	if err != nil {
		t.Fatal(err)
	}
	if body, err := ReadAll(resp); string(body) != `POST {"a":1}` || err != nil {
		t.Errorf("on the same server: %q, %v", body, err)
	}
	for _, path := range []string{"/get", "/loop", "/away"} {
		if _, err := post(t.Context(), client, here+path); kindOf(err) != providers.KindProtocol || !strings.Contains(err.Error(), "redirects to 127.0.0.1") || strings.Contains(err.Error(), "very-private") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got.Load() != "" {
		t.Errorf("another server was given %q", got.Load())
	}
}

func TestConnectionIsReused(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	read := make(chan bool)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/error":
			w.WriteHeader(500)
			_, _ = io.WriteString(w, "why")
		case "/stream":
			_, _ = io.WriteString(w, "data: a\n\ndata: [DONE]\n\n")
			w.(http.Flusher).Flush()
			<-read // the end of the body comes after its last event
		default:
			_, _ = io.WriteString(w, "{}")
		}
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	client := NewClient(Timeouts{})
	for range 3 {
		_, _ = post(t.Context(), client, server.URL+"/error")
		if resp, err := post(t.Context(), client, server.URL); err != nil {
			t.Error(err)
		} else if _, err := ReadAll(resp); err != nil {
			t.Error(err)
		}
		resp, err := post(t.Context(), client, server.URL+"/stream")
		if err != nil {
			t.Fatal(err)
		}
		events := NewEvents(resp, nil)
		_, _, _ = events.Next()
		_, _, _ = events.Next()
		read <- true
		events.Drain()
		_ = events.Close()
	}
	// One connection is enough. A busy machine that ends the body late may need
	// another, but not one for each stream.
	if n := connections.Load(); n > 2 {
		t.Errorf("%d connections were made", n)
	}
}

// Prompts are long, and streams stay open for minutes.
func TestSentBodyIsFreedWhileItsResponseIsRead(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = http.NewResponseController(w).Flush()
		<-done
	}))
	defer server.Close()
	defer close(done)
	body := new([1 << 10]byte)
	kept := weak.Make(body)
	resp, err := NewClient(Timeouts{}).Post(t.Context(), server.URL, nil, body[:], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body = nil
	for deadline := time.Now().Add(10 * time.Second); kept.Value() != nil; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatal("the body is still in memory")
		}
	}
}

func TestHTTP2IsUsed(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	client := NewClient(Timeouts{})
	client.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	resp, err := post(t.Context(), client, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := ReadAll(resp); string(body) != "HTTP/2.0" {
		t.Errorf("spoke %s", body)
	}
}

// Over TLS net/http returns the raw connection as the body, and no context ends
// a read of it.
func TestSwitchingProtocolsIsAProtocolFailure(t *testing.T) {
	t.Parallel()
	left := make(chan bool)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		safehttptest.Switching(w, r)
		close(left)
	}))
	defer server.Close()
	client := NewClient(Timeouts{})
	client.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	if _, err := post(t.Context(), client, server.URL); kindOf(err) != providers.KindProtocol || !strings.Contains(err.Error(), "101") {
		t.Errorf("got %v", err)
	}
	<-left
}

func TestBodyIsReadCompletelyOrFails(t *testing.T) {
	t.Parallel()
	if body, err := ReadAll(response(strings.NewReader("all of it"))); string(body) != "all of it" || err != nil {
		t.Errorf("got %q, %v", body, err)
	}
	if _, err := ReadAll(response(endless('x'))); kindOf(err) != providers.KindProtocol {
		t.Errorf("without an end: %v", err)
	}
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
	})
	resp, err := post(t.Context(), NewClient(Timeouts{}), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAll(resp); kindOf(err) != providers.KindCut {
		t.Errorf("cut: %v", err)
	}
}

func post(ctx context.Context, c *Client, url string) (*http.Response, error) {
	header := http.Header{"Authorization": {"Bearer " + apiKey}, "X-Other": {"another-one"}}
	return c.Post(ctx, url, header, []byte(`{"a":1}`), nil)
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // otherwise the server doesn't notice that a client disconnects
		r.Body = io.NopCloser(bytes.NewReader(body))
		handler(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// rawServer responds to every connection with fixed bytes and closes it.
func rawServer(t *testing.T, text string) string {
	t.Helper()
	return listen(t, func(conn net.Conn, in *bufio.Reader) {
		// Read everything: closing a connection with unread bytes resets it,
		// and the client may see that before the response.
		_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		readRequest(in)
		_, _ = io.WriteString(conn, text)
	})
}

// listen serves each connection in a goroutine until the test ends.
func listen(t *testing.T, serve func(conn net.Conn, in *bufio.Reader)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn, bufio.NewReader(conn))
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func readRequest(in *bufio.Reader) bool {
	req, err := http.ReadRequest(in)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err == nil
}
