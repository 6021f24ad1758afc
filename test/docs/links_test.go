package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// root is the root of the repository.
const root = "../../"

// TestLinksAndAnchorsExist checks every relative link in the Markdown, and every
// page that code and templates name.
func TestLinksAndAnchorsExist(t *testing.T) {
	t.Parallel()
	pages, others := files(t)
	anchors := map[string]map[string]bool{}
	for path, text := range pages {
		anchors[path] = anchorsOf(text)
	}
	for path, text := range pages {
		for _, l := range linksOf(text) {
			checkLink(t, path, l, anchors)
		}
	}
	for path, text := range others {
		for _, m := range named.FindAllString(text, -1) {
			checkLink(t, path, link{target: "/" + m}, anchors)
		}
	}
}

// TestEveryPageIsReachable checks that each page of the documentation is linked
// from another one, starting at the README.
func TestEveryPageIsReachable(t *testing.T) {
	t.Parallel()
	pages, _ := files(t)
	reached, next := map[string]bool{"README.md": true}, []string{"README.md"}
	for len(next) > 0 {
		path := next[0]
		next = next[1:]
		for _, l := range linksOf(pages[path]) {
			file, _, _ := strings.Cut(l.target, "#")
			to := filepath.Join(filepath.Dir(path), file)
			if _, ok := pages[to]; ok && !reached[to] {
				reached[to] = true
				next = append(next, to)
			}
		}
	}
	for path := range pages {
		if strings.HasPrefix(path, "docs/") && !reached[path] {
			t.Errorf("no page that can be reached from README.md links to %s", path)
		}
	}
}

// named is a page of the documentation that is named in code.
var named = regexp.MustCompile(`\bdocs/[a-z0-9/-]+\.md\b(?:#[a-z0-9-]+)?`)

// files returns the Markdown pages of the repository, and the Go code and templates.
func files(t *testing.T) (pages, others map[string]string) {
	t.Helper()
	pages, others = map[string]string{}, map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == ".git" || name == "bin" || name == "node_modules" || name == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		into := others
		switch filepath.Ext(path) {
		case ".md":
			into = pages
		case ".go", ".html", ".txt", ".tmpl", ".yaml", ".sh":
		default:
			return nil
		}
		text, err := os.ReadFile(path)
		into[filepath.ToSlash(strings.TrimPrefix(path, root))] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages, others
}

type link struct {
	line   int
	target string
}

func checkLink(t *testing.T, from string, l link, anchors map[string]map[string]bool) {
	t.Helper()
	if strings.Contains(l.target, "://") || strings.HasPrefix(l.target, "mailto:") {
		return
	}
	file, anchor, hasAnchor := strings.Cut(l.target, "#")
	to := from
	switch {
	case strings.HasPrefix(file, "/"):
		to = file[1:]
	case file != "":
		to = filepath.ToSlash(filepath.Join(filepath.Dir(from), file))
	}
	if _, err := os.Stat(root + to); err != nil {
		t.Errorf("%s:%d links to %s, which doesn't exist", from, l.line, l.target)
		return
	}
	if hasAnchor && !anchors[to][anchor] {
		t.Errorf("%s:%d links to %s, which has no such heading", from, l.line, l.target)
	}
}

var (
	code     = regexp.MustCompile("`[^`\n]*`")
	linked   = regexp.MustCompile(`\]\(<?([^()\s>]+)>?(?: "[^"]*")?\)`)
	embedded = regexp.MustCompile(`\b(?:src|srcset|href)="([^"]+)"`)
	ref      = regexp.MustCompile(`(?m)^\[[^\]]+\]: (\S+)$`)
	heading  = regexp.MustCompile(`^#{1,6} (.+)$`)
	explicit = regexp.MustCompile(`<a (?:id|name)="([^"]+)">`)
)

// prose returns the lines of a page, with those of code blocks empty.
func prose(text string) []string {
	lines := strings.Split(text, "\n")
	inside := ""
	for i, line := range lines {
		trimmed := strings.TrimLeft(line, " ")
		switch {
		case inside == "" && (strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~")):
			inside = trimmed[:3]
		case inside != "" && strings.HasPrefix(trimmed, inside):
			inside = ""
		case inside == "":
			continue
		}
		lines[i] = ""
	}
	return lines
}

func linksOf(text string) []link {
	var all []link
	for i, line := range prose(text) {
		line = code.ReplaceAllString(line, "")
		for _, pattern := range []*regexp.Regexp{linked, embedded, ref} {
			for _, m := range pattern.FindAllStringSubmatch(line, -1) {
				all = append(all, link{i + 1, m[1]})
			}
		}
	}
	return all
}

// anchorsOf returns the anchors of a page's headings, as GitHub makes them.
func anchorsOf(text string) map[string]bool {
	all := map[string]bool{}
	for _, line := range prose(text) {
		for _, m := range explicit.FindAllStringSubmatch(line, -1) {
			all[m[1]] = true
		}
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		title := linkText.ReplaceAllString(m[1], "$1")
		var anchor strings.Builder
		for _, r := range strings.ToLower(title) {
			switch {
			case r == ' ' || r == '-':
				anchor.WriteByte('-')
			case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				anchor.WriteRune(r)
			}
		}
		name := anchor.String()
		for n := 1; all[name]; n++ {
			name = anchor.String() + "-" + string(rune('0'+n))
		}
		all[name] = true
	}
	return all
}

var linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
