package config

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// load calls Load with a file, an environment and a command line.
func load(t *testing.T, file string, environ, args []string) (Loaded, error) {
	t.Helper()
	flags := pflag.NewFlagSet("turnpike", pflag.ContinueOnError)
	AddFlags(flags)
	if file != "" {
		args = append([]string{"--config", "turnpike.yaml"}, args...)
	}
	if err := flags.Parse(args); err != nil {
		t.Fatalf("parse flags: %v", err)
	}
	return Load(Sources{Flags: flags, Environ: environ, ReadFile: func(path string) ([]byte, error) {
		if file == "" || path != "turnpike.yaml" {
			return nil, fs.ErrNotExist
		}
		return []byte(file), nil
	}})
}

func mustLoad(t *testing.T, file string, environ, args []string) Loaded {
	t.Helper()
	l, err := load(t, file, environ, args)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return l
}

func TestLaterSourceWins(t *testing.T) {
	t.Parallel()
	const file = "data: /f\nlisten: :1\ntls:\n  cert: f.pem\n  key: f.key\nlog: {level: debug}\n"
	l := mustLoad(t, file,
		[]string{"TURNPIKE_LISTEN=:2", "TURNPIKE_TLS_CERT=e.pem", "TURNPIKE_DATA=", "OTHER=x", "TURNPIKE_AUDIT_STRICT=true"},
		[]string{"--tls-cert", "a.pem", "--audit-strict=false"})
	want := Default()
	want.Data, want.Listen, want.TLS = "/f", ":2", TLS{Cert: "a.pem", Key: "f.key", ACME: want.TLS.ACME}
	want.Log.Level = slog.LevelDebug
	want.PublicURL = "https://localhost:2"
	if !reflect.DeepEqual(l.Config, want) {
		t.Errorf("config\n got %+v\nwant %+v", l.Config, want)
	}
	for name, origin := range map[string]string{
		"data":         "file turnpike.yaml:1", // an empty variable is not set
		"listen":       "environment TURNPIKE_LISTEN",
		"tls.cert":     "flag --tls-cert",
		"tls.key":      "file turnpike.yaml:5",
		"log.level":    "file turnpike.yaml:6",
		"log.format":   "default",
		"audit.strict": "flag --audit-strict",
		"public_url":   "default, from listen",
	} {
		if got := l.Origin[name]; got != origin {
			t.Errorf("origin of %s: got %q, want %q", name, got, origin)
		}
	}
	if len(l.Warnings) > 0 {
		t.Errorf("warnings: %v", l.Warnings)
	}
}

func TestEveryNotationIsRead(t *testing.T) {
	t.Parallel()
	want := Default()
	want.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("192.168.0.0/16")}
	want.AllowedOrigins = []string{"https://a.example", "https://b.example"}
	want.ShutdownTimeout = 90 * time.Second
	want.Limits.BodyBytes = 2 << 20
	want.Limits.JSONDepth = 5
	want.Audit.Strict = true
	want.PublicURL = "https://api.example.com"

	tests := map[string]struct {
		file          string
		environ, args []string
	}{
		"file": {file: `
public_url: https://api.example.com/
trusted_proxies: [10.0.0.0/8, "::1", "::ffff:192.168.0.0/112"]
allowed_origins:
  - https://a.example
  - https://b.example
shutdown_timeout: 1m30s
limits: {body_bytes: 2097152, json_depth: 5}
audit.strict: true
`},
		"file with text lists, anchors and empty values": {file: `
public_url: https://api.example.com
trusted_proxies: 10.0.0.0/8, ::1, 192.168.0.0/16
allowed_origins: [&a https://a.example, https://b.example]
shutdown_timeout: 90s
limits: {body_bytes: 2 MiB, json_depth: 5, refused_keys: }
audit: {strict: "true"}
data: ~
tls:
`},
		"environment": {environ: []string{
			"TURNPIKE_PUBLIC_URL= https://api.example.com ", "TURNPIKE_TRUSTED_PROXIES=10.0.0.0/8,::1,,192.168.0.0/16",
			"TURNPIKE_ALLOWED_ORIGINS=https://a.example, https://b.example", "TURNPIKE_SHUTDOWN_TIMEOUT=1.5m",
			"TURNPIKE_LIMITS_BODY_BYTES=2048kib", "TURNPIKE_LIMITS_JSON_DEPTH=5", "TURNPIKE_AUDIT_STRICT=1"}},
		"flags": {args: []string{
			"--public-url=https://api.example.com", "--trusted-proxies=10.0.0.0/8,::1", "--trusted-proxies", "192.168.0.0/16",
			"--allowed-origins", "https://a.example,https://b.example", "--shutdown-timeout", "90s",
			"--limits-body-bytes", "2MiB", "--limits-json-depth", "5", "--audit-strict"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := mustLoad(t, tt.file, tt.environ, tt.args)
			if !reflect.DeepEqual(l.Config, want) {
				t.Errorf("config\n got %+v\nwant %+v", l.Config, want)
			}
			if err := l.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestInvalidValuesAreReported(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		file          string
		environ, args []string
		want          []string // each a part of the error
	}{
		"every source at once": {
			file:    "listen: :1\nlimits:\n  json_depth: deep\n",
			environ: []string{"TURNPIKE_LIMITS_BODY_BYTES=1MB"},
			args:    []string{"--shutdown-timeout", "30"},
			want: []string{"3 problems",
				`limits.json_depth: "deep" is not a whole number (file turnpike.yaml:3)`,
				`limits.body_bytes: "1MB" is not a size; expected bytes, or a number with KiB, MiB or GiB, such as 1048576 or 1MiB (environment TURNPIKE_LIMITS_BODY_BYTES)`,
				`shutdown_timeout: "30" is not a duration`, "(flag --shutdown-timeout)"},
		},
		"unknown, near":              {file: "listen: :1\nlistne: :2", want: []string{"listne: is not a setting; did you mean listen? (file turnpike.yaml:2)"}},
		"unknown, in a group":        {file: "tls:\n  crt: x", want: []string{"tls.crt: is not a setting; did you mean tls.cert? (file turnpike.yaml:2)"}},
		"unknown, flat":              {file: "log_level: debug", want: []string{"did you mean log.level?"}},
		"unknown, a group":           {file: "limit: {json_depth: 1}", want: []string{"limit: is not a setting; did you mean limits?"}},
		"unknown, far":               {file: "kubernetes: true", want: []string{"kubernetes: is not a setting (file"}},
		"unknown, other case":        {file: "Listen: x", want: []string{"did you mean listen?"}},
		"twice":                      {file: "data: a\ndata: b", want: []string{"data: is set twice, first in line 1 (file turnpike.yaml:2)"}},
		"twice, in two forms":        {file: "tls.key: a\ntls: {key: b}", want: []string{"tls.key: is set twice, first in line 1"}},
		"a nested group as a value":  {file: "tls:\n  acme: x", want: []string{"tls.acme: is a group; expected tls.acme.domains"}},
		"a group as a value":         {file: "tls: cert.pem", want: []string{"tls: is a group; expected tls.cert, tls.key, tls.acme.domains"}},
		"a value as a group":         {file: "listen: {port: 1}", want: []string{"listen: expected a single value"}},
		"a value as a list":          {file: "listen: [a]", want: []string{"listen: expected a single value"}},
		"a list as a group":          {file: "trusted_proxies: {a: b}", want: []string{"trusted_proxies: expected a list"}},
		"a list of lists":            {file: "trusted_proxies: [[a]]", want: []string{"expected a list of single values"}},
		"a tag":                      {file: "data: !env HOME", want: []string{"data: has a YAML tag"}},
		"a merge key":                {file: "tls: {<<: {cert: a}}", want: []string{"a key: is not a setting"}},
		"a bool":                     {args: []string{"--audit-strict=maybe"}, want: []string{`"maybe" is neither true nor false`}},
		"a level":                    {args: []string{"--log-level=loud"}, want: []string{"expected debug, info, warn or error"}},
		"a negative size":            {args: []string{"--limits-body-bytes=-1"}, want: []string{"is not a size"}},
		"a size too large":           {args: []string{"--limits-body-bytes=9999999999GiB"}, want: []string{"is not a size"}},
		"a unit without a number":    {args: []string{"--limits-body-bytes=MiB"}, want: []string{"is not a size"}},
		"several prefixes":           {args: []string{"--trusted-proxies=10.0.0.1/8,x,fe80::1%eth0"}, want: []string{"write 10.0.0.0/8 for the range or 10.0.0.1", `"x" is not an address`, `"fe80::1%eth0" is not`}},
		"a range over both families": {args: []string{"--trusted-proxies=::ffff:0:0/90"}, want: []string{"is not an address or range"}},
		"not a mapping":              {file: "- listen", want: []string{"configuration file turnpike.yaml: line 1: expected settings"}},
		"not YAML":                   {file: "listen: 'x\ndata: y", want: []string{"configuration file turnpike.yaml: ", "line"}},
		"two documents":              {file: "data: a\n---\ndata: b", want: []string{"more than one YAML document"}},
		"no such file":               {environ: []string{"TURNPIKE_CONFIG=gone.yaml"}, want: []string{"read the configuration file"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, tt.file, tt.environ, tt.args)
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q lacks %q", err, part)
				}
			}
		})
	}
}

func TestUnknownVariablesWarn(t *testing.T) {
	t.Parallel()
	l := mustLoad(t, "", []string{
		"TURNPIKE_LISTNE=:1", "TURNPIKE_FOO=1", "TURNPIKE_DATA_DIR=/srv", "TURNPIKE_TLS_CRT=a", "NOT_TURNPIKE=1",
		"TURNPIKE_BASE_URL=x", "TURNPIKE_API_KEY=x", "TURNPIKE_TEST_DATABASE_URL=x", "TURNPIKE_CHAOS=1", "TURNPIKE_CONFIG=",
	}, nil)
	want := []string{
		"TURNPIKE_DATA_DIR is not a setting; did you mean TURNPIKE_DATA?",
		"TURNPIKE_FOO is not a setting",
		"TURNPIKE_LISTNE is not a setting; did you mean TURNPIKE_LISTEN?",
		"TURNPIKE_TLS_CRT is not a setting; did you mean TURNPIKE_TLS_CERT?",
	}
	if !reflect.DeepEqual(l.Warnings, want) {
		t.Errorf("warnings\n got %q\nwant %q", l.Warnings, want)
	}
}

func TestUnknownFlagIsRefused(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("turnpike", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse([]string{"--listne", ":1"}); err == nil {
		t.Error("--listne was accepted")
	}
}

func TestFileIsReadOnlyWhenNamed(t *testing.T) {
	t.Parallel()
	read := ""
	source := Sources{Flags: pflag.NewFlagSet("turnpike", pflag.ContinueOnError), ReadFile: func(path string) ([]byte, error) {
		read = path
		return nil, nil
	}}
	AddFlags(source.Flags)
	steps := []struct {
		environ, args []string
		want          string
	}{
		{want: ""},
		{environ: []string{"TURNPIKE_CONFIG=e.yaml"}, want: "e.yaml"},
		{environ: []string{"TURNPIKE_CONFIG=e.yaml"}, args: []string{"--config", "f.yaml"}, want: "f.yaml"},
		{environ: []string{"TURNPIKE_CONFIG=e.yaml"}, args: []string{"--config="}, want: ""},
	}
	for _, step := range steps {
		read = ""
		source.Environ = step.environ
		if err := source.Flags.Parse(step.args); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(source); err != nil {
			t.Fatal(err)
		}
		if read != step.want {
			t.Errorf("%v %v: read %q, want %q", step.environ, step.args, read, step.want)
		}
	}
	if _, err := Load(Sources{Environ: []string{"TURNPIKE_CONFIG=" + t.TempDir() + "/gone"}}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a named file that is missing: got %v", err)
	}
}
