// Package docsite renders the documentation that the server shows at /docs: the
// Markdown pages of docs/, and a reference of the API made from openapi.yaml.
package docsite

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"turnpike/internal/web"
)

var (
	//go:embed docs.css
	styleSheet []byte
	//go:embed docs.js
	script []byte
	//go:embed layout.html
	layoutHTML string
	//go:embed reference.html
	referenceHTML string
)

// ErrorsPage is the page with an anchor for each error code.
const ErrorsPage = "/docs/reference/errors"

// Site holds every file below /docs, and /llms.txt, by its path.
type Site map[string]*web.Asset

// section is a group of pages in the navigation.
type section struct {
	Title string
	Pages []*page
}

type page struct {
	Path     string
	Title    string
	Summary  string // the first paragraph, as text
	Body     template.HTML
	Markdown []byte      // the source; nil for pages of the reference
	Parts    []searchHit // the page's text by heading
}

// searchHit is an entry of the search index.
type searchHit struct {
	Path  string `json:"path"`
	Title string `json:"title"`
	Text  string `json:"text"`
}

type layout struct {
	*page
	Sections    []*section
	CSS, Script string
}

// New renders the site from openapi.yaml, with its aliases expanded, and the Markdown files of docs/.
func New(openAPI *yaml.Node, docs fs.FS) (Site, error) {
	sections, err := readDocs(docs)
	if err != nil {
		return nil, err
	}
	reference, err := newReference(openAPI)
	if err != nil {
		return nil, err
	}
	sections = append(sections, reference)
	t, err := template.New("layout.html").Parse(layoutHTML)
	if err != nil {
		return nil, err
	}
	site := Site{}
	css, js := web.NewAsset("text/css; charset=utf-8", styleSheet), web.NewAsset("text/javascript; charset=utf-8", script)
	site["/docs/docs.css"], site["/docs/docs.js"] = css, js
	data := layout{Sections: sections, CSS: "/docs/docs.css?v=" + css.Version(), Script: "/docs/docs.js?v=" + js.Version()}
	var index []searchHit
	for _, s := range sections {
		for _, p := range s.Pages {
			data.page = p
			var out bytes.Buffer
			if err := t.Execute(&out, data); err != nil {
				return nil, fmt.Errorf("%s: %w", p.Path, err)
			}
			site[p.Path] = web.NewAsset("text/html; charset=utf-8", out.Bytes())
			if p.Markdown != nil && p.Path != home {
				site[p.Path+".md"] = web.NewAsset("text/markdown; charset=utf-8", p.Markdown)
			}
			index = append(index, p.Parts...)
		}
	}
	diagrams, err := fs.Glob(docs, "diagrams/*.svg")
	if err != nil {
		return nil, err
	}
	for _, file := range diagrams {
		image, err := fs.ReadFile(docs, file)
		if err != nil {
			return nil, err
		}
		site[path.Join(home, file)] = web.NewAsset("image/svg+xml", image)
	}
	search, err := json.Marshal(index)
	if err != nil {
		return nil, err
	}
	site["/docs/search.json"] = web.NewAsset("application/json", search)
	site["/llms.txt"] = web.NewAsset("text/plain; charset=utf-8", llmsTXT(sections))
	return site, nil
}

// llmsTXT lists the pages for language models, as llmstxt.org describes.
func llmsTXT(sections []*section) []byte {
	var b bytes.Buffer
	b.WriteString("# Turnpike\n\n> A self-hosted AI API platform in one binary: keys, budgets, a request log, an OpenAI-compatible gateway, jobs, agent runs and webhooks.\n")
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n", s.Title)
		for _, p := range s.Pages {
			address := p.Path
			if p.Markdown != nil && p.Path != home {
				address += ".md"
			}
			fmt.Fprintf(&b, "- [%s](%s): %s\n", p.Title, address, p.Summary)
		}
	}
	b.WriteString("\n## OpenAPI\n\n- [openapi.json](/openapi.json): the API as an OpenAPI 3.1 document\n")
	return b.Bytes()
}

const home = "/docs"

// address returns the path at which the server shows a file of docs/.
func address(file string) string {
	if file == "README.md" {
		return home
	}
	return path.Join(home, strings.TrimSuffix(file, ".md"))
}
