package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/people"
	"turnpike/internal/webhooks"
	"turnpike/test/chaos/program"
)

const (
	pageViews = 40 // of each page: its 95th percentile is the third slowest
)

type page struct {
	name             string
	p50, p95         time.Duration
	cpu, databaseCPU time.Duration // of one view
	kb               float64
}

func measurePages(b *bench) {
	b.patience /= 4
	for _, e := range b.engines {
		b.measurePagesOn(e)
	}
	b.method("The dashboard: one workspace with %d keys, %d projects, %d endpoints and a month of usage by the hour. Deliveries, of which one in fifty has failed, and log entries are added to the same database from size to size. A signed-in client opens each page %d times, one after the other, and the time ends with the last byte. CPU is that of one view, which other work on the machine hardly changes. Filters without an index stop after a bounded scan and offer to continue.",
		pagesKeys, pagesProjects, pagesEndpoints, pageViews)
}

func (b *bench) measurePagesOn(e *engine) {
	at, remove := b.newPlace(e)
	defer remove()
	w := b.newPagesData(e, at)
	titles := make([]string, 0, len(b.sizes)+1)
	var all [][]page
	for _, n := range b.sizes {
		w.grow(b.ctx, at, n, 5*n)
		b.waitForQuiet()
		all = append(all, b.openPages(e, at, w))
		titles = append(titles, fmt.Sprintf("%d deliveries, %d log entries", n, 5*n))
		say("dashboard, %s, %s", e, titles[len(titles)-1])
	}
	last := all[len(all)-1]
	b.section("Dashboard on %s: server time of a page, median and p95", e.name)
	b.header(append(titles, "CPU per view", "database CPU", "size")...)
	for i, p := range last {
		cells := []string{"`" + p.name + "`"}
		for _, pages := range all {
			cells = append(cells, millis(pages[i].p50)+", "+millis(pages[i].p95))
		}
		database := "–"
		if e.database != nil {
			database = millis(p.databaseCPU)
		}
		b.row(append(cells, millis(p.cpu), database, fmt.Sprintf("%.1f KB", p.kb))...)
	}
	for _, filtered := range []bool{false, true} {
		kind, bound := "page without a filter", 50.0
		if filtered {
			kind, bound = "filter", 100
		}
		some := slices.DeleteFunc(slices.Clone(last), func(p page) bool { return strings.Contains(p.name, "?") != filtered })
		slow := slices.MaxFunc(some, func(a, b page) int { return int(a.p95 - b.p95) })
		b.atMost(inMillis(slow.p95), bound, "ms", "the slowest %s (%s) with %s on %s, p95", kind, slow.name, titles[len(titles)-1], e.name)
	}
	large := slices.MaxFunc(last, func(a, b page) int { return int(a.kb - b.kb) })
	b.atMost(large.kb, 100, "KB", "the largest page (%s) on %s", large.name, e.name)
}

func (b *bench) openPages(e *engine, at program.Place, w *pagesData) (all []page) {
	n := b.startNode(e, at, account{})
	defer n.kill()
	client := &http.Client{Jar: must(cookiejar.New(nil)), Timeout: orderTimeout}
	res := must(client.PostForm(n.url+"/dashboard/login", url.Values{"email": {pagesEmail}, "password": {pagesPassword}}))
	res.Body.Close()
	get := func(path string) []byte {
		check(b.ctx.Err())
		res := must(client.Get(n.url + "/dashboard/w/" + w.workspace + "/live/" + path))
		defer res.Body.Close()
		body := must(io.ReadAll(res.Body))
		if res.StatusCode != http.StatusOK {
			check(fmt.Errorf("/%s: got %s, want 200", path, res.Status))
		}
		return body
	}
	for _, path := range pagePaths(w, get) {
		p := page{name: "/" + regexp.MustCompile(`[a-z]+_01[0-9a-z]+`).ReplaceAllString(path, "…")}
		p.kb = float64(len(get(path))) / 1000 // and parses the template
		times := make([]time.Duration, pageViews)
		used := watch(n.pid(), e.pid, nil, func() {
			for i := range times {
				begun := time.Now()
				get(path)
				times[i] = time.Since(begun)
			}
		})
		p.cpu, p.databaseCPU = used.cpu/pageViews, used.databaseCPU/pageViews
		slices.Sort(times)
		p.p50, p.p95 = times[len(times)/2], times[len(times)*95/100]
		all = append(all, p)
	}
	return all
}

// pagePaths are the lists with their filters, and one item of each list.
func pagePaths(w *pagesData, get func(string) []byte) []string {
	find := func(path, pattern string) string {
		found := regexp.MustCompile(pattern).FindSubmatch(get(path))
		if found == nil {
			check(errors.New("/" + path + " shows no " + pattern))
		}
		return string(found[1])
	}
	request := find("requests", `/requests/(req_[0-9a-z]+)`)
	delivery := find("deliveries?q=status:failed", `/deliveries/(dlv_[0-9a-z]+)`)
	event := find("deliveries/"+delivery, `/events/(evt_[0-9a-z]+)`)
	key, endpoint := w.keys[0], w.endpoints[0]
	return []string{"", "playground", "models", "routes", "users", "tools", "approvals", "federation", "keys", "keys/" + key, "keys/" + key + "/tokens", "projects", "projects/project-1",
		"usage", "usage?group=key", "usage?group=model&bucket=hour", "usage?group=project&metric=credits", "usage?metric=latency_p95&group=model&range=30d",
		"requests", "requests?q=last:30d", "requests?q=key:" + key, "requests?q=key:" + key + "+status:502", `requests?q=key:"service+7"`, "requests?q=key:service*+status:4xx",
		"requests?q=status:502", "requests?q=status:4xx", "requests?q=status:failed+last:1h", "requests?q=ip:192.0.2.7", "requests?q=ip:192.0.2.*", "requests?q=model:model-3", "requests?q=model:model*",
		"requests?q=model:none", "requests?q=model:none*", "requests?q=project:project-1", "requests?q=provider:none", "requests?q=error:none", "requests?q=path:/none*", "requests?q=method:DELETE",
		"requests?q=%3E30s", "requests?q=cost:%3E1000", "requests?q=is:charged", "requests?q=model:none*+status:5xx+%3E2s+last:30d", "requests?q=user:eu_01h455vb4pex5vsknk084sn02q",
		"requests/" + request, "log", "billing", "webhooks", "webhooks/" + endpoint,
		"deliveries", "deliveries?q=status:failed", "deliveries?q=status:held", "deliveries?q=status:pending", "deliveries?q=endpoint:" + endpoint, "deliveries?q=endpoint:" + endpoint + "+status:failed",
		"deliveries?q=endpoint:*service*+status:succeeded", "deliveries?q=event:key.auto_revoked", "deliveries?q=event:key.*+last:7d", "deliveries/" + delivery,
		"events", "events?q=event:key.auto_revoked", "events?q=project:none", "events/" + event,
		"jobs/images", "jobs/images?q=status:failed", "jobs/videos", "jobs/voice", "jobs/transcriptions", "jobs/batches", "runs", "runs?q=status:failed", "log?q=action:none", "security", "team", "settings"}
}

// One workspace that has everything, over a month.
const (
	pagesKeys, pagesProjects, pagesEndpoints, pagesDays = 40, 20, 20, 30

	pagesPassword = "a few words nobody says"
	pagesEmail    = "owner@example.com"
)

type pagesData struct {
	workspace         string
	keys, endpoints   []string
	since             time.Time // start of the month
	delivered, logged int
}

// newPagesData creates the workspace, its owner, keys, projects, endpoints and usage.
func (b *bench) newPagesData(e *engine, at program.Place) *pagesData {
	s := must(app.OpenStore(b.ctx, settings(at)))
	defer s.Close()
	service := people.New(s.DB, s.Ring, people.Options{})
	var owner account
	var link *people.Link
	write(b.ctx, s.DB, func(tx *db.Tx) {
		owner = addAccount(b.ctx, tx, s, liveKey)
		u := &accounts.User{Email: pagesEmail, Name: "The owner", WorkspaceID: owner.workspace, Role: accounts.Owner}
		check(accounts.CreateUser(b.ctx, tx, u, time.Now()))
		link = must(service.NewPasswordLink(b.ctx, tx, u.ID, people.WelcomeLimit))
	})
	must(service.ResetPassword(b.ctx, link.Token, pagesPassword, people.Browser{}))
	w := &pagesData{workspace: owner.workspace, since: time.Now().AddDate(0, 0, -pagesDays)}
	n := b.startNode(e, at, owner)
	defer n.kill()
	for i := range pagesKeys {
		w.keys = append(w.keys, n.create(b.ctx, "/v1/keys", `{"name":"service %d","scopes":["*"]}`, i))
	}
	for i := range pagesProjects {
		n.create(b.ctx, "/v1/projects", `{"id":"project-%d"}`, i)
	}
	for i := range pagesEndpoints {
		w.endpoints = append(w.endpoints, n.subscribe(b.ctx, fmt.Sprintf("http://127.0.0.1:1/service-%d", i)))
	}
	preparePartitions(b.ctx, s.DB, events.Table, webhooks.Deliveries, webhooks.Attempts, audit.Requests)
	write(b.ctx, s.DB, func(tx *db.Tx) { w.addUsage(b.ctx, tx) })
	return w
}

// addUsage adds a month by hour, key, project and model. It doesn't grow with
// the log.
func (w *pagesData) addUsage(ctx context.Context, tx *db.Tx) {
	must(tx.Exec(ctx, `INSERT INTO usage_hours (workspace_id, environment, start, key_id, project, model, provider, requests, errors, input_tokens, output_tokens, credits, simulated_credits, latency_5, latency_9)
		`+withKeys(w.keys, 0, pagesDays*24*120)+`
		SELECT $1, 'live', $2 + (n.i / 120) * 3600, n.key_id, 'project-' || CAST(n.i % 20 AS TEXT), 'model-' || CAST(n.i % 3 AS TEXT), 'openai', 50, 1, 9000, 7000, 4500000, 0, 40, 9
		FROM n`, w.workspace, w.since.Truncate(time.Hour).Unix())) // in seconds, as the rollup is
	must(tx.Exec(ctx, `INSERT INTO usage_days (workspace_id, environment, start, key_id, project, model, provider, requests, errors, input_tokens, output_tokens, credits, simulated_credits, latency_5, latency_9)
		SELECT workspace_id, environment, start - start % 86400, key_id, project, model, provider, sum(requests), sum(errors), sum(input_tokens), sum(output_tokens), sum(credits), 0, sum(latency_5), sum(latency_9)
		FROM usage_hours GROUP BY workspace_id, environment, start - start % 86400, key_id, project, model, provider`))
}

func (w *pagesData) grow(ctx context.Context, at program.Place, delivered, logged int) {
	d := must(app.OpenDatabase(ctx, settings(at)))
	defer d.Close()
	const bursts = 48 // per day
	n := (logged - w.logged) / (pagesDays * bursts)
	for i := range pagesDays * bursts {
		at := w.since.Add(time.Duration(i)*24*time.Hour/bursts + time.Duration(w.logged)*time.Millisecond)
		addLogEntries(ctx, d, logEntriesOf{w.workspace, w.keys, at, 0, n})
	}
	w.logged = logged
	addDeliveries(ctx, d, delivered-w.delivered, func(i int) delivery {
		if i%50 == 0 {
			return delivery{w.workspace, w.endpoints[i%len(w.endpoints)], webhooks.Failed}
		}
		return delivery{w.workspace, w.endpoints[i%len(w.endpoints)], webhooks.Succeeded}
	})
	w.delivered = delivered
	if d.Engine() == "postgres" { // SQLite has statistics only if an operator collects them
		analyze(ctx, d)
	}
}
