package dashboard

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/web"
	"turnpike/internal/webhooks"
)

type endpointRow struct {
	*webhooks.Endpoint
	Health string
	Stats  *webhooks.EndpointStats
	Held   heldCount
	Grace  bool // the previous secret still signs
}

// Host returns the host of the endpoint's URL, which is what a person types to delete it. A tunnel has none.
func (e endpointRow) Host() string {
	u, err := url.Parse(e.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

// heldCount is the number of held deliveries, up to a maximum.
type heldCount struct {
	N    int
	More bool
}

func (h heldCount) String() string {
	if h.More {
		return showCount(h.N) + " or more"
	}
	return showCount(h.N)
}

const (
	maxHeldInList = 1000 // where counting stops in a list
	maxHeld       = 10_000
)

func (req *request) endpointRows(bound int, list ...*webhooks.Endpoint) ([]endpointRow, error) {
	stats, err := req.s.Webhooks.Stats(req.Context(), req.s.DB, web.Map(list, func(e *webhooks.Endpoint) string { return e.ID })...)
	if err != nil {
		return nil, err
	}
	rows := make([]endpointRow, len(list))
	for i, e := range list {
		r := endpointRow{Endpoint: e, Stats: stats[e.ID], Grace: e.OldSecretUntil != nil && req.now().Before(*e.OldSecretUntil)}
		r.Health = health(e, r.Stats)
		if e.Status == webhooks.Paused {
			if r.Held.N, err = req.s.Webhooks.HeldCount(req.Context(), req.s.DB, e.ID, bound); err != nil {
				return nil, err
			}
			r.Held.More = r.Held.N == bound
		}
		rows[i] = r
	}
	return rows, nil
}

// health returns an endpoint's state in one word. An active endpoint is failing if its
// last attempt failed.
func health(e *webhooks.Endpoint, st *webhooks.EndpointStats) string {
	switch {
	case e.Kind == webhooks.Tunnel && e.Status == webhooks.Paused:
		return "disconnected"
	case e.Kind == webhooks.Tunnel:
		return "connected"
	case e.Status == webhooks.Paused:
		return "paused"
	case st.LastFailureAt != nil && (st.LastSuccessAt == nil || st.LastSuccessAt.Before(*st.LastFailureAt)):
		return "failing"
	}
	return "active"
}

type webhooksData struct {
	Endpoints []endpointRow
	Tunnels   []endpointRow
	Next      pager
}

// PublicURL returns the address of the server.
func (s *shell) PublicURL() string { return s.req.s.PublicURL }

// maxTunnels is how many tunnels the page shows, newest first.
const maxTunnels = 20

func webhooksPage(req *request) (*view, error) {
	page := req.page(ids.Endpoint)
	found, err := req.s.Webhooks.List(req.Context(), req.s.DB, req.principal.Visibility(), false, page)
	if err != nil {
		return nil, err
	}
	tunnels, err := req.s.Webhooks.ListTunnels(req.Context(), req.s.DB, req.principal.Visibility(), db.Page{Limit: maxTunnels})
	if err != nil {
		return nil, err
	}
	d := webhooksData{Next: req.pager(page, found.More, func() string { return found.Cursor })}
	if d.Endpoints, err = req.endpointRows(maxHeldInList, found.Rows...); err != nil {
		return nil, err
	}
	if d.Tunnels, err = req.endpointRows(maxHeldInList, tunnels.Rows...); err != nil {
		return nil, err
	}
	return &view{template: "webhooks", title: "Webhooks", data: d, live: true}, nil
}

type endpointForm struct {
	Endpoint *webhooks.Endpoint
	Projects string   // of the filter, separated by commas
	Limit    string   // requests per second
	Patterns []string // choices besides all events
}

// patterns returns all events and the endpoint's own wildcards, so that saving the form
// keeps those that were set by the API.
func patterns(e *webhooks.Endpoint) []string {
	var out []string
	for _, p := range e.Events {
		if p != "*" && !slices.Contains(events.Types, events.Type(p)) && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	for _, t := range events.Types {
		out = append(out, string(t))
	}
	return out
}

// Seen returns the fingerprint of the endpoint.
func (f endpointForm) Seen() string { return endpointFingerprint(f.Endpoint) }

// Has reports whether the endpoint has the pattern.
func (f endpointForm) Has(pattern string) bool { return slices.Contains(f.Endpoint.Events, pattern) }

func newEndpointForm(e *webhooks.Endpoint) endpointForm {
	f := endpointForm{Endpoint: e, Projects: strings.Join(e.Projects, ", "), Patterns: patterns(e)}
	if e.RequestsPerSecond != nil {
		f.Limit = strconv.FormatInt(*e.RequestsPerSecond, 10)
	}
	return f
}

// readEndpoint reads all fields of the form and returns all their errors.
func (req *request) readEndpoint(e *webhooks.Endpoint) error {
	e.URL, e.Description, e.Events = req.form("url"), req.form("description"), req.R.PostForm["events"]
	if slices.Contains(e.Events, "*") {
		e.Events = []string{"*"}
	}
	e.Projects = strings.FieldsFunc(req.form("projects"), func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	e.RequestsPerSecond = nil
	var invalid error
	if text := req.form("requests_per_second"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			invalid = fault.Invalid("requests_per_second", "Enter a whole number of requests per second.")
		} else {
			e.RequestsPerSecond = &n
		}
	}
	changes := webhooks.HeaderChanges{}
	for _, name := range req.R.PostForm["remove_header"] {
		changes[name] = nil
	}
	headers, err := parseHeaders(req.form("headers"))
	for name, value := range headers {
		changes[name] = &value
	}
	e.SetHeaders(changes)
	if invalid = errors.Join(invalid, err); invalid != nil {
		return errors.Join(req.s.Webhooks.Check(e), invalid)
	}
	return nil
}

func newEndpointPage(req *request) (*view, error) {
	e := &webhooks.Endpoint{Events: []string{"*"}}
	return &view{template: "webhook_new", title: "New webhook endpoint", data: newEndpointForm(e)}, nil
}

func createEndpoint(req *request) (*view, error) {
	e := &webhooks.Endpoint{Tenant: req.workspace.In(req.env)}
	if err := req.readEndpoint(e); err != nil {
		return nil, err
	}
	secret, err := writeValue(req, func(tx *db.Tx) (string, error) { return req.s.Webhooks.Create(req.Context(), tx, req.actor(), e) })
	if err != nil {
		return nil, err
	}
	return req.redirect(req.to("webhooks/"+e.ID), flash{Notice: "Endpoint created. Send it a test event to check that it works.", Secret: secret, Of: e.ID})
}

func (req *request) endpoint() (*webhooks.Endpoint, error) {
	return req.s.Webhooks.Get(req.Context(), req.s.DB, req.principal.Visibility(), req.id())
}

// changeEndpoint changes the endpoint in the path and redirects to its page.
func (req *request) changeEndpoint(notice string, change func(tx *db.Tx, e *webhooks.Endpoint) error) (*view, error) {
	return req.save(req.to("webhooks/"+req.id()), notice, func(tx *db.Tx) error {
		e, err := req.lockEndpoint(tx)
		if err != nil {
			return err
		}
		return change(tx, e)
	})
}

func (req *request) lockEndpoint(tx *db.Tx) (*webhooks.Endpoint, error) {
	return req.s.Webhooks.GetLocked(req.Context(), tx, req.principal.Visibility(), req.id())
}

type endpointData struct {
	Endpoint   endpointRow
	Secret     string // if it was just created
	Types      []events.Type
	Deliveries []deliveryRow
	Replays    []*webhooks.Replay
}

const (
	latestDeliveries = 10
	latestReplays    = 5
)

func showEndpoint(req *request, e *webhooks.Endpoint) (*view, error) {
	rows, err := req.endpointRows(maxHeld, e)
	if err != nil {
		return nil, err
	}
	found, err := req.s.Webhooks.ListDeliveries(req.Context(), req.s.DB, req.principal.Visibility(), webhooks.DeliveryFilter{EndpointID: e.ID}, db.Page{Limit: latestDeliveries})
	if err != nil {
		return nil, err
	}
	replays, err := req.s.Webhooks.ListReplays(req.Context(), req.s.DB, req.principal.Visibility(), e.ID, db.Page{Limit: latestReplays})
	if err != nil {
		return nil, err
	}
	d := endpointData{Endpoint: rows[0], Secret: req.shownSecret(e.ID), Types: subscribedFirst(e), Replays: replays.Rows}
	d.Deliveries = web.Map(found.Rows, func(one *webhooks.Delivery) deliveryRow { return deliveryRow{Delivery: one} })
	return &view{template: "webhook", title: endpointName(e), data: d, live: true}, nil
}

// subscribedFirst returns all events, those that the endpoint subscribes to first.
func subscribedFirst(e *webhooks.Endpoint) []events.Type {
	var wanted, others []events.Type
	for _, t := range events.Types {
		if t.Matches(e.Events) {
			wanted = append(wanted, t)
		} else {
			others = append(others, t)
		}
	}
	return append(wanted, others...)
}

func endpointName(e *webhooks.Endpoint) string {
	switch {
	case e.Kind == webhooks.Tunnel:
		return "Tunnel"
	case e.Description != "":
		return shortened(e.Description, 60)
	}
	return shortened(e.URL, 60)
}

func editEndpointPage(_ *request, e *webhooks.Endpoint) (*view, error) {
	return &view{template: "webhook_edit", title: "Edit endpoint", data: newEndpointForm(e)}, nil
}

func editEndpoint(req *request) (*view, error) {
	return req.save(req.to("webhooks/"+req.id()), "Endpoint saved. The next attempts use the new settings.", func(tx *db.Tx) error {
		_, err := req.s.Webhooks.Change(req.Context(), tx, recordChange(req, func(e *webhooks.Endpoint) error {
			before := endpointFingerprint(e)
			if err := req.readEndpoint(e); err != nil {
				return err
			}
			return req.checkEditConflict(before, endpointFingerprint(e))
		}))
		return err
	})
}

func pauseEndpoint(req *request) (*view, error) {
	return req.changeEndpoint("Endpoint paused. New events are held for it.", func(tx *db.Tx, e *webhooks.Endpoint) error {
		return req.s.Webhooks.Pause(req.Context(), tx, req.actor(), e)
	})
}

func resumeEndpoint(req *request) (*view, error) {
	held := req.form("held")
	notice := "Endpoint resumed. Held deliveries are sent now, oldest first."
	switch held {
	case "deliver":
	case "discard":
		notice = "Endpoint resumed. Held deliveries are discarded."
	default:
		return nil, fault.Invalid("held", "Choose whether to deliver or discard held deliveries.")
	}
	return req.changeEndpoint(notice, func(tx *db.Tx, e *webhooks.Endpoint) error {
		return req.s.Webhooks.Resume(req.Context(), tx, req.actor(), e, held == "discard")
	})
}

func rotateSecretPage(req *request, e *webhooks.Endpoint) (*view, error) {
	rows, err := req.endpointRows(maxHeldInList, e)
	if err != nil {
		return nil, err
	}
	return &view{template: "webhook_rotate", title: "Rotate secret", data: endpointData{Endpoint: rows[0]}}, nil
}

func rotateSecret(req *request) (*view, error) {
	seconds, err := strconv.ParseInt(req.form("grace"), 10, 32)
	if err != nil {
		return nil, fault.Invalid("grace", "Choose a grace period for the old secret.")
	}
	secret, err := writeValue(req, func(tx *db.Tx) (string, error) {
		e, err := req.lockEndpoint(tx)
		if err != nil {
			return "", err
		}
		return req.s.Webhooks.RotateSecret(req.Context(), tx, req.actor(), e, time.Duration(seconds)*time.Second)
	})
	if err != nil {
		return nil, err
	}
	return req.redirect(req.to("webhooks/"+req.id()), flash{Notice: "Secret rotated.", Secret: secret, Of: req.id()})
}

func endSecretGrace(req *request) (*view, error) {
	return req.changeEndpoint("Grace period ended. The old secret no longer signs.", func(tx *db.Tx, e *webhooks.Endpoint) error {
		return req.s.Webhooks.EndGrace(req.Context(), tx, req.actor(), e)
	})
}

// testEndpoint sends a sample event and redirects to its delivery.
func testEndpoint(req *request) (*view, error) {
	t, err := events.ParseType("type", req.form("type"))
	if err != nil {
		return nil, err
	}
	d, err := writeValue(req, func(tx *db.Tx) (*webhooks.Delivery, error) {
		e, err := req.lockEndpoint(tx)
		if err != nil {
			return nil, err
		}
		return req.s.Webhooks.SendTest(req.Context(), tx, req.actor(), e, webhooks.TestEvent{Type: t})
	})
	if err != nil {
		return nil, err
	}
	notice := "Test event sent."
	if d.State == webhooks.Held {
		notice = "The endpoint is paused, so the test event is on hold."
	}
	return req.redirect(req.to("deliveries/"+d.ID), flash{Notice: notice})
}

func deleteEndpoint(req *request) (*view, error) {
	return req.save(req.to("webhooks"), "Endpoint deleted. You can still view its deliveries.", func(tx *db.Tx) error {
		e, err := req.lockEndpoint(tx)
		if err != nil {
			return err
		}
		if err := req.checkTypedName(endpointRow{Endpoint: e}.Host()); err != nil {
			return err
		}
		return req.s.Webhooks.Delete(req.Context(), tx, req.actor(), e)
	})
}
