package dashboard_test

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/test/harness"
	"turnpike/test/sampledata"
)

type foundObject struct{ Kind, Name, Detail, URL string }

func (b *browser) find(t *testing.T, text string) (out []foundObject) {
	t.Helper()
	a := b.get(t, b.in(accounts.Live, "find?q="+url.QueryEscape(text))).is(t, 200)
	if err := json.Unmarshal([]byte(a.body), &out); err != nil {
		t.Fatalf("%q: %v", a.body, err)
	}
	return out
}

// TestPaletteFindsObjectsByName: of this workspace and environment, and of what the role can read.
func TestPaletteFindsObjectsByName(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w, other := s.Workspace(t, "acme"), s.Workspace(t, "other")
		owner := member(t, s, w, accounts.Owner)
		_, keyID := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: "Lantern shop", Scopes: []string{"*"}})
		s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Test), Name: "Lantern test", Scopes: []string{"*"}})
		s.KeyOf(t, &access.Key{Tenant: other.In(accounts.Live), Name: "Lantern elsewhere", Scopes: []string{"*"}})
		owner.post(t, owner.in(accounts.Live, "projects"), url.Values{"id": {"lanterns"}, "name": {"Lamps"}})

		got := owner.find(t, "lANTERN")
		if len(got) != 2 || got[0].Name != "Lantern shop" || got[0].URL != owner.in(accounts.Live, "keys/"+keyID) || got[1].Name != "Lamps" || got[1].Detail != "lanterns" {
			t.Errorf("an owner finds %+v", got)
		}
		if got := owner.find(t, " "+keyID); len(got) == 0 || got[0].Name != keyID || got[0].URL != owner.in(accounts.Live, "keys/"+keyID) {
			t.Errorf("the ID of a key finds %+v", got)
		}
		stranger := member(t, s, other, accounts.Owner)
		if got := stranger.find(t, keyID); len(got) != 0 {
			t.Errorf("the ID of another workspace's key finds %+v", got)
		}
		if got := owner.find(t, "nothing like it"); len(got) != 0 {
			t.Errorf("there is %+v", got)
		}
	})
}

// Every record with a page is found by its ID, and those with a name by a part of it.
func TestPaletteFindsEveryKindOfRecord(t *testing.T) {
	t.Parallel()
	cfg := sampledata.Config(t, "sqlite")
	cfg.Providers = []config.Provider{{Name: "acme-ai", Type: config.OpenAI, Catalog: "openai", BaseURL: "http://127.0.0.1:1/v1", APIKey: "sk-1", Weight: 1}}
	s := harness.Start(t, cfg, harness.NewClock())
	w := sampledata.Fill(t, s, "acme", func(text string) string { return text })
	b := member(t, s, w.Workspace, accounts.Owner)
	in := func(env accounts.Environment, text string) (out []foundObject) {
		t.Helper()
		a := b.get(t, b.in(env, "find?q="+url.QueryEscape(text))).is(t, 200)
		if err := json.Unmarshal([]byte(a.body), &out); err != nil {
			t.Fatalf("%q: %v", a.body, err)
		}
		return out
	}
	for table, path := range map[string]string{
		"requests": "requests/{id}", "agent_runs": "runs/{id}", "keys": "keys/{id}", "end_users": "users/{id}", "endpoints": "webhooks/{id}", "workspace_routes": "routes/{id}",
		"tool_servers": "tools/{id}", "federation_rules": "federation/{id}", "replays": "webhooks/{of}/replays/{id}", "scoped_tokens": "keys/{of}/tokens",
	} {
		parent := map[string]string{"replays": "endpoint_id", "scoped_tokens": "key_id"}[table]
		var id, env, of string
		err := s.DB.QueryRow(t.Context(), "SELECT id, environment, "+cmp.Or(parent, "''")+" FROM "+table+" WHERE workspace_id = $1 AND id NOT LIKE 'pg%' ORDER BY id LIMIT 1", w.Workspace.ID).Scan(&id, &env, &of)
		if err != nil {
			t.Errorf("%s: %v", table, err)
			continue
		}
		want := b.in(accounts.Environment(env), strings.NewReplacer("{id}", id, "{of}", of).Replace(path))
		if got := in(accounts.Live, id); len(got) == 0 || got[0].URL != want {
			t.Errorf("%s of %s leads to %+v, want %s", id, table, got, want)
		} else {
			b.get(t, want).is(t, 200)
		}
	}
	var approval, run string
	if err := s.DB.QueryRow(t.Context(), "SELECT approval_id, run_id FROM agent_calls WHERE status = 'awaiting_approval' LIMIT 1").Scan(&approval, &run); err != nil {
		t.Fatal(err)
	}
	if got := in(accounts.Test, approval); len(got) == 0 || got[0].URL != b.in(accounts.Test, "runs/"+run) {
		t.Errorf("the approval of a run leads to %+v, want the run", got)
	}
	names := func(text string) (out []string) {
		for _, f := range in(accounts.Test, text) {
			out = append(out, f.Kind)
		}
		return out
	}
	name := func(table string) string {
		t.Helper()
		name, err := db.Value[string](s.DB.QueryRow(t.Context(), "SELECT name FROM "+table+" WHERE workspace_id = $1 AND environment = 'test' ORDER BY id LIMIT 1", w.Workspace.ID))
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	for kind, text := range map[string]string{"Federation rule": name("federation_rules"), "User": name("end_users"), "Model": "gpt-4o-mini"} {
		if got := names(text); !slices.Contains(got, kind) {
			t.Errorf("%q finds %v, want a %s", text, got, kind)
		}
	}
	if got := names("acme-ai"); slices.Contains(got, "Provider") {
		t.Errorf("someone who isn't an operator finds %v", got)
	}
	s.GrantOperator(t, b.person.ID)
	if got := names("acme-ai"); !slices.Contains(got, "Provider") {
		t.Errorf("an operator finds %v, want the provider", got)
	}
}

// The pages of a person and of the server have the menu and the palette of the person's last workspace.
func TestAccountAndServerPagesLeadBackToTheWorkspace(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		s.GrantOperator(t, b.person.ID)
		b.get(t, b.in(accounts.Live, "keys")).is(t, 200)
		for _, path := range []string{"/dashboard/account", "/dashboard/server", "/dashboard/server/providers/new"} {
			page := b.get(t, path).is(t, 200)
			page.contains(t, `data-palette="`+b.in(accounts.Live, "find")+`"`, `href="`+b.in(accounts.Live, "requests")+`"`, `<template id="actions">`)
			if strings.Contains(page.body, "aria-current") || strings.Contains(page.body, "data-env") {
				t.Errorf("%s claims to be a page of the workspace", path)
			}
		}
		// Someone without a second factor can still set one up.
		give(t, s, []any{"UPDATE workspaces SET require_second_factor = TRUE WHERE id = $1", w.ID})
		if page := b.get(t, "/dashboard/account").is(t, 200); strings.Contains(page.body, "data-palette") {
			t.Error("the account page leads to a workspace that needs a second factor")
		}
	})
}
