package dashboard

import (
	"net/url"
	"slices"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/web"
	"turnpike/internal/webhooks"
)

type deliveryRow struct {
	*webhooks.Delivery
	To      *endpointChoice // nil in the list of one endpoint
	Replays bool            // it can be replayed
}

type endpointChoice struct {
	ID      string
	Name    string
	Deleted bool
	Away    string // paused or disconnected, or empty
}

func newEndpointChoice(e *webhooks.Endpoint) *endpointChoice {
	return &endpointChoice{e.ID, endpointName(e), e.DeletedAt != nil, inactiveState(e)}
}

// inactiveState returns the state of an endpoint that gets no deliveries, or an empty
// string.
func inactiveState(e *webhooks.Endpoint) string {
	if e.Status == webhooks.Active {
		return ""
	}
	return health(e, nil)
}

// replays reports whether a delivery can be replayed. The endpoint is nil if its record
// is gone.
func (req *request) replays(d *webhooks.Delivery, e *webhooks.Endpoint) bool {
	return e != nil && e.DeletedAt == nil && inactiveState(e) == "" && req.now().Sub(d.EventAt) <= webhooks.ReplayWindow
}

// deliveryRows adds the endpoints' names.
func (req *request) deliveryRows(list []*webhooks.Delivery) ([]deliveryRow, error) {
	wanted := web.Map(list, func(d *webhooks.Delivery) string { return d.EndpointID })
	named, err := req.s.Webhooks.Named(req.Context(), req.s.DB, req.principal.Visibility(), wanted...)
	if err != nil {
		return nil, err
	}
	rows := make([]deliveryRow, len(list))
	for i, d := range list {
		e := named[d.EndpointID]
		rows[i] = deliveryRow{d, &endpointChoice{ID: d.EndpointID, Name: d.EndpointID, Deleted: true}, req.replays(d, e)}
		if e != nil {
			rows[i].To = newEndpointChoice(e)
		}
	}
	return rows, nil
}

type deliveriesData struct {
	Rows      []deliveryRow
	Endpoints []*endpointChoice
	Types     []events.Type
	States    []webhooks.State
	Filtered  bool
	Live      bool // first page of a fast search, which is kept up to date
	Next      pager
}

// maxChoices is how many endpoints the filter offers; the pages of others link here.
const maxChoices = 100

// endpointChoices returns the choices of the filter, with the selected one.
func (req *request) endpointChoices(chosen string) ([]*endpointChoice, error) {
	found, err := req.s.Webhooks.List(req.Context(), req.s.DB, req.principal.Visibility(), true, db.Page{Limit: maxChoices})
	if err != nil {
		return nil, err
	}
	out := web.Map(found.Rows, newEndpointChoice)
	if chosen == "" || slices.ContainsFunc(out, func(c *endpointChoice) bool { return c.ID == chosen }) {
		return out, nil
	}
	named, err := req.s.Webhooks.Named(req.Context(), req.s.DB, req.principal.Visibility(), chosen)
	if e := named[chosen]; e != nil {
		out = append(out, newEndpointChoice(e))
	}
	return out, err
}

func (req *request) deliveryFilter() (f webhooks.DeliveryFilter, err error) {
	f = webhooks.DeliveryFilter{EndpointID: req.query("endpoint"), Type: events.Type(req.query("type")), State: webhooks.State(req.query("status"))}
	if f.Since, err = parseTime("since", req.query("since")); err != nil {
		return f, err
	}
	if f.Until, err = parseTime("until", req.query("until")); err != nil {
		return f, err
	}
	if f.EndpointID != "" && !ids.Valid(ids.Endpoint, f.EndpointID) {
		return f, fault.Invalid("endpoint", "This endpoint does not exist.")
	}
	if f.Type != "" {
		if _, err := events.ParseType("type", string(f.Type)); err != nil {
			return f, err
		}
	}
	if f.State != "" && !slices.Contains(webhooks.States, f.State) {
		return f, fault.Invalid("status", "This status does not exist.")
	}
	return f, nil
}

func deliveriesPage(req *request) (*view, error) {
	f, wrong := req.deliveryFilter()
	page, found := req.page(ids.Delivery), &db.Found[*webhooks.Delivery]{}
	var err error
	if wrong == nil {
		if found, err = req.s.Webhooks.ListDeliveries(req.Context(), req.s.DB, req.principal.Visibility(), f, page); err != nil {
			return nil, err
		}
	}
	d := deliveriesData{Types: events.Types, States: webhooks.States, Filtered: wrong != nil || f != (webhooks.DeliveryFilter{}), Live: wrong == nil && page.After == "" && found.Looked == 0,
		Next: req.pager(page, found.More, func() string { return found.Cursor })}
	if d.Rows, err = req.deliveryRows(found.Rows); err != nil {
		return nil, err
	}
	if d.Endpoints, err = req.endpointChoices(f.EndpointID); err != nil {
		return nil, err
	}
	return req.withFilterError(&view{template: "deliveries", title: "Deliveries", data: d, live: d.Live}, wrong)
}

// replaySelected replays the selected deliveries: all or none.
func replaySelected(req *request) (*view, error) {
	chosen := unique(req.R.PostForm["delivery"]) // in the order in which they are locked everywhere
	if len(chosen) == 0 {
		return nil, fault.Missing("delivery", "Select the deliveries to replay first.")
	}
	if len(chosen) > rowsPerPage {
		return nil, fault.Invalid("delivery", "Select at most %d deliveries. To replay more, open the endpoint.", rowsPerPage)
	}
	for _, id := range chosen {
		if !ids.Valid(ids.Delivery, id) {
			return nil, fault.New(fault.NotFound, "One of the deliveries no longer exists.")
		}
	}
	to, notice := url.URL{Path: req.to("deliveries"), RawQuery: req.R.URL.Query().Encode()}, "Replayed the delivery."
	if len(chosen) > 1 {
		notice = "Replayed " + showCount(len(chosen)) + " deliveries."
	}
	return req.save(to.String(), notice, func(tx *db.Tx) error {
		for _, id := range chosen {
			if _, err := req.s.Webhooks.ReplayDelivery(req.Context(), tx, req.actor(), req.principal.Visibility(), webhooks.DeliveryReplay{DeliveryID: id}); err != nil {
				return err
			}
		}
		return nil
	})
}
