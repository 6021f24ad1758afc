package dashboard

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	"turnpike/internal/fault"
)

const (
	// maxWatchers bounds the pages that one node keeps up to date; others are
	// as they were when they were opened.
	maxWatchers = 200
	// lookEvery is how often a watched page is built again. That costs as much
	// as opening it, and only what has changed is sent.
	lookEvery = 2 * time.Second
	// watchLimit is when the browser has to ask again.
	watchLimit = 30 * time.Minute
	// sendLimit is how long a browser may take to accept a change.
	sendLimit = 10 * time.Second
)

// wantsUpdates reports whether the page is asked for by an EventSource: then it
// is sent again whenever it has changed.
func (v *visit) wantsUpdates() bool {
	return v.session != nil && strings.Contains(v.r.Header.Get("Accept"), "text/event-stream")
}

// keepUpdated sends the page as it is, and again when it has changed, until the
// browser leaves. Every look is a visit of its own: whoever is signed out, or
// loses their role, sees nothing more.
func (v *visit) keepUpdated(rt route) {
	select {
	case v.s.watchers <- struct{}{}:
		defer func() { <-v.s.watchers }()
	default:
		v.w.Header().Set("Retry-After", "60")
		v.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	h := v.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // proxies must not hold it back
	v.WriteHeader(http.StatusOK)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	end := time.NewTimer(watchLimit)
	defer end.Stop()
	var last []byte
	for {
		again := &visit{s: v.s, w: v.w, r: v.r, id: v.id, ip: v.ip, start: v.start}
		body, err := again.look(rt)
		if fault.Is(err, fault.Authentication) || fault.Is(err, fault.InsufficientScope) || fault.Is(err, fault.NotFound) {
			_ = v.sendEvent("gone", nil) // the browser loads the page, which says why
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
		case <-v.ctx().Done():
			return
		}
	}
}

// look builds the page as it is now.
func (v *visit) look(rt route) ([]byte, error) {
	if err := v.admit(rt); err != nil {
		return nil, err
	}
	shown, err := rt.page(v)
	if err != nil {
		return nil, err
	}
	if shown == nil {
		return nil, errSignIn
	}
	return v.render(shown)
}

func (v *visit) sendEvent(name string, body []byte) error {
	var out bytes.Buffer
	out.WriteString("event: " + name + "\n")
	for line := range bytes.Lines(body) {
		out.WriteString("data: ")
		out.Write(bytes.TrimRight(line, "\r\n"))
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
	return control.Flush()
}
