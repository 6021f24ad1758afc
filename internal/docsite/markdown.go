package docsite

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

var sectionTitles = []struct{ dir, title string }{
	{".", "Overview"}, {"tutorials", "Tutorials"}, {"guides", "Guides"}, {"reference", "Reference"},
	{"operations", "Operations"}, {"explanation", "Explanation"},
}

// readDocs renders the Markdown files. Within a section they have the order of the
// links in README.md, and then that of their names.
func readDocs(docs fs.FS) ([]*section, error) {
	index, err := fs.ReadFile(docs, "README.md")
	if err != nil {
		return nil, err
	}
	var sections []*section
	for _, s := range sectionTitles {
		files, err := fs.Glob(docs, path.Join(s.dir, "*.md"))
		if err != nil {
			return nil, err
		}
		slices.SortStableFunc(files, func(a, b string) int { return rank(index, a) - rank(index, b) })
		out := &section{Title: s.title}
		for _, file := range files {
			source, err := fs.ReadFile(docs, file)
			if err != nil {
				return nil, err
			}
			p, err := renderPage(file, source)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			out.Pages = append(out.Pages, p)
		}
		if len(out.Pages) > 0 {
			sections = append(sections, out)
		}
	}
	return sections, nil
}

// rank returns the position of the first link to the file in the index.
func rank(index []byte, file string) int {
	if file == "README.md" {
		return -1
	}
	if i := bytes.Index(index, []byte("("+file)); i >= 0 {
		return i
	}
	return len(index)
}

// markdown converts Markdown as GitHub does.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.GFM),
	goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(groupTabs{}, 200))),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(tabsRenderer{}, 100))),
)

func renderPage(file string, source []byte) (*page, error) {
	p := &page{Path: address(file), Markdown: source}
	source = mermaid.ReplaceAllFunc(source, diagramImage)
	doc := markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(&headingIDs{used: map[string]int{}}))))
	if err := p.inspect(file, doc, source); err != nil {
		return nil, err
	}
	if p.Title == "" {
		return nil, errors.New("the page has no title")
	}
	var out bytes.Buffer
	if err := markdown.Renderer().Render(&out, source, doc); err != nil {
		return nil, err
	}
	p.Body = template.HTML(out.String())
	return p, nil
}

// mermaid finds diagrams. The first group is the source, the second its title.
var mermaid = regexp.MustCompile("(?ms)^```mermaid\n(.*?\n *accTitle: ([^\n]+)\n.*?)^```$")

// diagramImage returns a link to the image of a diagram. `make diagrams` names it after
// the hash of the source.
func diagramImage(block []byte) []byte {
	m := mermaid.FindSubmatch(block)
	return fmt.Appendf(nil, "![%s](%s/diagrams/%.4x.svg)", m[2], home, sha256.Sum256(m[1]))
}

// inspect finds the title, the summary and the text for the search, and makes links
// to other pages paths of the server.
func (p *page) inspect(file string, doc ast.Node, source []byte) error {
	part := &searchHit{Path: p.Path}
	end := func() {
		if part.Title != "" {
			p.Parts = append(p.Parts, *part)
		}
	}
	var outside []ast.Node
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			end()
			title := plainText(n, source)
			part = &searchHit{Path: p.Path, Title: title}
			if n.Level == 1 {
				p.Title = title
			} else if id, ok := n.AttributeString("id"); ok {
				part.Path += "#" + string(id.([]byte))
				part.Title = p.Title + ": " + title
			}
		case *ast.Paragraph, *ast.TextBlock:
			words := plainText(n, source)
			if _, isParagraph := n.(*ast.Paragraph); isParagraph && p.Summary == "" {
				p.Summary = words
			}
			part.Text += words + " "
		case *ast.Link:
			if to := resolveLink(file, string(n.Destination)); to != "" {
				n.Destination = []byte(to)
			} else {
				outside = append(outside, n)
			}
		}
		return ast.WalkContinue, nil
	})
	end()
	for _, n := range outside { // a file of the repository that the server doesn't have: keep the text alone
		parent := n.Parent()
		for child := n.FirstChild(); child != nil; child = n.FirstChild() {
			parent.InsertBefore(parent, n, child)
		}
		parent.RemoveChild(parent, n)
	}
	return err
}

// resolveLink returns where a link of a page leads on the server, or nothing if the
// server doesn't have it.
func resolveLink(file, destination string) string {
	if strings.Contains(destination, "://") || strings.HasPrefix(destination, "#") || strings.HasPrefix(destination, "/") || strings.HasPrefix(destination, "mailto:") {
		return destination
	}
	target, anchor, hasAnchor := strings.Cut(destination, "#")
	target = path.Join(path.Dir(file), target)
	if strings.HasPrefix(target, "..") || !strings.HasSuffix(target, ".md") {
		return ""
	}
	to := address(target)
	if hasAnchor {
		to += "#" + anchor
	}
	return to
}

// plainText returns the text of a node without its markup.
func plainText(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
			if t.SoftLineBreak() || t.HardLineBreak() {
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// headingIDs generates the anchors that GitHub does, so that links work in both places.
type headingIDs struct{ used map[string]int }

func (h *headingIDs) Generate(value []byte, _ ast.NodeKind) []byte {
	id := slug(string(value))
	n := h.used[id]
	h.used[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

func (h *headingIDs) Put(value []byte) { h.used[string(value)]++ }

func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '_', r == '-':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.TrimSpace(heading))
}

// tabs holds adjacent code blocks that do the same in different languages.
type tabs struct{ ast.BaseBlock }

var kindTabs = ast.NewNodeKind("Tabs")

func (*tabs) Kind() ast.NodeKind              { return kindTabs }
func (n *tabs) Dump(source []byte, level int) { ast.DumpHelper(n, source, level, nil, nil) }

// languages are the languages that get tabs.
var languages = map[string]string{"bash": "curl", "sh": "curl", "python": "Python", "typescript": "TypeScript", "ts": "TypeScript", "go": "Go"}

// groupTabs puts code blocks that follow one another, each in another language, into tabs.
type groupTabs struct{}

func (groupTabs) Transform(doc *ast.Document, reader text.Reader, _ parser.Context) {
	language := func(n ast.Node) string {
		code, ok := n.(*ast.FencedCodeBlock)
		if !ok {
			return ""
		}
		return languages[string(code.Language(reader.Source()))]
	}
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		seen := map[string]bool{}
		var group []ast.Node
		for next := n; next != nil && language(next) != "" && !seen[language(next)]; next = next.NextSibling() {
			seen[language(next)] = true
			group = append(group, next)
		}
		if len(group) < 2 {
			continue
		}
		t := &tabs{}
		doc.InsertBefore(doc, n, t)
		for _, code := range group {
			t.AppendChild(t, code)
		}
		n = t
	}
}

// tabsRenderer renders tabs that work without JavaScript: radio buttons, of which the
// style sheet shows the checked one's code.
type tabsRenderer struct{}

func (tabsRenderer) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(kindTabs, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var samples []sample
		for child := n.FirstChild(); child != nil; child = child.NextSibling() {
			code := child.(*ast.FencedCodeBlock)
			var b strings.Builder
			for i := range code.Lines().Len() {
				line := code.Lines().At(i)
				b.Write(line.Value(source))
			}
			samples = append(samples, sample{Title: languages[string(code.Language(source))], Text: b.String()})
		}
		writeTabs(w, fmt.Sprintf("tabs-%d", n.FirstChild().(*ast.FencedCodeBlock).Lines().At(0).Start), samples)
		return ast.WalkSkipChildren, nil
	})
}

// sample is an example in one language.
type sample struct{ Title, Text string }

// writeTabs writes samples as tabs. The group must be unique on its page.
func writeTabs(w interface{ WriteString(string) (int, error) }, group string, samples []sample) {
	_, _ = w.WriteString(`<div class="tabs">`)
	for i, s := range samples {
		checked := ""
		if i == 0 {
			checked = " checked"
		}
		id := fmt.Sprintf("%s-%d", group, i)
		_, _ = w.WriteString(fmt.Sprintf(`<input type="radio" name=%q id=%q%s><label for=%q>%s</label><pre tabindex="0"><code>%s</code></pre>`,
			group, id, checked, id, s.Title, template.HTMLEscapeString(s.Text)))
	}
	_, _ = w.WriteString(`</div>`)
}
