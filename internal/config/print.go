package config

import (
	"encoding/json"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Print writes the effective settings as YAML, with secrets masked and origins
// as comments. Without its secrets it is a valid file.
func (l Loaded) Print(w io.Writer) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	groups := nodeGroups{"": root}
	for _, s := range l.Config.settings() {
		group, key := splitName(s.name)
		into := groups.get(group)
		var value yaml.Node
		if err := value.Encode(plain(s.value)); err != nil {
			return err
		}
		if value.Kind == yaml.SequenceNode {
			value.Style = yaml.FlowStyle
		} else if strings.Contains(value.Value, "\n") {
			value.Style = yaml.DoubleQuotedStyle // a block has no room for the comment
		}
		value.LineComment = "# " + l.Origin[s.name]
		into.Content = append(into.Content, keyNode(key), &value)
	}
	for _, name := range sectionNames {
		if list := l.sectionNode(name); len(list.Content) > 0 {
			group, key := splitName(name)
			into := groups.get(group)
			into.Content = append(into.Content, keyNode(key), list)
		}
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return err
	}
	return enc.Close()
}

// nodeGroups are the mappings of groups such as tls, by name.
type nodeGroups map[string]*yaml.Node

// get returns the mapping of a group, and adds it to its parent the first time.
func (g nodeGroups) get(name string) *yaml.Node {
	if found, ok := g[name]; ok {
		return found
	}
	parent, key := splitName(name)
	g[name] = &yaml.Node{Kind: yaml.MappingNode}
	into := g.get(parent)
	into.Content = append(into.Content, keyNode(key), g[name])
	return g[name]
}

func keyNode(name string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: name}
}

// splitName splits tls.cert into group and key. The group may be "".
func splitName(name string) (group, key string) {
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return "", name
}

// PrintJSON writes the effective settings as JSON, by full name and with sizes
// in bytes.
func (l Loaded) PrintJSON(w io.Writer) error {
	type entry struct {
		Value  any    `json:"value"`
		Origin string `json:"origin"`
	}
	out := struct {
		Settings  map[string]entry `json:"settings"`
		Providers []map[string]any `json:"providers"`
		Routes    []map[string]any `json:"routes"`
		Warnings  []string         `json:"warnings"`
	}{map[string]entry{}, l.sectionValues("providers"), l.sectionValues("routes"), append([]string{}, l.Warnings...)}
	for _, s := range l.Config.settings() {
		value := plain(s.value)
		if size, ok := s.value.(*Size); ok {
			value = int64(*size)
		}
		out.Settings[s.name] = entry{value, l.Origin[s.name]}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
