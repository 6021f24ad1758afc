package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/audit"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/test/chaos/program"
)

// noLimits are so high that no request reaches them: limits are on and reject nothing.
var noLimits = []string{"--limits-live-requests-per-minute", "100000000", "--limits-live-tokens-per-minute", "1000000000000", "--limits-live-in-flight", "1000000",
	"--limits-reads-per-minute", "0", "--limits-workspace-reads-per-minute", "0", "--limits-writes-per-minute", "0", "--limits-workspace-writes-per-minute", "0",
	"--limits-unauthenticated-connections", "1000000"}

// settings are the defaults, except that endpoints may be on this machine and
// the API's limits are off.
func settings(at program.Place) config.Config {
	cfg := config.Default()
	cfg.Listen = "127.0.0.1:0"
	cfg.Data = at.Dir
	if at.DatabaseURL != "" { // otherwise the key is in the data directory
		cfg.DatabaseURL, cfg.MasterKey = config.SecretURL(at.DatabaseURL), program.MasterKey
	}
	cfg.Limits.TestRequestsPerMinute = 0
	cfg.Limits.ReadsPerMinute, cfg.Limits.WorkspaceReadsPerMinute = 0, 0
	cfg.Limits.WritesPerMinute, cfg.Limits.WorkspaceWritesPerMinute = 0, 0
	cfg.Webhooks.AllowHTTP = true
	cfg.Webhooks.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	return cfg
}

// account is a workspace and a key for it.
type account struct{ workspace, key string }

// newAccounts creates workspaces with one key each, like the given one.
func newAccounts(ctx context.Context, at program.Place, n int, like access.Key) (all []account) {
	s := must(app.OpenStore(ctx, settings(at)))
	defer s.Close()
	write(ctx, s.DB, func(tx *db.Tx) {
		for range n {
			all = append(all, addAccount(ctx, tx, s, like))
		}
	})
	return all
}

func addAccount(ctx context.Context, tx *db.Tx, s *app.Store, k access.Key) account {
	w := &accounts.Workspace{Name: "bench " + rand.Text(), RotationGrace: accounts.DefaultRotationGrace}
	check(accounts.CreateWorkspace(ctx, tx, w, time.Now()))
	k.Tenant, k.Name, k.Scopes = w.In(k.Environment), "bench", []string{"*"}
	return account{w.ID, must(access.NewKeys(s.Ring, time.Now).Create(ctx, tx, access.Caller{Actor: audit.Operator}, &k))}
}

var (
	liveKey = access.Key{Tenant: accounts.Tenant{Environment: accounts.Live}}
	testKey = access.Key{Tenant: accounts.Tenant{Environment: accounts.Test}}
)

var apiClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}

func callAPI(ctx context.Context, method, url, key string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := apiClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: got %s: %s", method, url, res.Status, answer)
	}
	return answer, err
}

func addressOf(url string) string { return strings.TrimPrefix(url, "http://") }

// stopServer stops a server gracefully, which frees its leases immediately.
func stopServer(s *program.Server) {
	check(s.Terminate())
	must(s.Wait(orderTimeout))
}

// nodeOrder starts a server in the child's process (the first order), or
// publishes events as the server's own packages do.
type nodeOrder struct {
	At        program.Place
	Version   string // of the server; empty for the usual one
	Workspace string
	Count     int
	Batch     int           // events per transaction
	Every     time.Duration // between transactions; 0 for no pause
}

// nodeAnswer is where the server listens, or when events were published.
type nodeAnswer struct {
	URL string
	span
	Committed []int64 // by the events' numbers
}

type nodeServer struct{ app *app.App }

func (s *nodeServer) obey(o nodeOrder) (answer nodeAnswer) {
	ctx := context.Background()
	begun := time.Now()
	answer.Begun = begun.UnixNano()
	if s.app == nil {
		slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
		s.app = must(app.Start(ctx, settings(o.At), cmp.Or(o.Version, "bench"), time.Now))
		app.TuneMemory(ctx, s.app.CallsInFlight) // as `turnpike serve` does
		s.app.Serve()
		answer.URL = s.app.URL()
		return answer
	}
	origin := events.Origin{Tenant: accounts.Tenant{WorkspaceID: o.Workspace, Environment: accounts.Live}}
	for i := 0; len(answer.Committed) < o.Count; i++ {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * o.Every)))
		batch := make([]events.Payload, min(o.Batch, o.Count-len(answer.Committed)))
		for k := range batch {
			run := events.Sample(events.AgentRunCompleted, time.Now()).(events.AgentRun)
			run.Metadata = map[string]string{numberKey: numberText(len(answer.Committed) + k)}
			batch[k] = run
		}
		check(s.app.Publish(ctx, origin, batch...))
		answer.Ended = time.Now().UnixNano()
		for range batch {
			answer.Committed = append(answer.Committed, answer.Ended)
		}
	}
	return answer
}

// node is a server that publishes events when it's asked to.
type node struct {
	*child
	account
	url      string
	begun    int64 // when its start began
	database int   // its database's process, 0 for SQLite
}

func (b *bench) startNode(e *engine, at program.Place, a account) *node {
	return b.startVersion(e, at, a, "")
}

// startVersion starts a server whose deliveries name a version.
func (b *bench) startVersion(e *engine, at program.Place, a account, version string) *node {
	var started nodeAnswer
	c := b.startChild(roleNode, nodeOrder{At: at, Version: version}, &started)
	return &node{child: c, account: a, url: started.URL, begun: started.Begun, database: e.pid}
}

func (b *bench) newNode(e *engine) (n *node, stop func()) {
	at, remove := b.newPlace(e)
	n = b.startNode(e, at, newAccounts(b.ctx, at, 1, liveKey)[0])
	return n, func() {
		n.kill()
		remove()
	}
}

func (n *node) create(ctx context.Context, path, format string, args ...any) string {
	var made struct{ ID string }
	check(json.Unmarshal(must(callAPI(ctx, http.MethodPost, n.url+path, n.key, fmt.Appendf(nil, format, args...))), &made))
	return made.ID
}

func (n *node) subscribe(ctx context.Context, url string) (id string) {
	return n.create(ctx, "/v1/webhooks", `{"url":%q,"events":["*"]}`, url)
}
