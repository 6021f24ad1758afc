package api

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// hasty has clients take pieces within a short time. It is for tests that are
// not parallel.
func hasty(t *testing.T, limit time.Duration) {
	t.Helper()
	usual := writeTimeout
	writeTimeout = limit
	t.Cleanup(func() { writeTimeout = usual })
}

// served answers with what a call writes, by HTTP/2, or else by HTTP/1.1.
func served(t *testing.T, http2 bool, write func(c *Call)) *http.Response {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		write(&Call{w: w, r: r})
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
		t.Fatalf("answered by %s", res.Proto)
	}
	return res
}

// pausing waits before it says that there is no more.
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

// TestAStreamMayBeQuiet between two pieces, and after the last, for longer than a
// client has to take one.
func TestAStreamMayBeQuiet(t *testing.T) {
	const limit = 100 * time.Millisecond
	hasty(t, limit)
	for _, http2 := range []bool{false, true} {
		for name, write := range map[string]func(c *Call){
			"events": func(c *Call) {
				c.wrote = true
				events := &eventWriter{c: c}
				events.comment()
				time.Sleep(3 * limit)
				events.comment()
			},
			"a file": func(c *Call) {
				out := download{c}
				_, _ = out.Write([]byte("one"))
				time.Sleep(3 * limit)
				_, _ = out.Write([]byte("two"))
				c.expectPiece()
			},
			"a sound": func(c *Call) {
				_ = c.passOn(iotest.OneByteReader(&pausing{strings.NewReader("wo"), 3 * limit}), []byte("t"), 1)
			},
		} {
			body, err := io.ReadAll(served(t, http2, write).Body)
			if want := map[string]string{"events": ": still there\n\n: still there\n\n", "a file": "onetwo", "a sound": "two"}[name]; err != nil || string(body) != want {
				t.Errorf("%s, HTTP/2 %t: %q, %v", name, http2, body, err)
			}
		}
	}
}

// TestASlowClientGetsTheWholeAnswer, if it only takes each piece in time, and one
// that takes nothing does not hold it for ever.
func TestASlowClientGetsTheWholeAnswer(t *testing.T) {
	const limit = 300 * time.Millisecond
	hasty(t, limit)
	answer := bytes.Repeat([]byte("0123456789abcdef"), 2<<20) // more than lies on the way
	for _, http2 := range []bool{false, true} {
		ended := make(chan time.Duration, 1)
		send := func(c *Call) {
			begun := time.Now()
			c.write(http.StatusOK, "text/plain", answer)
			ended <- time.Since(begun)
		}
		res := served(t, http2, send)
		got := 0
		for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			n, err := io.CopyN(io.Discard, res.Body, 2<<20)
			if got += int(n); err == io.EOF && got == len(answer) {
				if took := time.Since(begun); took < 2*limit {
					t.Errorf("HTTP/2 %t: it took %v, which shows nothing", http2, took)
				}
				break
			}
			if err != nil {
				t.Fatalf("HTTP/2 %t: %d of %d bytes, %v", http2, got, len(answer), err)
			}
		}
		<-ended
		served(t, http2, send)
		select {
		case <-ended:
		case <-time.After(20 * limit):
			t.Errorf("HTTP/2 %t: the answer is held by a client that takes nothing", http2)
		}
	}
}
