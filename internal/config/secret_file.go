package config

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// fileSuffix is the suffix of variables that name a file with a secret, as
// containers mount them.
const fileSuffix = "_FILE"

// EnvSecret returns the secret in the variable, or in the file named by the
// variable with the suffix _FILE. It returns "" if neither is set.
func EnvSecret(name string) (string, error) {
	value, _, err := secretVariable(variables(os.Environ()), name, os.ReadFile)
	return value, err
}

// SecretVariableOf returns the environment variable of a secret setting that
// would have this flag, or "".
func SecretVariableOf(flag string) string {
	var c Config
	for _, s := range c.settings() {
		if !s.hasFlag() && s.flag() == flag {
			return s.env()
		}
	}
	return ""
}

// secretVariable is EnvSecret with the origin of the value.
func secretVariable(env map[string]string, name string, readFile func(string) ([]byte, error)) (value, origin string, err error) {
	path := env[name+fileSuffix]
	if path == "" {
		return env[name], "environment " + name, nil
	}
	origin = "environment " + name + fileSuffix
	if env[name] != "" {
		return "", origin, fmt.Errorf("is set by %s and by %s; expected one of the two", name, name+fileSuffix)
	}
	text, err := readFile(path)
	if err != nil {
		return "", origin, fmt.Errorf("cannot be read from its file: %w", err)
	}
	if value = strings.TrimSpace(string(text)); value == "" {
		return "", origin, errors.New("is expected in " + path + ", which is empty")
	}
	return value, origin, nil
}

func (l *loader) setSecret(s setting, env map[string]string) {
	value, origin, err := secretVariable(env, s.env(), l.readFile)
	if err == nil && value == "" {
		return
	}
	if err == nil {
		err = setText(s.value, value)
	}
	l.set(s, origin, err)
}
