package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"turnpike/test/chaos/program"
)

// pageViews is how often each page is opened: its 95th percentile is the second
// slowest of them.
const pageViews = 40

// pagesSize is how much there is to look at.
type pagesSize struct{ delivered, logged int }

// dashboard is what was measured of the pages.
type dashboard struct {
	engines []*pagesSeries
}

// pagesSeries is one engine's figures, by size.
type pagesSeries struct {
	engine string
	sizes  []pagesSample
}

type pagesSample struct {
	pagesSize
	filled time.Duration
	pages  []pageSample
}

// pageSample is one page: how long the server took, and how large it is.
type pageSample struct {
	name     string
	p50, p95 time.Duration
	bytes    int // as it is sent
}

func (s pagesSample) slowest() pageSample {
	return slices.MaxFunc(s.pages, func(a, b pageSample) int { return int(a.p95 - b.p95) })
}

func (s pagesSample) largest() pageSample {
	return slices.MaxFunc(s.pages, func(a, b pageSample) int { return a.bytes - b.bytes })
}

// measurePages measures the dashboard. Without a database it does without
// PostgreSQL.
func measurePages(ctx context.Context, o options, database *postgres) (*dashboard, error) {
	engines := []*engine{{name: "SQLite", folder: o.folder}}
	if database != nil {
		engines = append(engines, &engine{name: "PostgreSQL", folder: o.folder, database: database})
	}
	calm := &calm{left: mediaPatience}
	p := &dashboard{}
	for _, e := range engines {
		s, err := measurePagesOf(ctx, o, e, calm)
		if err != nil {
			return nil, fmt.Errorf("the dashboard on %s: %w", e.name, err)
		}
		p.engines = append(p.engines, s)
	}
	return p, nil
}

func measurePagesOf(ctx context.Context, o options, e *engine, calm *calm) (*pagesSeries, error) {
	at, remove, err := e.fresh(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	w, err := newPagesWorld(ctx, at)
	if err != nil {
		return nil, err
	}
	s := &pagesSeries{engine: e.name}
	for _, n := range o.pending {
		one := pagesSample{pagesSize: pagesSize{delivered: n, logged: 5 * n}}
		begun := time.Now()
		if err := w.grow(ctx, at, one.pagesSize); err != nil {
			return nil, err
		}
		one.filled = time.Since(begun)
		if err := calm.wait(); err != nil {
			return nil, err
		}
		if one.pages, err = lookAt(ctx, at, w); err != nil {
			return nil, err
		}
		s.sizes = append(s.sizes, one)
		slowest := one.slowest()
		say("dashboard, %s, %d deliveries and %d entries: filled in %s, slowest page %s with a p95 of %s", e.name, one.delivered, one.logged, seconds(one.filled), slowest.name, millis(slowest.p95))
	}
	return s, nil
}

// lookAt opens every page of a server on the database.
func lookAt(ctx context.Context, at program.Place, w *pagesWorld) ([]pageSample, error) {
	n, err := startNode(ctx, at, tenant{workspace: w.workspace})
	if err != nil {
		return nil, err
	}
	defer n.kill()
	v, err := signInto(ctx, n.URL, w)
	if err != nil {
		return nil, err
	}
	paths, err := v.paths(ctx)
	if err != nil {
		return nil, err
	}
	var out []pageSample
	for _, path := range paths {
		one, err := v.open(ctx, path)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// viewer is somebody at a browser.
type viewer struct {
	client *http.Client
	base   string // of the server
	world  *pagesWorld
}

func signInto(ctx context.Context, base string, w *pagesWorld) (*viewer, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	v := &viewer{client: &http.Client{Jar: jar, Timeout: askPatience}, base: base, world: w}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/dashboard/login",
		strings.NewReader(url.Values{"email": {pagesEmail}, "password": {pagesPassword}}.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := v.client.Do(req)
	if err != nil {
		return nil, err
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the sign-in was answered with %s", res.Status)
	}
	return v, nil
}

func (v *viewer) get(ctx context.Context, path string) (body []byte, took time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+"/dashboard/w/"+v.world.workspace+"/live/"+path, nil)
	if err != nil {
		return nil, 0, err
	}
	begun := time.Now()
	res, err := v.client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	took = time.Since(begun)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("/%s was answered with %s", path, res.Status)
	}
	return body, took, err
}

// paths are the pages: those with lists, in the ways that they can be asked
// for, and one thing of each list.
func (v *viewer) paths(ctx context.Context) ([]string, error) {
	list, _, err := v.get(ctx, "deliveries?status=failed")
	if err != nil {
		return nil, err
	}
	delivery := regexp.MustCompile(`/deliveries/(dlv_[0-9a-z]+)`).FindSubmatch(list)
	requests, _, err := v.get(ctx, "requests")
	if err != nil {
		return nil, err
	}
	request := regexp.MustCompile(`/requests/(req_[0-9a-z]+)`).FindSubmatch(requests)
	event := regexp.MustCompile(`/events/(evt_[0-9a-z]+)`)
	if delivery == nil || request == nil {
		return nil, fmt.Errorf("the lists show no delivery or no request")
	}
	one, _, err := v.get(ctx, "deliveries/"+string(delivery[1]))
	if err != nil {
		return nil, err
	}
	found := event.FindSubmatch(one)
	if found == nil {
		return nil, fmt.Errorf("a delivery does not show its event")
	}
	key, endpoint := v.world.keys[0], v.world.endpoints[0]
	return []string{"", "keys", "keys/" + key, "keys/" + key + "/tokens", "projects", "projects/project-1",
		"usage", "usage?group=key", "usage?group=model&bucket=hour", "usage?group=project&metric=credits",
		"requests", "requests?key=" + key, "requests?status=502", "requests?ip=192.0.2.7", "requests?model=model-3", "requests?model=none", "requests?project=project-1",
		"requests/" + string(request[1]), "log", "billing", "webhooks", "webhooks/" + endpoint,
		"deliveries", "deliveries?status=failed", "deliveries?status=held", "deliveries?endpoint=" + endpoint, "deliveries?endpoint=" + endpoint + "&status=failed",
		"deliveries?type=key.auto_revoked", "deliveries/" + string(delivery[1]), "events", "events?type=key.auto_revoked", "events/" + string(found[1]),
		"jobs/images", "jobs/videos", "jobs/voice", "runs", "security", "team", "settings"}, nil
}

// open opens a page again and again.
func (v *viewer) open(ctx context.Context, path string) (s pageSample, err error) {
	s.name = "/" + regexp.MustCompile(`[a-z]+_01[0-9a-z]+`).ReplaceAllString(path, "…")
	var times []time.Duration
	for range pageViews + 1 {
		body, took, err := v.get(ctx, path)
		if err != nil {
			return s, err
		}
		times, s.bytes = append(times, took), len(body)
	}
	times = times[1:] // the first reads its template
	slices.Sort(times)
	s.p50, s.p95 = times[len(times)/2], times[len(times)*95/100]
	return s, nil
}
