package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
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

// publishOrder makes events happen in the server's own process, as its parts
// do.
type publishOrder struct {
	Workspace string        `json:"workspace"`
	Count     int           `json:"count"`
	Batch     int           `json:"batch"` // events of one transaction
	Every     time.Duration `json:"every"` // from one transaction to the next; 0 for at once
}

// published is when it was done, in nanoseconds.
type published struct {
	Begun     int64   `json:"begun"`
	Ended     int64   `json:"ended"`
	Committed []int64 `json:"committed"` // by the events' numbers
}

// ready is a server that has started.
type ready struct {
	URL   string `json:"url"`
	Begun int64  `json:"begun"` // when its start began
}

// playNode is the process of a server whose events happen when it is told.
func playNode(in orders) error {
	ctx := context.Background()
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	var at program.Place
	if err := in.in.Decode(&at); err != nil {
		return err
	}
	begun := time.Now()
	a, err := app.Start(ctx, settings(at), "bench", nil)
	if err != nil {
		return err
	}
	app.TuneMemory(ctx, a.CallsInFlight) // as `turnpike serve` does
	a.Serve()
	if err := in.out.Encode(ready{URL: a.URL(), Begun: begun.UnixNano()}); err != nil {
		return err
	}
	err = obey(in, func(o publishOrder) (published, error) { return publish(ctx, a, o) })
	if err != nil {
		return err
	}
	return a.Close()
}

// settings are the defaults, except that customers may be on this machine and
// one key may ask as often as it likes.
func settings(at program.Place) config.Config {
	cfg := config.Default()
	cfg.Listen = "127.0.0.1:0"
	cfg.Data = at.Folder
	cfg.DatabaseURL = config.SecretURL(at.DatabaseURL)
	cfg.MasterKey = program.MasterKey
	cfg.Limits.ReadsPerMinute, cfg.Limits.WorkspaceReadsPerMinute = 0, 0
	cfg.Limits.WritesPerMinute, cfg.Limits.WorkspaceWritesPerMinute = 0, 0
	cfg.Webhooks.AllowHTTP = true
	cfg.Webhooks.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	return cfg
}

func publish(ctx context.Context, a *app.App, o publishOrder) (published, error) {
	p := published{Committed: make([]int64, 0, o.Count)}
	from := events.Origin{WorkspaceID: o.Workspace, Environment: string(accounts.Live)}
	begun := time.Now()
	p.Begun = begun.UnixNano()
	for i := 0; len(p.Committed) < o.Count; i++ {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * o.Every)))
		batch := make([]events.Payload, min(o.Batch, o.Count-len(p.Committed)))
		for k := range batch {
			batch[k] = numbered(len(p.Committed) + k)
		}
		if err := a.Publish(ctx, from, batch...); err != nil {
			return p, err
		}
		p.Ended = time.Now().UnixNano()
		for range batch {
			p.Committed = append(p.Committed, p.Ended)
		}
	}
	return p, nil
}

// numbered is a finished run of an agent, such as a customer gets it.
func numbered(n int) events.Payload {
	run := events.Sample(events.AgentRunCompleted, time.Now()).(events.AgentRun)
	run.Metadata = map[string]string{numberKey: numberText(n)}
	return run
}

// node is such a server from outside.
type node struct {
	*child
	ready
	tenant
	store int // process of its database, 0 when it has none
}

// startNode starts a server for the tenant.
func startNode(ctx context.Context, at program.Place, t tenant) (*node, error) {
	n := &node{tenant: t}
	var err error
	n.child, err = startChild(ctx, roleNode, at, &n.ready)
	return n, err
}

func (n *node) publish(ctx context.Context, o publishOrder) (p published, err error) {
	o.Workspace = n.workspace
	err = n.ask(ctx, o, &p)
	return p, err
}

// subscribe has everything delivered to the address.
func (n *node) subscribe(ctx context.Context, url string) error {
	body, err := json.Marshal(map[string]any{"url": url, "events": []string{"*"}})
	if err != nil {
		return err
	}
	_, err = n.call(ctx, http.MethodPost, "/v1/webhooks", body)
	return err
}

// call makes a request and returns the answer's body.
func (n *node) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, n.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+n.key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s was answered with %s: %s", method, path, res.Status, answer)
	}
	return answer, err
}

// tenant is a workspace and a key to it.
type tenant struct{ workspace, key string }

// newTenant makes one in a database that may be empty.
func newTenant(ctx context.Context, at program.Place) (t tenant, err error) {
	s, err := app.OpenStore(ctx, settings(at))
	if err != nil {
		return t, err
	}
	defer s.Close()
	err = s.DB.Write(ctx, func(tx *db.Tx) (err error) {
		t, err = addTenant(ctx, tx, s, "bench")
		return err
	})
	return t, err
}

func addTenant(ctx context.Context, tx *db.Tx, s *app.Store, name string) (t tenant, err error) {
	w := &accounts.Workspace{Name: name, RotationGrace: accounts.DefaultRotationGrace}
	if err := accounts.CreateWorkspace(ctx, tx, w, time.Now()); err != nil {
		return t, err
	}
	t.workspace = w.ID
	t.key, err = access.NewKeys(s.Ring, time.Now).Create(ctx, tx, access.Caller{Actor: audit.Operator},
		&access.Key{WorkspaceID: w.ID, Environment: accounts.Live, Name: "bench", Scopes: []string{"*"}})
	return t, err
}
