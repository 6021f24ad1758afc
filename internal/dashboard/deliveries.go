package dashboard

import (
	"net/url"
	"slices"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/webhooks"
)

// deliveryRow is a delivery in a list.
type deliveryRow struct {
	*webhooks.Delivery
	To      *endpointChoice // nil where the list is of one endpoint
	Replays bool            // it can be sent again
}

// endpointChoice is an endpoint by its name.
type endpointChoice struct {
	ID      string
	Name    string
	Deleted bool
	Away    string // why it is not delivered to at the moment, or empty
}

func choiceOf(e *webhooks.Endpoint) *endpointChoice {
	return &endpointChoice{e.ID, endpointName(e), e.DeletedAt != nil, away(e)}
}

// away is why an endpoint is not delivered to, in the word of the list of
// endpoints, or empty.
func away(e *webhooks.Endpoint) string {
	if e.Status == webhooks.Active {
		return ""
	}
	return health(e, nil)
}

// replays reports whether a delivery can be sent again. The endpoint is nil when
// nothing is known of it any more.
func (v *visit) replays(d *webhooks.Delivery, e *webhooks.Endpoint) bool {
	return e != nil && e.DeletedAt == nil && away(e) == "" && v.now().Sub(d.EventAt) <= webhooks.ReplayWindow
}

// deliveryRows names the endpoints.
func (v *visit) deliveryRows(list []*webhooks.Delivery) ([]deliveryRow, error) {
	wanted := make([]string, len(list))
	for i, d := range list {
		wanted[i] = d.EndpointID
	}
	named, err := v.s.Webhooks.Named(v.ctx(), v.s.DB, v.principal.Visibility(), wanted...)
	if err != nil {
		return nil, err
	}
	rows := make([]deliveryRow, len(list))
	for i, d := range list {
		e := named[d.EndpointID]
		rows[i] = deliveryRow{d, &endpointChoice{ID: d.EndpointID, Name: d.EndpointID, Deleted: true}, v.replays(d, e)}
		if e != nil {
			rows[i].To = choiceOf(e)
		}
	}
	return rows, nil
}

type deliveriesData struct {
	Now       time.Time
	Rows      []deliveryRow
	Endpoints []*endpointChoice
	Types     []events.Type
	States    []webhooks.State
	Filtered  bool
	Live      bool // it begins with the newest and was found soon, and so is kept up to date
	Next      pager
}

// maxChoices is how many endpoints the filter offers; others are reached from
// their own page.
const maxChoices = 100

// endpointChoices are what the filter offers, the chosen one among them.
func (v *visit) endpointChoices(chosen string) ([]*endpointChoice, error) {
	found, err := v.s.Webhooks.List(v.ctx(), v.s.DB, v.principal.Visibility(), true, db.Page{Limit: maxChoices})
	if err != nil {
		return nil, err
	}
	var out []*endpointChoice
	for _, e := range found.Rows {
		out = append(out, choiceOf(e))
	}
	if chosen == "" || slices.ContainsFunc(out, func(c *endpointChoice) bool { return c.ID == chosen }) {
		return out, nil
	}
	named, err := v.s.Webhooks.Named(v.ctx(), v.s.DB, v.principal.Visibility(), chosen)
	if e := named[chosen]; e != nil {
		out = append(out, choiceOf(e))
	}
	return out, err
}

// deliveryFilter reads the address.
func (v *visit) deliveryFilter() (f webhooks.DeliveryFilter, err error) {
	f = webhooks.DeliveryFilter{EndpointID: v.query("endpoint"), Type: events.Type(v.query("type")), State: webhooks.State(v.query("status"))}
	if f.Since, err = parseMoment("since", v.query("since")); err != nil {
		return f, err
	}
	if f.Until, err = parseMoment("until", v.query("until")); err != nil {
		return f, err
	}
	if f.EndpointID != "" && !ids.Valid(ids.Endpoint, f.EndpointID) {
		return f, fault.Invalid("endpoint", "there is no such endpoint")
	}
	if f.Type != "" {
		if _, err := events.ParseType("type", string(f.Type)); err != nil {
			return f, err
		}
	}
	if f.State != "" && !slices.Contains(webhooks.States, f.State) {
		return f, fault.Invalid("status", "there is no such state")
	}
	return f, nil
}

func deliveriesPage(v *visit) (*view, error) {
	f, wrong := v.deliveryFilter()
	page, found := v.page(ids.Delivery), &db.Found[*webhooks.Delivery]{}
	var err error
	if wrong == nil {
		if found, err = v.s.Webhooks.ListDeliveries(v.ctx(), v.s.DB, v.principal.Visibility(), f, page); err != nil {
			return nil, err
		}
	}
	d := deliveriesData{Now: v.now(), Types: events.Types, States: webhooks.States, Filtered: wrong != nil || f != (webhooks.DeliveryFilter{}), Live: wrong == nil && page.After == "" && found.Looked == 0,
		Next: v.pager(page, found.More, func() string { return found.Cursor })}
	if d.Rows, err = v.deliveryRows(found.Rows); err != nil {
		return nil, err
	}
	if d.Endpoints, err = v.endpointChoices(f.EndpointID); err != nil {
		return nil, err
	}
	shown := &view{template: "deliveries", title: "Deliveries", data: d, live: d.Live}
	if wrong != nil {
		return v.misread(shown, wrong)
	}
	return shown, nil
}

// replaySelected sends what was ticked in the list again: all or nothing.
func replaySelected(v *visit) (*view, error) {
	chosen := slices.Clone(v.r.PostForm["delivery"])
	slices.Sort(chosen) // as everybody locks them
	chosen = slices.Compact(chosen)
	if len(chosen) == 0 {
		return nil, fault.Missing("delivery", "tick the deliveries to replay first")
	}
	if len(chosen) > rowsPerPage {
		return nil, fault.Invalid("delivery", "at most %d deliveries are replayed at once; an endpoint's page replays more", rowsPerPage)
	}
	for _, id := range chosen {
		if !ids.Valid(ids.Delivery, id) {
			return nil, fault.New(fault.NotFound, "one of the deliveries is not there any more")
		}
	}
	var at string // the one that was tried last
	err := v.write(func(tx *db.Tx) error {
		for _, at = range chosen {
			if _, err := v.s.Webhooks.ReplayDelivery(v.ctx(), tx, v.actor(), v.principal.Visibility(), at, false); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, v.notReplayed(at, err)
	}
	to := url.URL{Path: v.to("deliveries"), RawQuery: v.r.URL.Query().Encode()}
	say := "The delivery is sent again."
	if len(chosen) > 1 {
		say = showCount(len(chosen)) + " deliveries are sent again."
	}
	v.redirect(to.String(), flash{Notice: say})
	return nil, nil
}
