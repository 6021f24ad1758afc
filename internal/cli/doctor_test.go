package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/nodes"
)

// dataDirectory creates a data directory with a database, like the first start.
func dataDirectory(t *testing.T) config.Loaded {
	t.Helper()
	l := loadProviders(t, "data: "+t.TempDir())
	s, err := app.OpenStore(t.Context(), l.Config)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	return l
}

func failures(findings []finding) (out []string) {
	for _, f := range findings {
		if !f.OK {
			out = append(out, f.Check+": "+f.Message)
		}
	}
	return out
}

func TestDoctorReportsReadableSecretsAndContinues(t *testing.T) {
	t.Parallel()
	l := dataDirectory(t)
	for _, name := range []string{"turnpike.db", "master.key"} {
		if err := os.Chmod(filepath.Join(l.Data, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := checkStorage(t.Context(), l)
	if bad := failures(got); len(bad) != 3 || !strings.Contains(bad[0], "chmod 600 "+filepath.Join(l.Data, "master.key")) || !strings.Contains(bad[1], "other users can read turnpike.db") || !strings.HasPrefix(bad[2], "master key: ") {
		t.Errorf("got failures %q", bad)
	}
	if last := got[len(got)-1]; last.Check != "backup" || !last.OK {
		t.Errorf("last finding: got %+v, want backup", last)
	}
}

func TestDoctorDetectsAReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs a directory that root cannot write to")
	}
	if bad := failures(checkStorage(t.Context(), loadProviders(t, "data: /proc"))); len(bad) != 1 || !strings.HasPrefix(bad[0], "data: cannot write to /proc: ") {
		t.Errorf("got failures %q", bad)
	}
	l := dataDirectory(t)
	before, _ := os.ReadDir(l.Data)
	if bad := failures(checkStorage(t.Context(), l)); bad != nil {
		t.Errorf("got failures %q", bad)
	}
	if after, _ := os.ReadDir(l.Data); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("files after the check: got %v, want %v", after, before)
	}
}

// The nodes are left over from a crash.
func TestDoctorCountsOneServerPerDirectory(t *testing.T) {
	t.Parallel()
	l := dataDirectory(t)
	d, err := db.Open(t.Context(), filepath.Join(l.Data, "turnpike.db"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := nodes.Join(t.Context(), d, time.Now); err != nil {
			t.Fatal(err)
		}
	}
	d.Close()
	got := checkStorage(t.Context(), l)
	if want := (finding{"nodes", true, "1 running"}); !slices.Contains(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestDoctorReportsAReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	l := loadProviders(t, "{database_url: '"+dbtest.Address(t, "postgres")+"&default_transaction_read_only=on', master_key: "+strings.Repeat("ab", 32)+"}")
	want := "check that database_url leads to the primary, or list all hosts with target_session_attrs=read-write"
	if bad := failures(checkStorage(t.Context(), l)); len(bad) != 1 || !strings.HasPrefix(bad[0], "writes: ") || !strings.Contains(bad[0], want) {
		t.Errorf("got failures %q, want one of writes that says: %s", bad, want)
	}
}

func TestDoctorReportsALostTransactionTimeout(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	for parameter, want := range map[string]string{"": "", "&idle_in_transaction_session_timeout=0": "idle_in_transaction_session_timeout is 0 ms"} {
		l := loadProviders(t, "{database_url: '"+address+parameter+"', master_key: "+strings.Repeat("ab", 32)+"}")
		got := strings.Join(failures(checkStorage(t.Context(), l)), "; ")
		if reported := strings.Contains(got, "sessions: "+want); reported != (want != "") {
			t.Errorf("with %q: got failures %q", parameter, got)
		}
	}
}

func TestDoctorReportsTheClockDifference(t *testing.T) {
	t.Parallel()
	for behind, want := range map[time.Duration]string{
		time.Second: "<nil>", -time.Second: "<nil>",
		62 * time.Second: "this machine's clock is 1m2s behind the database's; synchronize both with NTP",
		-3 * time.Second: "this machine's clock is 3s ahead of the database's; synchronize both with NTP",
	} {
		if got := fmt.Sprint(clockError(behind)); got != want {
			t.Errorf("%v: got %q, want %q", behind, got, want)
		}
	}
}

func TestDoctorChecksTheBucket(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", doctorKey)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, object, _ := strings.Cut(r.URL.Path[1:], "/")
		switch {
		case name == "theirs", name == "museum" && r.Method == http.MethodPut:
			http.Error(w, `<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>`, http.StatusForbidden)
		case name != "ours" && name != "museum":
			http.Error(w, `<Error><Code>NoSuchBucket</Code></Error>`, http.StatusNotFound)
		case object == "" || r.Method == http.MethodPut:
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case r.Method == http.MethodGet:
			http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), strings.NewReader("turnpike doctor"))
		}
	}))
	defer s.Close()
	bucket := func(name string) string {
		return fmt.Sprintf("files: {url: 's3://%s?region=us-east-1&endpoint=%s&use_path_style=true'}", name, s.URL)
	}
	for _, tt := range []struct {
		file  string
		nodes int64
		want  string
		fails bool
	}{
		{bucket("ours"), 2, "wrote, read and deleted an object in the bucket", false},
		{bucket("theirs"), 1, "list the bucket of files.url: Access Denied", true},
		{bucket("museum"), 1, "write to the bucket of files.url", true},
		{bucket("nobodys"), 1, "does not exist", true},
		{"", 2, "2 nodes run without a bucket", true},
	} {
		got := checkFiles(t.Context(), loadProviders(t, tt.file), tt.nodes)
		if len(got) != 1 || got[0].Check != "files" || got[0].OK == tt.fails || !strings.Contains(got[0].Message, tt.want) || strings.Contains(got[0].Message, doctorKey) {
			t.Errorf("%s: got %+v, want %q", tt.file, got, tt.want)
		}
	}
	if got := checkFiles(t.Context(), loadProviders(t, ""), 1); got != nil {
		t.Errorf("one node without a bucket: got %+v, want nothing", got)
	}
}

func TestDoctorDetectsSettingsThatPreventSignIn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"public_url: https://api.example.com":                                 true,
		"public_url: https://api.example.com\ntrusted_proxies: [127.0.0.1]":   false,
		"public_url: https://api.example.com\ntls: {cert: c.pem, key: k.pem}": false,
		"public_url: http://localhost:8080":                                   false,
		"listen: 127.0.0.1:8080":                                              false,
	} {
		bad := failures(checkHTTPS(loadProviders(t, text).Config))
		if got := len(bad) == 1 && strings.Contains(bad[0], "trusted_proxies"); got != want {
			t.Errorf("%q: found %q, want a finding: %t", text, bad, want)
		}
	}
}

func TestDoctorReportsALowLimitOfOpenFiles(t *testing.T) {
	t.Parallel()
	for limit, ok := range map[uint64]bool{256: false, 1023: false, 1024: true, 1 << 63: true} {
		if f := checkOpenFiles(limit); f.OK != ok || f.Check != "open files" || !ok && !strings.Contains(f.Message, "LimitNOFILE") {
			t.Errorf("limit %d: got %+v, want ok: %t", limit, f, ok)
		}
	}
}

func TestDoctorReportsNodesWithDifferentSettings(t *testing.T) {
	t.Parallel()
	if err := configError(map[string]string{"nod_1": "aa", "nod_2": "aa"}); err != nil {
		t.Errorf("equal settings: %v", err)
	}
	err := configError(map[string]string{"nod_1": "aa", "nod_2": "bb"})
	if err == nil || !strings.Contains(err.Error(), "nod_1 has aa, nod_2 has bb") {
		t.Errorf("got %v, want the nodes with their hashes", err)
	}
}
