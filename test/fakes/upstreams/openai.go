// Package upstreams holds providers on free ports, for tests: each speaks
// its wire format, fails in the ways that format fails, and remembers what it
// was asked.
package upstreams

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// OpenAI is a server that speaks OpenAI's chat completions, embeddings, images,
// speech and videos, and like the real one refuses a key that is not its own.
// It answers what the test has queued, and else a sentence or a small file.
type OpenAI struct {
	server  *httptest.Server
	key     string
	closing chan struct{}

	mu       sync.Mutex
	replies  []OpenAIReply
	requests []*OpenAIRequest
	arrived  *sync.Cond
	videos   map[string]*openAIVideo
}

// OpenAIReply says how a call is answered. The zero value answers it well.
type OpenAIReply struct {
	// What is said.

	Text      string       // empty is a sentence, or JSON if the call wants JSON
	Reasoning string       // as vLLM and DeepSeek send it, before the text
	Refusal   string       // instead of the text
	Calls     []OpenAICall // instead of the text; a call that requires one gets the first tool
	Finish    string       // finish_reason; empty is what fits
	Usage     *OpenAIUsage // nil is ten tokens of input, and one of output for each word
	Counts    OpenAICounts // where usage is said
	Media     OpenAIMedia  // of a call for pictures, speech or a video

	// How it fails.

	Delay   time.Duration // before the headers
	Status  int           // 0 is 200; an error has OpenAI's body
	Message string        // of the error
	Param   string        // of the error
	Code    string        // of the error
	Header  http.Header   // beside the usual, such as Retry-After
	Body    string        // instead of all that
	Type    string        // its Content-Type; empty is guessed
	Empty   bool          // no body at all
	Drip    time.Duration // between two events
	Cut     int           // bytes of the body after which the connection breaks; -1 is before the headers
	Stall   int           // bytes of the body after which nothing comes until the client leaves; -1 is before the headers
}

// OpenAICall is a call of a tool.
type OpenAICall struct{ ID, Name, Arguments string }

// OpenAIUsage is what an answer says that it used.
type OpenAIUsage struct{ Input, Output, Cached, Reasoning int64 }

// OpenAICounts is where an answer says what it used.
type OpenAICounts int

// The ways that are in use.
const (
	CountsUsual   OpenAICounts = iota // OpenAI's: a stream has them on a chunk of their own, if asked
	CountsMissing                     // nowhere
	CountsZero                        // all are zero
	CountsOnLast                      // a stream has them on its last chunk with a choice
	CountsOnEvery                     // a stream has them on every chunk, growing, and on one of their own
)

// HTML is what a proxy in front of a provider says.
const HTML = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n</body>\r\n</html>\r\n"

// OpenAIRequest is a call as it came in.
type OpenAIRequest struct {
	Method  string
	Path    string // after the base URL
	Escaped string // the whole path as it was sent
	Query   string
	Header  http.Header
	Body    []byte
	// Began is closed when the first byte of the answer's body has left, or
	// the answer has stalled before it; Gone when the client has left or has
	// got all.
	Began chan struct{}
	Gone  <-chan struct{}
}

// NewOpenAI starts a server that lives as long as the test. With an empty key
// it wants none, as local servers do.
func NewOpenAI(t testing.TB, key string) *OpenAI {
	o := &OpenAI{key: key, closing: make(chan struct{})}
	o.arrived = sync.NewCond(&o.mu)
	o.server = httptest.NewServer(o)
	t.Cleanup(func() {
		close(o.closing)
		o.server.CloseClientConnections()
		o.server.Close()
	})
	return o
}

// BaseURL is the address with the version, as OpenAI's clients take it.
func (o *OpenAI) BaseURL() string { return o.server.URL + "/v1" }

// Queue adds replies for the calls to come.
func (o *OpenAI) Queue(replies ...OpenAIReply) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.replies = append(o.replies, replies...)
}

// Requests returns the calls so far.
func (o *OpenAI) Requests() []*OpenAIRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.requests)
}

// Wait returns the n-th call, counted from 1, as soon as it has come.
func (o *OpenAI) Wait(n int) *OpenAIRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.requests) < n {
		o.arrived.Wait()
	}
	return o.requests[n-1]
}

func (o *OpenAI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	req := &OpenAIRequest{
		Method: r.Method, Path: strings.TrimPrefix(r.URL.Path, "/v1"), Escaped: r.URL.EscapedPath(), Query: r.URL.RawQuery, Header: r.Header.Clone(), Body: body,
		Began: make(chan struct{}), Gone: r.Context().Done(),
	}
	if o.serveFile(w, r) {
		return
	}
	out := &openAIWriter{w: w, upstream: o, req: req, closing: o.closing}
	defer out.began()
	out.reply = o.take(req)
	if o.key != "" && r.Header.Get("Authorization") != "Bearer "+o.key && r.Header.Get("Api-Key") != o.key {
		out.reply = OpenAIReply{Status: 401, Code: "invalid_api_key", Message: "Incorrect API key provided: " + r.Header.Get("Authorization")}
	}
	out.answer()
}

// take remembers a request and finds its reply.
func (o *OpenAI) take(req *OpenAIRequest) (reply OpenAIReply) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests = append(o.requests, req)
	o.arrived.Broadcast()
	if len(o.replies) > 0 {
		reply, o.replies = o.replies[0], o.replies[1:]
	}
	return reply
}

// openAIWriter sends one answer the way its reply wants it.
type openAIWriter struct {
	w        http.ResponseWriter
	upstream *OpenAI
	req      *OpenAIRequest
	reply    OpenAIReply
	closing  <-chan struct{}
	sent     int // bytes of the body
	once     sync.Once
}

func (o *openAIWriter) began() { o.once.Do(func() { close(o.req.Began) }) }

func (o *openAIWriter) answer() {
	o.pause(o.reply.Delay)
	if o.reply.Cut < 0 {
		panic(http.ErrAbortHandler)
	}
	if o.reply.Stall < 0 {
		o.stall()
		return
	}
	contentType, status, pieces := o.content()
	o.w.Header().Set("Content-Type", contentType)
	o.w.Header().Set("X-Request-Id", "req_4f1c4b1ff3b8")
	for name, values := range o.reply.Header {
		o.w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	o.w.WriteHeader(status)
	for i, piece := range pieces {
		if i > 0 {
			o.pause(o.reply.Drip)
		}
		if !o.send(piece) {
			return
		}
	}
}

// content is the body in the pieces that are sent one by one: a plain answer
// has one, a stream one for each event.
func (o *openAIWriter) content() (contentType string, status int, pieces []string) {
	const jsonType = "application/json"
	status = cmp.Or(o.reply.Status, http.StatusOK)
	switch {
	case o.reply.Body != "" || o.reply.Empty:
		return cmp.Or(o.reply.Type, guessType(o.reply.Body)), status, []string{o.reply.Body}
	case status >= 300:
		return jsonType, status, []string{openAIError(o.reply)}
	case strings.HasSuffix(o.req.Path, "/embeddings"):
		return jsonType, status, []string{openAIVectors(o.req.Body, o.reply)}
	case isOpenAIMedia(o.req.Path):
		a := o.upstream.media(o.req, o.reply.Media)
		return a.kind, a.status, []string{a.body}
	case !strings.HasSuffix(o.req.Path, "/chat/completions"):
		return jsonType, http.StatusNotFound, []string{openAIError(OpenAIReply{Message: "Invalid URL (POST /v1" + o.req.Path + ")"})}
	}
	a, refusal := newOpenAIAnswer(o.req.Body, o.reply)
	switch {
	case refusal != "":
		return jsonType, http.StatusBadRequest, []string{openAIError(OpenAIReply{Message: refusal})}
	case a.stream:
		return "text/event-stream; charset=utf-8", status, a.events()
	}
	return jsonType, status, []string{a.body()}
}

func guessType(body string) string {
	switch {
	case strings.HasPrefix(body, "<"):
		return "text/html; charset=utf-8"
	case strings.HasPrefix(body, "data:"), strings.HasPrefix(body, "event:"), strings.HasPrefix(body, ":"):
		return "text/event-stream"
	}
	return "application/json"
}

// send writes a piece of the body, and reports whether more may follow.
func (o *openAIWriter) send(piece string) bool {
	stop := cmp.Or(o.reply.Cut, o.reply.Stall)
	last := stop > 0 && o.sent+len(piece) >= stop
	if last {
		piece = piece[:stop-o.sent]
	}
	n, err := io.WriteString(o.w, piece)
	o.sent += n
	_ = http.NewResponseController(o.w).Flush()
	o.began()
	switch {
	case last && o.reply.Cut > 0:
		panic(http.ErrAbortHandler)
	case last:
		o.stall()
	}
	return err == nil && !last
}

// stall does nothing more until the client has had enough.
func (o *openAIWriter) stall() {
	o.began()
	select {
	case <-o.req.Gone:
	case <-o.closing:
	}
}

func (o *openAIWriter) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-o.req.Gone:
	case <-o.closing:
	}
}
