package config

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Sources are the sources that Load reads. The zero value gives the defaults.
type Sources struct {
	Flags    *pflag.FlagSet               // parsed, after AddFlags
	Environ  []string                     // as from os.Environ
	ReadFile func(string) ([]byte, error) // os.ReadFile when nil
}

// Loaded is the effective configuration with its origins.
type Loaded struct {
	Config
	Warnings []string          // unknown environment variables
	Origin   map[string]string // setting → default, file F:LINE, environment NAME or flag --NAME
}

// notSettings are TURNPIKE_ variables that other parts read: the client
// commands and the tests.
var notSettings = []string{"TURNPIKE_CONFIG", "TURNPIKE_BASE_URL", "TURNPIKE_API_KEY", "TURNPIKE_NEW_MASTER_KEY", "TURNPIKE_NEW_MASTER_KEY_FILE", "TURNPIKE_CHAOS"}

const testEnvPrefix = "TURNPIKE_TEST_"

// Load reads all sources. It reports all unreadable values together as
// Problems, and returns the others. Validate checks whether the values make
// sense. Load reads a file only if one is named.
func Load(from Sources) (Loaded, error) {
	l := loader{Loaded: Loaded{Config: Default(), Origin: map[string]string{}}}
	l.all = l.Config.settings()
	for _, s := range l.all {
		l.Origin[s.name] = "default"
	}
	env := variables(from.Environ)
	l.warnUnknown(env)
	l.readFile = from.ReadFile
	if l.readFile == nil {
		l.readFile = os.ReadFile
	}
	if path := configPath(from.Flags, env); path != "" {
		data, err := l.readFile(path)
		if err != nil {
			return l.Loaded, fmt.Errorf("read the configuration file: %w", err)
		}
		if err := l.file(path, data); err != nil {
			return l.Loaded, fmt.Errorf("configuration file %s: %w", path, err)
		}
	}
	for _, s := range l.all {
		if s.isSecret() {
			l.setSecret(s, env)
			continue
		}
		// An empty variable counts as not set, as in compose files.
		for _, name := range []string{s.env(), s.alias} {
			if value := env[name]; value != "" {
				l.set(s, "environment "+name, setText(s.value, value))
				break
			}
		}
	}
	l.flags(from.Flags)
	l.discover(env)
	l.completeProviders(env)
	l.derive()
	if len(l.problems) > 0 {
		return l.Loaded, l.problems
	}
	return l.Loaded, nil
}

type loader struct {
	Loaded
	all      []setting // leaves of Loaded.Config
	readFile func(string) ([]byte, error)
	problems Problems
}

func (l *loader) set(s setting, origin string, err error) {
	if err != nil {
		l.problems = append(l.problems, Problem{Setting: s.name, Message: err.Error(), Origin: origin})
		return
	}
	l.Origin[s.name] = origin
}

func variables(environ []string) map[string]string {
	all := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" {
			all[name] = value
		}
	}
	return all
}

// warnUnknown adds a warning for each unknown TURNPIKE_ variable.
func (l *loader) warnUnknown(env map[string]string) {
	known := append(texts(l.all, setting.env), texts(l.all, func(s setting) string { return s.alias })...)
	for _, s := range l.all {
		if s.isSecret() {
			known = append(known, s.env()+fileSuffix)
		}
	}
	for name := range env {
		if !strings.HasPrefix(name, envPrefix) || strings.HasPrefix(name, testEnvPrefix) ||
			slices.Contains(known, name) || slices.Contains(notSettings, name) {
			continue
		}
		l.Warnings = append(l.Warnings, name+" is not a setting"+didYouMean(name, envPrefix, known))
	}
	slices.Sort(l.Warnings)
}

// configPath returns the path of the file, or "". --config= overrides
// TURNPIKE_CONFIG.
func configPath(fs *pflag.FlagSet, env map[string]string) string {
	if fs != nil {
		if f := fs.Lookup(configFlag); f != nil && f.Changed {
			return f.Value.String()
		}
	}
	return env["TURNPIKE_CONFIG"]
}

func (l *loader) flags(fs *pflag.FlagSet) {
	if fs == nil {
		return
	}
	for _, s := range l.all {
		f := fs.Lookup(s.flag())
		if f == nil || !f.Changed {
			continue
		}
		if v, ok := f.Value.(*flagValue); ok {
			l.set(s, "flag --"+s.flag(), setText(s.value, strings.Join(v.given, ",")))
			if u, ok := s.value.(*SecretURL); ok && u.hasPassword() {
				l.Warnings = append(l.Warnings, "--"+s.flag()+" has a password in it, which other users of this machine can see. Set "+s.env()+" instead, or "+s.env()+fileSuffix+" to a file that holds the address.")
			}
		}
	}
}

// derive sets the settings that depend on others.
func (l *loader) derive() {
	l.PublicURL = strings.TrimSuffix(l.PublicURL, "/")
	if l.PublicURL != "" {
		return
	}
	// With port 0 the address is known only after the server has bound it.
	if _, port, err := net.SplitHostPort(l.Listen); err == nil && port != "0" {
		l.PublicURL = l.BaseURL(l.Listen)
		l.Origin["public_url"] = "default, from listen"
	}
}
