package dashboard

import (
	"net/url"
	"slices"
	"strings"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/logsearch"
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
	Search *searchBox
	Rows   []deliveryRow
	Live   bool     // first page of a fast search, which is kept up to date
	Looked *scanned // nil if the search is complete
	Next   pager
}

// maxChoices is how many keys, projects or endpoints a search offers.
const maxChoices = 100

// deliveryFilter reads the search. box is nil if the browser was redirected.
func (req *request) deliveryFilter() (f webhooks.DeliveryFilter, box *searchBox, err error) {
	list, err := req.s.Webhooks.List(req.Context(), req.s.DB, req.principal.Visibility(), true, db.Page{Limit: maxChoices})
	if err != nil {
		return f, nil, err
	}
	names := web.Map(list.Rows, endpointName)
	var event, endpoint string
	l := searchable{Example: `status:failed event:agent.* endpoint:"My service"`, Old: map[string]string{"type": "event", "since": "from"}}
	l.Fields = []logsearch.Field{
		{Name: "status", Label: "Status", Help: string(webhooks.Failed), Values: logsearch.Strings(webhooks.States), Only: true, Set: logsearch.OneOf(&f.State, webhooks.States)},
		{Name: "event", Label: "Event", Help: "agent.*", Values: logsearch.Strings(events.Types), Set: logsearch.Text(&event)},
		{Name: "endpoint", Label: "Endpoint", Help: "the name or ID of an endpoint", Values: named(names), Set: logsearch.Text(&endpoint)},
	}
	l.Word = func(word string) string {
		switch {
		case slices.Contains(webhooks.States, webhooks.State(word)):
			return "status"
		case slices.ContainsFunc(events.Types, func(t events.Type) bool { return db.Match(word, string(t)) }):
			return "event"
		}
		return ""
	}
	if box, err = req.search(l); err != nil || box == nil {
		return f, nil, err
	}
	box.eventHint(event)
	f.Type = events.Type(event)
	switch {
	case endpoint == "":
	case ids.Valid(ids.Endpoint, endpoint):
		f.EndpointID = endpoint
	default:
		for i, e := range list.Rows {
			if db.Match(strings.ToLower(endpoint), strings.ToLower(names[i])) || db.Match(endpoint, e.URL) {
				f.EndpointIDs = append(f.EndpointIDs, e.ID)
			}
		}
		if len(f.EndpointIDs) == 0 {
			box.Hints = append(box.Hints, "No "+string(req.env)+" endpoint has the name or URL "+endpoint+".")
		}
	}
	f.Since, f.Until = box.Period.Bounds(req.now())
	return f, box, nil
}

// eventHint notes an event that doesn't exist.
func (box *searchBox) eventHint(event string) {
	if event != "" && !slices.ContainsFunc(events.Types, func(t events.Type) bool { return db.Match(event, string(t)) }) {
		box.Hints = append(box.Hints, "No event is named "+event+".")
	}
}

func deliveriesPage(req *request) (*view, error) {
	f, box, err := req.deliveryFilter()
	if err != nil || box == nil {
		return nil, err
	}
	page, found := req.page(ids.Delivery), &db.Found[*webhooks.Delivery]{}
	if !box.Unmatched() {
		if found, err = req.s.Webhooks.ListDeliveries(req.Context(), req.history(), req.principal.Visibility(), f, page); err != nil {
			return nil, err
		}
		t := box.span(req.now())
		f.Since, f.Until = within(t, f.Until)
		counts, err := req.s.Webhooks.CountDeliveries(req.Context(), req.history(), req.principal.Visibility(), f, t)
		if err != nil {
			return nil, err
		}
		box.draw(t, counts, "deliveries")
	}
	d := deliveriesData{Search: box, Live: page.After == "" && found.Looked == 0, Next: req.pager(page, found.More, func() string { return found.Cursor })}
	d.Looked = scanLimit(found, d.Next)
	d.Rows, err = req.deliveryRows(found.Rows)
	return &view{template: "deliveries", title: "Deliveries", data: d, live: d.Live}, err
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
