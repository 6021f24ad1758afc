package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// configFlag names the file. It is not a setting, because a file can't name
// itself.
const configFlag = "config"

// AddFlags adds --config and a flag for each setting that isn't a secret. Load
// parses the values later, so that it reports all mistakes together and pflag
// never quotes a secret.
func AddFlags(fs *pflag.FlagSet) {
	fs.String(configFlag, "", "YAML file with settings (TURNPIKE_CONFIG); flags and the environment win over it.")
	c := Default()
	for _, s := range c.settings() {
		if !s.hasFlag() {
			continue
		}
		f := fs.VarPF(&flagValue{target: s.value}, s.flag(), "", s.help)
		if _, ok := s.value.(*bool); ok {
			f.NoOptDefVal = "true"
		}
	}
}

// flagValue implements pflag.Value and keeps the given strings.
type flagValue struct {
	target any // a field of a temporary Config, for type and default
	given  []string
}

// Set keeps the last value, or all values of a list.
func (f *flagValue) Set(value string) error {
	if isList(f.target) {
		f.given = append(f.given, value)
	} else {
		f.given = []string{value}
	}
	return nil
}

// String returns the default for the help. It never returns a given value,
// which may be secret.
func (f *flagValue) String() string { return notation(f.target) }

// Type returns the placeholder in the help.
func (f *flagValue) Type() string {
	name := strings.ToLower(reflect.TypeOf(f.target).Elem().Name())
	switch {
	case isList(f.target):
		return "list"
	case slices.Contains([]string{"bool", "int", "decimal", "size", "duration"}, name):
		return name
	}
	return "string"
}
