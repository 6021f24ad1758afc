// Package sampledata fills a workspace with every kind of resource, so that every page has
// content.
package sampledata

import (
	"bytes"
	"encoding/json"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/dashboard"
	"turnpike/internal/db"
	"turnpike/internal/people"
	"turnpike/test/harness"
)

// Workspace is a workspace and the IDs of its resources.
type Workspace struct {
	*harness.Server
	Workspace *accounts.Workspace
	Owner     *accounts.User // has no password
	Key       string         // has all permissions in the test environment

	KeyID, TokenID, ProjectID                 string
	RequestID, FailedRequestID                string
	EndpointID, DeliveryID, EventID, ReplayID string
	BatchID, VideoID, VoiceID, TranscriptID   string
	ModelBatchID, MessageBatchID              string
	RunID, ApprovalID, DoneRunID              string
	InvitationID, MemberID, ToolServerID      string
	RouteID, FederationRuleID, EndUserID      string

	text      func(string) string
	addresses map[string]string // final addresses of the demo's endpoints
}

// Config returns the configuration of a server that may send webhooks to this machine.
func Config(t testing.TB, engine string) config.Config {
	t.Helper()
	cfg := harness.Config(t, engine)
	cfg.Webhooks.AllowHTTP = true
	cfg.Webhooks.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	return cfg
}

// Fill creates a workspace and fills its test environment. Every string that a customer
// can choose goes through text.
func Fill(t testing.TB, s *harness.Server, name string, text func(string) string) *Workspace {
	t.Helper()
	w := &Workspace{Server: s, Workspace: s.Workspace(t, text(name)), text: text}
	w.Key, _ = s.KeyOf(t, &access.Key{Tenant: w.Workspace.In(accounts.Test), Name: "test", Scopes: []string{"*"}, ContentDays: new(int64(30))})
	w.people(t)
	w.keys(t)
	w.calls(t)
	w.jobs(t)
	w.runs(t)
	w.webhooks(t)
	w.leak(t)
	w.FederationRuleID = w.post(t, "/v1/federation_rules", map[string]any{"name": w.text("release workflow"), "issuer": "https://issuer.example.com", "audience": "turnpike",
		"subject": "repo:acme/app", "key_id": w.KeyID, "scopes": []string{"models:read"}}).Text("id")
	w.RouteID = w.post(t, "/v1/routes", map[string]any{"name": "support", "models": []string{"gpt-4o-mini"}}).Text("id")
	user := w.text("customer-17")
	w.post(t, "/v1/scoped_tokens", map[string]any{"scopes": []string{"models:read"}, "user": user, "user_limits": map[string]any{"budget": 5, "window": "week"}})
	w.EndUserID = w.get(t, "/v1/users?user="+url.QueryEscape(user)).Text("data.0.id")
	w.ToolServerID = w.post(t, "/v1/tool_servers", map[string]any{"label": "docs", "url": "https://example.invalid/mcp", "description": w.text("docs"),
		"tool_settings": map[string]any{"search": map[string]any{"approval_rules": map[string]any{"exclude_creator": true}}}}).Text("id")
	return w
}

// Path returns the path of a route in a workspace, with IDs of this world. named
// reports whether it contains an ID.
func (w *Workspace) Path(t testing.TB, rt dashboard.Route, in *accounts.Workspace, env accounts.Environment) (path string, named bool) {
	t.Helper()
	path = strings.NewReplacer("{workspace}", in.ID, "{env}", string(env), "{$}", "").Replace(rt.Path)
	for _, m := range placeholder.FindAllStringSubmatch(path, -1) {
		id := w.id(rt.Path, m[1])
		if id == "" {
			t.Fatalf("sample data has no %s for %s: add it to Workspace.id", m[0], rt.Path)
		}
		path, named = strings.Replace(path, m[0], id, 1), true
	}
	return path, named
}

var placeholder = regexp.MustCompile(`\{(\w+)(?:\.\.\.)?\}`)

// Named reports whether the path of a page contains an ID.
func Named(rt dashboard.Route) bool {
	return placeholder.MatchString(strings.NewReplacer("{workspace}", "", "{env}", "", "{file}", "").Replace(rt.Path))
}

// id returns the ID for a page's path, such as a key's ID for keys/{id}. Resources of a
// person have none.
func (w *Workspace) id(path, name string) string {
	before, _, _ := strings.Cut(path, "{"+name)
	parts := strings.Split(strings.Trim(before, "/"), "/")
	kind := parts[len(parts)-1]
	if kind == "static" {
		return "style.css"
	}
	if !strings.Contains(path, "{workspace}") {
		return "nobodys"
	}
	return map[string]string{"keys": w.KeyID, "projects": w.ProjectID, "requests": w.RequestID, "webhooks": w.EndpointID, "deliveries": w.DeliveryID,
		"events": w.EventID, "replays": w.ReplayID, "images": w.BatchID, "videos": w.VideoID, "voice": w.VoiceID, "transcriptions": w.TranscriptID, "batches": w.ModelBatchID, "message-batches": w.MessageBatchID, "tokens": w.TokenID, "runs": w.RunID, "approvals": w.ApprovalID, "invitations": w.InvitationID,
		"members": w.MemberID, "tools": w.ToolServerID, "rules": "docs__search", "routes": w.RouteID, "federation": w.FederationRuleID, "users": w.EndUserID}[kind]
}

func (w *Workspace) call(t testing.TB, r harness.Request) *harness.Response {
	t.Helper()
	r.Key = w.Key
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("User-Agent", w.text("lantern-shop/4.2"))
	r.Header.Set("Service-Project", w.ProjectID)
	return w.Do(t, r)
}

func (w *Workspace) post(t testing.TB, path string, body any) *harness.Response {
	t.Helper()
	return w.call(t, harness.Request{Method: "POST", Path: path, Body: body}).Want(t, 200, "")
}

func (w *Workspace) get(t testing.TB, path string) *harness.Response {
	t.Helper()
	return w.call(t, harness.Request{Method: "GET", Path: path}).Want(t, 200, "")
}

func (w *Workspace) write(t testing.TB, fn func(tx *db.Tx) error) {
	t.Helper()
	if err := w.DB.Write(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

// people creates an owner, a member, an invited person, and their changes.
func (w *Workspace) people(t testing.TB) {
	t.Helper()
	folk := people.New(w.DB, w.Ring, people.Options{Now: w.Clock.Now})
	id := strings.ToLower(w.Workspace.ID)
	w.Owner = &accounts.User{Email: "first@" + id + ".example", Name: w.text("Ada First"), WorkspaceID: w.Workspace.ID, Role: accounts.Owner}
	other := &accounts.User{Email: "second@" + id + ".example", Name: w.text("Ben Second"), WorkspaceID: w.Workspace.ID, Role: accounts.Developer}
	invitation := &people.Invitation{WorkspaceID: w.Workspace.ID, Email: "third@" + id + ".example", Role: accounts.Viewer}
	w.write(t, func(tx *db.Tx) error {
		for _, u := range []*accounts.User{w.Owner, other} {
			if err := accounts.CreateUser(t.Context(), tx, u, w.Clock.Now()); err != nil {
				return err
			}
		}
		_, err := folk.Invite(t.Context(), tx, people.Operator(), invitation)
		return err
	})
	w.MemberID, w.InvitationID = other.ID, invitation.ID
}

// keys creates a key of each state, and a project.
func (w *Workspace) keys(t testing.TB) {
	t.Helper()
	keys := access.NewKeys(w.Ring, w.Clock.Now)
	by := access.Caller{Actor: audit.Actor{Name: w.Owner.ID, IP: "203.0.113.7"}}
	budget, soon := credits.Micro(40_000_000), w.Clock.Now().Add(40*24*time.Hour)
	w.ProjectID = "shop-" + w.Workspace.ID[len(w.Workspace.ID)-6:]
	w.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: w.Key, Body: map[string]any{"id": w.ProjectID, "name": w.text("Shop"), "monthly_budget": 100}}).Want(t, 200, "")
	one := &access.Key{Name: w.text("backend"), Scopes: []string{"chat.completions:create", "models:read", "images:create", "webhooks:read"}, MonthlyBudget: &budget,
		Project: w.ProjectID, ExpiresAt: &soon, AllowedIPs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	rotating := &access.Key{Name: w.text("worker"), Scopes: []string{"*"}}
	revoked := &access.Key{Name: w.text("old laptop"), Scopes: []string{"models:read"}}
	w.write(t, func(tx *db.Tx) error {
		for _, k := range []*access.Key{one, rotating, revoked} {
			k.Tenant = w.Workspace.In(accounts.Test)
			if _, err := keys.Create(t.Context(), tx, by, k); err != nil {
				return err
			}
		}
		if _, err := keys.Rotate(t.Context(), tx, by, rotating, access.Rotation{Grace: time.Hour}); err != nil {
			return err
		}
		return keys.Revoke(t.Context(), tx, by, revoked)
	})
	w.KeyID = one.ID
}

func chat(prompt string) map[string]any {
	return map[string]any{"model": "gpt-4o-mini", "messages": []map[string]string{{"role": "user", "content": prompt}}}
}

// calls sends requests that succeed and requests that fail.
func (w *Workspace) calls(t testing.TB) {
	t.Helper()
	w.RequestID = w.post(t, "/v1/chat/completions", chat(w.text("Hello there"))).Header.Get("X-Request-Id")
	failed := w.call(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Body: chat("[[sim:error=503]]")})
	w.FailedRequestID = failed.Header.Get("X-Request-Id")
	w.call(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Body: map[string]any{"model": w.text("no-such-model"), "messages": []any{}}})
	w.TokenID = w.post(t, "/v1/scoped_tokens", map[string]any{"scopes": []string{"models:read"}, "metadata": map[string]string{"user": w.text("u-17")}}).Text("id")
}

// jobs creates a job of each kind, and one that fails.
func (w *Workspace) jobs(t testing.TB) {
	t.Helper()
	picture := func(id, prompt string) map[string]any {
		return map[string]any{"custom_id": id, "body": map[string]any{"prompt": prompt, "size": "64x64"}}
	}
	about := map[string]string{"order": w.text("A-1042")}
	w.BatchID = w.post(t, "/v1/images/batches", map[string]any{"metadata": about, "requests": []any{picture(w.text("front"), w.text("A red bicycle")),
		picture("back", "A blue one [[sim:fail=moderation_blocked_input]]")}}).Text("id")
	w.VideoID = w.post(t, "/v1/videos", map[string]any{"prompt": w.text("Waves at a beach"), "size": "64x64", "seconds": 1}).Text("id")
	w.VoiceID = w.post(t, "/v1/voice/renders", map[string]any{"voice": "alloy", "input": w.text("Good morning.")}).Text("id")
	form, header := harness.TranscriptionForm("whisper-1")
	w.TranscriptID = w.call(t, harness.Request{Method: "POST", Path: "/v1/voice/transcriptions", Body: form, Header: header}).Want(t, 200, "").Text("id")
	failing := w.post(t, "/v1/videos", map[string]any{"prompt": w.text("Waves") + " [[sim:error=400]]", "size": "64x64", "seconds": 1}).Text("id")
	for path, status := range map[string]string{"/v1/images/batches/" + w.BatchID: "", "/v1/videos/" + w.VideoID: "completed", "/v1/voice/renders/" + w.VoiceID: "completed",
		"/v1/voice/transcriptions/" + w.TranscriptID: "completed",
		"/v1/videos/" + failing:                      "failed"} {
		w.until(t, path, func(r *harness.Response) bool {
			return r.At("completed_at") != nil && (status == "" || r.Text("status") == status)
		})
	}
	w.modelBatches(t)
}

// modelBatches creates a batch of each API.
func (w *Workspace) modelBatches(t testing.TB) {
	t.Helper()
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	_ = parts.WriteField("purpose", "batch")
	file, err := parts.CreateFormFile("file", w.text("requests")+".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	question := map[string]any{"model": "gpt-4o-mini", "max_tokens": 50, "messages": []any{map[string]any{"role": "user", "content": w.text("Hi.")}}}
	line, _ := json.Marshal(map[string]any{"custom_id": w.text("q1"), "method": "POST", "url": "/v1/chat/completions", "body": question})
	failing := bytes.Replace(line, []byte("gpt-4o-mini"), []byte("nothing"), 1)
	_, _ = file.Write(slices.Concat(line, []byte("\n"), bytes.Replace(failing, []byte("q1"), []byte("q2"), 1)))
	_ = parts.Close()
	input := w.call(t, harness.Request{Method: "POST", Path: "/v1/files", Body: form.String(), Header: http.Header{"Content-Type": {parts.FormDataContentType()}}}).Want(t, 200, "").Text("id")
	w.ModelBatchID = w.post(t, "/v1/batches", map[string]any{"input_file_id": input, "endpoint": "/v1/chat/completions", "completion_window": "24h",
		"metadata": map[string]string{"order": w.text("A-1042")}}).Text("id")
	w.MessageBatchID = w.post(t, "/v1/messages/batches", map[string]any{"requests": []any{map[string]any{"custom_id": "q1", "params": question}}}).Text("id")
	w.until(t, "/v1/batches/"+w.ModelBatchID, func(r *harness.Response) bool { return r.At("completed_at") != nil })
	w.until(t, "/v1/messages/batches/"+w.MessageBatchID, func(r *harness.Response) bool { return r.At("ended_at") != nil })
}

// runs creates a run that waits for approval, and completed ones.
func (w *Workspace) runs(t testing.TB) {
	t.Helper()
	tools := []any{map[string]any{"type": "function", "name": "find_order", "description": w.text("Finds an order.")},
		map[string]any{"type": "http", "name": "refund_order", "url": "https://shop.example.com/refunds", "require_approval": "always", "description": w.text("Pays an order back.")}}
	begin := func(input string) string {
		return w.post(t, "/v1/agents/runs", map[string]any{"model": "gpt-4o", "input": w.text("Order A-1042 never came.") + input, "tools": tools, "instructions": w.text("Be kind."),
			"metadata": map[string]string{"customer": w.text("c-9")}}).Text("id")
	}
	w.RunID = begin(` [[sim:script=tool:refund_order{"order":"` + jsonText(w.text("A-1042")) + `"};answer]]`)
	w.DoneRunID = begin("")
	failed := begin(" [[sim:script=error:503]]")
	waiting := begin(" [[sim:tool=find_order]]")
	for id, status := range map[string]string{w.RunID: "awaiting_approval", w.DoneRunID: "completed", failed: "failed", waiting: "requires_action"} {
		r := w.until(t, "/v1/agents/runs/"+id, func(r *harness.Response) bool { return r.Text("status") == status })
		if id == w.RunID {
			w.ApprovalID = r.Text("required_actions.0.id")
		}
	}
}

// webhooks creates a failing endpoint, a paused one, and a replay.
func (w *Workspace) webhooks(t testing.TB) {
	t.Helper()
	broken := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		http.Error(rw, w.text("the order could not be saved"), http.StatusInternalServerError)
	}))
	t.Cleanup(broken.Close)
	w.EndpointID = w.post(t, "/v1/webhooks", map[string]any{"url": broken.URL + "/hooks", "events": []string{"*"}, "description": w.text("Orders")}).Text("id")
	paused := w.post(t, "/v1/webhooks", map[string]any{"url": "https://example.com/hooks", "events": []string{"key.auto_revoked"}, "description": w.text("Alarm")}).Text("id")
	w.post(t, "/v1/webhooks/"+paused+"/pause", nil)
	tried := w.post(t, "/v1/webhooks/"+w.EndpointID+"/test", nil)
	w.DeliveryID, w.EventID = tried.Text("id"), tried.Text("event_id")
	w.ReplayID = w.post(t, "/v1/webhooks/"+w.EndpointID+"/replay", map[string]any{"since": w.Clock.Now().Add(-time.Hour).Unix()}).Text("id")
	w.until(t, "/v1/deliveries/"+w.DeliveryID, func(r *harness.Response) bool { return r.At("attempt_count") != 0.0 })
}

// leak creates a leaked key.
func (w *Workspace) leak(t testing.TB) {
	t.Helper()
	value, _ := w.KeyOf(t, &access.Key{Tenant: w.Workspace.In(accounts.Test), Name: w.text("found in a repository"), Scopes: []string{"models:read"}})
	w.Do(t, harness.Request{Method: "POST", Path: "/leaks/report", Body: map[string]any{"keys": []string{value}}}).Want(t, 202, "")
}

// until polls the path until ok accepts the response.
func (w *Workspace) until(t testing.TB, path string, ok func(r *harness.Response) bool) (last *harness.Response) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() && last != nil && !ok(last) {
			t.Logf("%s stays %s", path, last.Body)
		}
	})
	w.Eventually(t, func() bool {
		w.Clock.Turn(100 * time.Millisecond) // the server polls a video from time to time
		last = w.get(t, path)
		return ok(last)
	})
	return last
}

// jsonText escapes a string for JSON.
func jsonText(s string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) }
