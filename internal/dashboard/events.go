package dashboard

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/files"
	"turnpike/internal/ids"
	"turnpike/internal/logsearch"
)

// shownEvent is an event with its body as delivered, and with valid links.
type shownEvent struct {
	*events.Event
	Text  string // the body, indented
	Cut   bool   // the body is truncated
	Files []fileLink
}

type fileLink struct{ Name, URL string }

const (
	// eventLinkLifetime is how long links on a page work. They change every
	// eventLinkStep and not at each refresh, so that a live page isn't sent again
	// for them.
	eventLinkLifetime = 24 * time.Hour
	eventLinkStep     = 10 * time.Minute
	// bodyShown is how much of a body a page shows; the download has all of it.
	bodyShown = 16_000
	// filesShown is how many links are listed.
	filesShown = 20
)

func (req *request) showEvent(e *events.Event) (*shownEvent, error) {
	body, links, err := req.linkedBody(e)
	if err != nil {
		return nil, err
	}
	s := &shownEvent{Event: e, Text: showJSON(body), Files: links[:min(len(links), filesShown)]}
	if len(s.Text) > bodyShown {
		s.Text, s.Cut = strings.ToValidUTF8(s.Text[:bodyShown], ""), true
	}
	return s, nil
}

// linkedBody returns the body with links instead of references to files.
func (req *request) linkedBody(e *events.Event) (body []byte, links []fileLink, err error) {
	if req.s.Files == nil {
		return e.Body, nil, nil
	}
	expires := req.now().Truncate(eventLinkStep).Add(eventLinkLifetime)
	body, err = events.Link(e.Type, e.Body, func(sha256, name string) (string, int64) {
		link := req.s.Files.URL(e.Tenant, files.File{SHA256: sha256}, name, expires)
		links = append(links, fileLink{name, link})
		return link, expires.Unix()
	})
	return body, links, err
}

type eventsData struct {
	Search *searchBox
	Rows   []*events.Event
	Live   bool     // first page of a fast search, which is kept up to date
	Looked *scanned // nil if the search is complete
	Next   pager
}

func eventsPage(req *request) (*view, error) {
	projects, err := req.projectChoices()
	if err != nil {
		return nil, err
	}
	f := events.Filter{NoBody: true}
	var event string
	l := searchable{Example: "event:agent.* project:shop last:1h", Old: map[string]string{"type": "event"}}
	l.Fields = []logsearch.Field{
		{Name: "event", Label: "Event", Help: "agent.*", Values: logsearch.Strings(events.Types), Set: logsearch.Text(&event)},
		{Name: "project", Label: "Project", Help: "the ID of a project", Values: projects, Set: logsearch.Text(&f.Project)},
	}
	l.Word = func(word string) string {
		if slices.ContainsFunc(events.Types, func(t events.Type) bool { return db.Match(word, string(t)) }) {
			return "event"
		}
		return ""
	}
	box, err := req.search(l)
	if err != nil || box == nil {
		return nil, err
	}
	box.eventHint(event)
	f.Type = events.Type(event)
	f.Since, f.Until = box.Period.Bounds(req.now())
	page, found := req.page(ids.Event), &db.Found[*events.Event]{}
	if !box.Unmatched() {
		if found, err = events.List(req.Context(), req.history(), req.principal.Visibility(), f, page); err != nil {
			return nil, err
		}
		t := box.span(req.now())
		f.Since, f.Until = within(t, f.Until)
		counts, err := events.Count(req.Context(), req.history(), req.principal.Visibility(), f, t)
		if err != nil {
			return nil, err
		}
		box.draw(t, counts, "events")
	}
	d := eventsData{Search: box, Rows: found.Rows, Live: page.After == "" && found.Looked == 0, Next: req.pager(page, found.More, func() string { return found.Cursor })}
	d.Looked = scanLimit(found, d.Next)
	return &view{template: "events", title: "Events", data: d, live: d.Live}, nil
}

type eventData struct {
	Event      *shownEvent
	Deliveries []deliveryRow
}

func (req *request) event() (*events.Event, error) {
	return events.Get(req.Context(), req.s.DB, req.principal.Visibility(), req.id())
}

func eventPage(req *request, e *events.Event) (*view, error) {
	shown, err := req.showEvent(e)
	if err != nil {
		return nil, err
	}
	sent, err := req.s.Webhooks.EventDeliveries(req.Context(), req.s.DB, req.principal.Visibility(), e.ID)
	if err != nil {
		return nil, err
	}
	rows, err := req.deliveryRows(sent)
	return &view{template: "event", title: string(e.Type), data: eventData{shown, rows}, live: true}, err
}

func eventBody(req *request, e *events.Event) (*view, error) {
	body, _, err := req.linkedBody(e)
	if err != nil {
		return nil, err
	}
	h := req.W.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Disposition", `attachment; filename="`+e.ID+`.json"`)
	req.WriteHeader(http.StatusOK)
	_, _ = req.W.Write(body) // the browser may have disconnected
	return nil, nil
}
