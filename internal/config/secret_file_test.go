package config

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// loadFiles calls Load with variables and the files that they name.
func loadFiles(files map[string]string, environ ...string) (Loaded, error) {
	return Load(Sources{Environ: environ, ReadFile: func(path string) ([]byte, error) {
		text, ok := files[path]
		if !ok {
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		}
		return []byte(text), nil
	}})
}

func TestEverySecretCanComeFromAFile(t *testing.T) {
	t.Parallel()
	var c Config
	var environ []string
	files := map[string]string{"/run/openai": sentinel + "-openai\n"}
	secrets := 0
	for _, s := range c.settings() {
		if s.isSecret() {
			path := "/run/" + s.name
			environ = append(environ, s.env()+"_FILE="+path)
			files[path] = "postgres://u:" + sentinel + "-" + s.name + "@h/d\n"
			secrets++
		}
	}
	if secrets < 6 {
		t.Fatalf("%d settings are secret, want at least 6", secrets)
	}
	l, err := loadFiles(files, append(environ, "OPENAI_API_KEY_FILE=/run/openai")...)
	if err != nil || len(l.Warnings) > 0 {
		t.Fatalf("load: %v, warnings %q", err, l.Warnings)
	}
	for _, s := range l.Config.settings() {
		if !s.isSecret() {
			continue
		}
		got := ""
		switch v := s.value.(type) {
		case *Secret:
			got = string(*v)
		case *SecretURL:
			got = string(*v)
		}
		if want := "postgres://u:" + sentinel + "-" + s.name + "@h/d"; got != want || l.Origin[s.name] != "environment "+s.env()+"_FILE" {
			t.Errorf("%s is %q from %s, want %q", s.name, got, l.Origin[s.name], want)
		}
	}
	if len(l.Providers) != 1 || string(l.Providers[0].APIKey) != sentinel+"-openai" {
		t.Errorf("the provider's key is not what the file holds: %d providers", len(l.Providers))
	}
	var printed strings.Builder
	if err := l.Print(&printed); err != nil || strings.Contains(printed.String(), sentinel) {
		t.Errorf("a secret is printed (%v):\n%s", err, &printed)
	}
}

func TestSecretFileThatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	files := map[string]string{"/empty": "\n", "/key": sentinel}
	for want, environ := range map[string][]string{
		"master_key: cannot be read from its file: open /missing":             {"TURNPIKE_MASTER_KEY_FILE=/missing"},
		"master_key: is expected in /empty, which is empty":                   {"TURNPIKE_MASTER_KEY_FILE=/empty"},
		"is set by TURNPIKE_MASTER_KEY and by TURNPIKE_MASTER_KEY_FILE":       {"TURNPIKE_MASTER_KEY_FILE=/key", "TURNPIKE_MASTER_KEY=" + sentinel},
		"providers[0].api_key: cannot be read from its file: open /elsewhere": {"OPENAI_API_KEY_FILE=/elsewhere"},
	} {
		if _, err := loadFiles(files, environ...); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), sentinel) {
			t.Errorf("%v: got %v, want %q", environ, err, want)
		}
	}
	if l, err := loadFiles(nil, "TURNPIKE_LISTEN_FILE=/x"); err != nil || len(l.Warnings) != 1 {
		t.Errorf("a file for what is no secret: %v, warnings %q; want one", err, l.Warnings)
	}
}

func TestNoFlagTakesASecret(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("turnpike", pflag.ContinueOnError)
	AddFlags(flags)
	for _, name := range []string{"master-key", "oidc-client-secret", "leaks-gitlab-token"} {
		if flags.Lookup(name) != nil {
			t.Errorf("there is a flag --%s, which others on the machine could read", name)
		}
	}
	for args, warned := range map[string]bool{
		"--database-url=postgres://turnpike@db/turnpike":                        false,
		"--database-url=postgres://turnpike:" + sentinel + "@db/turnpike":       true,
		"--database-url=postgres://turnpike@db/turnpike?password=" + sentinel:   true,
		"--smtp-url=smtps://u:" + sentinel + "@mail.example.com":                true,
		"--files-url=s3://bucket?region=eu-central-1&endpoint=https://s3.local": false,
	} {
		l := mustLoad(t, "", nil, []string{args})
		if got := fmt.Sprint(l.Warnings); (len(l.Warnings) == 1) != warned || strings.Contains(got, sentinel) || warned && !strings.Contains(got, "_FILE") {
			t.Errorf("%s: the warnings are %s, want one: %t", args, got, warned)
		}
	}
}
