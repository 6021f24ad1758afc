package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"

	"github.com/spf13/cobra"

	"turnpike/internal/app"
)

func newServe(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Runs the server until it gets SIGINT, SIGTERM or SIGHUP; then it finishes the
requests in flight and stops.

Without a database it keeps everything in the data folder (SQLite). With
--database-url it is one node of a cluster on PostgreSQL, and every node needs
the same TURNPIKE_MASTER_KEY.

The first run makes a workspace, a test key, and a link by which you become the
owner in the dashboard. They are printed to the terminal, or, when there is
none, into first-run.txt in the data folder. That file is deleted once there is
an owner.`,
		Example: `  turnpike serve
  turnpike serve --listen 0.0.0.0:8080 --data /var/lib/turnpike
  TURNPIKE_MASTER_KEY=… turnpike serve --database-url postgres://turnpike@db/turnpike`,
	}
	e.configured(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return e.serve(cmd) }
	return cmd
}

func (e *env) serve(cmd *cobra.Command) error {
	if err := e.load(cmd); err != nil {
		return err
	}
	a, err := app.Start(cmd.Context(), e.loaded.Config, version, nil)
	if err != nil {
		return withListenAdvice(err)
	}
	app.TuneMemory(cmd.Context(), a.CallsInFlight)
	if err := e.welcome(a); err != nil {
		return errors.Join(err, a.Close())
	}
	a.Serve() // only now: whoever gets an answer finds first-run.txt written
	failed := make(chan error, 1)
	go func() { failed <- a.Wait() }()
	select {
	case err = <-failed:
	case <-cmd.Context().Done():
		slog.Info("stopping: finishing the requests in flight")
	}
	err = errors.Join(err, a.Close())
	if err == nil {
		slog.Info("stopped")
	}
	return err
}

// withListenAdvice adds to a refused address what can be done about it.
func withListenAdvice(err error) error {
	var network *net.OpError
	if !errors.As(err, &network) || network.Op != "listen" {
		return err
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w; stop what uses it, or choose another address with --listen (of metrics: --metrics-listen)", err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w; ports below 1024 are the system's: choose a higher one with --listen, or let the service have CAP_NET_BIND_SERVICE", err)
	default:
		return err
	}
}

// welcome tells where the server is, and on the first run how to call it. The
// key goes to a terminal, which forgets, or into a file that only the owner
// reads: not into a log that is kept.
func (e *env) welcome(a *app.App) error {
	fmt.Fprintf(e.out, "Turnpike %s is listening on %s\n", version, a.Listens())
	if a.FirstRun == nil {
		fmt.Fprintf(e.out, "The dashboard is at %s/dashboard/\n", a.URL())
		return nil
	}
	text := firstRunText(a)
	if isTerminal(e.out) {
		fmt.Fprint(e.out, text)
		return nil
	}
	path, err := a.SaveFirstRun(text + "Turnpike deletes this file when you have done so. Copy the key before.\n")
	if err != nil {
		return err
	}
	fmt.Fprintf(e.out, "First run: the link to the dashboard, a test key and a call to try it are in %s\n", path)
	return nil
}

func firstRunText(a *app.App) string {
	return fmt.Sprintf(`
This is the first run. Here is a test key; it is shown this once:

  %[2]s

Test keys are free: a simulator answers. Try it:

  curl %[1]s/v1/chat/completions \
    -H "Authorization: Bearer %[2]s" \
    -H "Content-Type: application/json" \
    -d '{"model":"gpt-4o-mini","messages":[{"role":"user","content":"Hello!"}]}'

The reference is at %[1]s/docs

Open the dashboard and become its owner; the link works once:

  %[3]s

`, a.URL(), a.FirstRun.TestKey, a.FirstRun.SetUp.URL(a.URL()))
}
