package dashboard

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"time"

	"turnpike/internal/fault"
)

const (
	// maxWatchers bounds the pages that one node keeps up to date, and maxTabs
	// those of one session; others are as they were when they were opened.
	// Without TLS a browser has six connections, and needs some for the rest.
	maxWatchers = 200
	maxTabs     = 4
	// lookEvery is how often a watched page is built again. That costs as much
	// as opening it, and only what has changed is sent.
	lookEvery = 2 * time.Second
	// watchLimit is when the browser has to ask again.
	watchLimit = 30 * time.Minute
	// sendLimit is how long a browser may take to accept a change.
	sendLimit = 10 * time.Second
)

// watchers are the pages that are kept up to date.
type watchers struct {
	stopped chan struct{}

	mu        sync.Mutex
	count     int
	bySession map[string]int
}

func newWatchers() *watchers {
	return &watchers{stopped: make(chan struct{}), bySession: map[string]int{}}
}

// enter takes a place, if there is one.
func (w *watchers) enter(session string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count >= maxWatchers || w.bySession[session] >= maxTabs {
		return false
	}
	w.count++
	w.bySession[session]++
	return true
}

func (w *watchers) leave(session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	if w.bySession[session]--; w.bySession[session] == 0 {
		delete(w.bySession, session)
	}
}

// StopWatching ends what keeps pages up to date, so that a server that stops
// need not wait for browsers. They come back to the next one.
func (s *Server) StopWatching() {
	s.watchers.mu.Lock()
	defer s.watchers.mu.Unlock()
	select {
	case <-s.watchers.stopped:
	default:
		close(s.watchers.stopped)
	}
}

// wantsUpdates reports whether the page is asked for by an EventSource: then it
// is sent again whenever it has changed.
func (v *visit) wantsUpdates() bool {
	return strings.Contains(v.r.Header.Get("Accept"), "text/event-stream")
}

// keepUpdated sends the page as it is, and again when it has changed, until the
// browser leaves. Every look is a visit of its own: whoever is signed out, or
// loses their role, sees nothing more.
func (v *visit) keepUpdated(rt route) {
	first := v.again()
	body, live, err := first.look(rt)
	if isGone(err) {
		v.beginEvents()
		_ = v.sendEvent("gone", nil) // the browser loads the page, which says why
		return
	}
	if err != nil {
		v.fail(err)
		return
	}
	if !live {
		// What it shows has ended, perhaps since the browser has got it.
		v.beginEvents()
		v.sendLast(body)
		return
	}
	if session := first.session.ID; v.s.watchers.enter(session) {
		defer v.s.watchers.leave(session)
	} else {
		v.w.Header().Set("Retry-After", "60")
		v.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	v.beginEvents()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	end := time.NewTimer(watchLimit)
	defer end.Stop()
	var last []byte
	for {
		if isGone(err) {
			_ = v.sendEvent("gone", nil)
			return
		}
		if err == nil && !live {
			v.sendLast(body)
			return
		}
		if err == nil && !bytes.Equal(body, last) {
			last = body
			if v.sendEvent("page", body) != nil {
				return
			}
		}
		select {
		case <-tick.C:
		case <-end.C:
			return
		case <-v.s.watchers.stopped:
			return
		case <-v.ctx().Done():
			return
		}
		body, live, err = v.again().look(rt)
	}
}

// sendLast sends a page that will not change any more. Without the word for it an
// EventSource would ask again and again.
func (v *visit) sendLast(body []byte) {
	if v.sendEvent("page", body) == nil {
		_ = v.sendEvent("end", nil)
	}
}

// isGone tells what will not come back from what may, as an outage does.
func isGone(err error) bool {
	return fault.Is(err, fault.Authentication) || fault.Is(err, fault.InsufficientScope) || fault.Is(err, fault.NotFound)
}

// again is the same visit anew.
func (v *visit) again() *visit {
	return &visit{s: v.s, w: v.w, r: v.r, id: v.id, ip: v.ip, start: v.start, watches: true}
}

// look builds the page as it is now.
func (v *visit) look(rt route) (body []byte, live bool, err error) {
	defer v.impatient()()
	if err := v.admit(rt); err != nil {
		return nil, false, err
	}
	if v.session == nil {
		return nil, false, errSignIn
	}
	shown, err := rt.page(v)
	if err != nil {
		return nil, false, err
	}
	if shown == nil {
		return nil, false, errSignIn
	}
	body, err = v.render(shown)
	return body, shown.live, err
}

func (v *visit) beginEvents() {
	h := v.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // proxies must not hold it back
	v.WriteHeader(http.StatusOK)
}

func (v *visit) sendEvent(name string, body []byte) error {
	// A carriage return would end a line of the stream, too, and with it let
	// what a customer wrote look like an event of ours.
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
	control := http.NewResponseController(v.w)
	_ = control.SetWriteDeadline(time.Now().Add(sendLimit))
	if _, err := v.w.Write(out.Bytes()); err != nil {
		return err
	}
	err := control.Flush()
	_ = control.SetWriteDeadline(time.Time{}) // HTTP/2 ends a quiet stream at its deadline
	return err
}
