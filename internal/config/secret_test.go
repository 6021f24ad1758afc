package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// sentinel stands for a password. It must never be printed.
const sentinel = "S3ntinelS3ntinel"

func TestSecretsAreMaskedWhereverPrinted(t *testing.T) {
	t.Parallel()
	l := mustLoad(t, "", []string{"TURNPIKE_MASTER_KEY=" + testMasterKey},
		[]string{"--database-url", "postgres://turnpike:" + sentinel + "@db:5432/turnpike?sslmode=require&sslpassword=" + sentinel,
			"--files-url", "s3://key:" + sentinel + "@bucket"})
	if string(l.MasterKey) != testMasterKey || !strings.Contains(string(l.DatabaseURL), sentinel) {
		t.Fatal("the secrets were not loaded")
	}
	var out bytes.Buffer
	for _, write := range []func() error{
		func() error { return l.Print(&out) },
		func() error { return l.PrintJSON(&out) },
		func() error { return json.NewEncoder(&out).Encode(l) },
		func() error { slog.New(slog.NewJSONHandler(&out, nil)).Info("config", "config", l); return nil },
		func() error { slog.New(slog.NewTextHandler(&out, nil)).Info("config", "config", l.Config); return nil },
		func() error { slog.New(slog.NewTextHandler(&out, nil)).Info("key", "key", l.MasterKey); return nil },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+verb+"\n", l.MasterKey, l.DatabaseURL)
		fmt.Fprintf(&out, verb+"\n", l.Config)
	}
	for _, secret := range []string{testMasterKey, sentinel, fmt.Sprintf("%x", sentinel)} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("a secret is in the output:\n%s", out.String())
		}
	}
	if want := "postgres://turnpike:***@db:5432/turnpike?sslmode=require&sslpassword=***"; !strings.Contains(out.String(), want) {
		t.Errorf("the address without its password is not in the output:\n%s", out.String())
	}
}

func TestErrorsNeverQuoteSecrets(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		file          string
		environ, args []string
	}{
		"bad master key":             {environ: []string{"TURNPIKE_MASTER_KEY=" + sentinel}},
		"bad master key in the file": {file: "master_key: " + sentinel},
		"master key as an anchor":    {file: "master_key: *" + sentinel},
		"master key as a list":       {file: "master_key: [" + sentinel + "]"},
		"master key as a group":      {file: "master_key: {" + sentinel + ": x}"},
		"master key with a tag":      {file: "master_key: !x " + sentinel},
		"missing space":              {file: "database_url:postgres://u:" + sentinel + "@h/d"},
		"missing quote":              {file: "master_key: \"" + sentinel},
		"address as a key":           {file: "postgres://u:" + sentinel + "@h/d: x"},
		"mistyped name":              {file: "masterkey: " + sentinel},
		"other scheme":               {environ: []string{"TURNPIKE_DATABASE_URL=mysql://u:" + sentinel + "@h/d"}},
		"key-value form":             {environ: []string{"TURNPIKE_DATABASE_URL=host=h password=" + sentinel}},
		"bad escape":                 {environ: []string{"TURNPIKE_DATABASE_URL=postgres://u:%" + sentinel + "@h/d"}},
		"raw slash":                  {environ: []string{"TURNPIKE_DATABASE_URL=postgres://u:1/" + sentinel + "@h/d"}},
		"bad port":                   {environ: []string{"TURNPIKE_DATABASE_URL=postgres://u:" + sentinel + "@h:x/d"}},
		"password in public_url":     {environ: []string{"TURNPIKE_PUBLIC_URL=https://u:" + sentinel + "@h"}},
		"password in an origin":      {environ: []string{"TURNPIKE_ALLOWED_ORIGINS=https://u:" + sentinel + "@h"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := load(t, tt.file, tt.environ, tt.args)
			if err == nil {
				err = l.Validate()
			}
			if err == nil {
				t.Fatal("no error")
			}
			if strings.Contains(err.Error(), sentinel) || strings.Contains(strings.Join(l.Warnings, ""), sentinel) {
				t.Errorf("the secret is in the error %q or a warning %q", err, l.Warnings)
			}
		})
	}
}

// FuzzPasswordIsMasked checks that any password in a URL is masked, escaped or
// not.
func FuzzPasswordIsMasked(f *testing.F) {
	for _, around := range []string{"", "@", "/", "1/", "?", "#", ":", "%", "%2F", "&a=", "://", "@h/x?password=", "\\", "\x00"} {
		f.Add(around, around, "h/d?sslmode=require")
	}
	f.Fuzz(func(t *testing.T, before, after, host string) {
		u := SecretURL("postgres://u:" + before + sentinel + after + "@" + host)
		if !strings.Contains(host, sentinel) && strings.Contains(u.String(), sentinel) {
			t.Errorf("%q prints as %q", string(u), u.String())
		}
	})
}
