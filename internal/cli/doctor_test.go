package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/nodes"
)

// dataFolder makes a data folder with a database, as the first start does.
func dataFolder(t *testing.T) config.Loaded {
	t.Helper()
	l := loadProviders(t, "data: "+t.TempDir())
	s, err := app.OpenStore(t.Context(), l.Config)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	return l
}

func wrong(findings []finding) (out []string) {
	for _, f := range findings {
		if !f.OK {
			out = append(out, f.Check+": "+f.Message)
		}
	}
	return out
}

func TestDoctorReportsWhatOthersCanReadAndGoesOn(t *testing.T) {
	t.Parallel()
	l := dataFolder(t)
	for _, name := range []string{"turnpike.db", "master.key"} {
		if err := os.Chmod(filepath.Join(l.Data, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := examineStorage(t.Context(), l)
	if bad := wrong(got); len(bad) != 3 || !strings.Contains(bad[0], "chmod 600 "+filepath.Join(l.Data, "master.key")) || !strings.Contains(bad[1], "turnpike.db can be read") || !strings.HasPrefix(bad[2], "master key: ") {
		t.Errorf("wrong: %q", bad)
	}
	if last := got[len(got)-1]; last.Check != "nodes" || !last.OK {
		t.Errorf("it stopped at %+v", last)
	}
}

func TestDoctorNoticesAFolderThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs a folder that not even root can write")
	}
	if bad := wrong(examineStorage(t.Context(), loadProviders(t, "data: /proc"))); len(bad) != 1 || !strings.HasPrefix(bad[0], "data: /proc cannot be written: ") {
		t.Errorf("wrong: %q", bad)
	}
	l := dataFolder(t)
	before, _ := os.ReadDir(l.Data)
	if bad := wrong(examineStorage(t.Context(), l)); bad != nil {
		t.Errorf("wrong: %q", bad)
	}
	if after, _ := os.ReadDir(l.Data); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("left behind: %v, was %v", after, before)
	}
}

// TestDoctorCountsOneServerOnAFolder leaves what a crash leaves.
func TestDoctorCountsOneServerOnAFolder(t *testing.T) {
	t.Parallel()
	l := dataFolder(t)
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
	got := examineStorage(t.Context(), l)
	if last := got[len(got)-1]; last != (finding{"nodes", true, "1 running"}) {
		t.Errorf("got %+v", last)
	}
}

func TestDoctorSaysByHowMuchAClockIsWrong(t *testing.T) {
	t.Parallel()
	for behind, want := range map[time.Duration]string{
		time.Second: "<nil>", -time.Second: "<nil>",
		62 * time.Second: "this machine's clock is 1m2s behind the database's: set both by NTP",
		-3 * time.Second: "this machine's clock is 3s ahead of the database's: set both by NTP",
	} {
		if got := fmt.Sprint(clockDiffers(behind)); got != want {
			t.Errorf("%v: %s", behind, got)
		}
	}
}

func TestDoctorTriesTheBucket(t *testing.T) {
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
		wrong bool
	}{
		{bucket("ours"), 2, "an object can be written to the bucket, read and deleted", false},
		{bucket("theirs"), 1, "list the bucket of files.url: Access Denied", true},
		{bucket("museum"), 1, "write to the bucket of files.url", true},
		{bucket("nobodys"), 1, "does not exist", true},
		{"", 2, "2 nodes run without a bucket", true},
	} {
		got := examineFiles(t.Context(), loadProviders(t, tt.file), tt.nodes)
		if len(got) != 1 || got[0].Check != "files" || got[0].OK == tt.wrong || !strings.Contains(got[0].Message, tt.want) || strings.Contains(got[0].Message, doctorKey) {
			t.Errorf("%s: got %+v, want %q", tt.file, got, tt.want)
		}
	}
	if got := examineFiles(t.Context(), loadProviders(t, ""), 1); got != nil {
		t.Errorf("one node needs no bucket: %+v", got)
	}
}

func TestDoctorNoticesThatNoOneCanSignIn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"public_url: https://api.example.com":                                 true,
		"public_url: https://api.example.com\ntrusted_proxies: [127.0.0.1]":   false,
		"public_url: https://api.example.com\ntls: {cert: c.pem, key: k.pem}": false,
		"public_url: http://localhost:8080":                                   false,
		"listen: 127.0.0.1:8080":                                              false,
	} {
		bad := wrong(examineHTTPS(loadProviders(t, text).Config))
		if got := len(bad) == 1 && strings.Contains(bad[0], "trusted_proxies"); got != want {
			t.Errorf("%q: found %q, want a finding: %t", text, bad, want)
		}
	}
}
