package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"turnpike/internal/app"
	"turnpike/internal/backup"
	"turnpike/internal/config"
	"turnpike/internal/db"
)

func newBackup(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Back up the database and the files",
		Long: `Backs up the database and the files to a directory or a bucket, whether or not
servers run, and reads the backup to verify it. A backup doesn't contain the master
key, the configuration or provider keys: keep copies of them elsewhere. It is signed
with a key of this server, and encrypted if backup.recipients is set.

Without --to, the command uses the settings backup.to and backup.keep.`,
		Example: `  turnpike backup --data /var/lib/turnpike --to /backup --keep 7
  turnpike backup --to "s3://backups/turnpike?region=eu-central-1"`,
	}
	to := cmd.Flags().String("to", "", "directory, or s3:// URL with a prefix, for the backup")
	keep := cmd.Flags().Int("keep", 0, "how many backups to keep there; 0 keeps all")
	return e.withConfig(cmd, func(cmd *cobra.Command, _ []string) error {
		cfg := e.loaded.Config
		if *to != "" {
			cfg.Backup.To, cfg.Backup.Keep = config.SecretURL(*to), 0
		}
		if cmd.Flags().Changed("keep") {
			cfg.Backup.Keep = *keep
		}
		switch {
		case cfg.Backup.To == "":
			return wrongUsage(cmd, errors.New("missing location: pass --to with a directory or an s3:// URL, or set backup.to"))
		case *keep < 0:
			return wrongUsage(cmd, errors.New("--keep must be 0 or more"))
		}
		if err := checkLocation(cmd, "--to", *to); err != nil {
			return err
		}
		s, err := openExisting(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		defer s.Close()
		m, err := app.Backup(cmd.Context(), s, cfg, version)
		if err != nil {
			return err
		}
		return e.printBackup(m)
	})
}

func checkLocation(cmd *cobra.Command, flag, address string) error {
	if fault := config.BackupFault(address); fault != "" {
		return wrongUsage(cmd, fmt.Errorf("the value of %s %s", flag, fault))
	}
	return nil
}

func (e *env) printBackup(m *backup.Manifest) error {
	if e.asJSON {
		return e.printJSON(backupJSON(m))
	}
	_, err := fmt.Fprintf(e.out, "Created and verified %s: %s bytes, %s files, in %s.\n", m.Name, grouped(m.Bytes()), grouped(int64(len(m.Members)-1)),
		formatDuration(m.FinishedAt.Sub(m.StartedAt)))
	if m.MissingFiles > 0 {
		fmt.Fprintf(e.out, "%d files were not found. They expired meanwhile, or are on another node: set files.url if you run several.\n", m.MissingFiles)
	}
	fmt.Fprintf(e.out, "It needs the master key with the fingerprint %s, which it doesn't contain.\n", m.MasterKey)
	return err
}

func backupJSON(m *backup.Manifest) map[string]any {
	return map[string]any{"name": m.Name, "started_at": m.StartedAt, "finished_at": m.FinishedAt, "bytes": m.Bytes(), "files": len(m.Members) - 1,
		"missing_files": m.MissingFiles, "engine": m.Engine, "schema_version": m.Schema, "turnpike_version": m.Version, "master_key_fingerprint": m.MasterKey}
}

func newRestore(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Restore a backup, or resume a restored server",
		Long: `Restores a backup into an empty data directory or, with --database-url, into an
empty PostgreSQL database. A backup of either engine can be restored to either. Put
the master key of the backup into the data directory, or set TURNPIKE_MASTER_KEY.
If --from has several backups, the command restores the newest. It restores only what
the same server has signed.

A restored server starts held: API requests fail, and deliveries, jobs and runs wait.
Everyone is signed out, and scoped tokens are deleted. Revoke the keys that were
revoked since the backup, because they work again; the command lists them if backup.to
was set. Then release the server with --resume.`,
		Example: `  turnpike restore --from /backup --data /var/lib/turnpike
  turnpike restore --from "s3://backups/turnpike?region=eu-central-1" --check
  turnpike restore --resume --data /var/lib/turnpike`,
	}
	from := cmd.Flags().String("from", "", "directory or s3:// URL of a backup, or of several")
	check := cmd.Flags().Bool("check", false, "only read the backup and verify it")
	resume := cmd.Flags().Bool("resume", false, "release a restored server")
	unauthenticated := cmd.Flags().Bool("unauthenticated", false, "also restore a backup that this server didn't sign, such as one of an earlier version")
	identity := cmd.Flags().String("identity", "", "file with the age key that decrypts the backup")
	return e.withConfig(cmd, func(cmd *cobra.Command, _ []string) error {
		switch {
		case *resume && (*from != "" || *check):
			return wrongUsage(cmd, errors.New("--resume can't be combined with --from or --check"))
		case *resume:
			return e.resume(cmd.Context())
		case *from == "":
			return wrongUsage(cmd, errors.New("missing backup: pass --from with a directory or an s3:// URL, or --resume to release a restored server"))
		}
		if err := checkLocation(cmd, "--from", *from); err != nil {
			return err
		}
		if *check {
			return e.checkBackup(cmd.Context(), *from, *unauthenticated)
		}
		o := app.RestoreOptions{From: *from, Unauthenticated: *unauthenticated}
		if *identity != "" {
			f, err := os.Open(*identity)
			if err != nil {
				return err
			}
			defer f.Close()
			if o.Identities, err = age.ParseIdentities(f); err != nil {
				return fmt.Errorf("--identity: %w", err)
			}
		}
		return e.restore(cmd.Context(), o)
	})
}

func (e *env) checkBackup(ctx context.Context, from string, unauthenticated bool) error {
	src, err := backup.Open(ctx, from)
	if err != nil {
		return err
	}
	if err := src.Verify(ctx); err != nil {
		return err
	}
	m := src.Manifest
	out := backupJSON(m)
	authentic := "Its signature is valid."
	if master, err := app.RestoreKey(e.loaded.Config, m); err != nil {
		authentic = fmt.Sprintf("Its signature was not checked: %v.", err)
	} else if _, err := app.Authenticate(src, master); err == nil {
		out["authenticated"] = true
	} else if authentic = fmt.Sprintf("It is not authenticated: %v.", err); !unauthenticated {
		return err
	}
	return e.report(out, "%s is intact: %s bytes, %s files, taken at %s. %s\n", m.Name, grouped(m.Bytes()), grouped(int64(len(m.Members)-1)),
		m.StartedAt.Format(time.RFC3339), authentic)
}

func (e *env) restore(ctx context.Context, o app.RestoreOptions) error {
	r, err := app.Restore(ctx, e.loaded.Config, o)
	if err != nil {
		return err
	}
	out := backupJSON(r.Manifest)
	out["to"], out["lost_seconds"], out["revoked"] = r.To, r.Gap().Seconds(), r.Revoked
	return e.report(out, `Restored %s to %s.

The backup is from %s. Changes of the %s since then are lost:
- Keys, members and invitations that were revoked or removed since work again.
- Keys that were created since don't work, and spending since then isn't counted.
- Deliveries, jobs and runs since then may run again.

%sThe server starts held. Start it, list the keys with turnpike keys list, and revoke
what was revoked since the backup there or in the dashboard. Then run:

  turnpike restore --resume
`, r.Backup, r.To, r.BackupAt.Format(time.RFC3339), formatDuration(r.Gap()), revokedText(r.Revoked))
}

// maxRevoked is how many revocations the command prints. With --json, it prints all.
const maxRevoked = 100

// revokedText lists what works again after a restore.
func revokedText(list []backup.Revocation) string {
	if len(list) == 0 {
		return "The list next to the backups has no revocation since then. Servers write it every\nminute if backup.to is set.\n\n"
	}
	var b strings.Builder
	b.WriteString("This was revoked since the backup and works again:\n")
	for i, r := range list {
		if i == maxRevoked {
			fmt.Fprintf(&b, "- %d more; use --json for all\n", len(list)-i)
			break
		}
		fmt.Fprintf(&b, "- %s %s by %s at %s %s\n", r.Action, r.Target, r.Actor, r.At.UTC().Format(time.RFC3339), r.Workspace)
	}
	return b.String() + "\n"
}

func (e *env) resume(ctx context.Context) error {
	s, err := openExisting(ctx, e.loaded.Config)
	if err != nil {
		return err
	}
	defer s.Close()
	h, err := backup.Resume(ctx, s.DB)
	if err != nil {
		return err
	}
	if h == nil {
		return e.report(map[string]any{"resumed": false}, "This server is not held.\n")
	}
	return e.report(map[string]any{"resumed": true, "backup": h.Backup}, "Resumed the server, which was restored from %s. Running servers continue within a second.\n", h.Backup)
}

// checkBackups checks the age of the last backup, and whether the server is held.
func checkBackups(ctx context.Context, l config.Loaded, d *db.DB) (out []finding) {
	h, err := backup.ReadHold(ctx, d)
	if err == nil && h != nil {
		err = fmt.Errorf("the server is held: it was restored from %s and has lost %s; revoke what was revoked since %s, then run: turnpike restore --resume",
			h.Backup, formatDuration(h.Gap()), h.BackupAt.Format(time.RFC3339))
	}
	if err != nil {
		out = append(out, newFinding("restore", err, ""))
	}
	message, err := lastBackup(ctx, l, d)
	return append(out, newFinding("backup", err, message))
}

func lastBackup(ctx context.Context, l config.Loaded, d *db.DB) (string, error) {
	last, err := backup.ReadLast(ctx, d)
	if err != nil {
		return "", err
	}
	failure, err := backup.ReadFailure(ctx, d)
	if err != nil {
		return "", err
	}
	message := "none so far; run turnpike backup, or set backup.to"
	age := time.Duration(0)
	if last != nil {
		age = d.Now().Sub(last.StartedAt)
		message = fmt.Sprintf("the last good one is %s old (%s)", formatDuration(age.Round(time.Second)), last.Name)
	}
	switch {
	case failure != nil:
		return "", fmt.Errorf("the scheduled backup failed at %s: %s; %s", failure.At.Format(time.RFC3339), failure.Error, message)
	case last != nil && l.Backup.To != "" && age > 2*l.Backup.Interval:
		return "", fmt.Errorf("%s, more than twice backup.interval; check that a server with backup.to runs, and its log", message)
	}
	return message, nil
}
