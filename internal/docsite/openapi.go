package docsite

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"turnpike/internal/web"
)

// ordered is a YAML mapping in the order of the file.
type ordered[T any] []entry[T]

type entry[T any] struct {
	Name  string
	Value T
}

func (o *ordered[T]) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		e := entry[T]{Name: n.Content[i].Value}
		if err := n.Content[i+1].Decode(&e.Value); err != nil {
			return err
		}
		*o = append(*o, e)
	}
	return nil
}

func (o ordered[T]) get(name string) (value T) {
	for _, e := range o {
		if e.Name == name {
			return e.Value
		}
	}
	return value
}

// success returns the successful response, which comes first in the document.
func (o *apiOperation) success() entry[*apiResponse] { return o.Responses[0] }

// body returns the JSON body, or the form if there is no JSON.
func (o *apiOperation) body() entry[*apiMedia] {
	for _, m := range o.RequestBody.Content {
		if m.Name == jsonType {
			return m
		}
	}
	return o.RequestBody.Content[0]
}

// oneOrMore is a YAML string or list of strings.
type oneOrMore []string

func (l *oneOrMore) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*l = oneOrMore{n.Value}
		return nil
	}
	return n.Decode((*[]string)(l))
}

// The parts of the document that the reference shows.
type (
	apiDocument struct {
		Info struct {
			Title       string
			Version     string
			Summary     string
			Description string
		}
		Tags  []apiTag
		Paths ordered[ordered[*apiOperation]]

		Components struct {
			Parameters ordered[*apiParameter]
			Headers    ordered[*apiParameter]
			Responses  ordered[*apiResponse]
			Schemas    ordered[*apiSchema]
		}
	}
	apiTag       struct{ Name, Description string }
	apiOperation struct {
		ID          string `yaml:"operationId"`
		Tags        []string
		Summary     string
		Description string
		Scope       string `yaml:"x-scope"`
		Parameters  []*apiParameter
		RequestBody *struct {
			Content ordered[*apiMedia]
		} `yaml:"requestBody"`
		Responses ordered[*apiResponse]
	}
	apiParameter struct {
		Ref         string `yaml:"$ref"`
		Name        string
		In          string
		Required    bool
		Description string
		Schema      *apiSchema
		Example     string
	}
	apiResponse struct {
		Ref         string `yaml:"$ref"`
		Description string
		Headers     ordered[*apiParameter]
		Content     ordered[*apiMedia]
	}
	apiMedia struct {
		Schema   *apiSchema
		Event    *apiSchema `yaml:"x-event-schema"`
		Columns  []string   `yaml:"x-columns"`
		Example  yaml.Node
		Examples ordered[struct {
			Summary string
			Value   yaml.Node
		}]
	}
	apiSchema struct {
		Ref         string `yaml:"$ref"`
		Extends     string `yaml:"x-extends"`
		Title       string
		Description string
		Type        oneOrMore
		Properties  ordered[*apiSchema]
		Required    []string
		Items       *apiSchema
		AnyOf       []*apiSchema `yaml:"anyOf"`
		Enum        []string
		Const       string
		Default     string
		Minimum     string
		Maximum     string
		MinLength   string `yaml:"minLength"`
		MaxLength   string `yaml:"maxLength"`
		MinItems    string `yaml:"minItems"`
		MaxItems    string `yaml:"maxItems"`
		Pattern     string
		Examples    []yaml.Node
	}
)

// Scopes returns the schema of scopes.
func (d *apiDocument) Scopes() *apiSchema { return d.Components.Schemas.get("Scope") }

// listItem returns the schema of the items of a list, or nil if s is not a list.
func (d *apiDocument) listItem(s *apiSchema) *apiSchema {
	s = d.resolve(s)
	if s.Properties.get("has_more") == nil {
		return nil
	}
	return s.Properties.get("data").Items
}

func schemaName(s *apiSchema) string {
	name := strings.TrimPrefix(s.Ref, "#/components/schemas/")
	if strings.Contains(name, "/") {
		return ""
	}
	return name
}

// resolve follows references. A description next to a reference replaces its target's.
func (d *apiDocument) resolve(s *apiSchema) *apiSchema {
	if s.Ref == "" {
		return s
	}
	names := strings.Split(strings.TrimPrefix(s.Ref, "#/components/schemas/"), "/properties/")
	target := d.Components.Schemas.get(names[0])
	for _, name := range names[1:] {
		target = target.Properties.get(name)
	}
	out := *d.resolve(target)
	if s.Description != "" {
		out.Description = s.Description
	}
	return &out
}

func (d *apiDocument) parameter(p *apiParameter) *apiParameter {
	if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
		return d.Components.Parameters.get(name)
	}
	if name, ok := strings.CutPrefix(p.Ref, "#/components/headers/"); ok {
		return d.Components.Headers.get(name)
	}
	return p
}

// typeOf describes the type of a value. A title replaces the type.
func (d *apiDocument) typeOf(s *apiSchema) string {
	s = d.resolve(s)
	var names []string
	for _, one := range s.AnyOf {
		names = append(names, d.typeOf(one))
	}
	for _, t := range s.Type {
		if t == "array" && s.Items != nil {
			t = "array of " + d.typeOf(s.Items) + "s"
		}
		names = append(names, t)
	}
	if s.Title != "" {
		names = slices.DeleteFunc(names, func(n string) bool { return n != "null" })
		names = slices.Insert(names, 0, s.Title)
	}
	return strings.Join(slices.Compact(names), " or ")
}

// notes describes the possible values.
func (s *apiSchema) notes() []string {
	var out []string
	if s.Const != "" {
		out = append(out, "always `"+s.Const+"`")
	}
	if values := slices.DeleteFunc(slices.Clone(s.Enum), func(v string) bool { return v == "" }); len(values) > 0 {
		out = append(out, "`"+strings.Join(values, "`, `")+"`")
	}
	if len(s.Examples) > 0 && s.Examples[0].Kind == yaml.ScalarNode {
		out = append(out, "such as `"+s.Examples[0].Value+"`")
	}
	return out
}

// bounds describes the limits of a value in a request.
func (s *apiSchema) bounds() []string {
	var out []string
	between := func(low, high, unit, units string) {
		switch {
		case low != "" && high != "":
			out = append(out, web.GroupThousands(low)+" to "+web.GroupThousands(high)+units)
		case low == "1":
			out = append(out, "at least 1"+unit)
		case low != "" && low != "0":
			out = append(out, "at least "+web.GroupThousands(low)+units)
		case high != "":
			out = append(out, "at most "+web.GroupThousands(high)+units)
		}
	}
	if s.Title == "" { // the overview has the bounds of titled types
		between(s.Minimum, s.Maximum, "", "")
	}
	if s.MinLength != "1" || s.MaxLength != "" { // a required string is not empty
		between(s.MinLength, s.MaxLength, " character", " characters")
	}
	between(s.MinItems, s.MaxItems, " entry", " entries")
	if s.Pattern != "" && s.Description == "" && len(s.Examples) == 0 {
		out = append(out, "matches `"+s.Pattern+"`")
	}
	if s.Default != "" {
		out = append(out, "default `"+s.Default+"`")
	}
	return out
}
