package dashboard

import (
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/webhooks"
)

type replayFormData struct {
	Endpoint *webhooks.Endpoint
	Types    []events.Type
	Since    string // that the form begins with
	Earliest string
}

func newReplayPage(v *visit) (*view, error) {
	e, err := v.endpoint()
	if err != nil {
		return nil, err
	}
	now := v.now().UTC()
	return &view{template: "replay_new", title: "Replay events", data: replayFormData{Endpoint: e, Types: events.Types,
		Since: now.Add(-24 * time.Hour).Format(momentLayout), Earliest: now.Add(time.Minute - webhooks.ReplayWindow).Format(momentLayout)}}, nil
}

// startReplay sends many deliveries again, in the background.
func startReplay(v *visit) (*view, error) {
	e, err := v.endpoint()
	if err != nil {
		return nil, err
	}
	p := &webhooks.Replay{EndpointID: e.ID, Mode: v.form("status"), NewIDs: v.form("new_id") != ""}
	if p.Since, err = parseMoment("since", v.form("since")); err != nil {
		return nil, err
	}
	if p.Since.IsZero() {
		return nil, fault.Missing("since", "say from when on events are replayed")
	}
	if p.Until, err = parseMoment("until", v.form("until")); err != nil {
		return nil, err
	}
	for _, name := range v.r.PostForm["types"] {
		t, err := events.ParseType("types", name)
		if err != nil {
			return nil, err
		}
		p.Types = append(p.Types, t)
	}
	err = v.write(func(tx *db.Tx) error {
		return v.s.Webhooks.StartReplay(v.ctx(), tx, v.actor(), v.principal.Visibility(), p)
	})
	if err != nil {
		return nil, v.saidToPeople(e.ID, err)
	}
	v.redirect(v.to("webhooks/"+e.ID+"/replays/"+p.ID), flash{Notice: "The replay has begun. It goes on when you leave this page."})
	return nil, nil
}

// notReplayed is why a delivery was not sent again.
func (v *visit) notReplayed(deliveryID string, err error) error {
	if !fault.Is(err, fault.InvalidState) {
		return err
	}
	d, readErr := v.s.Webhooks.GetDelivery(v.ctx(), v.s.DB, v.principal.Visibility(), deliveryID)
	if readErr != nil {
		return readErr
	}
	return v.saidToPeople(d.EndpointID, err)
}

// saidToPeople is a refusal of a replay in words for somebody who sees names and
// buttons.
func (v *visit) saidToPeople(endpointID string, err error) error {
	if !fault.Is(err, fault.InvalidState) {
		return err
	}
	named, readErr := v.s.Webhooks.Named(v.ctx(), v.s.DB, v.principal.Visibility(), endpointID)
	if readErr != nil {
		return readErr
	}
	e := named[endpointID]
	if e == nil || e.Kind == webhooks.Tunnel {
		return err // there are no buttons, and it has the command
	}
	if e.DeletedAt != nil {
		return fault.New(fault.InvalidState, "nothing was sent: the endpoint %s was deleted", endpointName(e)).Because(err)
	}
	return fault.New(fault.InvalidState, "nothing was sent: the endpoint %s is paused. Resume it first", endpointName(e)).Because(err)
}

type replayData struct {
	Replay   *webhooks.Replay
	Endpoint *webhooks.Endpoint // deleted perhaps
}

func replayPage(v *visit) (*view, error) {
	id, err := v.pathID(ids.Replay, "replay")
	if err != nil {
		return nil, err
	}
	p, err := v.s.Webhooks.GetReplay(v.ctx(), v.s.DB, v.principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	if p.EndpointID != v.r.PathValue("endpoint") {
		return nil, fault.NoSuch("replay", id)
	}
	named, err := v.s.Webhooks.Named(v.ctx(), v.s.DB, v.principal.Visibility(), p.EndpointID)
	if err != nil {
		return nil, err
	}
	return &view{template: "replay", title: "Replay", data: replayData{p, named[p.EndpointID]}, live: p.State == webhooks.ReplayRunning}, nil
}
