package dashboard

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/webhooks"
)

type deliveryData struct {
	Delivery *webhooks.Delivery
	Endpoint *webhooks.Endpoint // possibly deleted, or nil
	Replays  bool               // it can be replayed
	Event    *shownEvent        // nil if it is gone or the person may not see it
	Coming   []coming
	Attempts []*shownAttempt // in full, newest first
	Older    []*shownAttempt // summaries only
	Alone    bool            // the page is of one attempt
}

// coming is a scheduled attempt, which is made unless one before it succeeds.
type coming struct {
	Number int64
	At     time.Time
}

// comingAttempts returns the rest of a delivery's schedule. Each delay starts at the
// end of the previous attempt, so later times are estimates.
func comingAttempts(d *webhooks.Delivery, schedule []time.Duration) []coming {
	if d.DueAt == nil {
		return nil
	}
	at := *d.DueAt
	out := []coming{{d.Attempts + 1, at}}
	for i := int(d.Tries); i < len(schedule); i++ {
		at = at.Add(schedule[i])
		out = append(out, coming{d.Attempts + int64(len(out)) + 1, at})
	}
	return out
}

type shownAttempt struct {
	*webhooks.Attempt
	Answer   string
	Request  []headerLine
	Response []headerLine
	Body     string
	Cut      bool // the attempt's own page has the whole body
	Phases   []phase
}

type headerLine struct{ Name, Value string }

// phase is a part of an attempt's time, in percent.
type phase struct {
	Series   int
	Name     string
	Took     time.Duration
	At, Wide float64
}

const (
	attemptsInFull = 6   // of one schedule
	attemptsListed = 100 // as summaries
	bodyInList     = 3000
	valueShown     = 1000 // of a header
)

func showAttempt(a *webhooks.Attempt, whole bool) *shownAttempt {
	s := &shownAttempt{Attempt: a, Answer: "no response", Request: headerLines(a.RequestHeaders), Response: headerLines(a.ResponseHeaders),
		Body: showJSON(a.ResponseBody), Phases: phases(a)}
	if a.Status != 0 {
		s.Answer = strings.TrimSpace(strconv.FormatInt(a.Status, 10) + " " + http.StatusText(int(a.Status)))
	}
	if !whole && len(s.Body) > bodyInList {
		s.Body, s.Cut = strings.ToValidUTF8(s.Body[:bodyInList], ""), true
	}
	return s
}

// headerLines returns a stored header, sorted by name.
func headerLines(raw json.RawMessage) []headerLine {
	var fields map[string]string
	if json.Unmarshal(raw, &fields) != nil {
		return nil // none was received
	}
	var out []headerLine
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		out = append(out, headerLine{shortened(name, 200), shortened(fields[name], valueShown)})
	}
	return out
}

// phases divides an attempt's time. FirstByte counts from the start, the other values
// are durations. A reused connection has no connection phases.
func phases(a *webhooks.Attempt) []phase {
	waited := max(0, a.FirstByte-a.DNS-a.Connect-a.TLS)
	rest := max(0, a.Duration-a.DNS-a.Connect-a.TLS-waited)
	list := []phase{{Name: "DNS", Took: a.DNS}, {Name: "Connect", Took: a.Connect}, {Name: "TLS", Took: a.TLS}, {Name: "Waiting for the first byte", Took: waited},
		{Name: "Rest", Took: rest}}
	if a.FirstByte == 0 {
		list[3].Name, list[4].Name = "", "No response"
	}
	var out []phase
	whole, at := float64(max(a.Duration, 1)), 0.0
	for i, p := range list {
		if p.Took == 0 {
			continue
		}
		p.Series, p.At, p.Wide = i, round(at), round(float64(p.Took)/whole*100)
		at += p.Wide
		out = append(out, p)
	}
	return out
}

func deliveryPage(req *request) (*view, error) {
	id := req.id()
	found, err := req.s.Webhooks.GetDelivery(req.Context(), req.s.DB, req.principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	d := deliveryData{Delivery: found, Coming: comingAttempts(found, req.s.Facts().RetryAfter)}
	named, err := req.s.Webhooks.Named(req.Context(), req.s.DB, req.principal.Visibility(), found.EndpointID)
	if err != nil {
		return nil, err
	}
	d.Endpoint = named[found.EndpointID]
	d.Replays = req.replays(found, d.Endpoint)
	if req.principal.Grant.Allows(access.EventsRead) {
		if d.Event, err = req.eventOf(found); err != nil {
			return nil, err
		}
	}
	attempts, err := req.s.Webhooks.ListAttempts(req.Context(), req.s.DB, id)
	if err != nil {
		return nil, err
	}
	if err := d.choose(attempts, req.query("attempt")); err != nil {
		return nil, err
	}
	return &view{template: "delivery", title: string(found.Type), data: &d, live: found.FinishedAt == nil && !d.Alone}, nil
}

// Away returns why the endpoint gets no deliveries, or an empty string.
func (d *deliveryData) Away() string { return inactiveState(d.Endpoint) }

// choose selects the newest attempts, or a single one.
func (d *deliveryData) choose(attempts []*webhooks.Attempt, only string) error {
	slices.Reverse(attempts)
	if only != "" {
		i := slices.IndexFunc(attempts, func(a *webhooks.Attempt) bool { return a.ID == only })
		if i < 0 {
			return fault.New(fault.NotFound, "This delivery has no such attempt.")
		}
		d.Attempts, d.Alone = []*shownAttempt{showAttempt(attempts[i], true)}, true
		return nil
	}
	for _, a := range attempts[:min(len(attempts), attemptsInFull+attemptsListed)] {
		d.Attempts = append(d.Attempts, showAttempt(a, false))
	}
	full := min(len(d.Attempts), attemptsInFull)
	d.Attempts, d.Older = d.Attempts[:full], d.Attempts[full:]
	return nil
}

// eventOf returns the event of a delivery, or nil if it was already purged.
func (req *request) eventOf(d *webhooks.Delivery) (*shownEvent, error) {
	e, err := events.Get(req.Context(), req.s.DB, req.principal.Visibility(), d.EventID)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return req.showEvent(e)
}

func replayDelivery(req *request) (*view, error) {
	id := req.id()
	d, err := writeValue(req, func(tx *db.Tx) (*webhooks.Delivery, error) {
		return req.s.Webhooks.ReplayDelivery(req.Context(), tx, req.actor(), req.principal.Visibility(), webhooks.DeliveryReplay{DeliveryID: id, NewID: req.form("id") == "new"})
	})
	if err != nil {
		return nil, err
	}
	notice := "Replayed the delivery, with a full schedule of attempts."
	if d.ID != id {
		notice = "Replayed as this delivery, with a new ID."
	}
	return req.redirect(req.to("deliveries/"+d.ID), flash{Notice: notice})
}
