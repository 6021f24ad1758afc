package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/files"
	"turnpike/internal/nodes"
	"turnpike/internal/safehttp"
)

// finding is the result of a check. Its message is what the check found, and
// after a semicolon what to do. A successful check with such advice is a warning.
type finding struct {
	Check   string
	OK      bool
	Message string
}

type checkStatus string

const (
	checkOK      checkStatus = "ok"
	checkWarning checkStatus = "warning"
	checkFailed  checkStatus = "failed"
)

// checkResult is a finding as scripts read it.
type checkResult struct {
	Name    string      `json:"name"`
	Status  checkStatus `json:"status"`
	Message string      `json:"message"`
	Fix     string      `json:"fix"` // empty if there is nothing to do, or no advice
}

func (f finding) result() checkResult {
	r := checkResult{Name: f.Check, Status: checkOK, Message: f.Message}
	if at := strings.LastIndex(f.Message, "; "); at >= 0 {
		r.Status, r.Message, r.Fix = checkWarning, f.Message[:at], f.Message[at+2:]
	}
	if !f.OK {
		r.Status = checkFailed
	}
	return r
}

// doctorResult is the output of doctor --json. Its shape is stable.
func doctorResult(checks []checkResult) map[string]any {
	ok := !slices.ContainsFunc(checks, func(c checkResult) bool { return c.Status == checkFailed })
	return map[string]any{"ok": ok, "checks": checks}
}

// newFinding returns the result of a check that succeeds unless err is set.
func newFinding(check string, err error, success string) finding {
	if err != nil {
		return finding{check, false, message(err)}
	}
	return finding{check, true, success}
}

func newDoctor(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the installation and suggest fixes",
		Long: `Checks the settings, the limit of open files, the data directory, the master key,
the database, what happens to leaked keys and the scans for them, the bucket for
files, the age of the last backup, the archive of the request log and its sinks, the TLS certificate, the mail server, the sign-in provider and the model providers, whether
or not a server runs. It changes nothing, except that it writes, reads and deletes a
small object in the bucket and in the archive. It checks that the database accepts writes by writing a
row as it is. To
check the key of a model provider, it requests the list of models. It exits with 1
if a check fails.

With --bundle, it also writes a support bundle: the result, the settings, versions,
the nodes, and the metrics and the state of the running server. Secrets are removed.
Read the bundle before you send it to someone.`,
		Example: `  turnpike doctor
  turnpike doctor --json
  turnpike doctor --bundle support.tar.gz --bundle-log /var/log/turnpike.log`,
	}
	e.configFlags(cmd)
	e.jsonFlag(cmd)
	bundleFile := cmd.Flags().String("bundle", "", "file to write a support bundle to (tar.gz)")
	bundleLog := cmd.Flags().String("bundle-log", "", "file with the server's log, whose end goes into the bundle")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := e.loadConfig(cmd); err != nil {
			return err
		}
		if *bundleLog != "" && *bundleFile == "" {
			return wrongUsage(cmd, errors.New("--bundle-log needs --bundle FILE"))
		}
		checks, ok, text := []checkResult{}, true, ""
		for _, f := range checkAll(cmd.Context(), e.loaded) {
			c := f.result()
			checks = append(checks, c)
			mark := string(c.Status)
			if c.Status == checkFailed {
				mark, ok = "FAILED", false
			}
			text += fmt.Sprintf("%-7s  %-12s %s\n", mark, f.Check, visible(f.Message))
		}
		if *bundleFile != "" {
			if err := collectBundle(cmd.Context(), e.loaded, checks, *bundleLog).write(*bundleFile); err != nil {
				return err
			}
			text += fmt.Sprintf("Wrote %s. Read it before you send it to someone.\n", *bundleFile)
		}
		if err := e.report(doctorResult(checks), "%s", text); err != nil {
			return err
		}
		if !ok {
			return errors.New("some checks failed; see above")
		}
		return nil
	}
	return cmd
}

func checkAll(ctx context.Context, l config.Loaded) []finding {
	if err := l.Validate(); err != nil {
		return []finding{{"settings", false, message(err)}}
	}
	out := []finding{{"settings", true, "valid"}}
	if limit, known := maxOpenFiles(); known {
		out = append(out, checkOpenFiles(limit))
	}
	out = append(out, checkHTTPS(l.Config)...)
	out = append(out, checkStorage(ctx, l)...)
	out = append(out, checkServices(ctx, l)...)
	return append(out, checkProviders(ctx, l)...)
}

// minOpenFiles is what a small server needs: two connections for each of 200
// clients, and the rest for deliveries, the database and idle connections.
const minOpenFiles = 1024

// checkOpenFiles checks the limit of this process. A service may have another one.
func checkOpenFiles(limit uint64) finding {
	if limit < minOpenFiles {
		return finding{"open files", false, fmt.Sprintf("a server that is started here may open %d files, one per connection, and needs at least %d; %s", limit, minOpenFiles, safehttp.MoreDescriptors)}
	}
	return finding{"open files", true, "a server that is started here may open enough files"}
}

// checkHTTPS finds settings with which no one can sign in to the dashboard.
func checkHTTPS(c config.Config) []finding {
	if !strings.HasPrefix(c.PublicURL, "https://") || c.TLS.Mode() != config.TLSOff || len(c.TrustedProxies) > 0 {
		return nil
	}
	return []finding{{"https", false, "public_url begins with https://, but the server has no certificate and trusts no proxy, so no one can sign in to the dashboard; " +
		"set trusted_proxies to the proxy's address, tls.acme.domains or tls.cert"}}
}

// checkStorage stops at the first failure that makes further checks impossible.
func checkStorage(ctx context.Context, l config.Loaded) []finding {
	var out []finding
	add := func(check string, err error, success string) bool {
		out = append(out, newFinding(check, err, success))
		return err == nil
	}
	if l.DatabaseURL == "" {
		state, err := checkDataDirectory(l.Data)
		if !add("data", err, state) {
			return out
		}
		for _, err := range readableByOthers(l.Data) {
			add("data", err, "")
		}
		if state == noDatabase {
			return out
		}
	}
	d, err := app.OpenDatabase(ctx, l.Config)
	if !add("database", err, "connected") {
		return out
	}
	defer d.Close()
	schema, _, err := d.SchemaVersion(ctx)
	if !add("schema", cmp.Or(err, app.CheckSchema(ctx, d)), fmt.Sprintf("%s, version %d", d.Engine(), schema)) {
		return out
	}
	if !add("writes", writeError(d.Ping(ctx)), "the database accepts them") {
		return out
	}
	if err := app.CheckMoved(ctx, d); err != nil {
		add("database", err, "")
	}
	_, err = app.OpenRing(ctx, l.Config, d)
	add("master key", err, "matches the database")
	n, err := nodes.Count(ctx, d, d.Now())
	if d.Engine() == "sqlite" {
		n = min(n, 1) // the directory is locked; other nodes are left from a crash or a backup
	}
	add("nodes", err, fmt.Sprintf("%d running", n))
	if d.Engine() != "sqlite" {
		add("sessions", d.CheckSessions(ctx), "keep the timeout for idle transactions")
		hashes, err := nodes.ConfigHashes(ctx, d, d.Now())
		add("config", cmp.Or(err, configError(hashes)), "all running nodes have the same settings")
		add("clock", clockError(d.ClockSkew()), "agrees with the database's clock")
	}
	if l.ReplicaURL != "" {
		err := d.UseReplica(ctx, string(l.ReplicaURL), l.ReplicaMaxLag)
		add("replica", err, describeReplica(ctx, d))
	}
	out = append(out, checkLeaks(ctx, l, d)...)
	out = append(out, checkFiles(ctx, l, n)...)
	out = append(out, checkBackups(ctx, l, d)...)
	out = append(out, checkArchive(ctx, l, d)...)
	out = append(out, checkLogSinks(ctx, l, d)...)
	return append(out, checkDomains(ctx, l, d)...)
}

// describeReplica gives the replica a second to apply the log. One that isn't used is
// a warning: all reads work without it.
func describeReplica(ctx context.Context, d *db.DB) string {
	s := d.ReplicaStatus()
	for range 10 {
		if s == nil || s.State != db.ReplicaLagging {
			break
		}
		time.Sleep(100 * time.Millisecond)
		d.CheckReplica(ctx)
		s = d.ReplicaStatus()
	}
	switch {
	case s == nil:
		return ""
	case s.State == db.ReplicaInUse:
		return "in use"
	case s.Err != nil:
		return fmt.Sprintf("%s, so the primary is read instead: %s; check database_replica_url and the server", s.State, strings.ReplaceAll(message(s.Err), "; ", ", "))
	}
	return fmt.Sprintf("lags by more than %v, so the primary is read instead; check the replication", s.Lag.Round(time.Second))
}

// configError reports nodes with different settings, by the hashes of their
// settings.
func configError(hashes map[string]string) error {
	var parts []string
	different := map[string]bool{}
	for _, node := range slices.Sorted(maps.Keys(hashes)) {
		parts = append(parts, node+" has "+hashes[node])
		different[hashes[node]] = true
	}
	if len(different) < 2 {
		return nil
	}
	return fmt.Errorf("the nodes have different settings (%s); give all of them the same settings, and reload or restart those with old ones", strings.Join(parts, ", "))
}

// writeError explains why a database that can be read accepts no writes.
func writeError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, db.ErrReadOnly) {
		return err // says what to do
	}
	return fmt.Errorf("the database is readable, but accepts no writes: %w; a failover may be in progress, a synchronous standby may be down, "+
		"the address may lead to a standby, or the disk may be full", err)
}

// maxArchiveLag is how long a day may have been due before doctor complains.
const maxArchiveLag = 24 * time.Hour

// checkArchive checks the archive of the request log.
func checkArchive(ctx context.Context, l config.Loaded, d *db.DB) []finding {
	a, err := app.OpenArchive(d, l.Config, "", time.Now)
	if err == nil && a == nil {
		return nil
	}
	return []finding{checkService(ctx, "log archive", func(ctx context.Context) (string, error) {
		if err != nil {
			return "", err
		}
		s, err := a.Status(ctx)
		if err != nil {
			return "", err
		}
		if s.Failure != nil {
			return "", fmt.Errorf("the last attempt to archive failed at %s: %s; entries stay in the database until it succeeds", s.Failure.At.Format(time.RFC3339), s.Failure.Error)
		}
		if s.Lag > maxArchiveLag {
			return "", fmt.Errorf("a day of the request log has been due for %s; check that a server runs, and its log", formatDuration(s.Lag.Round(time.Second)))
		}
		state := "no day is archived yet"
		if !s.Until.IsZero() {
			state = fmt.Sprintf("archived until %s, %s entries", s.Until.Format(time.DateOnly), grouped(s.Entries))
		}
		return state, a.Check(ctx)
	})}
}

// checkFiles checks the bucket, which a cluster needs.
func checkFiles(ctx context.Context, l config.Loaded, nodes int64) []finding {
	if l.Files.URL == "" {
		if nodes < 2 {
			return nil
		}
		return []finding{{"files", false, fmt.Sprintf("%d nodes run without a bucket and can't read each other's files; set files.url", nodes)}}
	}
	err := files.CheckBucket(ctx, string(l.Files.URL))
	return []finding{newFinding("files", err, "wrote, read and deleted an object in the bucket")}
}

const noDatabase = "no database yet: the first turnpike serve creates it"

func checkDataDirectory(path string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return noDatabase, nil
	}
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a directory", path)
	}
	if err := checkWritable(path); err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(path, "turnpike.db")); errors.Is(err, fs.ErrNotExist) {
		return noDatabase, nil
	}
	return path, nil
}

// readableByOthers returns an error for each file that other users can read.
func readableByOthers(path string) (out []error) {
	for _, name := range []string{"master.key", "turnpike.db", "turnpike.db-wal", "turnpike.db-shm", "first-run.txt"} {
		info, err := os.Stat(filepath.Join(path, name))
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			out = append(out, fmt.Errorf("other users can read %s; run: chmod 600 %s", name, filepath.Join(path, name)))
		}
	}
	return out
}

// checkWritable writes a file. The mode alone doesn't reveal a full or read-only
// disk.
func checkWritable(directory string) error {
	f, err := os.CreateTemp(directory, ".doctor-*")
	if err == nil {
		_, err = f.Write(make([]byte, 4096))
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		err = cause.Err
	}
	if err != nil {
		return fmt.Errorf("cannot write to %s: %w", directory, err)
	}
	return nil
}

func clockError(behind time.Duration) error {
	if behind.Abs() <= db.MaxClockSkew {
		return nil
	}
	how := "behind"
	if behind < 0 {
		how = "ahead of"
	}
	return fmt.Errorf("this machine's clock is %s %s the database's; synchronize both with NTP", behind.Abs().Round(time.Millisecond), how)
}
