package api

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"turnpike/internal/docsite"
)

// publisher turns the document into the one that clients get. Ours describes each response exactly,
// and the tests check responses by it. Clients must accept what later versions add, and their
// generators can't read all of OpenAPI.
type publisher struct {
	root    *yaml.Node
	relaxed map[*yaml.Node]bool
}

// publish changes the document in place.
func publish(document *yaml.Node) {
	p := &publisher{root: document.Content[0], relaxed: map[*yaml.Node]bool{}}
	p.inlineReferences(p.root, "/properties/")
	// Generators remove parameters that only webhooks refer to.
	p.inlineReferences(member(p.root, "webhooks"), "#/components/parameters/")
	for path := range members(member(p.root, "paths")) {
		for operation := range members(path) {
			p.relax(member(operation, "responses"))
		}
	}
	p.relax(member(p.root, "components", "responses"))
	p.relax(member(p.root, "webhooks"))
	for schema := range members(member(p.root, "components", "schemas")) {
		simplify(schema)
	}
}

// member returns the value below a mapping, or nil.
func member(n *yaml.Node, names ...string) *yaml.Node {
	for _, name := range names {
		if n == nil || n.Kind != yaml.MappingNode {
			return nil
		}
		i := index(n, name)
		if i < 0 {
			return nil
		}
		n = n.Content[i+1]
	}
	return n
}

// index returns where a mapping has a name, or -1.
func index(n *yaml.Node, name string) int {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return i
		}
	}
	return -1
}

// members yields the values of a mapping.
func members(n *yaml.Node) func(yield func(*yaml.Node) bool) {
	return func(yield func(*yaml.Node) bool) {
		for i := 1; n != nil && n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
			if !yield(n.Content[i]) {
				return
			}
		}
	}
}

func remove(n *yaml.Node, name string) *yaml.Node {
	i := index(n, name)
	if i < 0 {
		return nil
	}
	value := n.Content[i+1]
	n.Content = slices.Delete(n.Content, i, i+2)
	return value
}

func add(n *yaml.Node, name string, value *yaml.Node) {
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}, value)
}

func (p *publisher) resolve(reference string) *yaml.Node {
	return member(p.root, strings.Split(strings.TrimPrefix(reference, "#/"), "/")...)
}

// inlineReferences replaces references that contain a part, which generators can't follow, by what they refer to.
func (p *publisher) inlineReferences(n *yaml.Node, part string) {
	if ref := member(n, "$ref"); ref != nil && strings.Contains(ref.Value, part) {
		remove(n, "$ref")
		target := docsite.ExpandAliases(p.resolve(ref.Value)) // a copy
		for i := 0; i < len(target.Content); i += 2 {
			if index(n, target.Content[i].Value) < 0 {
				n.Content = append(n.Content, target.Content[i], target.Content[i+1])
			}
		}
		p.inlineReferences(n, part) // the target may be a reference itself
		return
	}
	for _, child := range n.Content {
		p.inlineReferences(child, part)
	}
}

// relax opens the schemas in a response: objects may get fields, and strings other values.
func (p *publisher) relax(n *yaml.Node) {
	if n == nil || p.relaxed[n] {
		return
	}
	p.relaxed[n] = true
	if n.Kind == yaml.MappingNode {
		if ref := member(n, "$ref"); ref != nil && ref.Kind == yaml.ScalarNode && strings.HasPrefix(ref.Value, "#/") {
			p.relax(p.resolve(ref.Value))
		}
		if closed := member(n, "additionalProperties"); closed != nil && closed.Value == "false" {
			remove(n, "additionalProperties")
		}
		if names := member(n, "propertyNames"); names != nil && names.Kind == yaml.MappingNode {
			remove(n, "propertyNames")
		}
		openEnum(n)
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && (i%2 == 0 || slices.Contains([]string{"if", "example", "examples"}, n.Content[i-1].Value)) {
			continue
		}
		p.relax(child)
	}
}

// openEnum turns the values of a string into a list of those that are known.
func openEnum(schema *yaml.Node) {
	values := member(schema, "enum")
	if values == nil || values.Kind != yaml.SequenceNode || slices.ContainsFunc(values.Content, func(v *yaml.Node) bool { return v.Tag != "!!str" && v.Tag != "!!null" }) {
		return
	}
	remove(schema, "enum")
	known := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
	for _, v := range values.Content {
		if v.Tag == "!!str" {
			known.Content = append(known.Content, v)
		}
	}
	if member(schema, "type") == nil {
		add(schema, "type", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "string"})
	}
	add(schema, "x-extensible-enum", known)
}

// simplify removes multipleOf, which validators compute with binary fractions, and moves defaults into the
// descriptions of their fields, because generators make fields with a default required. Numbers get the format double,
// because generators may choose 32 bits otherwise, which are too few for credits.
func simplify(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		remove(n, "multipleOf")
		if isNumber(member(n, "type")) && member(n, "format") == nil {
			add(n, "format", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "double"})
		}
	}
	for field := range members(member(n, "properties")) {
		if field.Kind != yaml.MappingNode {
			continue
		}
		value := remove(field, "default")
		if value == nil {
			continue
		}
		text, err := docsite.JSON(value, "")
		if err != nil {
			continue
		}
		if d := member(field, "description"); d != nil {
			d.Value = strings.TrimSpace(d.Value) + " Default: `" + string(text) + "`."
			continue
		}
		add(field, "description", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "Default: `" + string(text) + "`."})
	}
	for _, child := range n.Content {
		simplify(child)
	}
}

// isNumber reports whether a type is number, or number and null.
func isNumber(kind *yaml.Node) bool {
	return kind != nil && (kind.Value == "number" || kind.Kind == yaml.SequenceNode && slices.ContainsFunc(kind.Content, func(k *yaml.Node) bool { return k.Value == "number" }))
}
