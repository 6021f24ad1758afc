package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// unknownAnchor matches the one YAML error that quotes the file. The quote
// could be a secret that starts with *.
var unknownAnchor = regexp.MustCompile(`(?s)unknown anchor '.*' referenced`)

// settingLike matches unknown keys that may be quoted. Others may be a
// misplaced secret; a master key is longer.
var settingLike = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,40}$`)

// file reads the settings of a YAML document. It returns syntax errors, and
// records mistakes in settings as problems.
func (l *loader) file(path string, data []byte) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return syntaxError(err)
	}
	if err := dec.Decode(new(yaml.Node)); err == nil {
		return errors.New("has more than one YAML document; expected one")
	} else if !errors.Is(err, io.EOF) {
		return syntaxError(err)
	}
	root := resolve(doc.Content[0])
	if isNull(root) {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: expected settings, as in \"listen: 127.0.0.1:8080\"", root.Line)
	}
	r := fileReader{loader: l, path: path, seen: map[string]int{}}
	r.pairs("", root, r.entry)
	return nil
}

func syntaxError(err error) error {
	message := unknownAnchor.ReplaceAllString(err.Error(), "unknown anchor referenced")
	return errors.New(strings.TrimPrefix(message, "yaml: "))
}

// fileReader walks the file along the known settings, so that nesting and
// aliases in the file can't make it recurse deeply.
type fileReader struct {
	*loader
	path string
	seen map[string]int // name → line
}

// pairs visits the entries of a mapping with their full names, and rejects
// repeated keys.
func (r *fileReader) pairs(prefix string, m *yaml.Node, visit func(name string, key, value *yaml.Node)) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		key := m.Content[i]
		name := prefix + "a key"
		if settingLike.MatchString(key.Value) {
			name = prefix + key.Value
		}
		if first, again := r.seen[prefix+key.Value]; again {
			r.refuse(name, key, fmt.Sprintf("is set twice, first in line %d", first))
			continue
		}
		r.seen[prefix+key.Value] = key.Line
		visit(name, key, resolve(m.Content[i+1]))
	}
}

func (r *fileReader) entry(name string, key, value *yaml.Node) {
	for _, s := range r.all {
		if s.name == name {
			if !isNull(value) { // an empty "data:" keeps the default
				r.set(s, r.origin(key), setNode(s.value, value))
			}
			return
		}
	}
	if into, ok := r.Config.section(name); ok {
		r.section(name, value, into)
		return
	}
	members := groupMembers(r.all, name)
	switch {
	case len(members) == 0:
		r.refuse(name, key, "is not a setting"+didYouMean(name, "", r.candidates()))
	case isNull(value):
	case value.Kind != yaml.MappingNode:
		r.refuse(name, key, "is a group; expected "+strings.Join(members, ", "))
	default:
		r.pairs(name+".", value, r.entry)
	}
}

// candidates returns all settings, groups and sections.
func (r *fileReader) candidates() []string {
	all := texts(r.all, func(s setting) string { return s.name })
	for _, s := range r.all {
		if group, _, ok := strings.Cut(s.name, "."); ok {
			all = append(all, group)
		}
	}
	return append(all, sectionNames...)
}

func (r *fileReader) origin(at *yaml.Node) string {
	return fmt.Sprintf("file %s:%d", r.path, at.Line)
}

func (r *fileReader) refuse(name string, at *yaml.Node, message string) {
	r.problems = append(r.problems, Problem{Setting: name, Message: message, Origin: r.origin(at)})
}

// setNode reads a value in the file: a scalar in the notation of the
// environment, or a sequence for lists.
func setNode(target any, n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode && isList(target) {
		items := make([]string, 0, len(n.Content))
		for _, item := range n.Content {
			item = resolve(item)
			if err := checkScalar(item, "a list of single values"); err != nil {
				return err
			}
			items = append(items, strings.TrimSpace(item.Value))
		}
		return setList(target, items)
	}
	expected := "a single value"
	if isList(target) {
		expected = "a list"
	}
	if err := checkScalar(n, expected); err != nil {
		return err
	}
	return setText(target, n.Value)
}

func checkScalar(n *yaml.Node, expected string) error {
	if n.Kind != yaml.ScalarNode {
		return errors.New("expected " + expected)
	}
	if n.Style&yaml.TaggedStyle != 0 {
		return errors.New("has a YAML tag (!…); expected " + expected)
	}
	return nil
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}
