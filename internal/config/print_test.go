package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/spf13/pflag"
)

func TestPrintShowsOriginsAndCanBeReadBack(t *testing.T) {
	t.Parallel()
	l := mustLoad(t, "data: \"a\\nb: # c\"\n", []string{"TURNPIKE_LOG_LEVEL=warn"}, []string{"--trusted-proxies=10.0.0.0/8,::1", "--limits-body-bytes=2048"})
	var out bytes.Buffer
	if err := l.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"listen: 127.0.0.1:8080 # default\n",
		"data: \"a\\nb: # c\" # file turnpike.yaml:1\n",
		"master_key: \"\" # default\n",
		"public_url: http://127.0.0.1:8080 # default, from listen\n",
		"trusted_proxies: [10.0.0.0/8, '::1/128'] # flag --trusted-proxies\n",
		"\nlog:\n  level: warn # environment TURNPIKE_LOG_LEVEL\n",
		"  body_bytes: 2KiB # flag --limits-body-bytes\n",
	} {
		if !bytes.Contains(out.Bytes(), []byte(line)) {
			t.Errorf("output lacks %q:\n%s", line, out.String())
		}
	}
	again := mustLoad(t, out.String(), nil, nil)
	again.AllowedOrigins, again.SecretPrefixes, again.Agents.UnlimitedHosts, again.TLS.ACME.Domains, again.Audit.Kafka.Brokers, again.Backup.Recipients = nil, nil, nil, nil, nil, nil // the empty list, by either name
	if !reflect.DeepEqual(again.Config, l.Config) {
		t.Errorf("read back\n got %+v\nwant %+v", again.Config, l.Config)
	}
}

func TestPrintJSONHasValuesAndOrigins(t *testing.T) {
	t.Parallel()
	l := mustLoad(t, "", []string{"TURNPIKE_LISTNE=1"}, []string{"--audit-strict"})
	var out bytes.Buffer
	if err := l.PrintJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Settings map[string]struct {
			Value  any
			Origin string
		}
		Warnings []string
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"limits.body_bytes": 1048576.0, "limits.json_depth": 128.0, "audit.strict": true,
		"shutdown_timeout": "30s", "trusted_proxies": []any{}, "log.level": "info",
	} {
		if value := got.Settings[name].Value; !reflect.DeepEqual(value, want) {
			t.Errorf("%s: got %v, want %v", name, value, want)
		}
	}
	if o := got.Settings["audit.strict"].Origin; o != "flag --audit-strict" || len(got.Warnings) != 1 {
		t.Errorf("origin %q, warnings %q", o, got.Warnings)
	}
}

func TestHelpShowsTypesAndDefaults(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("turnpike", pflag.ContinueOnError)
	AddFlags(flags)
	usage := []byte(flags.FlagUsages())
	for _, part := range []string{`(default "127.0.0.1:8080")`, "--limits-body-bytes size", "(default 1MiB)", "--audit-strict  ", "--trusted-proxies list", "--shutdown-timeout duration", "--limits-json-depth int"} {
		if !bytes.Contains(usage, []byte(part)) {
			t.Errorf("help lacks %q:\n%s", part, usage)
		}
	}
}

// FuzzLoadFile checks that no file makes the loader panic or quote a secret,
// and that accepted files survive being printed and read again.
func FuzzLoadFile(f *testing.F) {
	for _, seed := range []string{
		"", "listen: :1", "tls: {cert: a, key: b}", "limits:\n  body_bytes: 1MiB", "trusted_proxies: [10.0.0.0/8, '::1']",
		"a: &a [*a]", "tls: &t {tls: *t}", "? [a]\n: b", "<<: {data: x}", "data: |\n  x\n  y", "---\n...\n---\n", "data: !!binary YQ==", "data: *x", "data: \"\\u0085\\t \"",
		"providers: [{name: a, type: openai, base_url: 'http://u:p@h', headers: {X: y}, default_price: {input: 1}, models: [{id: b, capabilities: [c]}]}]", "providers: &p [*p]", "routes: [{name: \"a\\n# b\", models: [x, '']}, ]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = "master_key: " + sentinel + "\n" + text
		l, err := load(t, text, nil, nil)
		var out bytes.Buffer
		if err != nil {
			out.WriteString(err.Error())
		}
		if err := l.Validate(); err != nil {
			out.WriteString(err.Error())
		}
		if bytes.Contains(out.Bytes(), []byte(sentinel)) {
			t.Fatalf("a secret in the error %q", out.String())
		}
		if err != nil {
			return
		}
		out.Reset()
		if err := l.Print(&out); err != nil {
			t.Fatal(err)
		}
		again, err := load(t, out.String(), nil, nil)
		if err != nil {
			t.Fatalf("printed file is refused: %v\n%s", err, out.String())
		}
		l.MasterKey, again.MasterKey, l.DatabaseURL, again.DatabaseURL = "", "", "", ""
		if got, want := again.comparable(), l.comparable(); !reflect.DeepEqual(got, want) {
			t.Fatalf("read back\n got %+v\nwant %+v", got, want)
		}
	})
}

// comparable returns the values in a form where nil and empty lists are equal.
func (l Loaded) comparable() []any {
	var values []any
	for _, s := range l.Config.settings() {
		values = append(values, plain(s.value))
	}
	return values
}
