package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/app"
	"turnpike/internal/audit"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/safehttp"
	"turnpike/test/chaos/program"
)

// mcpServer is an MCP server. Its tool pay works while block is set.
type mcpServer struct {
	url   string
	block atomic.Bool
	paid  atomic.Int64 // calls
	drops atomic.Int64
}

func newMCPServer(t *testing.T) *mcpServer {
	t.Helper()
	u := &mcpServer{}
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	add := func(name string, calls *atomic.Int64) {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}},
			func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				calls.Add(1)
				if u.block.Load() {
					<-ctx.Done()
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name}}}, nil
			})
	}
	add("pay", &u.paid)
	add("drop", &u.drops)
	upstream := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(func() {
		upstream.CloseClientConnections()
		upstream.Close()
	})
	u.url = upstream.URL
	return u
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// useTool calls a tool once, and returns its text.
func useTool(ctx context.Context, url, key, name string) (string, error) {
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: url + "/mcp", HTTPClient: &http.Client{Transport: bearer(key)}, DisableStandaloneSSE: true, MaxRetries: -1}, nil)
	if err != nil {
		return "", err
	}
	defer session.Close()
	r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: map[string]any{"order": 7}})
	if err != nil {
		return "", err
	}
	return r.Content[0].(*mcp.TextContent).Text, nil
}

// approveAll approves every call that waits for a decision, as the dashboard does.
func approveAll(t *testing.T, at program.Place, d *db.DB) int {
	t.Helper()
	cfg := config.Default()
	cfg.Data = at.Dir
	if at.DatabaseURL != "" {
		cfg.MasterKey = program.MasterKey
	}
	ring, err := app.OpenRing(t.Context(), cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	var workspace string
	if err := d.QueryRow(t.Context(), "SELECT id FROM workspaces").Scan(&workspace); err != nil {
		t.Fatal(err)
	}
	person := tools.Decider{Principal: &access.Principal{Tenant: accounts.Tenant{WorkspaceID: workspace, Environment: accounts.Live}, UserID: "usr_1"}, Actor: audit.Actor{Name: "usr_1"}, Role: accounts.Owner}
	service := toolservers.New(toolservers.Options{DB: d, Ring: ring, Guard: safehttp.New(safehttp.Policy{}), Now: time.Now})
	page, err := service.Approvals(t.Context(), d, person.Principal.Visibility(), toolservers.Pending, db.Page{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range page.Rows {
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := service.Decide(t.Context(), tx, person, toolservers.Decision{ApprovalID: a.ID, Approve: true, Hash: a.Hash})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return len(page.Rows)
}

// TestToolCallsSurviveKill9 kills the server while priced tools run and a call waits for an approval. Every
// call that the tool server got is in the log and charged once. The approval is still there, and used once.
func TestToolCallsSurviveKill9(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, at program.Place) {
		const inFlight, price = 5, 2
		tools := newMCPServer(t)
		args := []string{"--agents-allow-http", "--agents-allow-cidrs=127.0.0.0/8"}
		server, d := serve(t, at, args...), open(t, at)
		p := newAccount(t, at, server.URL)
		p.setCredits(t, server.URL, 1000*credits.Credit)
		o := call(server.URL, request{mark: "register", method: "POST", path: "/v1/tool_servers", key: p.admin, body: fmt.Sprintf(
			`{"label":"shop","url":%q,"require_approval":{"never":{"tool_names":["pay"]},"always":{"tool_names":["drop"]}},"tool_settings":{"pay":{"price_per_call":%d},"drop":{"price_per_call":%[2]d}}}`, tools.url, price)})
		var made struct{ ID string }
		if err := json.Unmarshal(o.body, &made); o.status != http.StatusOK || err != nil {
			t.Fatalf("failed to register the tool server: %v\n%s", o, o.body)
		}
		if text, err := useTool(t.Context(), server.URL, p.admin, "shop__pay"); text != "pay" || err != nil {
			t.Fatalf("got %q (%v), want a call", text, err)
		}
		tools.block.Store(true)
		var clients sync.WaitGroup
		for i := range inFlight + 1 {
			name := "shop__pay"
			if i == inFlight {
				name = "shop__drop"
			}
			clients.Go(func() {
				if text, err := useTool(t.Context(), server.URL, p.admin, name); err == nil {
					t.Errorf("%s returned %q, want a call in progress", name, text)
				}
			})
		}
		eventually(t, time.Minute, "all calls are in progress", func() bool {
			return tools.paid.Load() == inFlight+1 && count(t, d, "SELECT count(*) FROM tool_approvals WHERE status = 'pending'") == 1 &&
				count(t, d, "SELECT count(*) FROM requests WHERE provider = 'mcp' AND reserved > 0 AND NOT settled") >= inFlight
		})
		server.Kill()
		clients.Wait()
		if n := approveAll(t, at, d); n != 1 { // while no server runs
			t.Errorf("got %d pending approvals after the crash, want 1", n)
		}
		if at.DatabaseURL != "" {
			evictAll(t, d)
		}
		server = serve(t, at, args...)
		eventually(t, time.Minute, "interrupted calls are settled", func() bool { return count(t, d, "SELECT count(*) FROM requests WHERE NOT settled") == 0 })
		if n := tools.drops.Load(); n != 0 {
			t.Errorf("the tool that needs an approval was called %d times before it had one", n)
		}
		tools.block.Store(false)
		if text, err := useTool(t.Context(), server.URL, p.admin, "shop__drop"); text != "drop" || err != nil {
			t.Errorf("got %q (%v), want the approved call", text, err)
		}
		if used := count(t, d, "SELECT count(*) FROM tool_approvals WHERE status = 'used'"); used != 1 || tools.drops.Load() != 1 {
			t.Errorf("got %d used approvals and %d calls, want 1 and 1", used, tools.drops.Load())
		}
		if n := tools.paid.Load(); n != inFlight+1 {
			t.Errorf("the tool server got %d calls, want %d: a crash must not repeat them", n, inFlight+1)
		}
		stop(t, server)
		if n := count(t, d, "SELECT count(*) FROM requests WHERE provider = 'mcp' AND credits = $1", int64(price*credits.Credit)); n != inFlight+2 {
			t.Errorf("the log has %d charged calls, want %d", n, inFlight+2)
		}
		if n := count(t, d, "SELECT count(*) FROM requests WHERE usage_source = 'recovered' AND credits = reserved AND credits > 0"); n < inFlight {
			t.Errorf("the log has %d recovered calls, want at least %d", n, inFlight)
		}
		if spent := totalSpent(t, d); spent != (inFlight+2)*price*credits.Credit {
			t.Errorf("got %s charged, want %d", spent, (inFlight+2)*price)
		}
		checkBalances(t, d)
	})
}
