package docsite

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// ExpandAliases replaces YAML aliases by the nodes they name and resolves merge
// keys (<<), which few OpenAPI tools support. It sorts the keys of mappings with
// a merge key, and drops x-common, which holds the anchors.
func ExpandAliases(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	out := *n
	out.Anchor, out.Content = "", nil
	if n.Kind != yaml.MappingNode {
		for _, child := range n.Content {
			out.Content = append(out.Content, ExpandAliases(child))
		}
		return &out
	}
	merged := false
	for pair := range slices.Chunk(n.Content, 2) {
		key, value := pair[0], ExpandAliases(pair[1])
		switch {
		case key.Value == "x-common":
		case key.Tag == "!!merge":
			merged = true
			out.Content = append(out.Content, value.Content...)
		default:
			out.Content = append(out.Content, key, value)
		}
	}
	if merged {
		pairs := slices.SortedFunc(slices.Chunk(out.Content, 2), func(a, b []*yaml.Node) int { return strings.Compare(a[0].Value, b[0].Value) })
		out.Content = slices.Concat(pairs...)
	}
	return &out
}

// JSON converts YAML to JSON and keeps the order of keys.
func JSON(n *yaml.Node, indent string) ([]byte, error) {
	var out bytes.Buffer
	e := jsontext.NewEncoder(&out, jsontext.WithIndent(indent), jsontext.Multiline(indent != ""), jsontext.SpaceAfterColon(indent != ""))
	if err := writeJSON(e, n); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

func writeJSON(e *jsontext.Encoder, n *yaml.Node) error {
	begin, end := jsontext.BeginObject, jsontext.EndObject
	switch n.Kind {
	case yaml.DocumentNode:
		return writeJSON(e, n.Content[0])
	case yaml.MappingNode:
	case yaml.SequenceNode:
		begin, end = jsontext.BeginArray, jsontext.EndArray
	case yaml.ScalarNode:
		switch tag := n.ShortTag(); tag {
		case "!!str":
			return e.WriteToken(jsontext.String(n.Value))
		case "!!null":
			return e.WriteToken(jsontext.Null)
		case "!!bool", "!!int", "!!float":
			return e.WriteValue(jsontext.Value(n.Value)) // JSON's own notation, or an error
		default:
			return fmt.Errorf("line %d: %s has no JSON equivalent", n.Line, tag)
		}
	default:
		return fmt.Errorf("line %d: unexpected kind of node", n.Line)
	}
	if err := e.WriteToken(begin); err != nil {
		return err
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if err := e.WriteToken(jsontext.String(child.Value)); err != nil {
				return err
			}
			continue
		}
		if err := writeJSON(e, child); err != nil {
			return err
		}
	}
	return e.WriteToken(end)
}
