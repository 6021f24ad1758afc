package dashboard

import (
	"net/http"
	"strings"
	"time"

	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/ids"
)

// shownEvent is an event with its body as it is delivered, with links that work
// for whoever looks at it.
type shownEvent struct {
	*events.Event
	Text  string // the body, indented
	Cut   bool   // there is more of it
	Files []fileLink
}

type fileLink struct{ Name, URL string }

const (
	// eventLinkLife is how long the links on a page work. They change every ten
	// minutes and not at each look, so that a page that is kept up to date is not
	// sent again for them.
	eventLinkLife = 24 * time.Hour
	eventLinkStep = 10 * time.Minute
	// bodyShown is how much of a body a page has; all of it can be downloaded.
	bodyShown = 16_000
	// filesShown is how many of a body's links are listed.
	filesShown = 20
)

func (v *visit) showEvent(e *events.Event) (*shownEvent, error) {
	body, links, err := v.linkedBody(e)
	if err != nil {
		return nil, err
	}
	s := &shownEvent{Event: e, Text: showJSON(body), Files: links[:min(len(links), filesShown)]}
	if len(s.Text) > bodyShown {
		s.Text, s.Cut = strings.ToValidUTF8(s.Text[:bodyShown], ""), true
	}
	return s, nil
}

// linkedBody is the body with links in the place of its references to files.
func (v *visit) linkedBody(e *events.Event) (body []byte, links []fileLink, err error) {
	if v.s.Files == nil {
		return e.Body, nil, nil
	}
	expires := v.now().Truncate(eventLinkStep).Add(eventLinkLife)
	body, err = events.Link(e.Type, e.Body, func(sha256, name string) (string, int64) {
		link := v.s.Files.URL(files.Owner{WorkspaceID: e.WorkspaceID, Environment: e.Environment}, files.File{SHA256: sha256}, name, expires)
		links = append(links, fileLink{name, link})
		return link, expires.Unix()
	})
	return body, links, err
}

type eventsData struct {
	Now   time.Time
	Rows  []*events.Event
	Types []events.Type
	Live  bool // it begins with the newest and was found soon, and so is kept up to date
	Next  pager
}

func eventsPage(v *visit) (*view, error) {
	f := events.Filter{Type: events.Type(v.query("type"))}
	if f.Type != "" {
		if _, err := events.ParseType("type", string(f.Type)); err != nil {
			return nil, err
		}
	}
	page := v.page(ids.Event)
	found, err := events.ListHeads(v.ctx(), v.s.DB, v.principal.Visibility(), f, page)
	if err != nil {
		return nil, err
	}
	d := eventsData{Now: v.now(), Rows: found.Rows, Types: events.Types, Live: page.After == "" && found.Looked == 0, Next: v.pager(page, found.More, func() string { return found.Cursor })}
	return &view{template: "events", title: "Events", data: d, live: d.Live}, nil
}

type eventData struct {
	Now        time.Time
	Event      *shownEvent
	Deliveries []deliveryRow
}

// event reads the event that the path names.
func (v *visit) event() (*events.Event, error) {
	id, err := v.pathID(ids.Event, "event")
	if err != nil {
		return nil, err
	}
	return events.Get(v.ctx(), v.s.DB, v.principal.Visibility(), id)
}

func eventPage(v *visit) (*view, error) {
	e, err := v.event()
	if err != nil {
		return nil, err
	}
	shown, err := v.showEvent(e)
	if err != nil {
		return nil, err
	}
	d := eventData{Now: v.now(), Event: shown}
	sent, err := v.s.Webhooks.EventDeliveries(v.ctx(), v.s.DB, v.principal.Visibility(), e.ID)
	if err != nil {
		return nil, err
	}
	if d.Deliveries, err = v.deliveryRows(sent); err != nil {
		return nil, err
	}
	return &view{template: "event", title: string(e.Type), data: d, live: true}, nil
}

// eventBody is the whole body, to be kept.
func eventBody(v *visit) (*view, error) {
	e, err := v.event()
	if err != nil {
		return nil, err
	}
	body, _, err := v.linkedBody(e)
	if err != nil {
		return nil, fault.New(fault.Internal, "the event cannot be read").Because(err)
	}
	h := v.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Disposition", `attachment; filename="`+e.ID+`.json"`)
	v.WriteHeader(http.StatusOK)
	_, _ = v.w.Write(body) // a browser that left is no fault of ours
	return nil, nil
}
