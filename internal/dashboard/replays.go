package dashboard

import (
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/webhooks"
)

type replayFormData struct {
	Endpoint *webhooks.Endpoint
	Types    []events.Type
	Since    string // initial value
	Earliest string
}

func newReplayPage(req *request) (*view, error) {
	e, err := req.endpoint()
	if err != nil {
		return nil, err
	}
	now := req.now().UTC()
	return &view{template: "replay_new", title: "Replay events", data: replayFormData{Endpoint: e, Types: events.Types,
		Since: now.Add(-24 * time.Hour).Format(timeLayout), Earliest: now.Add(time.Minute - webhooks.ReplayWindow).Format(timeLayout)}}, nil
}

// startReplay replays many deliveries in the background.
func startReplay(req *request) (*view, error) {
	e, err := req.endpoint()
	if err != nil {
		return nil, err
	}
	p := &webhooks.Replay{EndpointID: e.ID, Mode: req.form("status"), NewIDs: req.form("new_id") != ""}
	if p.Since, err = parseTime("since", req.form("since")); err != nil {
		return nil, err
	}
	if p.Since.IsZero() {
		return nil, fault.Missing("since", "Enter the time from which events are replayed.")
	}
	if p.Until, err = parseTime("until", req.form("until")); err != nil {
		return nil, err
	}
	for _, name := range req.R.PostForm["types"] {
		t, err := events.ParseType("types", name)
		if err != nil {
			return nil, err
		}
		p.Types = append(p.Types, t)
	}
	err = req.write(func(tx *db.Tx) error {
		return req.s.Webhooks.StartReplay(req.Context(), tx, req.actor(), req.principal.Visibility(), p)
	})
	if err != nil {
		return nil, req.endpointError(e.ID, err)
	}
	return req.redirect(req.to("webhooks/"+e.ID+"/replays/"+p.ID), flash{Notice: "Replay started. It continues when you leave this page."})
}

// replayError explains why a delivery wasn't replayed.
func (req *request) replayError(deliveryID string, err error) error {
	if !fault.Is(err, fault.InvalidState) {
		return err
	}
	d, readErr := req.s.Webhooks.GetDelivery(req.Context(), req.s.DB, req.principal.Visibility(), deliveryID)
	if readErr != nil {
		return readErr
	}
	return req.endpointError(d.EndpointID, err)
}

// endpointError explains a rejected replay with the endpoint's name.
func (req *request) endpointError(endpointID string, err error) error {
	if !fault.Is(err, fault.InvalidState) {
		return err
	}
	named, readErr := req.s.Webhooks.Named(req.Context(), req.s.DB, req.principal.Visibility(), endpointID)
	if readErr != nil {
		return readErr
	}
	e := named[endpointID]
	if e == nil || e.Kind == webhooks.Tunnel {
		return err // it has the command for tunnels
	}
	if e.DeletedAt != nil {
		return fault.New(fault.InvalidState, "Nothing was replayed: the endpoint %s is deleted.", endpointName(e)).Because(err)
	}
	return fault.New(fault.InvalidState, "Nothing was replayed: the endpoint %s is paused. Resume it first.", endpointName(e)).Because(err)
}

type replayData struct {
	Replay   *webhooks.Replay
	Endpoint *webhooks.Endpoint // possibly deleted
}

func replayPage(req *request) (*view, error) {
	id := req.id()
	p, err := req.s.Webhooks.GetReplay(req.Context(), req.s.DB, req.principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	if p.EndpointID != req.R.PathValue("endpoint") {
		return nil, fault.NoSuch("replay", id)
	}
	named, err := req.s.Webhooks.Named(req.Context(), req.s.DB, req.principal.Visibility(), p.EndpointID)
	if err != nil {
		return nil, err
	}
	return &view{template: "replay", title: "Replay", data: replayData{p, named[p.EndpointID]}, live: p.State == webhooks.ReplayRunning}, nil
}
