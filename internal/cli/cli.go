// Package cli is the command line: one file per command.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/fault"
)

// version is set by the linker.
var version = "dev"

// env is what a command talks to.
type env struct {
	in       io.Reader
	out, err io.Writer
	asJSON   bool
	loaded   config.Loaded
}

// Main runs the program and returns its exit code: 0 for success, 1 for a
// failure, 2 for a command line that makes no sense, 3 for something that was
// not done in the time that it was given. A scan's 1 is a key that was found, and
// its 2 any failure.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	defer stop()
	// A second Ctrl-C ends the program at once. Other signals may come twice
	// without anybody meaning that: a terminal that is closed sends SIGHUP itself,
	// and its shell does.
	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt) })
	e := &env{in: in, out: out, err: errOut}
	root := newRoot(e)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(errOut, "turnpike: %s\n", visible(message(err)))
	var usage usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(errOut, "Run '%s --help' for what is possible.\n", usage.command)
		return 2
	}
	var unscanned scanError
	if errors.As(err, &unscanned) {
		return 2
	}
	var late timeoutError
	if errors.As(err, &late) {
		return 3
	}
	return 1
}

// stopSignals are those that end the program in good order. A terminal that is
// closed is one of them, unless it was started to outlive that (nohup).
func stopSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// message is an error for people: codes are for machines.
func message(err error) string {
	if f, ok := fault.As(err); ok {
		return f.Message
	}
	return err.Error()
}

// usageError is a command line that makes no sense.
type usageError struct {
	command string
	err     error
}

func (u usageError) Error() string { return u.err.Error() }
func (u usageError) Unwrap() error { return u.err }

// timeoutError is something that was not done in time, and may still be.
type timeoutError string

func (t timeoutError) Error() string { return string(t) }

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "turnpike",
		Short: "The self-hosted AI API platform in one binary",
		Long: `Turnpike runs in front of your model providers and gives your team what the big
hosted APIs give their customers: keys with scopes and budgets, short-lived
tokens for browsers, an OpenAI-compatible gateway and a log of every request.

Start it with:  turnpike serve`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          noSuchCommand,
		Args:          cobra.ArbitraryArgs,
	}
	root.SetFlagErrorFunc(wrongFlag)
	addGroup(root, "Where the server runs, on its database:",
		newServe(e), newKeys(e), newUsers(e), newWorkspaces(e), newTrigger(e), newConfig(e), newMigrate(e), newMove(e), newRekey(e), newDoctor(e))
	addGroup(root, "From anywhere, with TURNPIKE_BASE_URL and TURNPIKE_API_KEY:",
		newListen(e), newDeliveries(e), newJobs(e), newRuns(e), newScan(e))
	root.AddCommand(newVersion(e))
	return root
}

// addGroup adds commands that the help shows together.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

// wrongFlag is a flag that a command does not have. Before a word that is no
// command, the word is the mistake: "keys creat --env live" is not about --env.
func wrongFlag(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return noSuchCommand(cmd, words)
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if variable := config.SecretVariableOf(unknown.GetSpecifiedName()); variable != "" {
			err = fmt.Errorf("%w; other users of this machine could read it: set %s, or %s_FILE to a file that holds it", err, variable, variable)
		}
	}
	return usageError{cmd.CommandPath(), err}
}

// noSuchCommand is what a command does that only has commands below it: a word
// that is none of them is a mistake, and no word at all a question.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{cmd.CommandPath(), fmt.Errorf("there is no command %q", strings.TrimPrefix(cmd.CommandPath()+" "+args[0], "turnpike "))}
	}
	return cmd.Help()
}

// operator makes a command that works on the database, server running or not.
func (e *env) operator(cmd *cobra.Command, run func(ctx context.Context, s *app.Store, args []string) error) *cobra.Command {
	return e.onStore(cmd, run, func(ctx context.Context, cfg config.Config) (*app.Store, error) {
		if err := needDatabase(cfg); err != nil {
			return nil, err
		}
		return app.OpenStoreAsItIs(ctx, cfg)
	})
}

// founder makes such a command that may also be the first to use the database,
// or the first of this version, and makes it what it has to be then.
func (e *env) founder(cmd *cobra.Command, run func(ctx context.Context, s *app.Store, args []string) error) *cobra.Command {
	return e.onStore(cmd, run, app.OpenStore)
}

func (e *env) onStore(cmd *cobra.Command, run func(ctx context.Context, s *app.Store, args []string) error, open func(context.Context, config.Config) (*app.Store, error)) *cobra.Command {
	e.jsonFlag(cmd)
	e.configured(cmd)
	hideServing(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := e.load(cmd); err != nil {
			return err
		}
		s, err := open(cmd.Context(), e.loaded.Config)
		if err != nil {
			return err
		}
		defer s.Close()
		return run(cmd.Context(), s, args)
	}
	return cmd
}

func (e *env) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&e.asJSON, "json", false, "print JSON")
}

// configured gives a command the settings' flags, which the help shows behind
// the command's own.
func (e *env) configured(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	config.AddFlags(cmd.Flags())
	checkArgs(cmd)
}

// whereItIs are the settings by which a command finds the database and prints
// links.
var whereItIs = []string{"config", "data", "database-url", "public-url"}

// hideServing leaves the settings that only a server goes by out of the help,
// in which nobody would find the command's own flags.
func hideServing(cmd *cobra.Command) {
	settings := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(settings)
	settings.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(whereItIs, f.Name) {
			cmd.Flags().Lookup(f.Name).Hidden = true
		}
	})
	cmd.SetUsageTemplate(cmd.UsageTemplate() + "\nThe server's other settings are taken, too: turnpike serve --help\n")
}

// checkArgs makes wrong arguments a command line that makes no sense.
func checkArgs(cmd *cobra.Command) {
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	args := cmd.Args
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if err := args(cmd, given); err != nil {
			return usageError{cmd.CommandPath(), fmt.Errorf("%w; the form is: %s", err, cmd.UseLine())}
		}
		return nil
	}
}

// load reads the configuration, says what is odd about it, and sets up the log.
func (e *env) load(cmd *cobra.Command) error {
	if err := e.read(cmd); err != nil {
		return err
	}
	return e.loaded.Validate()
}

func (e *env) read(cmd *cobra.Command) error {
	loaded, err := config.Load(config.Sources{Flags: cmd.Flags(), Environ: os.Environ()})
	if err != nil {
		return err
	}
	e.loaded = loaded
	e.setUpLog(loaded.Log)
	for _, w := range loaded.Warnings {
		slog.Warn(w)
	}
	return nil
}

func (e *env) setUpLog(c config.Log) {
	options := &slog.HandlerOptions{Level: c.Level}
	var to slog.Handler = slog.NewJSONHandler(e.err, options)
	if c.Format == "text" || c.Format == "auto" && isTerminal(e.err) {
		to = slog.NewTextHandler(e.err, options)
	}
	slog.SetDefault(slog.New(newRepeats(to)))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// printJSON writes a value for machines.
func (e *env) printJSON(v any) error {
	enc := json.NewEncoder(e.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// table prints rows for people.
func (e *env) table(header string, rows [][]any) error {
	w := tabwriter.NewWriter(e.out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, header)
	for _, r := range rows {
		for i, v := range r {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, cell(v))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
