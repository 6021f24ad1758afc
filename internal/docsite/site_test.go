package docsite

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"go.yaml.in/yaml/v3"

	"turnpike/docs"
)

func openAPI(t *testing.T) *yaml.Node {
	t.Helper()
	b, err := os.ReadFile("../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(b, &root); err != nil {
		t.Fatal(err)
	}
	return ExpandAliases(&root)
}

var (
	attribute  = regexp.MustCompile(`(?i)\s(?:href|src|action)="([^"]*)"`)
	forbidden  = regexp.MustCompile(`(?i)<style|<script>| style="| on[a-z]+="|<iframe`)
	identifier = regexp.MustCompile(`\sid="([^"]+)"`)
)

// Pages must work under the policy of their response, which allows no inline scripts or styles,
// and every link within the site must lead to a page and an anchor.
func TestLinksLeadSomewhereAndPagesLoadNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	site, err := New(openAPI(t), docs.Files)
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for path, asset := range site {
		anchors[path] = true
		for _, m := range identifier.FindAllStringSubmatch(string(asset.Body()), -1) {
			if at := path + "#" + m[1]; anchors[at] {
				t.Errorf("%s appears twice", at)
			} else {
				anchors[at] = true
			}
		}
	}
	linked := map[string]bool{}
	for path, asset := range site {
		if path == "/llms.txt" || !strings.HasPrefix(string(asset.Body()), "<!DOCTYPE") {
			continue
		}
		html := string(asset.Body())
		if bad := forbidden.FindString(html); bad != "" {
			t.Errorf("%s contains %s", path, bad)
		}
		for _, m := range attribute.FindAllStringSubmatch(html, -1) {
			link := m[1]
			if strings.HasPrefix(link, "#") {
				link = path + link
			}
			link, _, _ = strings.Cut(link, "?v=")
			linked[link] = true
			switch {
			case anchors[link], strings.HasPrefix(link, "https://"), strings.HasPrefix(link, "data:"), strings.HasPrefix(link, "mailto:"):
			case link == "/openapi.json", link == "/openapi.yaml", link == "/dashboard/":
			default:
				t.Errorf("%s links to %s, which doesn't exist (make diagrams renders the diagrams)", path, m[1])
			}
		}
		if strings.Contains(html, "language-mermaid") {
			t.Errorf("%s shows the source of a diagram, which needs an accTitle", path)
		}
	}
	for path := range site {
		if strings.HasSuffix(path, ".svg") && !linked[path] {
			t.Errorf("no page shows %s (make diagrams deletes it)", path)
		}
	}
}

func TestMarkdownIsRendered(t *testing.T) {
	t.Parallel()
	site, err := New(openAPI(t), fstest.MapFS{
		"README.md":   {Data: []byte("# Docs\n\nStart [here](guides/b.md).\n")},
		"guides/a.md": {Data: []byte("# A\n\nFirst.\n")},
		"guides/b.md": {Data: []byte("# B\n\nSee [`code_x`](a.md#code_x), [the license](../../LICENSE) and [home](../README.md).\n\n## `code_x`\n\n" +
			"```bash\ncurl <x>\n```\n\n```python\nprint(1)\n```\n\n```json\n{}\n```\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	html := string(site["/docs/guides/b"].Body())
	for _, want := range []string{`<a href="/docs/guides/a#code_x"><code>code_x</code></a>`, ", the license and", `<a href="/docs">home</a>`, `<h2 id="code_x">`,
		`<label for="tabs-`, `>Python</label>`, "curl &lt;x&gt;", `aria-current="page">B</a></li><li><a href="/docs/guides/a">`} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %s:\n%s", want, html)
		}
	}
	if got := string(site[home+"/guides/b.md"].Body()); !strings.HasPrefix(got, "# B\n") {
		t.Errorf("the source begins with %.20q", got)
	}
	if index := string(site["/docs/search.json"].Body()); !strings.Contains(index, `{"path":"/docs/guides/b#code_x","title":"B: code_x"`) {
		t.Errorf("the search index lacks the heading: %.300s", index)
	}
	if list := string(site["/llms.txt"].Body()); !strings.Contains(list, "- [A]("+home+"/guides/a.md): First.") {
		t.Errorf("llms.txt lacks the page: %.500s", list)
	}
}
