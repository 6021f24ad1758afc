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
	"turnpike/internal/ids"
	"turnpike/internal/webhooks"
)

type deliveryData struct {
	Now      time.Time
	Delivery *webhooks.Delivery
	Endpoint *webhooks.Endpoint // deleted perhaps, or nil
	Replays  bool               // it can be sent again
	Event    *shownEvent        // nil when it is gone, or not for this person
	Coming   []coming
	Attempts []*shownAttempt // in full, the newest first
	Older    []*shownAttempt // only their heads
	Alone    bool            // one attempt was asked for
}

// coming is an attempt that will be made, unless one before it succeeds.
type coming struct {
	Number int64
	At     time.Time
}

// comingAttempts is the rest of a delivery's schedule. Each delay counts from
// the end of the attempt before it, so the later ones are estimates.
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

// shownAttempt is an attempt in words.
type shownAttempt struct {
	*webhooks.Attempt
	Answer   string
	Request  []headerLine
	Response []headerLine
	Body     string
	Cut      bool // there is more of the body, on the attempt's own page
	Phases   []phase
}

type headerLine struct{ Name, Value string }

// phase is a part of an attempt's time, as a piece of a bar of a hundred.
type phase struct {
	Series   int
	Name     string
	Took     time.Duration
	At, Wide float64
}

const (
	attemptsInFull = 6   // those of one schedule
	attemptsListed = 100 // before them
	bodyInList     = 3000
	valueShown     = 1000 // of a header
)

func showAttempt(a *webhooks.Attempt, whole bool) *shownAttempt {
	s := &shownAttempt{Attempt: a, Answer: "no answer", Request: headerLines(a.RequestHeaders), Response: headerLines(a.ResponseHeaders),
		Body: showJSON(a.ResponseBody), Phases: phases(a)}
	if a.Status != 0 {
		s.Answer = strings.TrimSpace(strconv.FormatInt(a.Status, 10) + " " + http.StatusText(int(a.Status)))
	}
	if !whole && len(s.Body) > bodyInList {
		s.Body, s.Cut = strings.ToValidUTF8(s.Body[:bodyInList], ""), true
	}
	return s
}

// headerLines is a stored header, by name.
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

// phases divides an attempt's time. The first byte counts from the beginning,
// the others are what each took; with a kept connection there are none.
func phases(a *webhooks.Attempt) []phase {
	waited := max(0, a.FirstByte-a.DNS-a.Connect-a.TLS)
	rest := max(0, a.Duration-a.DNS-a.Connect-a.TLS-waited)
	list := []phase{{Name: "DNS", Took: a.DNS}, {Name: "Connect", Took: a.Connect}, {Name: "TLS", Took: a.TLS}, {Name: "Waiting for the first byte", Took: waited},
		{Name: "The rest", Took: rest}}
	if a.FirstByte == 0 {
		list[3].Name, list[4].Name = "", "Without an answer"
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

func deliveryPage(v *visit) (*view, error) {
	id, err := v.pathID(ids.Delivery, "delivery")
	if err != nil {
		return nil, err
	}
	found, err := v.s.Webhooks.GetDelivery(v.ctx(), v.s.DB, v.principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	d := deliveryData{Now: v.now(), Delivery: found, Coming: comingAttempts(found, v.s.Facts.RetryAfter)}
	named, err := v.s.Webhooks.Named(v.ctx(), v.s.DB, v.principal.Visibility(), found.EndpointID)
	if err != nil {
		return nil, err
	}
	d.Endpoint = named[found.EndpointID]
	d.Replays = v.replays(found, d.Endpoint)
	if v.principal.Grant.Allows(access.EventsRead) {
		if d.Event, err = v.eventOf(found); err != nil {
			return nil, err
		}
	}
	attempts, err := v.s.Webhooks.ListAttempts(v.ctx(), v.s.DB, id)
	if err != nil {
		return nil, err
	}
	if err := d.choose(attempts, v.query("attempt")); err != nil {
		return nil, err
	}
	return &view{template: "delivery", title: string(found.Type), data: &d, live: found.FinishedAt == nil && !d.Alone}, nil
}

// Away is why the endpoint is not delivered to, or empty.
func (d *deliveryData) Away() string { return away(d.Endpoint) }

// choose takes the newest attempts, or the one that was asked for.
func (d *deliveryData) choose(attempts []*webhooks.Attempt, only string) error {
	slices.Reverse(attempts)
	if only != "" {
		i := slices.IndexFunc(attempts, func(a *webhooks.Attempt) bool { return a.ID == only })
		if i < 0 {
			return fault.New(fault.NotFound, "there is no such attempt of this delivery")
		}
		d.Attempts, d.Alone = []*shownAttempt{showAttempt(attempts[i], true)}, true
		return nil
	}
	for i, a := range attempts[:min(len(attempts), attemptsInFull+attemptsListed)] {
		if i < attemptsInFull {
			d.Attempts = append(d.Attempts, showAttempt(a, false))
			continue
		}
		d.Older = append(d.Older, showAttempt(a, false))
	}
	return nil
}

// eventOf is the event of a delivery. Both go after the same time, but not at
// the same moment.
func (v *visit) eventOf(d *webhooks.Delivery) (*shownEvent, error) {
	e, err := events.Get(v.ctx(), v.s.DB, v.principal.Visibility(), d.EventID)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return v.showEvent(e)
}

// replayDelivery sends one again, under its id or a new one, and leads to it.
func replayDelivery(v *visit) (*view, error) {
	id, err := v.pathID(ids.Delivery, "delivery")
	if err != nil {
		return nil, err
	}
	var d *webhooks.Delivery
	err = v.write(func(tx *db.Tx) error {
		d, err = v.s.Webhooks.ReplayDelivery(v.ctx(), tx, v.actor(), v.principal.Visibility(), id, v.form("id") == "new")
		return err
	})
	if err != nil {
		return nil, v.notReplayed(id, err)
	}
	say := "It is sent again, with a whole schedule of attempts."
	if d.ID != id {
		say = "It is sent again as this delivery, with an id that the receiver has not seen yet."
	}
	v.redirect(v.to("deliveries/"+d.ID), flash{Notice: say})
	return nil, nil
}
