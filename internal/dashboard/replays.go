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

func newReplayPage(req *request, e *webhooks.Endpoint) (*view, error) {
	now := req.now().UTC()
	return &view{template: "replay_new", title: "Replay events", data: replayFormData{Endpoint: e, Types: events.Types,
		Since: now.Add(-24 * time.Hour).Format(timeLayout), Earliest: now.Add(time.Minute - webhooks.ReplayWindow).Format(timeLayout)}}, nil
}

// startReplay replays many deliveries in the background.
func startReplay(req *request, e *webhooks.Endpoint) (_ *view, err error) {
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
	if err := req.s.Webhooks.PlanReplay(req.Context(), req.principal.Visibility(), p); err != nil {
		return nil, err
	}
	err = req.write(func(tx *db.Tx) error {
		return req.s.Webhooks.StartReplay(req.Context(), tx, req.actor(), req.principal.Visibility(), p)
	})
	if err != nil {
		return nil, err
	}
	return req.redirect(req.to("webhooks/"+e.ID+"/replays/"+p.ID), flash{Notice: "Replay started. It continues when you leave this page."})
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
