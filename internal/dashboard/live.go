package dashboard

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/web"
)

const (
	// maxStreams is how many pages one node keeps up to date, and
	// maxStreamsPerSession those of one session. Other pages stay as they were
	// opened. Without TLS a browser has six connections, and needs some of them
	// for other requests.
	maxStreams           = 200
	maxStreamsPerSession = 4
	// refreshEvery is how often a live page is built again. That costs as much as
	// opening it, and only changed pages are sent.
	refreshEvery = 2 * time.Second
	// maxStreamTime is when the browser has to reconnect.
	maxStreamTime = 30 * time.Minute
	// sendTimeout is how long a browser may take to accept a change.
	sendTimeout = 10 * time.Second
)

// liveStreams counts the pages that are kept up to date.
type liveStreams struct {
	stopped chan struct{}
	stop    func()

	mu        sync.Mutex
	count     int
	bySession map[string]int
}

func newLiveStreams() *liveStreams {
	stopped := make(chan struct{})
	return &liveStreams{stopped: stopped, stop: sync.OnceFunc(func() { close(stopped) }), bySession: map[string]int{}}
}

// acquire reports whether the session may have another stream, and counts it.
func (l *liveStreams) acquire(session string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count >= maxStreams || l.bySession[session] >= maxStreamsPerSession {
		return false
	}
	l.count++
	l.bySession[session]++
	return true
}

func (l *liveStreams) release(session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count--
	if l.bySession[session]--; l.bySession[session] == 0 {
		delete(l.bySession, session)
	}
}

// StopWatching ends all streams, so that shutdown need not wait for browsers.
// They reconnect to the next server.
func (s *Server) StopWatching() { s.live.stop() }

// wantsUpdates reports whether an EventSource requests the page.
func wantsUpdates(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

// snapshot is a live page at one moment.
type snapshot struct {
	body    []byte
	live    bool // it can still change
	session string
}

// streamUpdates sends the page, and sends it again when it has changed, until the
// browser disconnects. Every refresh authorizes the person again.
func (req *request) streamUpdates(rt Route) {
	page, err := req.refresh(rt)
	if err != nil && !accessLost(err) {
		req.fail(err)
		return
	}
	if page.live {
		if !req.s.live.acquire(page.session) {
			req.W.Header().Set("Retry-After", "60")
			req.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer req.s.live.release(page.session)
	}
	req.startEvents()
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	end := time.NewTimer(maxStreamTime)
	defer end.Stop()
	var last []byte
	for {
		switch {
		case accessLost(err):
			_ = req.sendEvent("gone", nil) // the browser reloads the page, which shows the error
			return
		case err != nil: // retry at the next tick
		case !page.live:
			// Without the end event an EventSource would reconnect forever.
			if req.sendEvent("page", page.body) == nil {
				_ = req.sendEvent("end", nil)
			}
			return
		case !bytes.Equal(page.body, last):
			last = page.body
			if req.sendEvent("page", last) != nil {
				return
			}
		}
		select {
		case <-tick.C:
		case <-end.C:
			return
		case <-req.s.live.stopped:
			return
		case <-req.Context().Done():
			return
		}
		page, err = req.refresh(rt)
	}
}

// accessLost reports whether the person can't see the page any more. Other errors,
// such as an outage, pass.
func accessLost(err error) bool {
	return fault.Is(err, fault.Authentication) || fault.Is(err, fault.InsufficientScope) || fault.Is(err, fault.NotFound)
}

// refresh builds the page as it is now, as a new request.
func (req *request) refresh(rt Route) (snapshot, error) {
	ctx, cancel := web.WithPageTimeout(req.Context())
	defer cancel()
	fresh := &request{Exchange: web.Exchange{W: req.W, R: req.R.WithContext(ctx), ID: req.ID, IP: req.IP, Start: req.Start}, s: req.s, background: true}
	if err := fresh.authorize(rt); err != nil {
		return snapshot{}, err
	}
	if fresh.session == nil {
		return snapshot{}, errSignIn
	}
	shown, err := rt.page(fresh)
	if err != nil {
		return snapshot{}, err
	}
	if shown == nil {
		return snapshot{}, errSignIn
	}
	body, err := fresh.render(shown)
	return snapshot{body, shown.live, fresh.session.ID}, err
}

func (req *request) startEvents() {
	h := req.W.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // proxies must not buffer events
	req.WriteHeader(http.StatusOK)
}

func (req *request) sendEvent(name string, body []byte) error {
	// A carriage return ends a line as well, so text of a customer could look like
	// an event.
	body = bytes.ReplaceAll(body, []byte("\r"), nil)
	var out bytes.Buffer
	out.WriteString("event: " + name + "\n")
	for line := range bytes.Lines(body) {
		out.WriteString("data: ")
		out.Write(bytes.TrimRight(line, "\n"))
		out.WriteByte('\n')
	}
	if len(body) == 0 {
		out.WriteString("data:\n")
	}
	out.WriteByte('\n')
	return req.stream(out.Bytes())
}
