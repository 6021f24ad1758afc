package docsite

import (
	"bytes"
	"fmt"
	"html/template"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The data of reference.html.
type (
	// tagPage is the page of a tag.
	tagPage struct {
		apiTag
		Operations []*operation
		Objects    []*object
	}
	operation struct {
		*apiOperation
		Method     string
		Path       string
		Parameters []fieldGroup
		Body       []*field
		Returns    []returned
		Headers    []*field
		Errors     []string
		Requests   []request
		Responses  []sample
	}
	// request is an example request in several languages.
	request struct {
		Title   string
		Samples []sample
	}
	fieldGroup struct {
		Title  string
		Fields []*field
	}
	returned struct {
		Description string
		ContentType string
		Object      string // its name, if it is described on its own
		IsEvent     bool
		Fields      []*field
		Columns     []string
	}
	object struct {
		Name        string
		Description string
		Extends     string
		Fields      []*field
		Example     string
	}
	field struct {
		Name        string
		Type        string
		Objects     []string // the objects that describe it
		Required    bool     // in a request
		Optional    bool     // in a response
		Notes       []string
		Bounds      []string
		Description string
		Fields      []*field
	}
)

// newReference renders a page per tag of the OpenAPI document, and an overview.
func newReference(root *yaml.Node) (*section, error) {
	d := new(apiDocument)
	if err := root.Decode(d); err != nil {
		return nil, err
	}
	described := d.describedObjects()
	tabGroup := 0
	t, err := template.New("reference.html").Funcs(template.FuncMap{
		"markdown": renderMarkdown, "inline": inline, "slug": slug, "words": words, "errorsPage": func() string { return ErrorsPage },
		"objectPath": described.path,
		"tabs": func(samples []sample) template.HTML {
			var b strings.Builder
			tabGroup++
			writeTabs(&b, fmt.Sprintf("sample-%d", tabGroup), samples)
			return template.HTML(b.String())
		},
	}).Parse(referenceHTML)
	if err != nil {
		return nil, err
	}
	render := func(name string, data any) (template.HTML, error) {
		var out bytes.Buffer
		err := t.ExecuteTemplate(&out, name, data)
		return template.HTML(out.String()), err
	}
	overview := &page{Path: referencePath, Title: d.Info.Title, Summary: d.Info.Summary}
	overview.Parts = []searchHit{{Path: overview.Path, Title: overview.Title, Text: d.Info.Description}}
	if overview.Body, err = render("overview", d); err != nil {
		return nil, err
	}
	out := &section{Title: "API reference", Pages: []*page{overview}}
	for _, tag := range d.Tags {
		data := d.tagPage(tag, described)
		summary, _, _ := strings.Cut(strings.TrimSpace(tag.Description), "\n")
		p := &page{Path: tagPath(tag.Name), Title: tag.Name, Summary: summary}
		for _, o := range data.Operations {
			p.Parts = append(p.Parts, searchHit{Path: p.Path + "#" + o.ID, Title: tag.Name + ": " + o.Summary, Text: o.Method + " " + o.Path + " " + o.Description})
		}
		if p.Body, err = render("tag", data); err != nil {
			return nil, err
		}
		out.Pages = append(out.Pages, p)
	}
	return out, nil
}

const referencePath = "/docs/api"

func tagPath(tag string) string { return referencePath + "/" + slug(tag) }

func (d *apiDocument) tagPage(tag apiTag, described objectsOf) *tagPage {
	p := &tagPage{apiTag: tag}
	for _, path := range d.Paths {
		for _, op := range path.Value {
			if slices.Contains(op.Value.Tags, tag.Name) {
				p.Operations = append(p.Operations, d.operation(strings.ToUpper(op.Name), path.Name, op.Value, described))
			}
		}
	}
	for _, name := range described[tag.Name] {
		p.Objects = append(p.Objects, d.object(name, described))
	}
	return p
}

// choices returns the objects of which a value is one, if there are several.
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

// objectsOf lists the objects that are described on their own, by tag: those that the
// tag's operations return.
type objectsOf map[string][]string

// path returns the address of an object's description, or nothing if it has none.
func (o objectsOf) path(name string) string {
	for tag, names := range o {
		if slices.Contains(names, name) {
			return tagPath(tag) + "#object-" + name
		}
	}
	return ""
}

func (o objectsOf) has(name string) bool { return o.path(name) != "" }

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

func (d *apiDocument) object(name string, described objectsOf) *object {
	s := d.Components.Schemas.get(name)
	o := &object{Name: name, Description: s.Description, Extends: s.Extends}
	if s.Extends != "" {
		base := d.Components.Schemas.get(s.Extends)
		own := *s
		own.Properties = slices.DeleteFunc(slices.Clone(s.Properties), func(e entry[*apiSchema]) bool { return base.Properties.get(e.Name) != nil })
		s = &own
	}
	o.Fields = asResponse(d.fields(s, described))
	if len(s.Examples) > 0 && s.Extends == "" {
		o.Example = pretty(&s.Examples[0])
	}
	return o
}

func (d *apiDocument) operation(method, path string, op *apiOperation, described objectsOf) *operation {
	own := *op
	own.Description = strings.TrimSuffix(strings.TrimSpace(op.Description), "Requires the scope `"+op.Scope+"`.") // the page shows it next to the path
	o := &operation{apiOperation: &own, Method: method, Path: path}
	for _, kind := range []struct{ in, title string }{{"path", "Path"}, {"query", "Query"}, {"header", "Headers"}} {
		g := fieldGroup{Title: kind.title}
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
		r := returned{Description: ok.Description, ContentType: m.Name, Columns: m.Value.Columns, IsEvent: m.Value.Event != nil}
		switch {
		case r.IsEvent:
			r.Object = schemaName(d.resolve(m.Value.Event).AnyOf[0])
		case described.has(schemaName(m.Value.Schema)):
			r.Object = schemaName(m.Value.Schema)
		default:
			r.Fields = asResponse(d.fields(d.resolve(m.Value.Schema), described))
		}
		o.Returns = append(o.Returns, r)
	}
	for _, r := range op.Responses {
		if r.Value.Ref != "" { // others are successes, which the text describes
			o.Errors = append(o.Errors, r.Name)
		}
	}
	o.Requests, o.Responses = d.requests(o, path), d.responses(o)
	return o
}

// onEveryResponse reports whether a header is described once, at the top of the
// page, and not with each operation.
func onEveryResponse(header string) bool {
	return header == "X-Request-Id" || strings.HasPrefix(header, "x-ratelimit-") && strings.HasSuffix(header, "-requests")
}

// fields lists an object's fields, or those of the objects in an array.
func (d *apiDocument) fields(s *apiSchema, described objectsOf) []*field {
	var out []*field
	for _, p := range s.Properties {
		f := d.field(p.Name, p.Value, described)
		f.Required = slices.Contains(s.Required, p.Name)
		out = append(out, f)
	}
	return out
}

// asResponse turns fields of a request into fields of a response, which are marked if
// they are optional and not if they are required.
func asResponse(fields []*field) []*field {
	for _, f := range fields {
		f.Optional, f.Required, f.Bounds = !f.Required, false, nil
		asResponse(f.Fields)
	}
	return fields
}

func (d *apiDocument) field(name string, schema *apiSchema, described objectsOf) *field {
	s := d.resolve(schema)
	f := &field{Name: name, Type: d.typeOf(s), Description: s.Description, Notes: s.notes(), Bounds: s.bounds()}
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

func (d *apiDocument) requests(o *operation, path string) []request {
	var example *yaml.Node
	if o.RequestBody != nil {
		m := o.body().Value
		var out []request
		for _, e := range m.Examples {
			out = append(out, request{e.Value.Summary, o.samples(path, &e.Value.Value)})
		}
		if len(out) > 0 {
			return out
		}
		if !m.Example.IsZero() {
			example = &m.Example
		}
	}
	return []request{{"Request", o.samples(path, example)}}
}

func (d *apiDocument) responses(o *operation) (out []sample) {
	for _, m := range o.success().Value.Content {
		if text := d.exampleOf(m.Value); text != "" {
			title := "Response"
			if m.Value.Event != nil {
				title = "Streamed response"
			}
			out = append(out, sample{title, text})
		}
	}
	return out
}

// exampleOf returns an example of a response body; of a list, a page with one entry.
func (d *apiDocument) exampleOf(m *apiMedia) string {
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
	id := example.Content[1].Value // every object begins with its ID
	one := strings.ReplaceAll(pretty(example), "\n", "\n    ")
	return fmt.Sprintf("{\n  \"object\": \"list\",\n  \"data\": [\n    %s\n  ],\n  \"first_id\": %q,\n  \"last_id\": %q,\n  \"has_more\": false\n}", one, id, id)
}

func pretty(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return strings.TrimSpace(n.Value)
	}
	b, err := JSON(n, "  ")
	if err != nil {
		return err.Error() // impossible: the whole document was converted before
	}
	return string(b)
}

var capital = regexp.MustCompile(`([a-z])([A-Z])`)

// words returns a schema's name in words: AuditEntry is "Audit entry".
func words(name string) string {
	name = capital.ReplaceAllString(name, "$1 $2")
	return name[:1] + strings.ToLower(name[1:])
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// inline renders code within a text.
func inline(text string) template.HTML {
	return template.HTML(codeSpan.ReplaceAllString(template.HTMLEscapeString(text), "<code>$1</code>"))
}

// renderMarkdown renders a description of the document.
func renderMarkdown(source string) (template.HTML, error) {
	var out bytes.Buffer
	err := markdown.Convert([]byte(source), &out)
	return template.HTML(out.String()), err
}
