package cli

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/api"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// workspaceSettings are the settings of a workspace in a file. Billing has the API's.
type workspaceSettings struct {
	StrictProjects       jsonbody.Optional[bool]                `json:"strict_projects"`
	DefaultProjectBudget jsonbody.Optional[credits.Micro]       `json:"default_project_budget"`
	RotationGraceSeconds jsonbody.Optional[int64]               `json:"rotation_grace_seconds"`
	LeakPolicy           jsonbody.Optional[accounts.LeakPolicy] `json:"leak_policy"`
	TestTools            jsonbody.Optional[accounts.ToolMode]   `json:"test_tools"`
	RequireSecondFactor  jsonbody.Optional[bool]                `json:"require_second_factor"`

	ResponseRetentionSeconds jsonbody.Optional[int64] `json:"response_retention_seconds"`
}

var workspaceFields = []string{"strict_projects", "default_project_budget", "rotation_grace_seconds", "leak_policy", "test_tools", "require_second_factor", "response_retention_seconds"}

// workspaceState returns the workspace with its billing, as a file has them.
func workspaceState(w *accounts.Workspace) (stateObject, error) {
	text, err := json.Marshal(newWorkspaceObject(w))
	if err != nil {
		return nil, err
	}
	var o stateObject
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	for name, v := range map[string]any{"monthly_credits": w.MonthlyCredits, "alert_threshold": w.Alert, "alert_thresholds": w.AlertThresholds} {
		if o[name], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// applySettings creates the workspace or changes its settings.
func (a *applier) applySettings(ctx context.Context, tx *db.Tx, name string, settings map[string]json.RawMessage) (*accounts.Workspace, error) {
	billing := a.local.Fields(api.BillingResource)
	for field := range settings {
		if !slices.Contains(workspaceFields, field) && !slices.Contains(billing, field) {
			return nil, fault.Param(fault.UnknownParameter, field, "unknown field; allowed fields: name, %s, %s, projects, keys, federation_rules, webhooks, routes", fieldList(workspaceFields), fieldList(billing))
		}
	}
	change := stateChange{Action: "update", Kind: "workspace", Workspace: name, Name: name}
	w, err := accounts.FindWorkspace(ctx, tx, name)
	if fault.Is(err, fault.NotFound) {
		change.Action = "create"
		w = &accounts.Workspace{Name: name, RotationGrace: accounts.DefaultRotationGrace}
		if err = accounts.CreateWorkspace(ctx, tx, w, time.Now()); err == nil {
			err = w.LogCreated(ctx, tx, audit.Operator)
		}
	}
	if err != nil {
		return nil, err
	}
	own, paid := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	var before stateObject
	w, err = accounts.ChangeWorkspace(ctx, tx, w.ID, accounts.Change[accounts.Workspace]{By: audit.Operator, At: time.Now(), Apply: func(w *accounts.Workspace) (err error) {
		if before, err = workspaceState(w); err != nil {
			return err
		}
		for field, value := range settings {
			switch {
			case sameJSON(before[field], value):
			case slices.Contains(billing, field):
				paid[field] = value
			default:
				own[field] = value
			}
		}
		return changeSettings(w, own)
	}})
	if err != nil {
		return nil, err
	}
	if len(paid) > 0 {
		body, err := json.Marshal(paid)
		if err != nil {
			return nil, err
		}
		if _, err := a.local.Update(ctx, tx, api.Target{Tenant: w.In(accounts.Live), Resource: api.BillingResource}, body); err != nil {
			return nil, err
		}
	}
	if w, err = accounts.GetWorkspace(ctx, tx, w.ID); err != nil {
		return nil, err
	}
	after, err := workspaceState(w)
	if err != nil {
		return nil, err
	}
	for _, field := range slices.Concat(workspaceFields, billing) {
		if _, given := settings[field]; given && !sameJSON(before[field], after[field]) {
			change.Fields = append(change.Fields, fieldChange{field, before[field], after[field]})
		}
	}
	if change.Action == "create" || len(change.Fields) > 0 {
		a.changes = append(a.changes, change)
	}
	return w, nil
}

// changeSettings changes the settings of a workspace that differ.
func changeSettings(w *accounts.Workspace, fields map[string]json.RawMessage) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	var in workspaceSettings
	if err := jsonbody.DecodeStrict(body, &in); err != nil {
		return err
	}
	if in.StrictProjects.Set {
		w.StrictProjects = in.StrictProjects.Value
	}
	if in.DefaultProjectBudget.Set {
		w.DefaultProjectBudget = in.DefaultProjectBudget.Pointer()
	}
	if in.RotationGraceSeconds.Set {
		w.RotationGrace = time.Duration(in.RotationGraceSeconds.Value) * time.Second
	}
	if in.TestTools.Set {
		w.TestTools = in.TestTools.Value
	}
	if in.LeakPolicy.Set {
		w.LeakPolicy = in.LeakPolicy.Value
	}
	if in.ResponseRetentionSeconds.Set {
		w.ResponseRetention = time.Duration(in.ResponseRetentionSeconds.Value) * time.Second
	}
	if in.RequireSecondFactor.Set {
		w.RequireSecondFactor = in.RequireSecondFactor.Value
	}
	return nil
}
