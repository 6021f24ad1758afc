package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/files"
	"turnpike/internal/nodes"
)

// finding is one thing the doctor looked at.
type finding struct {
	Check   string `json:"check"`
	OK      bool   `json:"ok"`
	Message string `json:"message"`
}

func newDoctor(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with the set-up and say how to mend it",
		Long: `Checks the settings, how many files may be open, the data folder, the master
key, the database, the bucket for files, the TLS certificate, the mail server and
the sign-in provider, server running or not. It changes nothing, but for a small
object that it writes to the bucket, reads and deletes. It lists the model
providers that are set up and asks each for its models, to see whether it accepts
its key. It exits with 1 when something is wrong.`,
	}
	e.configured(cmd)
	e.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := e.read(cmd); err != nil {
			return err
		}
		findings := examine(cmd.Context(), e.loaded)
		ok := true
		for _, f := range findings {
			ok = ok && f.OK
		}
		if err := e.printFindings(findings, ok); err != nil {
			return err
		}
		if !ok {
			return errors.New("something is wrong, see above")
		}
		return nil
	}
	return cmd
}

func (e *env) printFindings(findings []finding, ok bool) error {
	if e.asJSON {
		return e.printJSON(map[string]any{"ok": ok, "findings": findings})
	}
	for _, f := range findings {
		mark := "ok   "
		if !f.OK {
			mark = "WRONG"
		}
		fmt.Fprintf(e.out, "%s  %-12s %s\n", mark, f.Check, visible(f.Message))
	}
	return nil
}

func examine(ctx context.Context, l config.Loaded) []finding {
	if err := l.Validate(); err != nil {
		return []finding{{"settings", false, message(err)}}
	}
	out := append([]finding{{"settings", true, "the settings make sense"}}, examineLimits()...)
	out = append(out, examineHTTPS(l.Config)...)
	out = append(out, examineStorage(ctx, l)...)
	out = append(out, examineServices(ctx, l)...)
	return append(out, examineProviders(ctx, l)...)
}

// examineHTTPS finds settings under which no one can sign in to the dashboard.
func examineHTTPS(c config.Config) []finding {
	if !strings.HasPrefix(c.PublicURL, "https://") || c.TLS.Cert != "" || len(c.TrustedProxies) > 0 {
		return nil
	}
	return []finding{{"https", false, "public_url begins with https://, but the server has no certificate and trusts no proxy, so no one can sign in to the dashboard; " +
		"set trusted_proxies to the proxy's address, or tls.cert"}}
}

// examineStorage looks as far as one thing allows the next.
func examineStorage(ctx context.Context, l config.Loaded) []finding {
	var out []finding
	add := func(check string, err error, good string) bool {
		f := finding{check, err == nil, good}
		if err != nil {
			f.Message = message(err)
		}
		out = append(out, f)
		return err == nil
	}
	if l.DatabaseURL == "" {
		state, err := checkDataFolder(l.Data)
		if !add("data", err, state) {
			return out
		}
		for _, err := range exposed(l.Data) {
			add("data", err, "")
		}
		if state == emptyFolder {
			return out
		}
	}
	d, err := app.OpenDatabase(ctx, l.Config)
	if !add("database", err, "the database can be reached") {
		return out
	}
	defer d.Close()
	if !add("schema", app.CheckSchema(ctx, d), fmt.Sprintf("%s, version %d", d.Engine(), len(db.Migrations()))) {
		return out
	}
	if err := app.CheckMoved(ctx, d); err != nil {
		add("database", err, "")
	}
	_, err = app.OpenRing(ctx, l.Config, d)
	add("master key", err, "it is the one of the database")
	n, err := nodes.Count(ctx, d, d.Now())
	if d.Engine() == "sqlite" {
		n = min(n, 1) // by the folder's lock: others are what a crash or a backup left
	}
	add("nodes", err, fmt.Sprintf("%d running", n))
	if d.Engine() != "sqlite" {
		add("clock", clockDiffers(d.Behind()), "it agrees with the database's")
	}
	return append(out, examineFiles(ctx, l, n)...)
}

// examineFiles tries the bucket, or says that a cluster has none. The folder of
// a single server has been looked at with the rest of its data.
func examineFiles(ctx context.Context, l config.Loaded, nodes int64) []finding {
	if l.Files.URL == "" {
		if nodes < 2 {
			return nil
		}
		return []finding{{"files", false, fmt.Sprintf("%d nodes run without a bucket: none can read what the others have made; set files.url", nodes)}}
	}
	if err := files.CheckBucket(ctx, string(l.Files.URL)); err != nil {
		return []finding{{"files", false, message(err)}}
	}
	return []finding{{"files", true, "an object can be written to the bucket, read and deleted"}}
}

const emptyFolder = "not made yet: the first turnpike serve will"

func checkDataFolder(path string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return emptyFolder, nil
	}
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a folder", path)
	}
	if err := writable(path); err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(path, "turnpike.db")); errors.Is(err, fs.ErrNotExist) {
		return emptyFolder, nil
	}
	return path, nil
}

// exposed are the files that others than the owner can read.
func exposed(path string) (out []error) {
	for _, name := range []string{"master.key", "turnpike.db", "turnpike.db-wal", "turnpike.db-shm", "first-run.txt"} {
		info, err := os.Stat(filepath.Join(path, name))
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			out = append(out, fmt.Errorf("%s can be read by others; run: chmod 600 %s", name, filepath.Join(path, name)))
		}
	}
	return out
}

// writable writes a file and takes it away again: modes alone do not tell of a
// disk that is full or that is mounted for reading only.
func writable(folder string) error {
	f, err := os.CreateTemp(folder, ".doctor-*")
	if err == nil {
		_, err = f.Write(make([]byte, 4096))
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		err = cause.Err
	}
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", folder, err)
	}
	return nil
}

// clockDiffers is by how much this machine's clock is wrong, if the database's
// is right.
func clockDiffers(behind time.Duration) error {
	if behind.Abs() <= db.ClocksDiffer {
		return nil
	}
	how := "behind"
	if behind < 0 {
		how = "ahead of"
	}
	return fmt.Errorf("this machine's clock is %s %s the database's: set both by NTP", behind.Abs().Round(time.Millisecond), how)
}
