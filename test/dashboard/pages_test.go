package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"turnpike/internal/accounts"
	"turnpike/internal/dashboard"
	"turnpike/test/sampledata"
)

const maxPage = 100 << 10

type document struct {
	all    []*html.Node // elements in document order
	ids    map[string]*html.Node
	faults []string
}

func (d *document) wrong(format string, args ...any) {
	d.faults = append(d.faults, fmt.Sprintf(format, args...))
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

// inside returns the nearest ancestor of n with the tag.
func inside(n *html.Node, tag string) *html.Node {
	for p := n.Parent; p != nil; p = p.Parent {
		if p.Type == html.ElementNode && p.Data == tag {
			return p
		}
	}
	return nil
}

func textOf(n *html.Node) string {
	if n.Type == html.TextNode {
		return n.Data
	}
	if n.Data == "img" {
		return attr(n, "alt")
	}
	var out strings.Builder
	for c := range n.ChildNodes() {
		out.WriteString(textOf(c))
	}
	return out.String()
}

// readPage parses a page and finds violations.
func readPage(body string) *document {
	d := &document{ids: map[string]*html.Node{}}
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		d.wrong("it is no HTML: %v", err)
		return d
	}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			d.all = append(d.all, n)
		}
	}
	headings, labels := 0, map[string]bool{}
	for _, n := range d.all {
		if id := attr(n, "id"); id != "" {
			if d.ids[id] != nil {
				d.wrong("the id %q is there twice", id)
			}
			d.ids[id] = n
		}
		if n.Data == "h1" {
			headings++
		}
		if n.Data == "label" {
			labels[attr(n, "for")] = true
		}
	}
	if headings != 1 {
		d.wrong("it has %d headings of the first level", headings)
	}
	for _, n := range d.all {
		d.check(n, labels)
	}
	return d
}

func (d *document) check(n *html.Node, labels map[string]bool) {
	for _, a := range n.Attr {
		if a.Key == "style" || strings.HasPrefix(a.Key, "on") {
			d.wrong("<%s> has an inline %s", n.Data, a.Key)
		}
	}
	switch n.Data {
	case "style":
		d.wrong("it has an inline style sheet")
	case "script":
		if attr(n, "src") == "" {
			d.wrong("it has an inline script")
		}
	case "input", "select", "textarea":
		if kind := attr(n, "type"); kind == "hidden" || kind == "submit" {
			return
		}
		if inside(n, "label") == nil && attr(n, "aria-label") == "" && attr(n, "aria-labelledby") == "" && !labels[attr(n, "id")] {
			d.wrong("the field %s %q has no label", n.Data, attr(n, "name"))
		}
	case "button", "a":
		if strings.TrimSpace(textOf(n)) == "" && attr(n, "aria-label") == "" {
			d.wrong("<%s href=%q> says nothing", n.Data, attr(n, "href"))
		}
	case "img":
		if !has(n, "alt") || !has(n, "width") || !has(n, "height") {
			d.wrong("the picture %s lacks alt, width or height", attr(n, "src"))
		}
	case "form":
		if method := attr(n, "method"); method != "post" && method != "get" && method != "" {
			d.wrong("a form has the method %q", method)
		}
	case "table":
		if box := n.Parent; box == nil || !strings.Contains(attr(box, "class"), "scroll") {
			d.wrong("a table is in no box that scrolls")
		}
	}
	for _, name := range []string{"for", "aria-labelledby", "aria-describedby", "aria-controls", "list"} {
		if id := attr(n, name); id != "" && d.ids[id] == nil {
			d.wrong("<%s %s=%q> names what is not there", n.Data, name, id)
		}
	}
	if from := attr(n, "data-copy"); from != "" && d.ids[strings.TrimPrefix(from, "#")] == nil {
		d.wrong("data-copy=%q names what is not there", from)
	}
	if has(n, "data-live") && n.Data != "body" && attr(n, "id") == "" {
		d.wrong("<%s data-live> has no id", n.Data)
	}
}

// links returns the links of the page to this server.
func (d *document) links(page string) (out []string) {
	base, err := url.Parse(page)
	if err != nil {
		return nil
	}
	for _, n := range d.all {
		for _, name := range []string{"href", "src"} {
			to := attr(n, name)
			if to == "" || strings.HasPrefix(to, "#") || strings.HasPrefix(to, "data:") || n.Data == "form" {
				continue
			}
			u, err := base.Parse(to)
			if err != nil {
				d.wrong("%q is no address", to)
				continue
			}
			if u.Host == "" && u.Scheme == "" {
				u.Fragment = ""
				out = append(out, u.String())
			}
		}
	}
	return out
}

// walk checks every page of the route table and everything that it links to.
func (b *browser) walk(t *testing.T, w *sampledata.Workspace, look func(a *response)) {
	t.Helper()
	tried := map[string]bool{}
	open := func(path string) *response {
		a := b.get(t, path)
		tried[path] = true
		return a
	}
	for _, rt := range dashboard.Routes() {
		if rt.Method != http.MethodGet {
			continue
		}
		if w == nil && sampledata.Named(rt) {
			continue // no such resource yet
		}
		path, _ := w.Path(t, rt, b.workspace, accounts.Test)
		a := open(path)
		look(a)
		if a.status >= 500 || rt.Workspace && a.status != http.StatusOK && a.status != http.StatusSeeOther {
			t.Errorf("%s answers %d:\n%s", a.path, a.status, a.main())
		}
		if !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
			continue
		}
		if len(a.body) > maxPage {
			t.Errorf("%s has %d bytes", a.path, len(a.body))
		}
		d := readPage(a.body)
		for _, link := range d.links(path) {
			if tried[link] {
				continue
			}
			followed := open(link)
			look(followed)
			if followed.status != http.StatusOK && followed.status != http.StatusSeeOther {
				d.wrong("it leads to %s, which answers %d", link, followed.status)
			}
		}
		for _, what := range d.faults {
			t.Errorf("%s: %s", a.path, what)
		}
	}
}

// testEmptyPages checks the pages of an empty workspace.
func (x *routeTest) testEmptyPages(t *testing.T) {
	member(t, x.own.Server, x.own.Server.Workspace(t, "empty"), accounts.Owner).walk(t, nil, func(*response) {})
}

// attack breaks out of an attribute, an element and a template if it isn't escaped.
const (
	marker = "zqx"
	attack = `"'></p><img src=x onerror=` + marker + `(1)>{{` + marker + `}}`
)

// testEscaping checks the pages of a workspace in which every text is an attack.
func (x *routeTest) testEscaping(t *testing.T) {
	seen, owner := 0, x.members[accounts.Owner]
	x.own.AllowContent(t, x.own.Workspace, owner.person.ID, true)
	defer x.own.AllowContent(t, x.own.Workspace, owner.person.ID, false)
	owner.walk(t, x.own, func(a *response) {
		if strings.Contains(a.main(), marker) {
			seen++
		}
		if !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
			return
		}
		for _, part := range []string{"<img src=x", "onerror=" + marker + "(1)>", `"'>`} {
			if strings.Contains(a.body, part) {
				t.Errorf("%s has the text %s as it was written:\n%s", a.path, part, a.main())
			}
		}
	})
	if seen < 5 {
		t.Errorf("only %d pages show what customers write: the test looks at nothing", seen)
	}
}
