package docs_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"turnpike/test/harness"
)

// TestEveryLinkWorksOnRunningServer starts at /docs, /llms.txt, the search index and the
// doc_url of an error, and follows every link within the server. Each must lead to a
// page, and to an anchor of it.
func TestEveryLinkWorksOnRunningServer(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	c := crawl{t: t, base: s.URL, anchors: map[string]map[string]bool{}}
	c.add("the test", "/docs", "/docs")
	c.add("the test", "/docs", "/llms.txt")
	var body struct {
		Error struct {
			DocURL string `json:"doc_url"`
		}
	}
	if err := json.Unmarshal(c.get("/v1/models", http.StatusUnauthorized), &body); err != nil {
		t.Fatal(err)
	}
	c.add("an error", "/", body.Error.DocURL)
	var found []struct{ Path string }
	if err := json.Unmarshal(c.get("/docs/search.json", http.StatusOK), &found); err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		c.add("the search index", "/docs", f.Path)
	}
	for len(c.queue) > 0 {
		page := c.queue[0]
		c.queue = c.queue[1:]
		c.visit(page)
	}
	for _, l := range c.links {
		if l.anchor != "" && !c.anchors[l.page][l.anchor] {
			t.Errorf("%s links to %s#%s, which has no such anchor", l.from, l.page, l.anchor)
		}
	}
	if len(c.anchors) < 60 {
		t.Errorf("found only %d pages, want at least 60", len(c.anchors))
	}
}

// crawl visits the pages of a server.
type crawl struct {
	t       *testing.T
	base    string
	queue   []string
	anchors map[string]map[string]bool // by page
	links   []crawled
}

// crawled is a link on a page of the server.
type crawled struct{ from, page, anchor string }

// add records a link, and queues its page. Links to other servers are ignored.
func (c *crawl) add(from, page, link string) {
	c.t.Helper()
	base, err := url.Parse(c.base + page)
	if err != nil {
		c.t.Fatal(err)
	}
	to, err := base.Parse(link)
	if err != nil {
		c.t.Errorf("%s links to %q: %v", from, link, err)
		return
	}
	if !strings.HasPrefix(to.String(), c.base) {
		return
	}
	target := to.RequestURI()
	c.links = append(c.links, crawled{from, target, to.Fragment})
	if c.anchors[target] == nil {
		c.anchors[target] = map[string]bool{}
		c.queue = append(c.queue, target)
	}
}

var (
	htmlLink     = regexp.MustCompile(`\s(?:href|src)="([^"]*)"`)
	htmlID       = regexp.MustCompile(`\sid="([^"]+)"`)
	markdownLink = regexp.MustCompile(`\]\((/[^)\s]*)\)`)
)

// visit reads a page. It follows links of the documentation, but not of the dashboard.
func (c *crawl) visit(page string) {
	c.t.Helper()
	body := string(c.get(page, http.StatusOK))
	if !strings.HasPrefix(page, "/docs") && page != "/llms.txt" {
		return
	}
	for _, m := range htmlID.FindAllStringSubmatch(body, -1) {
		c.anchors[page][m[1]] = true
	}
	pattern := htmlLink
	if page == "/llms.txt" {
		pattern = markdownLink
	} else if !strings.HasPrefix(body, "<!DOCTYPE html>") {
		return
	}
	for _, m := range pattern.FindAllStringSubmatch(body, -1) {
		c.add(page, page, m[1])
	}
}

func (c *crawl) get(path string, status int) []byte {
	c.t.Helper()
	res, err := http.Get(c.base + path)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if res.StatusCode != status {
		c.t.Errorf("GET %s returned %d, want %d", path, res.StatusCode, status)
	}
	return body
}
