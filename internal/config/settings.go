package config

import (
	"reflect"
	"strings"
)

// envPrefix starts the name of every environment variable that is a setting.
const envPrefix = "TURNPIKE_"

// setting is one leaf of Config: its declaration and a pointer to its value.
type setting struct {
	name     string // tls.cert
	help     string
	preset   string   // the default, as text
	min, max string   // bounds, as text; empty means none
	oneof    []string // allowed words; none means any
	alias    string   // a second environment variable; empty means none
	value    any      // pointer to the field
}

func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.name, ".", "_"))
}

// isSecret reports whether the value must not be seen. Such a setting can also
// be read from a file that a variable names.
func (s setting) isSecret() bool {
	switch s.value.(type) {
	case *Secret, *SecretURL:
		return true
	}
	return false
}

// hasFlag reports whether the setting can be given on the command line, which
// others on the machine can read. An address can: it need not hold a password.
func (s setting) hasFlag() bool {
	_, secret := s.value.(*Secret)
	return !secret
}

func (s setting) flag() string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(s.name)
}

// reset gives the field its default. A default that cannot be read is a
// mistake in the struct, which the first test run finds.
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
		if tag.Get("section") != "" {
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
			value: group.Field(i).Addr().Interface(),
		}
		if words := tag.Get("oneof"); words != "" {
			s.oneof = strings.Split(words, ",")
		}
		all = append(all, s)
	}
	return all
}

// groupMembers lists the settings below a group such as tls; none when there
// is no such group.
func groupMembers(all []setting, group string) []string {
	var names []string
	for _, s := range all {
		if strings.HasPrefix(s.name, group+".") {
			names = append(names, s.name)
		}
	}
	return names
}

// closest finds the candidate that a mistyped word most likely meant, and ""
// when none is near. Case and the kind of separator do not count.
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
		if strings.HasPrefix(word, name+"_") { // data_dir is data to most
			d = 1
		}
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours that turn a into b.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
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
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// didYouMean is the second half of a message about an unknown name. The
// prefix, which all candidates have, does not count towards their likeness.
func didYouMean(word, prefix string, candidates []string) string {
	bare := make([]string, 0, len(candidates))
	for _, c := range candidates {
		bare = append(bare, strings.TrimPrefix(c, prefix))
	}
	if c := closest(strings.TrimPrefix(word, prefix), bare); c != "" {
		return "; did you mean " + prefix + c + "?"
	}
	return ""
}

// names lists the settings by the function that names them.
func names(all []setting, name func(setting) string) []string {
	out := make([]string, 0, len(all))
	for _, s := range all {
		out = append(out, name(s))
	}
	return out
}
