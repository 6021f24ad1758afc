// Package cli implements the turnpike command, one file per subcommand.
package cli

import (
	"cmp"
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
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"text/template"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

// version is set by the linker.
var version = "dev"

// env holds the streams and settings of the running command.
type env struct {
	in       io.Reader
	out, err io.Writer
	asJSON   bool
	loaded   config.Loaded
	files    fileSums // that loaded was read from
	level    slog.LevelVar
	log      slog.Handler           // writes to err
	onHangup atomic.Pointer[func()] // handles SIGHUP; nil shuts the process down

	templates *template.Template // parsed at first use
}

// Main runs the command and returns its exit code: 0 for success, 1 for a
// failure, 2 for wrong usage and 3 for a timeout. For a scan, 1 means that keys
// were found and 2 is any failure.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	e := &env{in: in, out: out, err: errOut}
	ctx, stop := e.notifyStop()
	defer stop()
	// A second Ctrl-C kills the process. Other signals can arrive twice by accident:
	// when a terminal closes, both it and its shell send SIGHUP.
	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt) })
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
	exit, ok := errors.AsType[exitError](err)
	if ok && exit.command != "" {
		fmt.Fprintf(errOut, "Run '%s --help' for usage.\n", exit.command)
	}
	return cmp.Or(exit.code, 1)
}

// notifyStop returns a context that ends with a signal to shut down gracefully.
// SIGHUP is one, unless the command handles it. With nohup, it has no effect.
func (e *env) notifyStop() (ctx context.Context, stop func()) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if signal.Ignored(syscall.SIGHUP) {
		return ctx, cancel
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-hangups:
				if handle := e.onHangup.Load(); handle != nil {
					(*handle)()
				} else {
					cancel()
				}
			case <-ended:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(hangups)
		close(ended)
		cancel()
	}
}

func message(err error) string {
	if f, ok := fault.As(err); ok {
		return f.Message
	}
	return err.Error()
}

type exitError struct {
	code    int
	err     error
	command string // to look up in the help; only for wrong usage
}

func (e exitError) Error() string { return e.err.Error() }
func (e exitError) Unwrap() error { return e.err }

func wrongUsage(cmd *cobra.Command, err error) error {
	return exitError{code: 2, err: err, command: cmd.CommandPath()}
}

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "turnpike",
		Short: "The self-hosted AI API platform in one binary",
		Long: `Turnpike runs in front of your model providers and adds keys with scopes and
budgets, short-lived tokens for browsers, an OpenAI-compatible gateway and a log
of every request.

Start it with:  turnpike serve`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          unknownCommand,
		Args:          cobra.ArbitraryArgs,
	}
	root.SetFlagErrorFunc(flagError)
	addGroup(root, "On the server, directly on its database:",
		newServe(e), newReload(e), newSetupLink(e), newHealthcheck(e), newKeys(e), newUsers(e), newWorkspaces(e), newProviders(e), newRoutes(e), newPricing(e), newCatalog(e), newOperators(e), newAdminKeys(e), newApply(e), newExport(e), newImport(e), newTrigger(e), newConfig(e), newMigrate(e), newMove(e), newBackup(e), newRestore(e), newRekey(e), newDoctor(e))
	addGroup(root, "From anywhere, with TURNPIKE_BASE_URL and TURNPIKE_API_KEY:",
		newListen(e), newDeliveries(e), newJobs(e), newRuns(e), newScan(e))
	root.AddCommand(newVersion(e))
	return root
}

func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

// flagError explains an unknown flag. After an unknown command, the command is
// the mistake: "keys creat --env live" isn't about --env.
func flagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return unknownCommand(cmd, words)
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if variable := config.SecretVariableOf(unknown.GetSpecifiedName()); variable != "" {
			err = fmt.Errorf("%w; other users of this machine could read it, so set %s, or %s_FILE to the path of a file", err, variable, variable)
		}
	}
	return wrongUsage(cmd, err)
}

// unknownCommand runs a command that only has subcommands.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return wrongUsage(cmd, fmt.Errorf("unknown command %q", strings.TrimPrefix(cmd.CommandPath()+" "+args[0], "turnpike ")))
	}
	return cmd.Help()
}

// storeFunc is a command that works on the database, whether or not a server runs.
type storeFunc func(ctx context.Context, s *app.Store, args []string) error

// openExisting opens a database that has the schema of this version.
func openExisting(ctx context.Context, cfg config.Config) (*app.Store, error) {
	if err := requireDatabase(cfg); err != nil {
		return nil, err
	}
	return app.OpenStoreUnmigrated(ctx, cfg)
}

// withStore makes run the action of cmd, on the database that open opens.
func (e *env) withStore(cmd *cobra.Command, open func(context.Context, config.Config) (*app.Store, error), run storeFunc) *cobra.Command {
	return e.withConfig(cmd, func(cmd *cobra.Command, args []string) error {
		s, err := open(cmd.Context(), e.loaded.Config)
		if err != nil {
			return err
		}
		defer s.Close()
		return run(cmd.Context(), s, args)
	})
}

// withConfig makes run the action of cmd, which needs valid settings. Its help
// omits the settings that only concern a running server.
func (e *env) withConfig(cmd *cobra.Command, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	e.jsonFlag(cmd)
	e.configFlags(cmd)
	settings := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(settings)
	settings.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains([]string{"config", "data", "database-url", "public-url"}, f.Name) {
			cmd.Flags().Lookup(f.Name).Hidden = true
		}
	})
	cmd.SetUsageTemplate(cmd.UsageTemplate() + "\nThis command also accepts the server's other settings. See: turnpike serve --help\n")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := e.loadValidConfig(cmd); err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}

func (e *env) loadValidConfig(cmd *cobra.Command) error {
	if err := e.loadConfig(cmd); err != nil {
		return err
	}
	return e.loaded.Validate()
}

func (e *env) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&e.asJSON, "json", false, "print JSON")
}

// configFlags adds the flags of the settings after the command's own.
func (e *env) configFlags(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	config.AddFlags(cmd.Flags())
	checkArgs(cmd)
}

func workspaceFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("workspace", "", "workspace, by ID or name (default: the only one)")
}

// checkArgs makes wrong arguments an error of usage.
func checkArgs(cmd *cobra.Command) {
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	args := cmd.Args
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if err := args(cmd, given); err != nil {
			return wrongUsage(cmd, fmt.Errorf("%w; usage: %s", err, cmd.UseLine()))
		}
		return nil
	}
}

// loadConfig reads the settings, which may be invalid, and sets up the log.
func (e *env) loadConfig(cmd *cobra.Command) error {
	loaded, files, err := readConfig(cmd)
	if err != nil {
		return err
	}
	e.loaded, e.files = loaded, files
	keyring.UseHeads(loaded.SecretPrefixes)
	e.level.Set(loaded.Log.Level)
	options := &slog.HandlerOptions{Level: &e.level}
	var to slog.Handler = slog.NewJSONHandler(e.err, options)
	if loaded.Log.Format == "text" || loaded.Log.Format == "auto" && isTerminal(e.err) {
		to = slog.NewTextHandler(e.err, options)
	}
	e.log = to
	slog.SetDefault(slog.New(newRepeatFilter(to)))
	for _, w := range loaded.Warnings {
		slog.Warn(w)
	}
	return nil
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (e *env) printJSON(v any) error {
	enc := json.NewEncoder(e.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// report prints a result as JSON, or as a text.
func (e *env) report(v any, format string, args ...any) error {
	if e.asJSON {
		return e.printJSON(v)
	}
	_, err := fmt.Fprintf(e.out, format, args...)
	return err
}

// printObjects prints objects as JSON, or as a table. The row is a template with
// tabs between the cells.
func printObjects[T any](e *env, objects []T, header, row string) error {
	if e.asJSON {
		return e.printJSON(objects)
	}
	var cells []*template.Template
	for _, text := range strings.Split(row, "\t") {
		cells = append(cells, template.Must(e.detailTemplates().New("").Parse(text)))
	}
	w := tabwriter.NewWriter(e.out, 0, 4, 2, ' ', 0)
	// Colored like its cells, so that the column stays aligned.
	fmt.Fprintln(w, strings.Replace(header, "STATUS", e.status("STATUS"), 1))
	for _, v := range objects {
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		o, err := decode(raw)
		if err != nil {
			return err
		}
		line := make([]string, len(cells))
		for i, cell := range cells {
			var text strings.Builder
			if err := cell.Execute(&text, o); err != nil {
				return err
			}
			line[i] = strings.NewReplacer("\n", " ", "\t", " ").Replace(text.String())
		}
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	return w.Flush()
}
