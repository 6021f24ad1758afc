package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"turnpike/internal/providers"
)

// Nothing is worse than the answer to another's question, so connections are
// used again as much as they can be while callers leave at every moment.
func TestNobodyGetsTheAnswerOfAnother(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question, _ := io.ReadAll(r.Body)
		half := len(question) / 2
		if rand.IntN(2) == 0 {
			w.Header().Set("Content-Length", fmt.Sprint(len(question)))
		}
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
		_, _ = w.Write(question[:half])
		w.(http.Flusher).Flush()
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
		_, _ = w.Write(question[half:])
	}))
	defer server.Close()
	client := NewClient(Timeouts{})
	var answered, left atomic.Int32
	var wg sync.WaitGroup
	for caller := range 16 {
		wg.Go(func() {
			for n := range 200 {
				question := fmt.Sprintf(`{"caller":%d,"question":%d,"text":"%s"}`, caller, n, strings.Repeat("x", rand.IntN(6000)))
				ctx, cancel := context.WithCancel(t.Context())
				if rand.IntN(3) == 0 {
					time.AfterFunc(time.Duration(rand.IntN(800))*time.Microsecond, cancel)
				}
				resp, err := client.Post(ctx, server.URL, nil, []byte(question), nil)
				var answer []byte
				if err == nil {
					answer, err = ReadAll(resp)
				}
				cancel()
				switch {
				case err == nil && string(answer) != question:
					t.Errorf("asked %.40s and was answered %.40s", question, answer)
				case err == nil:
					answered.Add(1)
				case errors.Is(err, context.Canceled):
					left.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if answered.Load() == 0 || left.Load() == 0 {
		t.Errorf("%d were answered and %d left: this shows nothing", answered.Load(), left.Load())
	}
}

// Servers close what is idle for a few seconds (Node's and Uvicorn's after
// five), and a call must not be lost to that.
func TestConnectionThatItsServerClosedIsNotUsed(t *testing.T) {
	t.Parallel()
	closed := make(chan bool)
	l := listen(t, func(conn net.Conn, in *bufio.Reader) {
		readRequest(in)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
		_ = conn.Close()
		closed <- true
	})
	client := NewClient(Timeouts{})
	for range 5 {
		resp, err := post(t.Context(), client, l)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := ReadAll(resp); string(body) != "{}" || err != nil {
			t.Fatalf("got %q, %v", body, err)
		}
		<-closed
	}
}

func TestBytesThatNobodyAskedForAreNoAnswer(t *testing.T) {
	t.Parallel()
	const one = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
	const stray = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"
	for name, send := range map[string]func(conn net.Conn, late <-chan bool){
		"at once": func(conn net.Conn, _ <-chan bool) { _, _ = io.WriteString(conn, one+stray) },
		"later": func(conn net.Conn, late <-chan bool) {
			_, _ = io.WriteString(conn, one)
			<-late
			_, _ = io.WriteString(conn, stray)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			late, sent := make(chan bool), make(chan bool, 10)
			url := listen(t, func(conn net.Conn, in *bufio.Reader) {
				for readRequest(in) {
					send(conn, late)
					sent <- true
				}
			})
			client := NewClient(Timeouts{})
			for range 3 {
				resp, err := post(t.Context(), client, url)
				if err != nil {
					t.Fatal(err)
				}
				if body, err := ReadAll(resp); string(body) != "{}" || err != nil {
					t.Fatalf("got %q, %v", body, err)
				}
				if name == "later" {
					late <- true
				}
				<-sent
			}
		})
	}
}

// Each of these leaves the connection open, but not for another call.
func TestConnectionEndsWithSuchAnAnswer(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{
		"as it says":       "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
		"older protocol":   "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
		"another protocol": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
		"not read":         "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var connections atomic.Int32
			ended := make(chan bool, 2)
			url := listen(t, func(conn net.Conn, in *bufio.Reader) {
				connections.Add(1)
				for readRequest(in) {
					_, _ = io.WriteString(conn, first)
				}
				ended <- true
			})
			client := NewClient(Timeouts{})
			for n := range 2 {
				resp, err := post(t.Context(), client, url)
				if err == nil && name != "not read" {
					_, err = ReadAll(resp)
				} else if err == nil {
					err = resp.Body.Close()
				}
				if err != nil && kindOf(err) != providers.KindProtocol {
					t.Fatal(err)
				}
				if <-ended; int(connections.Load()) != n+1 {
					t.Errorf("call %d was made on connection %d", n+1, connections.Load())
				}
			}
		})
	}
}

func TestAnswerWithoutABodyKeepsItsConnection(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	url := listen(t, func(conn net.Conn, in *bufio.Reader) {
		connections.Add(1)
		for readRequest(in) {
			_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	client := NewClient(Timeouts{})
	for range 3 {
		resp, err := post(t.Context(), client, url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections were made", n)
	}
}

func TestOnlyTheLastAnswerCounts(t *testing.T) {
	t.Parallel()
	const hint, last = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
	for name, c := range map[string]struct {
		text string
		want providers.Kind
	}{
		"hints":            {strings.Repeat(hint, 100) + last, ""},
		"endless hints":    {strings.Repeat(hint, maxHeaders/len(hint)+200) + last, providers.KindProtocol},
		"no known status":  {"HTTP/1.1 099 Hm\r\nContent-Length: 0\r\n\r\n" + last, providers.KindProtocol},
		"another protocol": {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n{}", providers.KindProtocol},
		"endless headers":  {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Long: "+strings.Repeat("x", 1000)+"\r\n", maxHeaders/1000+100) + "\r\n", providers.KindProtocol},
		"until its end":    {"HTTP/1.0 200 OK\r\n\r\n{}", ""},
		"in pieces":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nTrailer: x\r\n\r\n", ""},
		"broken pieces":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", providers.KindCut},
		"half":             {"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}", providers.KindCut},
		"two lengths":      {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", providers.KindProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, err := post(t.Context(), NewClient(Timeouts{}), rawServer(t, c.text))
			var body []byte
			if err == nil {
				body, err = ReadAll(resp)
			}
			if kindOf(err) != c.want || c.want == "" && string(body) != "{}" {
				t.Errorf("got %q, %v, want %s", body, err, c.want)
			}
		})
	}
}

// A server that answers without reading what is sent must be heard, whether it
// hangs up then or not.
func TestEarlyRefusalIsHeard(t *testing.T) {
	t.Parallel()
	const refusal = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n"
	done := make(chan bool)
	defer close(done)
	url := listen(t, func(conn net.Conn, in *bufio.Reader) {
		_, _ = http.ReadRequest(in)
		_, _ = io.WriteString(conn, refusal)
		<-done
	})
	_, err := NewClient(Timeouts{FirstByte: 10 * time.Second}).Post(t.Context(), url, nil, bytes.Repeat([]byte("x"), 32<<20), nil)
	var f *providers.Failure
	if !errors.As(err, &f) || f.Status != 413 {
		t.Errorf("a long body: %v", err)
	}
	// Here the end of the connection comes before the second write.
	pieces := [][]byte{bytes.Repeat([]byte("x"), 8<<10), bytes.Repeat([]byte("y"), 8<<10)}
	c := &directConn{Conn: &refusing{in: strings.NewReader(refusal)}}
	c.in, c.out = bufio.NewReader(c), bufio.NewWriter(c.Conn)
	req, err := Call{Method: http.MethodPost, URL: url, Body: pieces}.request(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := c.exchange(req); err != nil || resp.StatusCode != 413 || !resp.Close {
		t.Errorf("after a write that failed: %v, %v", resp, err)
	}
}

// refusing takes one write, and has answered by then.
type refusing struct {
	net.Conn
	in     io.Reader
	writes int
}

func (r *refusing) Read(p []byte) (int, error) { return r.in.Read(p) }

func (r *refusing) Write(p []byte) (int, error) {
	if r.writes++; r.writes > 1 {
		return 0, &net.OpError{Op: "write", Err: syscall.EPIPE}
	}
	return len(p), nil
}

func TestCallOfWhoHasLeftIsNotMade(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	url := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	client := NewClient(Timeouts{})
	resp, err := post(t.Context(), client, url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAll(resp); err != nil { // its connection can be used again
		t.Fatal(err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	for range 20 {
		if _, err := post(left, client, url); err != context.Canceled {
			t.Errorf("got %v", err)
		}
	}
	time.Sleep(20 * time.Millisecond) // for a call that was made nevertheless
	if n := asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
}

// A server may close a connection while the next call is on its way to it. Then
// nobody knows whether it was made, and it is made again only where that does
// no harm.
func TestOnlyWhatMayBeRepeatedIsRepeated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call  Call
		begun string // of the answer that breaks off
		want  int32
	}{
		"read":          {Call{Method: http.MethodGet}, "", 3},
		"once answered": {Call{Method: http.MethodGet}, "HTTP/1.1 200 OK\r\n", 2},
		"with its key":  {Call{Method: http.MethodPost, Header: http.Header{"Idempotency-Key": {"k"}}, Body: [][]byte{[]byte(`{"a":`), []byte("1}")}}, "", 3},
		"any other one": {Call{Method: http.MethodPost, Body: [][]byte{[]byte(`{"a":1}`)}}, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			c.call.URL = listen(t, func(conn net.Conn, in *bufio.Reader) {
				for readRequest(in) {
					if asked.Add(1) == 2 { // without a word it is as if it had been closed before
						_, _ = io.WriteString(conn, c.begun)
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
			if asked.Load() != c.want || (err == nil) != (c.want == 3) {
				t.Errorf("asked %d times, want %d: %v", asked.Load(), c.want, err)
			}
		})
	}
}

func TestHeaderThatCannotBeSentIsNotSent(t *testing.T) {
	t.Parallel()
	var asked atomic.Bool
	url := serve(t, func(http.ResponseWriter, *http.Request) { asked.Store(true) })
	for name, value := range map[string]string{"X-Key": "a\r\nX-Injected: b", "X Key": "a", "X-Nul": "a\x00"} {
		if _, err := NewClient(Timeouts{}).Post(t.Context(), url, http.Header{name: {value}}, []byte("{}"), nil); err == nil || asked.Load() {
			t.Errorf("%q: %q was sent", name, value)
		}
	}
}

func TestProxyOfTheEnvironmentIsUsed(t *testing.T) {
	t.Parallel()
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Host) })
	via, _ := url.Parse(proxy)
	client := NewClient(Timeouts{})
	client.http.Transport.(*direct).others.Proxy = http.ProxyURL(via)
	resp, err := post(t.Context(), client, "http://model.invalid/v1")
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := ReadAll(resp); string(body) != "model.invalid" {
		t.Errorf("got %q", body)
	}
}

func TestBodyOfUnknownLengthIsNotSentDirectly(t *testing.T) {
	t.Parallel()
	d := NewClient(Timeouts{}).http.Transport.(*direct)
	req, err := http.NewRequest(http.MethodPost, "http://127.0.0.1/v1", io.NopCloser(strings.NewReader("{}")))
	if err != nil {
		t.Fatal(err)
	}
	if d.takes(req) {
		t.Error("it would be sent without a bound")
	}
	if req.ContentLength = 2; !d.takes(req) {
		t.Error("with its length it is not taken")
	}
}

func TestAddressOfADirectCall(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"http://127.0.0.1:8000/v1":  "127.0.0.1:8000",
		"http://models.internal/v1": "models.internal:80",
		"http://[::1]/v1":           "[::1]:80",
		"http://[::1]:11434/v1":     "[::1]:11434",
		"http://BÜCHER.example/v1":  "xn--bcher-kva.example:80",
	} {
		var got string
		client := NewClient(Timeouts{})
		client.http.Transport.(*direct).others.DialContext = func(_ context.Context, _, addr string) (net.Conn, error) {
			got = addr
			return nil, errors.New("enough")
		}
		_, _ = post(t.Context(), client, to)
		if got != want {
			t.Errorf("%s dials %s, want %s", to, got, want)
		}
	}
}

// The dialler may give up in the moment before the context says why.
func TestTimeThatEndsWhileConnectingIsATimeout(t *testing.T) {
	t.Parallel()
	client := NewClient(Timeouts{})
	client.http.Transport.(*direct).others.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		end, _ := ctx.Deadline()
		for time.Now().Before(end) { // a timer would come too late
			runtime.Gosched()
		}
		return nil, os.ErrDeadlineExceeded
	}
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := post(ctx, client, "http://127.0.0.1:1")
		cancel()
		if f := new(providers.Failure); !errors.As(err, &f) || f.Kind != providers.KindTimeout {
			t.Fatalf("got %v", err)
		}
	}
}

func TestIdleConnectionsEnd(t *testing.T) {
	t.Parallel()
	var p idlePool
	var far []net.Conn
	var near []*directConn
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 3 {
		a, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		near, far = append(near, &directConn{Conn: a}), append(far, b)
	}
	for i, c := range near {
		p.put([]string{"one", "two", "two"}[i], c)
	}
	if at := near[2].idleSince; at != at.Round(0) {
		t.Errorf("a connection's age is not by the wall clock: %v", at)
	}
	near[0].idleSince, near[1].idleSince = time.Now().Add(-idleConnTimeout), time.Now().Add(-idleConnTimeout)
	if p.take("one") != nil {
		t.Error("an old connection was used again")
	}
	p.sweep()
	for i, c := range far {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); (err == io.EOF) != (i < 2) {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := p.byHost["two"]; !slices.Equal(left, near[2:]) || len(p.byHost) != 1 || !p.sweeping {
		t.Errorf("%d hosts are left", len(p.byHost))
	}
}

func TestIdleConnectionsHaveABound(t *testing.T) {
	t.Parallel()
	var p idlePool
	for range maxIdlePerHost {
		kept, _ := net.Pipe()
		p.put("one", &directConn{Conn: kept})
	}
	near, far := net.Pipe()
	p.put("one", &directConn{Conn: near})
	_ = far.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := far.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("one more than the most is kept: %v", err)
	}
}
