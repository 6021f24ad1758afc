package api

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"html/template"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed docs.html
var docsHTML string

// What the template shows.
type (
	docsPage struct {
		*apiDocument
		CSS      string
		Sections []*docsSection
		Errors   []*docsError
		Scopes   *apiSchema
	}
	docsSection struct {
		apiTag
		Operations []*docsOperation
		Objects    []*docsObject
	}
	docsOperation struct {
		*apiOperation
		Method     string
		Path       string
		Parameters []docsGroup
		Body       []*docsField
		Returns    []docsReturn
		Headers    []*docsField
		Errors     []string
		Samples    []docsSample
	}
	docsGroup struct {
		Title  string
		Fields []*docsField
	}
	docsReturn struct {
		Description string
		ContentType string
		Object      string // the section that describes it
		IsEvent     bool
		Fields      []*docsField
		Columns     []string
	}
	docsObject struct {
		Name        string
		Description string
		Extends     string
		Fields      []*docsField
		Example     string
	}
	docsField struct {
		Name        string
		Type        string
		Objects     []string // the sections that describe it
		Required    bool     // in a request
		Optional    bool     // in an answer
		Notes       []string
		Bounds      []string
		Description string
		Fields      []*docsField
	}
	docsSample struct{ Title, Text string }
	docsError  struct {
		*apiResponse
		Type    string
		Headers []string
		Codes   []*apiErrorCode
	}
)

func renderDocs(root *yaml.Node, css string) ([]byte, error) {
	d := new(apiDocument)
	if err := root.Decode(d); err != nil {
		return nil, err
	}
	t, err := template.New("docs.html").Funcs(template.FuncMap{"markdown": markdown, "inline": inline, "slug": slug, "words": words, "text": http.StatusText}).Parse(docsHTML)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, d.page(css))
	return out.Bytes(), err
}

func (d *apiDocument) page(css string) *docsPage {
	p := &docsPage{apiDocument: d, CSS: css, Scopes: d.Components.Schemas.get("Scope")}
	described := d.describedObjects()
	for _, tag := range d.Tags {
		s := &docsSection{apiTag: tag}
		for _, path := range d.Paths {
			for _, op := range path.Value {
				if slices.Contains(op.Value.Tags, tag.Name) {
					s.Operations = append(s.Operations, d.operation(strings.ToUpper(op.Name), path.Name, op.Value, described))
				}
			}
		}
		for _, name := range described[tag.Name] {
			s.Objects = append(s.Objects, d.object(name, described))
		}
		p.Sections = append(p.Sections, s)
	}
	for _, r := range d.Components.Responses {
		e := &docsError{apiResponse: r.Value}
		for _, h := range r.Value.Headers {
			if h.Name != "X-Request-Id" && (r.Value.Status == http.StatusTooManyRequests || !strings.HasPrefix(h.Name, "x-ratelimit-")) {
				e.Headers = append(e.Headers, h.Name)
			}
		}
		for _, code := range d.ErrorCodes {
			if code.Status == r.Value.Status {
				e.Type = code.Type
				e.Codes = append(e.Codes, code)
			}
		}
		p.Errors = append(p.Errors, e)
	}
	return p
}

// choices are the objects, if there are several, of which a value is one.
func (d *apiDocument) choices(s *apiSchema) []*apiSchema {
	var out []*apiSchema
	for _, one := range d.resolve(s).AnyOf {
		if len(d.resolve(one).Properties) > 0 {
			out = append(out, one)
		}
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

// objectsOf are the objects, by tag, that have a description of their own: those
// that the tag's operations answer with.
type objectsOf map[string][]string

func (o objectsOf) has(name string) bool {
	for _, names := range o {
		if slices.Contains(names, name) {
			return true
		}
	}
	return false
}

func (d *apiDocument) describedObjects() objectsOf {
	found := objectsOf{}
	var add func(tag string, s *apiSchema)
	add = func(tag string, s *apiSchema) {
		name := schemaName(s)
		if s = d.resolve(s); name == "" || name == "Error" || found.has(name) || len(s.Properties) == 0 {
			return
		}
		found[tag] = append(found[tag], name)
		for _, p := range s.Properties {
			for _, one := range d.choices(p.Value) {
				add(tag, one)
			}
		}
	}
	for _, path := range d.Paths {
		for _, op := range path.Value {
			tag := op.Value.Tags[0]
			for _, m := range op.Value.success().Value.Content {
				if item := d.listItem(m.Value.Schema); item != nil {
					add(tag, item)
				} else {
					add(tag, m.Value.Schema)
				}
				if m.Value.Event != nil {
					for _, s := range d.resolve(m.Value.Event).AnyOf {
						add(tag, s)
					}
				}
			}
		}
	}
	return found
}

func (d *apiDocument) object(name string, described objectsOf) *docsObject {
	s := d.Components.Schemas.get(name)
	o := &docsObject{Name: name, Description: s.Description, Extends: s.Extends}
	if s.Extends != "" {
		base := d.Components.Schemas.get(s.Extends)
		own := *s
		own.Properties = slices.DeleteFunc(slices.Clone(s.Properties), func(e entry[*apiSchema]) bool { return base.Properties.get(e.Name) != nil })
		s = &own
	}
	o.Fields = answered(d.fields(s, described))
	if len(s.Examples) > 0 && s.Extends == "" {
		o.Example = pretty(&s.Examples[0])
	}
	return o
}

func (d *apiDocument) operation(method, path string, op *apiOperation, described objectsOf) *docsOperation {
	o := &docsOperation{apiOperation: op, Method: method, Path: path}
	own := *op
	own.Description = strings.TrimSuffix(strings.TrimSpace(op.Description), "Needs the scope `"+op.Scope+"`.") // the page shows it beside the path
	o.apiOperation = &own
	for _, kind := range []struct{ in, title string }{{"path", "Path"}, {"query", "Query"}, {"header", "Headers"}} {
		g := docsGroup{Title: kind.title}
		for _, p := range op.Parameters {
			p = d.parameter(p)
			if p.In == kind.in {
				f := d.field(p.Name, p.Schema, described)
				f.Required, f.Description = p.Required, p.Description
				g.Fields = append(g.Fields, f)
				path = strings.ReplaceAll(path, "{"+p.Name+"}", p.Example)
			}
		}
		if len(g.Fields) > 0 {
			o.Parameters = append(o.Parameters, g)
		}
	}
	if op.RequestBody != nil {
		o.Body = d.fields(d.resolve(op.body().Value.Schema), described)
	}
	ok := op.success().Value
	for _, h := range ok.Headers {
		if !onEveryResponse(h.Name) {
			p := d.parameter(h.Value)
			f := d.field(h.Name, p.Schema, described)
			f.Description = p.Description
			o.Headers = append(o.Headers, f)
		}
	}
	for _, m := range ok.Content {
		o.Returns = append(o.Returns, d.returned(ok.Description, m.Name, m.Value, described))
	}
	for _, r := range op.Responses {
		if r.Value.Ref != "" { // the others are forms of success, which the text describes
			o.Errors = append(o.Errors, r.Name)
		}
	}
	o.Samples = d.samples(o, path)
	return o
}

// onEveryResponse reports whether a header is described once, at the top of the
// page, and not with each operation.
func onEveryResponse(header string) bool {
	return header == "X-Request-Id" || strings.HasPrefix(header, "x-ratelimit-") && strings.HasSuffix(header, "-requests")
}

func (d *apiDocument) returned(description, contentType string, m *apiMedia, described objectsOf) docsReturn {
	r := docsReturn{Description: description, ContentType: contentType, Columns: m.Columns}
	switch {
	case m.Event != nil:
		r.IsEvent = true
		r.Object = schemaName(d.resolve(m.Event).AnyOf[0])
	case described.has(schemaName(m.Schema)):
		r.Object = schemaName(m.Schema)
	default:
		r.Fields = answered(d.fields(d.resolve(m.Schema), described))
	}
	return r
}

// fields lists an object's fields, or those of the objects in an array.
func (d *apiDocument) fields(s *apiSchema, described objectsOf) []*docsField {
	var out []*docsField
	for _, p := range s.Properties {
		f := d.field(p.Name, p.Value, described)
		f.Required = slices.Contains(s.Required, p.Name)
		out = append(out, f)
	}
	return out
}

// answered turns fields of a request into those of an answer, where what may
// be missing is worth a word, and not what must be there.
func answered(fields []*docsField) []*docsField {
	for _, f := range fields {
		f.Optional, f.Required, f.Bounds = !f.Required, false, nil
		answered(f.Fields)
	}
	return fields
}

func (d *apiDocument) field(name string, schema *apiSchema, described objectsOf) *docsField {
	s := d.resolve(schema)
	f := &docsField{Name: name, Type: d.typeOf(s), Description: s.Description, Notes: s.notes(), Bounds: s.bounds()}
	if several := d.choices(s); several != nil {
		for _, one := range several {
			f.Objects = append(f.Objects, schemaName(one))
		}
		return f
	}
	inner := schema
	switch {
	case s.Items != nil:
		inner = s.Items
	case len(s.AnyOf) > 0:
		for _, one := range s.AnyOf {
			if one = d.resolve(one); one.Items != nil {
				inner = one.Items
			} else if len(one.Properties) > 0 {
				inner = one
			}
		}
	}
	if n := schemaName(inner); described.has(n) {
		f.Objects = []string{n}
		return f
	}
	f.Fields = d.fields(d.resolve(inner), described)
	return f
}

// samples are the operation's calls with curl, and an answer.
func (d *apiDocument) samples(o *docsOperation, path string) []docsSample {
	var out []docsSample
	call := func(title string, body *yaml.Node) {
		var b strings.Builder
		b.WriteString("curl ")
		if o.Method != http.MethodGet && (o.Method != http.MethodPost || body == nil) {
			b.WriteString("-X " + o.Method + " ")
		}
		fmt.Fprintf(&b, "\"$TURNPIKE_BASE_URL%s\"", path)
		if o.Scope != "" {
			b.WriteString(" \\\n  -H \"Authorization: Bearer $TURNPIKE_API_KEY\"")
		}
		switch {
		case body == nil:
		case o.body().Name == jsonType:
			fmt.Fprintf(&b, " \\\n  -H \"Content-Type: application/json\" \\\n  -d %s", quoted(pretty(body)))
		default:
			for i := 0; i+1 < len(body.Content); i += 2 {
				value := body.Content[i+1]
				if value.Kind == yaml.SequenceNode {
					value = value.Content[0]
				}
				fmt.Fprintf(&b, " \\\n  -F %s", quoted(body.Content[i].Value+"="+value.Value))
			}
		}
		out = append(out, docsSample{title, b.String()})
	}
	switch {
	case o.RequestBody == nil:
		call("Request", nil)
	default:
		m := o.body().Value
		for _, e := range m.Examples {
			call(e.Value.Summary, &e.Value.Value)
		}
		if len(m.Examples) == 0 && m.Example.IsZero() {
			call("Request", nil)
		} else if len(m.Examples) == 0 {
			call("Request", &m.Example)
		}
	}
	for _, m := range o.success().Value.Content {
		if text := d.answer(m.Value); text != "" {
			title := "Answer"
			if m.Value.Event != nil {
				title = "Answer, streamed"
			}
			out = append(out, docsSample{title, text})
		}
	}
	return out
}

// quoted is a text as a shell takes it for one word.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// answer is an example of a response body; of a list, a page with one entry.
func (d *apiDocument) answer(m *apiMedia) string {
	if !m.Example.IsZero() {
		return pretty(&m.Example)
	}
	s := d.resolve(m.Schema)
	item := d.listItem(s)
	if item != nil {
		s = d.resolve(item)
	}
	if len(s.Examples) == 0 {
		return ""
	}
	example := &s.Examples[0]
	if item == nil {
		return pretty(example)
	}
	id := example.Content[1].Value // every object begins with its id
	one := strings.ReplaceAll(pretty(example), "\n", "\n    ")
	return fmt.Sprintf("{\n  \"object\": \"list\",\n  \"data\": [\n    %s\n  ],\n  \"first_id\": %q,\n  \"last_id\": %q,\n  \"has_more\": false\n}", one, id, id)
}

func pretty(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return strings.TrimSpace(n.Value)
	}
	b, err := jsonOf(n, "  ")
	if err != nil {
		return err.Error() // cannot be: the whole document was written as JSON before
	}
	return string(b)
}

var capital = regexp.MustCompile(`([a-z])([A-Z])`)

// words writes a schema's name for people: AuditEntry is "Audit entry".
func words(name string) string {
	name = capital.ReplaceAllString(name, "$1 $2")
	return name[:1] + strings.ToLower(name[1:])
}

var (
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	notLetters = regexp.MustCompile(`[^a-z]+`)
)

// slug makes a heading's anchor.
func slug(heading string) string {
	return notLetters.ReplaceAllString(strings.ToLower(heading), "-")
}

// inline renders code within a text.
func inline(text string) template.HTML {
	return template.HTML(codeSpan.ReplaceAllString(html.EscapeString(text), "<code>$1</code>"))
}

// markdown renders the little of it that the document uses: paragraphs, lists,
// second-level headings and code.
func markdown(text string) template.HTML {
	var b strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if block == "" {
			continue
		}
		block = string(inline(block))
		heading, isHeading := strings.CutPrefix(block, "## ")
		switch {
		case isHeading:
			fmt.Fprintf(&b, "<h2 id=%q>%s</h2>", slug(heading), heading)
		case strings.HasPrefix(block, "- "):
			items := strings.Split(strings.TrimPrefix(block, "- "), "\n- ")
			fmt.Fprintf(&b, "<ul><li>%s</li></ul>", strings.Join(items, "</li><li>"))
		default:
			fmt.Fprintf(&b, "<p>%s</p>", block)
		}
	}
	return template.HTML(b.String())
}
