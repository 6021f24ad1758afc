package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// page collects text at the line numbers of its source.
type page struct {
	b    strings.Builder
	line int
}

// add writes text at a line, or after the previous text if that reaches further. A blank
// line separates it from the previous text if there is room.
func (p *page) add(line int, text string) {
	for p.line < line-1 {
		p.b.WriteByte('\n')
		p.line++
	}
	p.b.WriteString(text)
	p.b.WriteByte('\n')
	p.line += strings.Count(text, "\n") + 1
}

var (
	directive   = regexp.MustCompile(`(?m)^(?:go:|nolint|lint:|export |line ).*$`)
	sql         = regexp.MustCompile(`\b(?:SELECT|INSERT|UPDATE|DELETE|CREATE|WITH|WHERE|ALTER|FROM|ORDER BY|AND|SET)\b`)
	placeholder = regexp.MustCompile(`%[-+# 0]*[\d.]*[a-zA-Z]`)
	action      = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	tag         = regexp.MustCompile(`(?s)<(?:style|script)\b.*?</(?:style|script)>|<code\b.*?</code>|<pre\b.*?</pre>|<[^>]*>`)
	blockTag    = regexp.MustCompile(`(?s)</?(?:p|div|li|ul|ol|td|th|tr|h\d|button|label|option|dt|dd|section|summary|legend|title|a|span|input|small|table|form|header|nav)\b[^>]*>`)
	fence       = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	helpTag     = regexp.MustCompile(`help:"((?:[^"\\]|\\.)*)"`)
)

// fromGo returns the comments of a Go file, and its messages: string literals of at
// least three words that aren't SQL, and the help tags of struct fields.
func fromGo(path string) (comments, messages string, err error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	if err != nil {
		return "", "", err
	}
	if ast.IsGenerated(f) { // from openapi.yaml, which is checked itself
		return "", "", nil
	}
	var c, m page
	for _, group := range f.Comments {
		c.add(files.Position(group.Pos()).Line, directive.ReplaceAllString(group.Text(), "")+"\n")
	}
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(lit.Value)
		if err != nil {
			return true
		}
		if t := helpTag.FindStringSubmatch(text); t != nil {
			text = t[1]
		}
		if len(strings.Fields(text)) >= 3 && !sql.MatchString(text) {
			m.add(files.Position(lit.Pos()).Line, placeholder.ReplaceAllString(text, "X")+"\n")
		}
		return true
	})
	return c.b.String(), m.b.String(), nil
}

// fromTemplate returns the text between the tags of an HTML template, or of an email's.
func fromTemplate(b []byte) (string, error) {
	blank := func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) + " " }
	text := action.ReplaceAllStringFunc(string(b), func(s string) string { return "X" + blank(s) })
	text = blockTag.ReplaceAllStringFunc(text, func(s string) string { return ". " + blank(s) })
	return tag.ReplaceAllStringFunc(text, blank), nil
}

// fromOpenAPI returns the summaries and descriptions.
func fromOpenAPI(b []byte) (string, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(b, &root); err != nil {
		return "", err
	}
	var p page
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		for i, child := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 0 {
				if value := n.Content[i+1]; (child.Value == "description" || child.Value == "summary") && value.Kind == yaml.ScalarNode {
					p.add(value.Line, value.Value+"\n")
				}
			}
			walk(child)
		}
	}
	walk(&root)
	return p.b.String(), nil
}

// withoutCode removes fenced code from Markdown, so that its words don't count.
func withoutCode(b []byte) (string, error) {
	return fence.ReplaceAllStringFunc(string(b), func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }), nil
}
