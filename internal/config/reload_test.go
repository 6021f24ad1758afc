package config

import (
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReloadAppliesOnlySafeSettings(t *testing.T) {
	t.Parallel()
	running := mustLoad(t, "listen: :1\nlimits: {live_in_flight: 5}\nproviders: [{name: a, type: openai, base_url: https://a.example, local: true}]\n", nil, nil)
	next := mustLoad(t, "master_key: "+testMasterKey+"\nlisten: :2\nlog: {level: debug}\nmarkup_percent: 10\nshutdown_timeout: 9s\ntls: {cert: c, key: k}\n"+
		"providers: [{name: b, type: openai, base_url: https://b.example, local: true}]\nroutes: [{name: r, models: [m]}]\n", nil, nil)
	got, changes := running.Reload(next.Config)
	want := Changes{Applied: []string{"markup_percent", "log.level", "limits.live_in_flight", "providers", "routes"},
		Restart: []string{"listen", "public_url", "shutdown_timeout", "tls.cert", "tls.key"}}
	if !reflect.DeepEqual(changes, want) {
		t.Errorf("changes\n got %v\nwant %v", changes, want)
	}
	if got.Listen != ":1" || got.ShutdownTimeout != 30*time.Second || got.TLS.Cert != "" {
		t.Errorf("settings that need a restart were applied: %+v", got)
	}
	if got.Log.Level != slog.LevelDebug || got.MarkupPercent != "10" || got.Limits.LiveInFlight != 200 || got.Providers[0].Name != "b" || len(got.Routes) != 1 {
		t.Errorf("settings were not applied: %+v", got)
	}
	if running.Providers[0].Name != "a" || running.Log.Level != slog.LevelInfo {
		t.Error("the running configuration was changed")
	}
}

func TestReloadReplacesTheCertificateOnlyWhileTLSIsOn(t *testing.T) {
	t.Parallel()
	on := mustLoad(t, "tls: {cert: a, key: b}", nil, nil)
	other := mustLoad(t, "tls: {cert: c, key: d}", nil, nil)
	off := mustLoad(t, "", nil, nil)
	if got, changes := on.Reload(other.Config); !reflect.DeepEqual(got.TLS, other.TLS) || len(changes.Restart) > 0 {
		t.Errorf("new files: %v", changes)
	}
	if got, changes := on.Reload(off.Config); !reflect.DeepEqual(got.TLS, on.TLS) || !slices.Contains(changes.Restart, "tls.cert") {
		t.Errorf("TLS off: %v", changes)
	}
}

func TestReloadReplacesDomainsOnlyWhileACMEIsOn(t *testing.T) {
	t.Parallel()
	on := mustLoad(t, "tls: {acme: {domains: [a.example.com], accept_terms: true}}", nil, nil)
	more := mustLoad(t, "tls: {acme: {domains: [a.example.com, b.example.com], accept_terms: true}}", nil, nil)
	files := mustLoad(t, "tls: {cert: a, key: b}", nil, nil)
	if got, changes := on.Reload(more.Config); len(got.TLS.ACME.Domains) != 2 || len(changes.Restart) > 0 {
		t.Errorf("another domain: %v", changes)
	}
	if got, changes := on.Reload(files.Config); got.TLS.Mode() != TLSACME || !slices.Contains(changes.Restart, "tls.acme.domains") || !slices.Contains(changes.Restart, "tls.cert") {
		t.Errorf("files instead: %v", changes)
	}
}

// Every value of every setting has to be visible in the canonical form, except
// those that nodes may differ in.
func TestCanonicalFormHasEverySharedSetting(t *testing.T) {
	t.Parallel()
	base := Default()
	for i, s := range base.settings() {
		c := Default()
		changed := c.settings()[i]
		value := reflect.ValueOf(changed.value).Elem()
		switch v := changed.value.(type) {
		case *bool:
			*v = !*v
		default:
			switch value.Kind() {
			case reflect.String:
				value.SetString("x")
			case reflect.Int, reflect.Int64:
				value.SetInt(value.Int() + 1)
			case reflect.Slice:
				value.Set(reflect.MakeSlice(value.Type(), value.Len()+1, value.Len()+1))
			default:
				t.Fatalf("%s has the kind %s", s.name, value.Kind())
			}
		}
		if got := c.Canonical() != base.Canonical(); got == s.node {
			t.Errorf("%s changes the canonical form: got %t, want %t", s.name, got, !s.node)
		}
	}
}

func TestCanonicalFormSeesSecretsAndIgnoresTheListenAddress(t *testing.T) {
	t.Parallel()
	const file = "providers: [{name: a, type: openai, base_url: https://a.example, api_key: %, headers: {X-Org: org}}]\n"
	load := func(key, listen string) Config {
		return mustLoad(t, strings.ReplaceAll(file, "%", key)+"listen: "+listen, nil, nil).Config
	}
	if load("k1", ":1").Canonical() != load("k1", ":2").Canonical() {
		t.Error("nodes with different ports differ")
	}
	if load("k1", ":1").Canonical() == load("k2", ":1").Canonical() {
		t.Error("nodes with different API keys don't differ")
	}
}
