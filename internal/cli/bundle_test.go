package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/app"
	"turnpike/internal/config"
)

func TestFindingsAsResults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   finding
		want checkResult
	}{
		{finding{"a", true, "fine"}, checkResult{"a", checkOK, "fine", ""}},
		{finding{"a", true, "old; update it"}, checkResult{"a", checkWarning, "old", "update it"}},
		{finding{"a", false, "broken"}, checkResult{"a", checkFailed, "broken", ""}},
		{finding{"a", false, "x; y; fix it"}, checkResult{"a", checkFailed, "x; y", "fix it"}},
	} {
		if got := tt.in.result(); got != tt.want {
			t.Errorf("%+v: got %+v, want %+v", tt.in, got, tt.want)
		}
	}
}

func TestDoctorJSONHasAStableShape(t *testing.T) {
	t.Parallel()
	l := dataDirectory(t)
	if err := os.Chmod(filepath.Join(l.Data, "turnpike.db"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := Main([]string{"doctor", "--json", "--data", l.Data}, nil, &out, io.Discard); code != 1 {
		t.Errorf("got exit code %d, want 1", code)
	}
	var got struct {
		OK     *bool
		Checks []map[string]string
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.OK == nil || *got.OK || len(got.Checks) < 5 {
		t.Fatalf("got %s, %v", out.Bytes(), err)
	}
	for _, c := range got.Checks {
		if keys := slices.Sorted(maps.Keys(c)); !slices.Equal(keys, []string{"fix", "message", "name", "status"}) {
			t.Errorf("got fields %v", keys)
		}
		if c["status"] == "failed" && (c["message"] != "other users can read turnpike.db" || !strings.HasPrefix(c["fix"], "run: chmod 600 ")) {
			t.Errorf("got %v", c)
		}
	}
}

// readBundle returns the files of a bundle by name.
func readBundle(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v", info.Mode(), err)
	}
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimPrefix(h.Name, "turnpike-support/")] = string(text)
	}
}

// planted are secrets of every kind. None may be in a bundle.
var planted = map[string]string{
	"master key":       "cGxhbnRlZC1tYXN0ZXIta2V5LTAxMjM0NTY3ODlhYmM=",
	"setup token":      "plantedSetupToken0123456789",
	"gitlab token":     "planted-gitlab-0123456789",
	"oidc secret":      "planted\"oidc\\secret",
	"smtp password":    "planted smtp/password",
	"database":         "plantedDatabasePassword",
	"provider key":     "sk-planted-provider-key-0123",
	"provider header":  "planted-header-value",
	"environment key":  "planted-openai-key-4567",
	"aws secret":       "plantedAWSsecretAccessKey0123",
	"otlp header":      "planted-otlp-header",
	"file":             "planted-from-a-file",
	"client key":       "tp_live_plantedABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
	"webhook secret":   "whsec_plantedC2VjcmV0c2VjcmV0",
	"bearer":           "plantedBearer.token-123",
	"url password":     "plantedInURL",
	"setup link":       "plantedLinkABCDEFGHIJKLMNOP",
	"signed url":       "plantedSignature0123456789",
	"session":          "plantedSessionCookie012345",
	"json web token":   "eyJplantedHEADER.plantedPAYLOAD.plantedSIGNATURE",
	"password in json": "planted-json-password",
}

func plantedLog() string {
	p := planted
	var all []string
	for _, v := range []string{"master key", "setup token", "gitlab token", "oidc secret", "smtp password", "database", "provider key", "provider header",
		"environment key", "aws secret", "otlp header", "file", "client key", "webhook secret"} {
		encoded, _ := json.Marshal(p[v])
		all = append(all, `{"msg":"plain","value":`+string(encoded)+`}`, "text "+p[v])
	}
	return strings.Join(append(all,
		"Authorization: Bearer "+p["bearer"],
		"dial postgres://turnpike:"+p["url password"]+"@db/turnpike failed",
		"open http://localhost:8080/dashboard/setup/"+p["setup link"],
		"GET /files/x?expires=1&signature="+p["signed url"],
		`{"cookie":"`+p["session"]+`"}`,
		"token "+p["json web token"],
		`{"password": "`+p["password in json"]+`"}`,
		"the last line"), "\n") + "\n"
}

func TestBundleContainsNoSecret(t *testing.T) {
	secretFile := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secretFile, []byte(planted["file"]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", planted["aws secret"])
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team="+planted["otlp header"])
	t.Setenv("SOME_API_KEY_FILE", secretFile)
	t.Setenv("OPENAI_API_KEY", planted["environment key"])
	l := loadProviders(t, `
data: `+t.TempDir()+`
providers:
  - {name: a, type: openai, base_url: 'http://127.0.0.1:1/v1', api_key: `+planted["provider key"]+`, local: true, headers: {x-team: `+planted["provider header"]+`}}
`)
	l.MasterKey, l.SetupToken, l.Leaks.GitLabToken = config.Secret(planted["master key"]), config.Secret(planted["setup token"]), config.Secret(planted["gitlab token"])
	l.OIDC.ClientSecret, l.SMTP.URL = config.Secret(planted["oidc secret"]), "smtp://me:planted%20smtp%2Fpassword@127.0.0.1:1"
	l.DatabaseURL = config.SecretURL("postgres://turnpike:" + planted["database"] + "@127.0.0.1:1/turnpike")
	log := filepath.Join(t.TempDir(), "server.log")
	if err := os.WriteFile(log, []byte(plantedLog()), 0o600); err != nil {
		t.Fatal(err)
	}
	var checks []checkResult
	for _, f := range checkAll(t.Context(), l) {
		checks = append(checks, f.result())
	}
	path := filepath.Join(t.TempDir(), "support.tar.gz")
	if err := collectBundle(t.Context(), l, checks, log).write(path); err != nil {
		t.Fatal(err)
	}
	files := readBundle(t, path)
	for name, text := range files {
		for kind, secret := range planted {
			encoded, _ := json.Marshal(secret)
			if strings.Contains(text, secret) || strings.Contains(text, strings.Trim(string(encoded), `"`)) {
				t.Errorf("%s contains the %s", name, kind)
			}
		}
		if strings.Contains(strings.ToLower(text), "planted") {
			for line := range strings.Lines(text) {
				if strings.Contains(strings.ToLower(line), "planted") {
					t.Errorf("%s contains part of a secret: %s", name, line)
				}
			}
		}
	}
	if !strings.Contains(files["server.log"], "the last line") || !strings.Contains(files["settings.json"], "retry_schedule") || !strings.Contains(files["missing.txt"], "database.json: ") {
		t.Errorf("got log %q, missing %q", files["server.log"], files["missing.txt"])
	}
	if err := collectBundle(t.Context(), l, checks, "").write(path); err == nil || !strings.Contains(err.Error(), "choose another file") {
		t.Errorf("an existing file: got %v", err)
	}
}

func TestBundleDescribesTheRunningServer(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Listen, cfg.Data = "127.0.0.1:0", socketDirectory(t)
	a, err := app.Start(t.Context(), cfg, "test", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	a.Serve()
	a.ServeControl(nil)
	path := filepath.Join(t.TempDir(), "support.tar.gz")
	if err := collectBundle(t.Context(), config.Loaded{Config: cfg}, nil, "").write(path); err != nil {
		t.Fatal(err)
	}
	files := readBundle(t, path)
	for name, want := range map[string]string{"metrics.txt": "turnpike_build_info", "goroutines.txt": "goroutine profile: total ", "memory.json": `"heap_bytes"`,
		"database.json": `"engine": "sqlite"`, "version.json": `"schema_fingerprint"`, "doctor.json": `"checks"`} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s: got %q, want %s", name, files[name], want)
		}
	}
	if strings.Count(files["database.json"], `"seen_at"`) != 1 || files["missing.txt"] != "" {
		t.Errorf("got %s, missing %q", files["database.json"], files["missing.txt"])
	}
}

// socketDirectory returns a directory for a server's socket, whose path has to be
// shorter than that of t.TempDir.
func socketDirectory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
