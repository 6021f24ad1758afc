package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A section is a list in the file, without a flag or variable. The struct of an
// entry declares its keys: the key tag is the name in the file, and default is
// the value of a missing key.

var sectionNames = []string{"providers", "routes", "leaks.scan"}

func (c *Config) section(name string) (list reflect.Value, ok bool) {
	switch name {
	case "providers":
		return reflect.ValueOf(&c.Providers).Elem(), true
	case "routes":
		return reflect.ValueOf(&c.Routes).Elem(), true
	case "leaks.scan":
		return reflect.ValueOf(&c.Leaks.Scan).Elem(), true
	}
	return reflect.Value{}, false
}

// section decodes a node of the file into a value. The path, such as
// providers[0].models, consists of known names and indexes.
func (r *fileReader) section(path string, n *yaml.Node, into reflect.Value) {
	if isNull(n) { // an empty "models:" counts as missing
		return
	}
	r.Origin[path] = r.origin(n)
	target := into.Addr().Interface()
	switch {
	case into.Kind() == reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		r.section(path, n, into.Elem())
	case into.Kind() == reflect.Struct:
		r.record(path, n, into)
	case into.Kind() == reflect.Map:
		r.headers(path, n, target.(*map[string]Secret))
	case into.Kind() == reflect.Slice && !isList(target):
		r.entries(path, n, into)
	default:
		if err := setNode(target, n); err != nil {
			r.refuse(path, n, err.Error())
		}
	}
}

func (r *fileReader) entries(path string, n *yaml.Node, into reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		r.refuse(path, n, "expected a list, with a - before each entry")
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		entry := into.Index(i)
		setDefaults(entry)
		r.section(fmt.Sprintf("%s[%d]", path, i), resolve(item), entry)
	}
}

func setDefaults(record reflect.Value) {
	for i := range record.NumField() {
		if preset := record.Type().Field(i).Tag.Get("default"); preset != "" {
			if err := setText(record.Field(i).Addr().Interface(), preset); err != nil {
				panic("config: default in a section: " + err.Error())
			}
		}
	}
}

func (r *fileReader) record(path string, n *yaml.Node, into reflect.Value) {
	keys := recordKeys(into.Type())
	if n.Kind != yaml.MappingNode {
		r.refuse(path, n, "expected "+strings.Join(keys, ", "))
		return
	}
	r.pairs(path+".", n, func(name string, key, value *yaml.Node) {
		if i := slices.Index(keys, key.Value); i >= 0 {
			r.section(name, value, into.Field(i))
		} else {
			r.refuse(name, key, "is not known here"+didYouMean(key.Value, "", keys)+"; expected "+strings.Join(keys, ", "))
		}
	})
}

// recordKeys returns the key tags of a struct's fields.
func recordKeys(record reflect.Type) []string {
	keys := make([]string, record.NumField())
	for i := range keys {
		keys[i] = record.Field(i).Tag.Get("key")
	}
	return keys
}

func (r *fileReader) headers(path string, n *yaml.Node, into *map[string]Secret) {
	if n.Kind != yaml.MappingNode {
		r.refuse(path, n, "expected names with values, as in \"OpenAI-Organization: org-1\"")
		return
	}
	*into = map[string]Secret{}
	r.pairs(path+".", n, func(_ string, key, value *yaml.Node) {
		var secret Secret
		if err := setNode(&secret, value); err != nil {
			r.refuse(path, key, err.Error())
			return
		}
		(*into)[key.Value] = secret
	})
}

// sectionNode returns a section for printing: secrets masked, empty fields left
// out, and the origin above each entry.
func (l Loaded) sectionNode(name string) *yaml.Node {
	list, _ := l.Config.section(name)
	node := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range list.Len() {
		entry := printed(list.Index(i))
		entry.HeadComment = "# " + l.Origin[fmt.Sprintf("%s[%d]", name, i)]
		node.Content = append(node.Content, entry)
	}
	return node
}

func (l Loaded) sectionValues(name string) []map[string]any {
	values := []map[string]any{}
	for i, entry := range l.sectionNode(name).Content {
		value := map[string]any{}
		if err := entry.Decode(&value); err != nil {
			panic("config: " + name + ": " + err.Error())
		}
		value["origin"] = l.Origin[fmt.Sprintf("%s[%d]", name, i)]
		values = append(values, value)
	}
	return values
}

func printed(v reflect.Value) *yaml.Node {
	if p, ok := v.Interface().(Provider); ok && p.APIKeyEnv != "" {
		p.APIKey = "" // api_key_env is printed instead
		v = reflect.ValueOf(p)
	}
	if k, ok := v.Interface().(ProviderKey); ok && k.APIKeyEnv != "" {
		k.APIKey = ""
		v = reflect.ValueOf(k)
	}
	switch v.Kind() {
	case reflect.Pointer:
		return printed(v.Elem())
	case reflect.Struct:
		node := &yaml.Node{Kind: yaml.MappingNode}
		for i, key := range recordKeys(v.Type()) {
			if field := v.Field(i); !field.IsZero() {
				node.Content = append(node.Content, keyNode(key), printed(field))
			}
		}
		return node
	case reflect.Slice:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			node.Content = append(node.Content, printed(v.Index(i)))
		}
		return node
	}
	node := new(yaml.Node)
	if err := node.Encode(v.Interface()); err != nil { // a Secret masks itself
		panic("config: " + err.Error())
	}
	return node
}
