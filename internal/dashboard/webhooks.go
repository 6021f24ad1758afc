package dashboard

import (
	"slices"
	"strconv"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/webhooks"
)

// endpointRow is an endpoint with how it fares.
type endpointRow struct {
	*webhooks.Endpoint
	Health string
	Stats  *webhooks.EndpointStats
	Held   heldCount
	Grace  bool // the secret before this one still signs
}

// heldCount is how many deliveries wait for an endpoint, as far as they were
// counted.
type heldCount struct {
	N    int
	More bool
}

const (
	heldInList = 1000 // up to which number held deliveries are counted for a list
	heldAlone  = 10_000
)

// endpointRows adds what endpoints do not know of themselves.
func (v *visit) endpointRows(bound int, list ...*webhooks.Endpoint) ([]endpointRow, error) {
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = e.ID
	}
	stats, err := v.s.Webhooks.Stats(v.ctx(), v.s.DB, names...)
	if err != nil {
		return nil, err
	}
	rows := make([]endpointRow, len(list))
	for i, e := range list {
		r := endpointRow{Endpoint: e, Stats: stats[e.ID], Grace: e.OldSecretUntil != nil && v.now().Before(*e.OldSecretUntil)}
		r.Health = health(e, r.Stats)
		if e.Status == webhooks.Paused {
			if r.Held.N, err = v.s.Webhooks.HeldCount(v.ctx(), v.s.DB, e.ID, bound); err != nil {
				return nil, err
			}
			r.Held.More = r.Held.N == bound
		}
		rows[i] = r
	}
	return rows, nil
}

// health is an endpoint in one word. One that is active fails when its last
// attempt did.
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
	Now       time.Time
	Endpoints []endpointRow
	Tunnels   []endpointRow
	Next      pager
}

// maxTunnels is how many tunnels a page shows, the newest.
const maxTunnels = 20

func webhooksPage(v *visit) (*view, error) {
	page := v.page(ids.Endpoint)
	found, err := v.s.Webhooks.List(v.ctx(), v.s.DB, v.principal.Visibility(), false, page)
	if err != nil {
		return nil, err
	}
	tunnels, err := v.s.Webhooks.ListTunnels(v.ctx(), v.s.DB, v.principal.Visibility(), db.Page{Limit: maxTunnels})
	if err != nil {
		return nil, err
	}
	d := webhooksData{Now: v.now(), Next: v.pager(page, found.More, func() string { return found.Cursor })}
	if d.Endpoints, err = v.endpointRows(heldInList, found.Rows...); err != nil {
		return nil, err
	}
	if d.Tunnels, err = v.endpointRows(heldInList, tunnels.Rows...); err != nil {
		return nil, err
	}
	return &view{template: "webhooks", title: "Webhooks", data: d, live: true}, nil
}

// endpointForm is the form that makes or changes an endpoint.
type endpointForm struct {
	Endpoint *webhooks.Endpoint
	Patterns []string // that can be ticked, besides everything
}

// patterns are all events, and what else the endpoint has: wildcards that the
// API has set stay when the form is saved.
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

// Seen is the mark of the endpoint.
func (f endpointForm) Seen() string { return endpointMark(f.Endpoint) }

// Has reports whether the endpoint has the pattern, for the boxes.
func (f endpointForm) Has(pattern string) bool { return slices.Contains(f.Endpoint.Events, pattern) }

// readEndpoint reads the form.
func (v *visit) readEndpoint(e *webhooks.Endpoint) {
	e.URL, e.Description, e.Events = v.form("url"), v.form("description"), v.r.PostForm["events"]
	if slices.Contains(e.Events, "*") {
		e.Events = []string{"*"}
	}
}

func newEndpointPage(v *visit) (*view, error) {
	e := &webhooks.Endpoint{}
	return &view{template: "webhook_new", title: "New webhook endpoint", data: endpointForm{e, patterns(e)}}, nil
}

func createEndpoint(v *visit) (*view, error) {
	e := &webhooks.Endpoint{WorkspaceID: v.workspace.ID, Environment: v.env}
	v.readEndpoint(e)
	var secret string
	err := v.write(func(tx *db.Tx) (err error) {
		secret, err = v.s.Webhooks.Create(v.ctx(), tx, v.actor(), e)
		return err
	})
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("webhooks/"+e.ID), flash{Notice: "The endpoint was created. Send it a test event to see whether it works.", Secret: secret, Of: e.ID})
	return nil, nil
}

// endpoint reads the endpoint that the path names.
func (v *visit) endpoint() (*webhooks.Endpoint, error) {
	id, err := v.pathID(ids.Endpoint, "webhook endpoint")
	if err != nil {
		return nil, err
	}
	return v.s.Webhooks.Get(v.ctx(), v.s.DB, v.principal.Visibility(), id)
}

// changeEndpoint changes the endpoint that the path names, and leads to it.
func (v *visit) changeEndpoint(say string, change func(tx *db.Tx, e *webhooks.Endpoint) error) (*view, error) {
	id, err := v.pathID(ids.Endpoint, "webhook endpoint")
	if err != nil {
		return nil, err
	}
	err = v.write(func(tx *db.Tx) error {
		e, err := v.s.Webhooks.GetLocked(v.ctx(), tx, v.principal.Visibility(), id)
		if err != nil {
			return err
		}
		return change(tx, e)
	})
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("webhooks/"+id), flash{Notice: say})
	return nil, nil
}

type endpointData struct {
	Now        time.Time
	Endpoint   endpointRow
	Secret     string // right after it was made
	Types      []events.Type
	Deliveries []deliveryRow
	Replays    []*webhooks.Replay
}

const (
	latestDeliveries = 10
	latestReplays    = 5
)

func endpointPage(v *visit) (*view, error) {
	e, err := v.endpoint()
	if err != nil {
		return nil, err
	}
	rows, err := v.endpointRows(heldAlone, e)
	if err != nil {
		return nil, err
	}
	found, err := v.s.Webhooks.ListDeliveries(v.ctx(), v.s.DB, v.principal.Visibility(), webhooks.DeliveryFilter{EndpointID: e.ID}, db.Page{Limit: latestDeliveries})
	if err != nil {
		return nil, err
	}
	replays, err := v.s.Webhooks.ListReplays(v.ctx(), v.s.DB, v.principal.Visibility(), e.ID, db.Page{Limit: latestReplays})
	if err != nil {
		return nil, err
	}
	d := endpointData{Now: v.now(), Endpoint: rows[0], Secret: v.shownSecret(e.ID), Types: wantedFirst(e), Replays: replays.Rows}
	for _, one := range found.Rows {
		d.Deliveries = append(d.Deliveries, deliveryRow{Delivery: one})
	}
	return &view{template: "webhook", title: endpointName(e), data: d, live: true}, nil
}

// wantedFirst are all events, those that the endpoint has subscribed to first.
func wantedFirst(e *webhooks.Endpoint) []events.Type {
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

// endpointName is what people call an endpoint.
func endpointName(e *webhooks.Endpoint) string {
	switch {
	case e.Kind == webhooks.Tunnel:
		return "Tunnel"
	case e.Description != "":
		return shortened(e.Description, 60)
	}
	return shortened(e.URL, 60)
}

func editEndpointPage(v *visit) (*view, error) {
	e, err := v.endpoint()
	if err != nil {
		return nil, err
	}
	return &view{template: "webhook_edit", title: "Change endpoint", data: endpointForm{e, patterns(e)}}, nil
}

func editEndpoint(v *visit) (*view, error) {
	return v.changeEndpoint("The endpoint was changed. The next attempts use it as it is now.", func(tx *db.Tx, e *webhooks.Endpoint) error {
		was := endpointMark(e)
		v.readEndpoint(e)
		if err := v.overtaken(was, endpointMark(e)); err != nil {
			return err
		}
		return v.s.Webhooks.Update(v.ctx(), tx, v.actor(), e)
	})
}

func pauseEndpoint(v *visit) (*view, error) {
	return v.changeEndpoint("The endpoint is paused. Nothing is lost: what happens now is held for it.", func(tx *db.Tx, e *webhooks.Endpoint) error {
		return v.s.Webhooks.Pause(v.ctx(), tx, v.actor(), e)
	})
}

func resumeEndpoint(v *visit) (*view, error) {
	if _, err := v.endpoint(); err != nil {
		return nil, err
	}
	held := v.form("held")
	say := "The endpoint is active again. What was held is delivered now, the oldest first."
	switch held {
	case "deliver":
	case "discard":
		say = "The endpoint is active again. What was held is discarded."
	default:
		return nil, fault.Invalid("held", "choose whether what is held is delivered or discarded")
	}
	return v.changeEndpoint(say, func(tx *db.Tx, e *webhooks.Endpoint) error {
		return v.s.Webhooks.Resume(v.ctx(), tx, v.actor(), e, held == "discard")
	})
}

func rotateSecretPage(v *visit) (*view, error) {
	e, err := v.endpoint()
	if err != nil {
		return nil, err
	}
	rows, err := v.endpointRows(heldInList, e)
	if err != nil {
		return nil, err
	}
	return &view{template: "webhook_rotate", title: "Rotate secret", data: endpointData{Now: v.now(), Endpoint: rows[0]}}, nil
}

func rotateSecret(v *visit) (*view, error) {
	e, err := v.endpoint()
	if err != nil {
		return nil, err
	}
	seconds, err := strconv.ParseInt(v.form("grace"), 10, 32)
	if err != nil {
		return nil, fault.Invalid("grace", "choose how long the old secret goes on signing")
	}
	var secret string
	err = v.write(func(tx *db.Tx) error {
		e, err := v.s.Webhooks.GetLocked(v.ctx(), tx, v.principal.Visibility(), e.ID)
		if err != nil {
			return err
		}
		secret, err = v.s.Webhooks.RotateSecret(v.ctx(), tx, v.actor(), e, time.Duration(seconds)*time.Second)
		return err
	})
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("webhooks/"+e.ID), flash{Notice: "The endpoint has a new secret.", Secret: secret, Of: e.ID})
	return nil, nil
}

func endSecretGrace(v *visit) (*view, error) {
	return v.changeEndpoint("The old secret does not sign any more.", func(tx *db.Tx, e *webhooks.Endpoint) error {
		return v.s.Webhooks.EndGrace(v.ctx(), tx, v.actor(), e)
	})
}

// testEndpoint sends a made-up event and leads to its delivery.
func testEndpoint(v *visit) (*view, error) {
	e, err := v.endpoint()
	if err != nil {
		return nil, err
	}
	t, err := events.ParseType("type", v.form("type"))
	if err != nil {
		return nil, err
	}
	var d *webhooks.Delivery
	err = v.write(func(tx *db.Tx) error {
		e, err := v.s.Webhooks.GetLocked(v.ctx(), tx, v.principal.Visibility(), e.ID)
		if err != nil {
			return err
		}
		d, err = v.s.Webhooks.SendTest(v.ctx(), tx, v.actor(), e, t, "")
		return err
	})
	if err != nil {
		return nil, err
	}
	say := "A test event is on its way."
	if d.State == webhooks.Held {
		say = "The endpoint is not delivered to at the moment, so the test event is held."
	}
	v.redirect(v.to("deliveries/"+d.ID), flash{Notice: say})
	return nil, nil
}

func deleteEndpoint(v *visit) (*view, error) {
	id, err := v.pathID(ids.Endpoint, "webhook endpoint")
	if err != nil {
		return nil, err
	}
	err = v.write(func(tx *db.Tx) error {
		e, err := v.s.Webhooks.GetLocked(v.ctx(), tx, v.principal.Visibility(), id)
		if err != nil {
			return err
		}
		return v.s.Webhooks.Delete(v.ctx(), tx, v.actor(), e)
	})
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("webhooks"), flash{Notice: "The endpoint was deleted. Its deliveries can still be looked at."})
	return nil, nil
}
