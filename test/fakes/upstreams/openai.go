// Package upstreams holds fake providers for tests. Each serves the wire format of
// its provider, fails as the provider does, and records its requests.
package upstreams

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// OpenAI serves OpenAI's chat completions, embeddings, moderations, images, speech, transcriptions,
// videos and batches, and the rerank API of other servers.
// It rejects other keys than its own. It returns the replies that the test has
// queued, and otherwise a sentence or a small file.
type OpenAI struct {
	server  *httptest.Server
	key     string
	closing chan struct{}

	mu       sync.Mutex
	replies  []OpenAIReply
	requests []*OpenAIRequest
	arrived  *sync.Cond
	videos   map[string]*openAIVideo

	Batches OpenAIBatches
	// Models are the names in the list of models. Set them before the first request.
	Models []string
}

// OpenAIReply describes a response. The zero value is a success.
type OpenAIReply struct {
	// Content.

	Text      string       // default: a sentence, or JSON if the request asks for JSON
	Reasoning string       // as vLLM and DeepSeek send it, before the text
	Refusal   string       // instead of the text
	Calls     []OpenAICall // instead of the text; a request that requires a call gets the first tool
	Finish    string       // finish_reason; default: the one that fits
	Usage     *OpenAIUsage // default: 10 input tokens, and one output token for each word
	Counts    OpenAICounts // where the usage is reported
	Media     OpenAIMedia  // for images, speech or a video

	// Failures.

	Delay   time.Duration // before the headers
	Gate    chan struct{} // the headers wait until it is closed
	Status  int           // default: 200; an error has OpenAI's body
	Message string        // of the error
	Param   string        // of the error
	Code    string        // of the error
	Header  http.Header   // additional headers, such as Retry-After
	Body    string        // instead of everything above
	Type    string        // the Content-Type of Body; default: guessed
	Empty   bool          // no body at all
	Drip    time.Duration // between two events
	Cut     int           // bytes of the body before the connection breaks; -1: before the headers
	Stall   int           // bytes of the body before the server stops sending; -1: before the headers
}

type OpenAICall struct{ ID, Name, Arguments string }

// OpenAIUsage is the usage that a response reports.
type OpenAIUsage struct{ Input, Output, Cached, Reasoning int64 }

// OpenAICounts is where a response reports its usage.
type OpenAICounts int

// Where servers report usage.
const (
	CountsUsual   OpenAICounts = iota // as OpenAI: a separate chunk of a stream, if requested
	CountsMissing                     // nowhere
	CountsZero                        // zeros
	CountsOnLast                      // the last chunk of a stream with a choice
	CountsOnEvery                     // every chunk of a stream, growing, and a separate one
)

// HTML is the error page of a proxy in front of a provider.
const HTML = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n</body>\r\n</html>\r\n"

type OpenAIRequest struct {
	Method  string
	Path    string // after the base URL
	Escaped string // the whole path as it was sent
	Query   string
	Header  http.Header
	Body    []byte
	// Began is closed when the first byte of the body is sent or the response has
	// stalled before it. Gone is closed when the request has ended.
	Began chan struct{}
	Gone  <-chan struct{}
}

// NewOpenAI starts a server that runs until the test ends. An empty key accepts
// every request, as local servers do.
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

// BaseURL returns the URL with the version, as OpenAI's clients expect it.
func (o *OpenAI) BaseURL() string { return o.server.URL + "/v1" }

func (o *OpenAI) Queue(replies ...OpenAIReply) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.replies = append(o.replies, replies...)
}

func (o *OpenAI) Requests() []*OpenAIRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.requests)
}

// Wait waits for request n, counted from 1.
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
		return // the client has disconnected
	}
	req := &OpenAIRequest{
		Method: r.Method, Path: strings.TrimPrefix(r.URL.Path, "/v1"), Escaped: r.URL.EscapedPath(), Query: r.URL.RawQuery, Header: r.Header.Clone(), Body: body,
		Began: make(chan struct{}), Gone: r.Context().Done(),
	}
	if o.serveFile(w, r) {
		return
	}
	if r.Header.Get("Authorization") == "Bearer "+o.key && o.Batches.serve(w, req) {
		return
	}
	out := &openAIWriter{w: w, upstream: o, req: req, closing: o.closing}
	defer out.began()
	out.reply = o.record(req)
	if o.key != "" && r.Header.Get("Authorization") != "Bearer "+o.key && r.Header.Get("Api-Key") != o.key {
		out.reply = OpenAIReply{Status: 401, Code: "invalid_api_key", Message: "Incorrect API key provided: " + r.Header.Get("Authorization")}
	}
	out.respond()
}

// record records a request and returns its reply.
func (o *OpenAI) record(req *OpenAIRequest) (reply OpenAIReply) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests = append(o.requests, req)
	o.arrived.Broadcast()
	if len(o.replies) > 0 {
		reply, o.replies = o.replies[0], o.replies[1:]
	}
	return reply
}

// openAIWriter sends a response as its reply describes it.
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

func (o *openAIWriter) respond() {
	o.pause(o.reply.Delay)
	if o.reply.Gate != nil {
		select {
		case <-o.reply.Gate:
		case <-o.req.Gone:
		case <-o.closing:
		}
	}
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

// content returns the body in the pieces to send: one for a plain response, and
// one for each event of a stream.
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
	case o.req.Path == "/models" && o.req.Method == http.MethodGet:
		return jsonType, status, []string{openAIModels(o.upstream.Models)}
	case o.req.Path == "/moderations":
		return jsonType, status, []string{openAIModeration(o.req.Body, o.reply)}
	case o.req.Path == "/rerank":
		return jsonType, status, []string{openAIRanking(o.req.Body, o.reply)}
	case isOpenAIMedia(o.req.Path):
		a := o.upstream.media(o.req, o.reply.Media)
		return a.kind, a.status, []string{a.body}
	case !strings.HasSuffix(o.req.Path, "/chat/completions"):
		return jsonType, http.StatusNotFound, []string{openAIError(OpenAIReply{Message: "Invalid URL (POST /v1" + o.req.Path + ")"})}
	}
	a, rejection := newOpenAIResponse(o.req.Body, o.reply)
	switch {
	case rejection != "":
		return jsonType, http.StatusBadRequest, []string{openAIError(OpenAIReply{Message: rejection})}
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

// send writes a piece of the body and reports whether to continue.
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

// stall waits until the client ends the request.
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

// openAIModels returns a list of models.
func openAIModels(names []string) string {
	entries := make([]string, len(names))
	for i, name := range names {
		entries[i] = fmt.Sprintf(`{"id":%q,"object":"model","created":1700000000,"owned_by":"test"}`, name)
	}
	return `{"object":"list","data":[` + strings.Join(entries, ",") + `]}`
}
