package config

import (
	"reflect"
	"strings"
)

const envPrefix = "TURNPIKE_"

// setting is one leaf of Config: its declaration and a pointer to its value.
type setting struct {
	name     string // tls.cert
	help     string
	preset   string   // the default, as text
	min, max string   // bounds, as text; empty means none
	oneof    []string // allowed words; none means any
	alias    string   // a second environment variable; empty means none
	reload   bool     // a running server can apply a new value
	node     bool     // nodes of a cluster may have different values
	value    any      // pointer to the field
}

func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.name, ".", "_"))
}

// isSecret reports whether the value must be masked. Such a setting can also be
// read from a file named by a variable.
func (s setting) isSecret() bool {
	switch s.value.(type) {
	case *Secret, *SecretURL:
		return true
	}
	return false
}

// hasFlag reports whether the setting has a flag. Other users can read the
// command line, so secrets have none. A URL has one: it may have no password.
func (s setting) hasFlag() bool {
	_, secret := s.value.(*Secret)
	return !secret
}

func (s setting) flag() string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(s.name)
}

// reset sets the field to its default. It panics on an invalid default, which
// any test finds.
func (s setting) reset() {
	if s.preset == "" {
		return
	}
	if err := setText(s.value, s.preset); err != nil {
		panic("config: default of " + s.name + ": " + err.Error())
	}
}

// settings lists the leaves of c in the order of the struct.
func (c *Config) settings() []setting {
	return collect(reflect.ValueOf(c).Elem(), "")
}

func collect(group reflect.Value, prefix string) []setting {
	var all []setting
	for i := range group.NumField() {
		tag := group.Type().Field(i).Tag
		if tag == "" { // a section
			continue
		}
		name := prefix + tag.Get("name")
		help, leaf := tag.Lookup("help")
		if !leaf {
			all = append(all, collect(group.Field(i), name+".")...)
			continue
		}
		s := setting{
			name: name, help: help, preset: tag.Get("default"),
			min: tag.Get("min"), max: tag.Get("max"), alias: tag.Get("alias"),
			reload: tag.Get("reload") != "", node: tag.Get("node") != "",
			value: group.Field(i).Addr().Interface(),
		}
		if words := tag.Get("oneof"); words != "" {
			s.oneof = strings.Split(words, ",")
		}
		all = append(all, s)
	}
	return all
}

// groupMembers returns the settings in a group such as tls, or nil if there is
// no such group.
func groupMembers(all []setting, group string) []string {
	var names []string
	for _, s := range all {
		if strings.HasPrefix(s.name, group+".") {
			names = append(names, s.name)
		}
	}
	return names
}

// closest returns the candidate closest to a mistyped word, or "". It ignores
// case and the kind of separator.
func closest(word string, candidates []string) string {
	fold := strings.NewReplacer("-", "_", ".", "_")
	word = fold.Replace(strings.ToLower(word))
	best, bestDistance := "", max(1, len(word)/3)+1
	if len(word) > 64 { // no name is that long, and the comparison is quadratic
		return ""
	}
	for _, c := range candidates {
		name := fold.Replace(strings.ToLower(c))
		d := distance(word, name)
		if strings.HasPrefix(word, name+"_") { // people write data_dir for data
			d = 1
		}
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance returns the number of insertions, deletions and replacements that
// turn a into b.
func distance(a, b string) int {
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(last[j]+1, row[j-1]+1, replaced)
		}
		last = row
	}
	return last[len(b)]
}

// didYouMean returns a suggestion to append to a message, or "". It compares
// names without the common prefix.
func didYouMean(word, prefix string, candidates []string) string {
	bare := texts(candidates, func(c string) string { return strings.TrimPrefix(c, prefix) })
	if c := closest(strings.TrimPrefix(word, prefix), bare); c != "" {
		return "; did you mean " + prefix + c + "?"
	}
	return ""
}
