package config

import (
	"encoding"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Changes are the settings that differ between a running server and its
// sources.
type Changes struct {
	Applied []string // a running server can apply them
	Restart []string // they need a restart
}

// Reload returns c with the settings of next that a running server can apply,
// and the names of all settings that differ. The result may be invalid if a
// setting depends on one that needs a restart.
func (c Config) Reload(next Config) (Config, Changes) {
	var changes Changes
	out := c
	to, from := out.settings(), next.settings()
	for i, s := range to {
		value := reflect.ValueOf(s.value).Elem()
		changed := reflect.ValueOf(from[i].value).Elem()
		switch {
		case reflect.DeepEqual(value.Interface(), changed.Interface()):
		case s.reload && !c.switchesTLS(next, s.name):
			value.Set(changed)
			changes.Applied = append(changes.Applied, s.name)
		case s.name == "master_key": // turnpike rekey changes it while servers run, and they continue
		default:
			changes.Restart = append(changes.Restart, s.name)
		}
	}
	for _, name := range sectionNames {
		list, _ := out.section(name)
		changed, _ := next.section(name)
		if !reflect.DeepEqual(list.Interface(), changed.Interface()) {
			list.Set(changed)
			changes.Applied = append(changes.Applied, name)
		}
	}
	return out, changes
}

// switchesTLS reports whether a setting would turn TLS on or off or get its
// certificates elsewhere, which needs a new listener.
func (c Config) switchesTLS(next Config, name string) bool {
	return strings.HasPrefix(name, "tls.") && c.TLS.Mode() != next.TLS.Mode()
}

// Canonical returns the settings that all nodes of a cluster share as a string,
// including their secrets. Equal settings have equal strings. It is meant to be
// hashed with a key.
func (c Config) Canonical() string {
	// Without public_url, the address of each node is its own.
	if own := (Config{Listen: c.Listen, TLS: c.TLS}); c.PublicURL == own.BaseURL(c.Listen) {
		c.PublicURL = ""
	}
	var b strings.Builder
	for _, s := range c.settings() {
		if !s.node {
			b.WriteString(s.name + " ")
			writeCanonical(&b, reflect.ValueOf(s.value).Elem())
			b.WriteByte('\n')
		}
	}
	for _, name := range sectionNames {
		list, _ := c.section(name)
		b.WriteString(name + " ")
		writeCanonical(&b, list)
		b.WriteByte('\n')
	}
	return b.String()
}

// writeCanonical writes a value without ambiguity. Secrets are strings, and
// written in clear.
func writeCanonical(b *strings.Builder, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		b.WriteString(strconv.Quote(v.String()))
	case reflect.Pointer:
		if v.IsNil() {
			b.WriteString("nil")
			return
		}
		writeCanonical(b, v.Elem())
	case reflect.Slice:
		b.WriteByte('[')
		for i := range v.Len() {
			writeCanonical(b, v.Index(i))
			b.WriteByte(',')
		}
		b.WriteByte(']')
	case reflect.Map: // headers
		headers := v.Interface().(map[string]Secret)
		b.WriteByte('{')
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			b.WriteString(strconv.Quote(name) + ":" + strconv.Quote(string(headers[name])) + ",")
		}
		b.WriteByte('}')
	case reflect.Struct:
		if text, ok := v.Interface().(encoding.TextMarshaler); ok { // netip.Prefix
			out, err := text.MarshalText()
			if err != nil {
				panic("config: " + err.Error())
			}
			b.WriteString(strconv.Quote(string(out)))
			return
		}
		b.WriteByte('{')
		for i, key := range recordKeys(v.Type()) {
			b.WriteString(key + ":")
			writeCanonical(b, v.Field(i))
			b.WriteByte(',')
		}
		b.WriteByte('}')
	case reflect.Bool:
		b.WriteString(strconv.FormatBool(v.Bool()))
	default: // numbers
		b.WriteString(strconv.FormatInt(v.Int(), 10))
	}
}
