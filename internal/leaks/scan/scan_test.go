package scan_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/keyring"
	"turnpike/internal/leaks"
	"turnpike/internal/leaks/scan"
)

// repo is a Git repository.
type repo struct {
	*testing.T
	dir string
}

func newRepo(t *testing.T) repo {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal("these tests need git")
	}
	r := repo{t, filepath.Join(t.TempDir(), "app")}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.git("init", "-q", "-b", "main")
	return r
}

func (r repo) git(args ...string) string {
	r.Helper()
	cmd := exec.Command("git", append([]string{"-C", r.dir, "-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit commits a file and returns the short hash.
func (r repo) commit(name, content string) string {
	r.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o644); err != nil {
		r.Fatal(err)
	}
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "change "+name)
	return r.git("rev-parse", "HEAD")[:12]
}

// fixture is a scheduler whose reports are recorded.
type fixture struct {
	*testing.T
	*scan.Scheduler
	now     time.Time
	targets []scan.Target
	reports []leaks.Report
	broken  error
}

func none() (string, error) { return "", nil }

func start(t *testing.T, d *db.DB, targets ...scan.Target) *fixture {
	f := &fixture{T: t, now: time.Now(), targets: targets}
	for i := range f.targets {
		f.targets[i].Every = time.Hour
		if f.targets[i].Token == nil {
			f.targets[i].Token = none
		}
	}
	f.Scheduler = &scan.Scheduler{DB: d, Node: "node_1", Dir: t.TempDir(), Now: func() time.Time { return f.now }, Targets: func() []scan.Target { return f.targets },
		Revoke: func(_ context.Context, r leaks.Report) (leaks.Outcome, error) {
			if f.broken != nil {
				return "", f.broken
			}
			f.reports = append(f.reports, r)
			return leaks.Revoked, nil
		}}
	return f
}

// run scans an hour later, and returns the new reports.
func (f *fixture) run() []leaks.Report {
	f.Helper()
	f.now = f.now.Add(time.Hour)
	f.reports = nil
	if err := f.RunDue(f.Context()); err != nil {
		f.Fatal(err)
	}
	return f.reports
}

func (f *fixture) failure() string {
	f.Helper()
	state, err := scan.ReadState(f.Context(), f.DB, f.targets[0])
	if err != nil {
		f.Fatal(err)
	}
	return state.Failure
}

func wantReport(t *testing.T, got []leaks.Report, secret, location string) {
	t.Helper()
	if len(got) != 1 || got[0].Secret != secret || got[0].Location != location || got[0].Source != leaks.Server {
		t.Errorf("got %d reports %+v, want one at %q", len(got), got, location)
	}
}

func TestScheduledScanReportsEachCommitOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := newRepo(t)
		first, second, third := keyring.NewSecret(keyring.LiveKey), keyring.NewSecret(keyring.AdminKey), keyring.NewSecret(keyring.TestKey)
		at := r.commit("a b.env", "x\nKEY="+first+"\n")
		r.commit("a b.env", "x\n")
		f := start(t, d, scan.Target{Git: r.dir})
		wantReport(t, f.run(), first, "app: a b.env:2 in commit "+at)
		if got := f.run(); len(got) > 0 {
			t.Errorf("the same history was reported again: %v", got)
		}
		// A merge that adds a secret, which no parent has.
		r.git("checkout", "-q", "-b", "other")
		r.commit("b", "harmless")
		r.git("checkout", "-q", "main")
		r.commit("c", "harmless")
		r.git("merge", "-q", "--no-commit", "--no-ff", "other")
		at = r.commit("evil", second)
		wantReport(t, f.run(), second, "app: evil:1 in commit "+at)
		r.git("branch", "-q", "-D", "other")
		if got := f.run(); len(got) > 0 {
			t.Errorf("a deleted branch was reported: %v", got)
		}
		r.git("tag", "-a", "v1", "-m", "the key is "+third)
		if got := f.run(); len(got) != 1 || got[0].Secret != third {
			t.Errorf("of the message of a tag, got %v", got)
		}
	})
}

func TestInterruptedScanResumesAfterItsLastBatch(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := newRepo(t)
		early, late := keyring.NewSecret(keyring.LiveKey), keyring.NewSecret(keyring.LiveKey)
		r.commit("early", early)
		// fast-import is faster than commits.
		var stream strings.Builder
		for i := range 600 {
			stream.WriteString("commit refs/heads/main\ncommitter T <t@example.com> 1700000000 +0000\ndata 1\nx\n")
			if i == 0 {
				stream.WriteString("from refs/heads/main^0\n")
			}
		}
		cmd := exec.Command("git", "-C", r.dir, "fast-import", "--quiet", "--force")
		cmd.Stdin = strings.NewReader(stream.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		r.git("reset", "-q", "--hard")
		at := r.commit("late", late)
		f := start(t, d, scan.Target{Git: r.dir})
		revoke := f.Revoke
		f.Revoke = func(ctx context.Context, report leaks.Report) (leaks.Outcome, error) {
			if report.Secret == late {
				return "", errors.New("the database is down")
			}
			return revoke(ctx, report)
		}
		if got := f.run(); len(got) != 1 || got[0].Secret != early || !strings.Contains(f.failure(), "the database is down") {
			t.Errorf("got %v, failure %q", got, f.failure())
		}
		f.Revoke = revoke
		wantReport(t, f.run(), late, "app: late:1 in commit "+at)
		if f.failure() != "" {
			t.Errorf("after a good scan, the failure is %q", f.failure())
		}
	})
}

func TestScanRunsOnOneNodeWhenItIsDue(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := newRepo(t)
		r.commit("a", keyring.NewSecret(keyring.LiveKey))
		f := start(t, d, scan.Target{Git: r.dir})
		f.run()
		f.now, f.reports = f.now.Add(59*time.Minute), nil
		r.commit("b", keyring.NewSecret(keyring.LiveKey))
		if err := f.RunDue(t.Context()); err != nil || len(f.reports) > 0 {
			t.Errorf("a scan that isn't due: %v, %v", f.reports, err)
		}
		// Another node has an empty directory, and the progress of the database.
		f.Dir, f.Node = t.TempDir(), "node_2"
		if got := f.run(); len(got) != 1 {
			t.Errorf("another node reported %d secrets, want the new one", len(got))
		}
		if got := f.run(); len(got) > 0 {
			t.Errorf("it reported %v again", got)
		}
	})
}

func TestUnreachableRepositoryDoesNotStopOtherScans(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dir, secret := t.TempDir(), keyring.NewSecret(keyring.SessionToken)
		put := func(name, content string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		put("build.log", "ok\n\n"+secret)
		f := start(t, d, scan.Target{Git: filepath.Join(t.TempDir(), "missing")}, scan.Target{Log: dir})
		wantReport(t, f.run(), secret, filepath.Base(dir)+": build.log:3")
		if f.failure() == "" {
			t.Error("a missing repository isn't a failure")
		}
		old := f.now.Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "build.log"), old, old); err != nil {
			t.Fatal(err)
		}
		other := keyring.NewSecret(keyring.LinkToken)
		put("new.log", other)
		if err := os.Chtimes(filepath.Join(dir, "new.log"), f.now, f.now); err != nil {
			t.Fatal(err)
		}
		wantReport(t, f.run(), other, filepath.Base(dir)+": new.log:1")
	})
}

// TestScanSendsItsTokenToTheServerOnly also checks text and ZIP archives.
func TestScanSendsItsTokenToTheServerOnly(t *testing.T) {
	r := newRepo(t)
	secret := keyring.NewSecret(keyring.LiveKey)
	at := r.commit("a", secret)
	path, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	w, err := z.Create("1_build.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte("\n" + secret))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{Path: path, Args: []string{"http-backend"}, Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(r.dir), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=x"}}
	var logins []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		logins = append(logins, req.Header.Get("Authorization"))
		switch req.URL.Path {
		case "/log":
			_, _ = w.Write([]byte(secret))
		case "/log.zip":
			_, _ = w.Write(zipped.Bytes())
		case "/moved":
			http.Redirect(w, req, "/log", http.StatusFound)
		default:
			backend.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("GIT_SSL_NO_VERIFY", "true")
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		token := func() (string, error) { return "sesame", nil }
		for address, want := range map[string]string{"/app": "a:1 in commit " + at, "/log": "response:1", "/log.zip": "1_build.txt:2"} {
			target := scan.Target{Log: server.URL + address, Token: token}
			if address == "/app" {
				target = scan.Target{Git: server.URL + address, Username: "me", Token: token}
			}
			logins = nil
			f := start(t, d, target)
			f.RootCAs = roots
			wantReport(t, f.run(), secret, want)
			if len(f.reports) == 1 && f.reports[0].URL != server.URL+address {
				t.Errorf("the URL is %s", f.reports[0].URL)
			}
			if len(logins) == 0 || slices.Contains(logins, "") {
				t.Errorf("%s: the server got %q", address, logins)
			}
			if f.failure() != "" {
				t.Errorf("%s: %s", address, f.failure())
			}
		}
		f := start(t, d, scan.Target{Log: server.URL + "/moved", Token: token})
		f.RootCAs = roots
		if got := f.run(); len(got) > 0 || !strings.Contains(f.failure(), "302") {
			t.Errorf("a redirect was followed: %v, %s", got, f.failure())
		}
	})
}
