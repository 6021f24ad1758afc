package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"turnpike/internal/leaks"
)

// scanError is a scan that could not be done, or not whole. Its exit code is
// another one than that of a key that was found.
type scanError struct{ err error }

func (s scanError) Error() string { return s.err.Error() }
func (s scanError) Unwrap() error { return s.err }

// scanFlags are what a scan was asked for.
type scanFlags struct {
	git     string
	since   string
	base    string
	url     string
	report  bool
	offline bool
	binary  bool
}

// sighting is a key at a place.
type sighting struct {
	Path   string `json:"path"`
	Line   int64  `json:"line"`
	Commit string `json:"commit,omitempty"`
	Key    string `json:"key"` // only what may be shown
	secret string
	object string // of git, until its commit is known
}

func (f sighting) String() string {
	place := fmt.Sprintf("%s:%d", f.Path, f.Line)
	if f.Commit != "" {
		place = f.Commit + ":" + place
	}
	return visible(place) + ": " + f.Key
}

func newScan(e *env) *cobra.Command {
	var f scanFlags
	cmd := &cobra.Command{
		Use:   "scan PATH... | --git REPO | -",
		Short: "Find leaked keys in files, a repository's history or a stream",
		Long: `Looks for keys of a Turnpike server and prints where they are. A key is known by
its checksum, so there are no false alarms.

With TURNPIKE_BASE_URL set (or --base-url, or --report) what is found is reported
to that server, which revokes its own keys at once and tells their owners. It
does not say which keys were its own. --offline only looks.

The exit code is 0 when nothing was found, 1 when something was, 2 for an error.`,
		Example: `  turnpike scan .
  turnpike scan --git . --since origin/main
  git diff --cached | turnpike scan --offline -`,
		Args: cobra.ArbitraryArgs,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.git, "git", "", "scan every version of every file in this repository's history, and its messages")
	flags.StringVar(&f.since, "since", "", "with --git: only what is not in this revision already")
	flags.BoolVar(&f.binary, "binary", false, "scan binary files of more than 1 MiB too")
	flags.BoolVar(&f.report, "report", false, "report what is found to the server at the default address")
	flags.BoolVar(&f.offline, "offline", false, "report nothing")
	flags.StringVar(&f.url, "url", "", "with a report: a web address where this can be seen, for the key's owners")
	flags.StringVar(&f.base, "base-url", "", "the server's address (default: TURNPIKE_BASE_URL, or "+defaultBaseURL+" with --report)")
	e.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if message := f.fault(args); message != "" {
			return usageError{cmd.CommandPath(), errors.New(message)}
		}
		return e.scan(cmd.Context(), f, args)
	}
	return cmd
}

// fault says what makes no sense about the command line.
func (f scanFlags) fault(args []string) string {
	switch {
	case f.git == "" && len(args) == 0:
		return "say what to scan: files or folders, --git REPO, or - for what is piped in"
	case f.git != "" && len(args) > 0:
		return "scan either paths or a repository's history, not both at once"
	case slices.Contains(args, "-") && len(args) > 1:
		return "- stands alone"
	case f.since != "" && f.git == "":
		return "--since needs --git"
	case strings.HasPrefix(f.since, "-"):
		return "--since must be a revision"
	case f.offline && (f.report || f.url != ""):
		return "--offline reports nothing, so --report and --url do not go with it"
	}
	return ""
}

// server is where to report to, or empty.
func (f scanFlags) server() string {
	if f.offline {
		return ""
	}
	if base := cmp.Or(f.base, os.Getenv("TURNPIKE_BASE_URL")); base != "" || !f.report {
		return base
	}
	return defaultBaseURL
}

func (e *env) scan(ctx context.Context, f scanFlags, args []string) error {
	var server *apiClient
	if base := f.server(); base != "" {
		var err error
		if server, err = newPublicClient(base); err != nil {
			return scanError{err}
		}
	}
	s := &scan{env: e, binary: f.binary}
	var err error
	switch {
	case f.git != "":
		err = s.repository(ctx, f.git, f.since)
	case args[0] == "-":
		err = s.stream(e.in)
	default:
		err = s.paths(ctx, args)
	}
	if ctx.Err() != nil {
		err = errors.New("the scan was interrupted")
	}
	found := s.sorted()
	if printed := e.printSightings(found); printed != nil {
		return scanError{printed}
	}
	if s.skipped > 0 {
		fmt.Fprintf(e.err, "%s skipped: binary, and more than 1 MiB; --binary scans them too\n", counted(s.skipped, "file", "files"))
	}
	if len(found) > 0 {
		return errors.Join(e.reportSightings(ctx, server, f.url, found), err)
	}
	if err != nil {
		return scanError{err}
	}
	return nil
}

func (e *env) printSightings(found []sighting) error {
	if e.asJSON {
		return e.printJSON(found)
	}
	for _, f := range found {
		if _, err := fmt.Fprintln(e.out, f); err != nil {
			return err
		}
	}
	return nil
}

// reportSightings tells the server, and returns the error that a sighting is.
func (e *env) reportSightings(ctx context.Context, server *apiClient, url string, found []sighting) error {
	var secrets []string
	for _, f := range found {
		secrets = append(secrets, f.secret)
	}
	slices.Sort(secrets)
	secrets = slices.Compact(secrets)
	what := counted(int64(len(secrets)), "key", "keys") + " found in " + counted(int64(len(found)), "place", "places")
	if server == nil {
		return errors.New(what + "; nothing was reported, so revoke them: turnpike keys revoke, or scan again with --report")
	}
	for batch := range slices.Chunk(secrets, leaks.MaxKeys) {
		in := map[string]any{"keys": batch, "source": string(leaks.Scan)}
		if url != "" {
			in["url"] = url
		}
		if err := server.do(ctx, http.MethodPost, "/leaks/report", in, nil); err != nil {
			return fmt.Errorf("%s, but they could not be reported, so they may still work: %w", what, err)
		}
	}
	return fmt.Errorf("%s and reported to %s, which has revoked those that were its own", what, server.base)
}
