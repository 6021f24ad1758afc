package toolservers_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
	"turnpike/internal/safehttp"
	"turnpike/internal/visibility"
	"turnpike/test/fakes/oauth"
)

const redirectURL = "https://turnpike.example.com/dashboard/tools/callback"

// world is two nodes with one database, and a tool server that an authorization server protects.
type world struct {
	nodes    [2]*toolservers.Service
	issuer   *oauth.Server
	resource string
	tenant   accounts.Tenant

	mu    sync.Mutex
	now   time.Time
	moved *oauth.Server // that the tool server names instead of the issuer; nil at first
}

// named returns the authorization server that the tool server names.
func (w *world) named() *oauth.Server {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.moved != nil {
		return w.moved
	}
	return w.issuer
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

var actor = audit.Actor{Name: "usr_ada"}

func eachWorld(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Helper()
	dbtest.EachAddress(t, func(t *testing.T, address string) {
		first := dbtest.Open(t, address)
		second := first
		if first.Engine() == "postgres" {
			second = dbtest.Open(t, address)
		}
		w := &world{now: time.Now(), issuer: oauth.New(t, "known", "known-secret", redirectURL), tenant: accounts.Tenant{Environment: accounts.Live}}
		server := mcp.NewServer(&mcp.Implementation{Name: "docs", Version: "1"}, nil)
		server.AddTool(&mcp.Tool{Name: "search", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "found"}}}, nil
		})
		handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
		upstream := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			w.named().Protect(func() string { return w.resource }, handler).ServeHTTP(rw, r)
		}))
		t.Cleanup(upstream.Close)
		w.resource = upstream.URL + "/mcp"
		ring, err := keyring.New(keyring.NewKey())
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range []*db.DB{first, second} {
			w.nodes[i] = toolservers.New(toolservers.Options{DB: d, Ring: ring, Now: w.clock, Version: "test",
				Guard:    safehttp.New(safehttp.Policy{AllowHTTP: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}),
				Requests: func() *tools.RequestLimits { return nil }, TestTools: func() accounts.ToolMode { return accounts.ToolsReal }})
		}
		err = first.Write(t.Context(), func(tx *db.Tx) error {
			workspace := &accounts.Workspace{Name: "Acme"}
			err := accounts.CreateWorkspace(t.Context(), tx, workspace, w.clock())
			w.tenant.WorkspaceID = workspace.ID
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		fn(t, w)
	})
}

// register registers the protected server with a client, or none.
func (w *world) register(t *testing.T, label, clientID, secret string) *toolservers.Server {
	t.Helper()
	s := &toolservers.Server{Tenant: w.tenant, Label: label, URL: w.resource, Approval: tools.ApprovalRule("never")}
	err := w.nodes[0].DB.Write(t.Context(), func(tx *db.Tx) error {
		return w.nodes[0].Create(t.Context(), tx, actor, s, toolservers.Credentials{OAuth: &toolservers.OAuth{GrantType: toolservers.AuthorizationCode, ClientID: clientID, ClientSecret: secret}})
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (w *world) visible() visibility.Filter { return visibility.Filter{Tenant: w.tenant} }

// authorize starts an authorization, allows it at the authorization server, and returns the redirect.
func (w *world) authorize(t *testing.T, s *toolservers.Server) toolservers.Callback {
	t.Helper()
	address, err := w.nodes[0].StartAuthorization(t.Context(), s, toolservers.Authorization{SessionID: "session", RedirectURL: redirectURL})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	to, err := resp.Location()
	if err != nil {
		t.Fatalf("the authorization server returned %s for %s", resp.Status, address)
	}
	q := to.Query()
	return toolservers.Callback{SessionID: "session", State: q.Get("state"), Code: q.Get("code"), Issuer: q.Get("iss")}
}

func (w *world) connect(t *testing.T, s *toolservers.Server) {
	t.Helper()
	// Any node can complete it.
	if _, err := w.nodes[1].CompleteAuthorization(t.Context(), w.visible(), actor, w.authorize(t, s)); err != nil {
		t.Fatal(err)
	}
}

// stored returns the server as a node reads it.
func (w *world) stored(t *testing.T, s *toolservers.Server) *toolservers.Server {
	t.Helper()
	out, err := w.nodes[1].Get(t.Context(), w.nodes[1].DB, w.visible(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// call calls the tool on a node.
func (w *world) call(t *testing.T, node int, label string) error {
	t.Helper()
	m := w.nodes[node]
	target, err := m.Find(t.Context(), w.visible(), label, "search")
	if err != nil {
		return err
	}
	prepared, err := m.Prepare(toolservers.Call{Target: target, Arguments: []byte("{}"), RequestID: "req_1"})
	if err != nil {
		return err
	}
	defer prepared.Release()
	_, err = prepared.Run(t.Context())
	return err
}

func TestMemberConnectsToolServer(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		registered, known := w.register(t, "registered", "", ""), w.register(t, "known", "known", "known-secret")
		if err := w.call(t, 0, "registered"); err == nil || !strings.Contains(err.Error(), "needs authorization") {
			t.Errorf("got %v, want an error about the authorization", err)
		}
		for _, s := range []*toolservers.Server{registered, known} {
			w.connect(t, s)
			for node := range w.nodes {
				if err := w.call(t, node, s.Label); err != nil {
					t.Errorf("call of %s on node %d: %v", s.Label, node, err)
				}
			}
			if got := w.stored(t, s); got.Connection != toolservers.Connected || got.ConnectedBy != actor.Name || got.Problem != "" {
				t.Errorf("%s is %q by %q with the problem %q, want a connection", s.Label, got.Connection, got.ConnectedBy, got.Problem)
			}
		}
		// Without registration, the member learns what to do.
		w.issuer.Registers = false
		if _, err := w.nodes[0].StartAuthorization(t.Context(), registered, toolservers.Authorization{SessionID: "session", RedirectURL: redirectURL}); !fault.Is(err, fault.InvalidState) || !strings.Contains(err.Error(), redirectURL) {
			t.Errorf("got %v, want the redirect URL", err)
		}
		var found int
		for _, table := range []string{"tool_servers WHERE connection LIKE '%access-%' OR connection LIKE '%secret%'", "tool_authorizations"} {
			if err := w.nodes[0].DB.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&found); err != nil || found != 0 {
				t.Errorf("%d rows of %s, error %v, want none", found, table, err)
			}
		}
	})
}

func TestAuthorizationIsBoundToItsSessionAndWorksOnce(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		s := w.register(t, "docs", "", "")
		refused := func(why string, c toolservers.Callback, vis visibility.Filter) {
			t.Helper()
			if _, err := w.nodes[0].CompleteAuthorization(t.Context(), vis, actor, c); !fault.Is(err, fault.InvalidState) {
				t.Errorf("%s: got %v, want invalid_state", why, err)
			}
			if got := w.stored(t, s).Connection; got != toolservers.NeedsAuthorization {
				t.Fatalf("%s: the server is %q", why, got)
			}
		}
		good := w.authorize(t, s)
		other := good
		other.SessionID = "another"
		refused("another session", other, w.visible())
		other = good
		other.State = "invented"
		refused("another state", other, w.visible())
		refused("no state", toolservers.Callback{SessionID: "session", Code: good.Code, Issuer: good.Issuer}, w.visible())
		refused("another workspace", good, visibility.Filter{Tenant: accounts.Tenant{WorkspaceID: "ws_other", Environment: accounts.Live}})
		if _, err := w.nodes[0].CompleteAuthorization(t.Context(), w.visible(), actor, good); err != nil {
			t.Fatal(err)
		}
		if err := w.nodes[0].DB.Write(t.Context(), func(tx *db.Tx) error {
			locked, err := w.nodes[0].GetLocked(t.Context(), tx, w.visible(), s.ID)
			if err != nil {
				return err
			}
			return w.nodes[0].Disconnect(t.Context(), tx, actor, locked)
		}); err != nil {
			t.Fatal(err)
		}
		refused("a second time", good, w.visible())
		other = w.authorize(t, s)
		other.Issuer = "https://evil.example"
		refused("another issuer", other, w.visible())
		other = w.authorize(t, s)
		other.Code = "invented"
		refused("another code", other, w.visible())
		late := w.authorize(t, s)
		w.advance(11 * time.Minute)
		refused("too late", late, w.visible())
		if err := w.nodes[0].DB.Write(t.Context(), func(tx *db.Tx) error {
			n, err := w.nodes[0].PurgeAuthorizations(t.Context(), tx, 10)
			if n != 1 {
				t.Errorf("purged %d authorizations, want 1", n)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestExpiredTokenIsRenewedOnceByTwoNodes(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		s := w.register(t, "docs", "", "")
		w.connect(t, s)
		for round := range 3 {
			if err := w.call(t, 0, "docs"); err != nil { // so that the tools are known
				t.Fatal(err)
			}
			w.advance(2 * time.Hour)
			started, proceed := make(chan struct{}, 1), make(chan struct{})
			w.issuer.OnRefresh = func() int {
				started <- struct{}{}
				<-proceed
				return 0
			}
			results := make(chan error, 20)
			for i := range cap(results) {
				go func() { _, err := w.nodes[i%2].Headers(t.Context(), s); results <- err }()
			}
			<-started
			close(proceed)
			for range cap(results) {
				if err := <-results; err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			}
			if got := w.issuer.RefreshCount(); got != round+1 {
				t.Fatalf("round %d: the refresh token was used %d times, want %d", round, got, round+1)
			}
		}
	})
}

func TestRenewalContinuesWhenItsClientLeaves(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		s := w.register(t, "docs", "", "")
		w.connect(t, s)
		w.advance(2 * time.Hour)
		started, proceed := make(chan struct{}), make(chan struct{})
		w.issuer.OnRefresh = func() int {
			close(started)
			<-proceed
			return 0
		}
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _, _ = w.nodes[0].Headers(ctx, s); close(done) }()
		<-started
		leave()
		close(proceed)
		<-done
		w.issuer.OnRefresh = nil
		if err := w.call(t, 1, "docs"); err != nil || w.issuer.RefreshCount() != 1 {
			t.Errorf("got %v after %d renewals, want the token of the first", err, w.issuer.RefreshCount())
		}
	})
}

func TestRenewalOfCrashedNodeIsTakenOver(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		s := w.register(t, "docs", "", "")
		w.connect(t, s)
		w.advance(2 * time.Hour)
		if err := w.nodes[0].DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE tool_servers SET renewal_id = 'crashed', renewal_until = $1", w.clock().Add(30*time.Second).UnixMicro())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		go func() { _, err := w.nodes[1].Headers(t.Context(), s); result <- err }()
		w.advance(time.Minute)
		if err := <-result; err != nil || w.issuer.RefreshCount() != 1 {
			t.Errorf("got %v after %d renewals, want one", err, w.issuer.RefreshCount())
		}
	})
}

func TestRejectedRefreshNeedsAuthorization(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		s := w.register(t, "docs", "", "")
		w.connect(t, s)
		if err := w.call(t, 0, "docs"); err != nil {
			t.Fatal(err)
		}
		// A problem of the authorization server is temporary.
		w.advance(2 * time.Hour)
		w.issuer.OnRefresh = func() int { return http.StatusServiceUnavailable }
		_, err := w.nodes[0].Headers(t.Context(), s)
		if failure, ok := errors.AsType[*tools.Failure](err); !ok || failure.Final || w.stored(t, s).Connection != toolservers.Connected {
			t.Errorf("got %v and the state %q, want a temporary failure", err, w.stored(t, s).Connection)
		}
		w.issuer.OnRefresh = nil
		// A token that the tool server rejects is renewed, and the call is made.
		w.issuer.RevokeAccess(false)
		if err := w.call(t, 1, "docs"); err != nil || w.issuer.RefreshCount() != 1 {
			t.Errorf("got %v after %d renewals, want one", err, w.issuer.RefreshCount())
		}
		w.issuer.RevokeAccess(false)
		if err := w.call(t, 1, "docs"); err != nil || w.issuer.RefreshCount() != 2 {
			t.Errorf("got %v after %d renewals, want two", err, w.issuer.RefreshCount())
		}
		// Without any valid token, a member must connect the server again.
		w.issuer.RevokeAccess(true)
		if err := w.call(t, 0, "docs"); err == nil || !strings.Contains(err.Error(), "needs authorization") {
			t.Errorf("got %v, want an error about the authorization", err)
		}
		if got := w.stored(t, s).Connection; got != toolservers.NeedsAuthorization {
			t.Errorf("the server is %q, want needs_authorization", got)
		}
		w.connect(t, s)
		if err := w.call(t, 0, "docs"); err != nil {
			t.Errorf("after connecting again: %v", err)
		}
	})
}

// N17: a tool server can't have the workspace's client sent to an authorization server of its choice.
func TestClientIsSentToItsOwnAuthorizationServerOnly(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		known, pinned, dynamic := w.register(t, "known", "known", "known-secret"), w.register(t, "pinned", "known", "known-secret"), w.register(t, "dynamic", "", "")
		w.connect(t, known)
		other := oauth.New(t, "known", "known-secret", redirectURL)
		change := func(s *toolservers.Server, o *toolservers.OAuth) {
			t.Helper()
			if err := w.nodes[0].DB.Write(t.Context(), func(tx *db.Tx) error {
				by := tools.Decider{Principal: access.PersonPrincipal(actor.Name, accounts.Developer, w.tenant), Actor: actor, Role: accounts.Developer}
				_, err := w.nodes[0].Change(t.Context(), tx, toolservers.ServerChange{By: by, Visibility: w.visible(), ID: s.ID, Decide: func(*toolservers.Server) (toolservers.Change, error) {
					return toolservers.Change{SetOAuth: true, Credentials: toolservers.Credentials{OAuth: o}, Apply: func(*toolservers.Server) {}}, nil
				}})
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		client := func(issuer string) *toolservers.OAuth {
			return &toolservers.OAuth{GrantType: toolservers.AuthorizationCode, ClientID: "known", ClientSecret: "known-secret", Issuer: issuer}
		}
		change(pinned, client(w.issuer.URL+"/"))
		w.connect(t, w.stored(t, pinned))
		w.mu.Lock()
		w.moved = other
		w.mu.Unlock()
		for _, s := range []*toolservers.Server{known, pinned} {
			_, err := w.nodes[1].StartAuthorization(t.Context(), w.stored(t, s), toolservers.Authorization{SessionID: "session", RedirectURL: redirectURL})
			if !fault.Is(err, fault.InvalidState) || !strings.Contains(err.Error(), w.issuer.URL) {
				t.Errorf("%s: got %v, want a refusal that names %s", s.Label, err, w.issuer.URL)
			}
		}
		w.connect(t, dynamic) // its client is registered where it is used
		change(known, client(""))
		w.connect(t, w.stored(t, known))
		change(pinned, client(other.URL))
		w.connect(t, w.stored(t, pinned))
	})
}

func TestTokensAreNotUsedForAnotherAddressOrClient(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		for name, change := range map[string]toolservers.Change{
			"address": {SetOAuth: true, Credentials: toolservers.Credentials{OAuth: &toolservers.OAuth{GrantType: toolservers.AuthorizationCode}}, Apply: func(s *toolservers.Server) { s.URL += "/other" }},
			"client":  {SetOAuth: true, Credentials: toolservers.Credentials{OAuth: &toolservers.OAuth{GrantType: toolservers.AuthorizationCode, ClientID: "known"}}, Apply: func(*toolservers.Server) {}},
			"path":    {Apply: func(s *toolservers.Server) { s.URL += "/other" }},
		} {
			s := w.register(t, name, "", "")
			w.connect(t, s)
			if err := w.nodes[0].DB.Write(t.Context(), func(tx *db.Tx) error {
				_, err := w.nodes[0].Change(t.Context(), tx, toolservers.ServerChange{By: tools.Decider{Principal: access.PersonPrincipal(actor.Name, accounts.Developer, w.tenant), Actor: actor, Role: accounts.Developer}, Visibility: w.visible(), ID: s.ID,
					Decide: func(*toolservers.Server) (toolservers.Change, error) { return change, nil }})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if got := w.stored(t, s); got.Connection != toolservers.NeedsAuthorization {
				t.Errorf("after a new %s the server is %q, want needs_authorization", name, got.Connection)
			}
			if _, err := w.nodes[0].Headers(t.Context(), w.stored(t, s)); err == nil {
				t.Errorf("after a new %s there is still a token", name)
			}
		}
	})
}
