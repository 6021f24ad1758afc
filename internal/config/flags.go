package config

import (
	"time"

	"github.com/spf13/pflag"
)

// configFlag names the file; it is no setting, since a file cannot name itself.
const configFlag = "config"

// AddFlags adds --config and one flag for each setting that may be seen. Values are only kept here:
// Load reads them, so that all mistakes are reported together and pflag never
// quotes a secret in an error.
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

// flagValue implements pflag.Value; it keeps what was given as text.
type flagValue struct {
	target any // a field of a throw-away Config, for its type and default
	given  []string
}

// Set keeps the last value, and for lists all of them.
func (f *flagValue) Set(value string) error {
	if isList(f.target) {
		f.given = append(f.given, value)
	} else {
		f.given = []string{value}
	}
	return nil
}

// String is the default, for the help; a given value may be secret.
func (f *flagValue) String() string { return notation(f.target) }

// Type is the placeholder in the help.
func (f *flagValue) Type() string {
	switch f.target.(type) {
	case *bool:
		return "bool"
	case *int:
		return "int"
	case *Decimal:
		return "decimal"
	case *Size:
		return "size"
	case *time.Duration:
		return "duration"
	}
	if isList(f.target) {
		return "list"
	}
	return "string"
}
