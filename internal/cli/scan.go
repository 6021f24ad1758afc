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

	"turnpike/internal/keyring"
	"turnpike/internal/leaks"
	"turnpike/internal/leaks/scan"
)

type scanFlags struct {
	git     string
	since   string
	base    string
	url     string
	report  bool
	offline bool
	binary  bool

	prefixes []string
}

// describeFinding returns where a secret is, and its hint.
func describeFinding(f scan.Finding) string {
	place := fmt.Sprintf("%s:%d", f.Path, f.Line)
	if f.Commit != "" {
		place = f.Commit + ":" + place
	}
	return visible(place) + ": " + f.Hint
}

func newScan(e *env) *cobra.Command {
	var f scanFlags
	cmd := &cobra.Command{
		Use:   "scan PATH... | --git REPO | -",
		Short: "Find leaked keys in files, git history or standard input",
		Long: `Searches for keys, tokens and webhook secrets of a Turnpike server and prints
where they are. Keys and tokens have a checksum, so there are no false positives.
Other services also use webhook secrets that begin with whsec_.

With TURNPIKE_BASE_URL (or --base-url, or --report) it reports the keys to that
server, which immediately revokes its own and notifies their owners. The server
doesn't disclose which keys were its own. With --offline it reports nothing.

The exit code is 0 if no key was found, 1 if keys were found, and 2 for an error.`,
		Example: `  turnpike scan .
  turnpike scan --git . --since origin/main
  git diff --cached | turnpike scan --offline -`,
		Args: cobra.ArbitraryArgs,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.git, "git", "", "scan every version of every file in this repository's history, and its messages")
	flags.StringVar(&f.since, "since", "", "with --git: skip the history of this revision")
	flags.BoolVar(&f.binary, "binary", false, "also scan binary files larger than 1 MiB")
	flags.StringSliceVar(&f.prefixes, "prefixes", nil, "the server's secret_prefixes (default: TURNPIKE_SECRET_PREFIXES)")
	flags.BoolVar(&f.report, "report", false, "report keys to the server at the default URL")
	flags.BoolVar(&f.offline, "offline", false, "report nothing")
	flags.StringVar(&f.url, "url", "", "for the report: where the owners of the key can see the leak")
	flags.StringVar(&f.base, "base-url", "", "the server's URL (default: TURNPIKE_BASE_URL, or "+defaultBaseURL+" with --report)")
	e.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(args); err != nil {
			return wrongUsage(cmd, err)
		}
		return e.scan(cmd.Context(), f, args)
	}
	return cmd
}

func (f scanFlags) check(args []string) error {
	switch {
	case f.git == "" && len(args) == 0:
		return errors.New("nothing to scan: pass files or directories, --git REPO, or - for standard input")
	case f.git != "" && len(args) > 0:
		return errors.New("--git cannot be combined with paths")
	case slices.Contains(args, "-") && len(args) > 1:
		return errors.New("- cannot be combined with paths")
	case f.since != "" && f.git == "":
		return errors.New("--since needs --git")
	case strings.HasPrefix(f.since, "-"):
		return errors.New("--since must be a revision")
	case f.offline && (f.report || f.url != ""):
		return errors.New("--offline cannot be combined with --report or --url")
	}
	return nil
}

// server returns the URL to report to, or "".
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
	var err error
	if base := f.server(); base != "" {
		if server, err = newClient(base); err != nil {
			return exitError{code: 2, err: err}
		}
	}
	if f.prefixes == nil {
		f.prefixes = strings.Split(os.Getenv("TURNPIKE_SECRET_PREFIXES"), ",")
	}
	keyring.UseHeads(f.prefixes)
	s := &scanner{e, &scan.Reader{Binary: f.binary}}
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
	found := append([]scan.Finding{}, s.Found()...) // an empty array in JSON
	var places strings.Builder
	for _, f := range found {
		fmt.Fprintln(&places, describeFinding(f))
	}
	if err := e.report(found, "%s", places.String()); err != nil {
		return exitError{code: 2, err: err}
	}
	if s.Skipped() > 0 {
		fmt.Fprintf(e.err, "Skipped %s larger than 1 MiB. To scan them, use --binary.\n", counted(s.Skipped(), "binary file", "binary files"))
	}
	switch {
	case len(found) > 0:
		return errors.Join(e.reportFound(ctx, server, f.url, found), err)
	case err != nil:
		return exitError{code: 2, err: err}
	}
	return nil
}

// reportFound reports the keys to the server, if there is one, and returns an
// error that says what was found.
func (e *env) reportFound(ctx context.Context, server *apiClient, url string, found []scan.Finding) error {
	var secrets []string
	for _, f := range found {
		secrets = append(secrets, f.Secret)
	}
	slices.Sort(secrets)
	secrets = slices.Compact(secrets)
	what := "found " + counted(int64(len(secrets)), "key", "keys") + " in " + counted(int64(len(found)), "place", "places")
	if server == nil {
		return errors.New(what + " and reported nothing; revoke them with turnpike keys revoke, or scan again with --report")
	}
	for batch := range slices.Chunk(secrets, leaks.MaxKeys) {
		in := map[string]any{"keys": batch, "source": string(leaks.Scan)}
		if url != "" {
			in["url"] = url
		}
		if err := server.do(ctx, http.MethodPost, "/leaks/report", in, nil); err != nil {
			return fmt.Errorf("%s, but could not report them, so they may still work: %w", what, err)
		}
	}
	return fmt.Errorf("%s and reported them to %s, which revoked its own", what, server.base)
}
