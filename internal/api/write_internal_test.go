package api

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"turnpike/internal/web"
)

// respond serves write over HTTP/2 or HTTP/1.1 and returns the response.
func respond(t *testing.T, http2 bool, writeTimeout time.Duration, write func(c *Call)) *http.Response {
	t.Helper()
	server := &Server{writeTimeout: writeTimeout}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		write(&Call{s: server, Exchange: web.Exchange{W: w, R: r}})
	}))
	s.EnableHTTP2 = http2
	s.StartTLS()
	t.Cleanup(s.Close)
	res, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if (res.ProtoMajor == 2) != http2 {
		t.Fatalf("got a response over %s", res.Proto)
	}
	return res
}

// pausing waits before it returns io.EOF.
type pausing struct {
	io.Reader
	pause time.Duration
}

func (p *pausing) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if err == io.EOF {
		time.Sleep(p.pause)
	}
	return n, err
}

// A stream may be silent for longer than the write timeout, between chunks and
// after the last.
func TestSilentStreamsOutliveTheWriteTimeout(t *testing.T) {
	t.Parallel()
	const limit = 500 * time.Millisecond
	for name, stream := range map[string]struct {
		write func(c *Call)
		want  string
	}{
		"events": {func(c *Call) {
			c.Started = true
			events := &eventWriter{c: c}
			events.keepAlive()
			time.Sleep(limit + limit/2)
			events.keepAlive()
		}, ": still there\n\n: still there\n\n"},
		"file": {func(c *Call) {
			out := download{c}
			_, _ = out.Write([]byte("one"))
			time.Sleep(limit + limit/2)
			_, _ = out.Write([]byte("two"))
			c.setWriteDeadline()
		}, "onetwo"},
		"audio": {func(c *Call) {
			parts := readParts(iotest.OneByteReader(&pausing{strings.NewReader("two"), limit + limit/2}))
			_ = c.streamFile(parts, streamedFile{func(http.Header) {}, func() {}})
		}, "two"},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/HTTP2=%t", name, http2), func(t *testing.T) {
				t.Parallel()
				body, err := io.ReadAll(respond(t, http2, limit, stream.write).Body)
				if err != nil || string(body) != stream.want {
					t.Errorf("got %q, %v, want %q", body, err, stream.want)
				}
			})
		}
	}
}

func TestBatchedEventsAreSentTogether(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	c := &Call{s: &Server{writeTimeout: time.Minute}, Exchange: web.Exchange{W: w, R: httptest.NewRequest("GET", "/", nil)}}
	out := &eventWriter{c: c, batch: true}
	wantSent := func(want string, flushed bool) {
		t.Helper()
		if got := w.Body.String(); got != want || w.Flushed != flushed {
			t.Errorf("sent %q, flushed %t; want %q, %t", got, w.Flushed, want, flushed)
		}
		w.Body.Reset()
		w.Flushed = false
	}
	out.flush()
	wantSent("", false)
	if out.begun() {
		t.Error("a stream without events has begun")
	}
	out.event([]byte("1"))
	out.event([]byte("2"))
	out.named("name", []byte("3"))
	wantSent("", false)
	if !out.begun() {
		t.Error("a stream with unsent events hasn't begun")
	}
	out.flush()
	wantSent("data: 1\n\ndata: 2\n\nevent: name\ndata: 3\n\n", true)
	out.event([]byte("4"))
	out.write() // at the end of the response, which net/http sends
	wantSent("data: 4\n\n", false)
	long := strings.Repeat("x", maxBatch)
	out.event([]byte(long))
	wantSent("data: "+long+"\n\n", true)
}

// deadlineWriter counts the writes that have a deadline of their own.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	armed  bool
	writes int
}

func (w *deadlineWriter) SetWriteDeadline(at time.Time) error {
	w.armed = !at.IsZero()
	return nil
}

func (w *deadlineWriter) Write(b []byte) (int, error) {
	if w.armed {
		w.writes++
	}
	w.armed = false
	return w.ResponseRecorder.Write(b)
}

func TestEachChunkHasItsOwnWriteDeadline(t *testing.T) {
	t.Parallel()
	w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
	c := &Call{s: &Server{writeTimeout: time.Minute}, Exchange: web.Exchange{W: w, R: httptest.NewRequest("GET", "/", nil)}}
	body := bytes.Repeat([]byte("x"), 3*chunkSize+1)
	c.write(http.StatusOK, "text/plain", body)
	if w.writes != 4 || w.Body.Len() != len(body) {
		t.Errorf("got %d writes with a deadline and %d bytes, want 4 and %d", w.writes, w.Body.Len(), len(body))
	}
}

func TestClientThatAcceptsNothingDoesNotHoldTheHandler(t *testing.T) {
	t.Parallel()
	response := bytes.Repeat([]byte("0123456789abcdef"), 2<<20) // more than the buffers on the way hold
	for _, http2 := range []bool{false, true} {
		returned := make(chan struct{})
		respond(t, http2, 100*time.Millisecond, func(c *Call) {
			c.write(http.StatusOK, "text/plain", response)
			close(returned)
		})
		<-returned
	}
}
