package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"turnpike/internal/app"
	"turnpike/internal/people"
)

func newServe(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Runs the server. On SIGINT or SIGTERM it finishes the requests in progress and
stops.

When the configuration file or a file with a secret changes, on SIGHUP and on
turnpike reload, the server applies new settings without interrupting requests.
If a setting is invalid, it changes nothing. Settings that need a restart are
listed in the log. When the server's terminal closes, it stops.

By default it keeps all data in the data directory (SQLite). With --database-url
it is a node of a cluster on PostgreSQL, and every node needs the same
TURNPIKE_MASTER_KEY.

The first start creates a workspace, a test key, and a link to become the owner in
the dashboard. It prints them to the terminal. Without a terminal, it writes them
to first-run.txt in the data directory and deletes that file once there is an
owner. turnpike setup-link prints a new link.

Under systemd with Type=notify, it reports when it is ready and when it stops, and
it answers the watchdog.`,
		Example: `  turnpike serve
  turnpike serve --listen 0.0.0.0:8080 --data /var/lib/turnpike
  TURNPIKE_MASTER_KEY=… turnpike serve --database-url postgres://turnpike@db/turnpike`,
	}
	e.configFlags(cmd)
	cmd.RunE = e.serve
	return cmd
}

func (e *env) serve(cmd *cobra.Command, _ []string) error {
	if err := e.loadValidConfig(cmd); err != nil {
		return err
	}
	cmd.Root().ResetCommands() // the flags of all other commands take 3 MB while the server runs
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	endExport, err := e.exportLog(ctx)
	if err != nil {
		return err
	}
	defer endExport()
	r := newReloader(e, cmd)
	r.handleHangup(stop)
	a, err := app.Start(ctx, e.loaded.Config, version, time.Now)
	if err != nil {
		return withListenAdvice(err)
	}
	app.TuneMemory(ctx, a.CallsInFlight)
	if err := e.welcome(a); err != nil {
		return errors.Join(err, a.Close())
	}
	a.Serve() // after first-run.txt is written
	r.start(ctx, a)
	defer notifyReady()()
	failed := make(chan error, 1)
	go func() { failed <- a.Wait() }()
	select {
	case err = <-failed:
	case <-ctx.Done():
		slog.Info("shutting down; finishing requests in progress")
	}
	stop()
	r.running.Wait()
	notify(daemon.SdNotifyStopping)
	err = errors.Join(err, a.Close())
	if err == nil {
		slog.Info("stopped")
	}
	return err
}

// exportLog also sends the log to an OpenTelemetry collector, if log.otlp is set,
// until end is called.
func (e *env) exportLog(ctx context.Context) (end func(), err error) {
	if !e.loaded.Log.OTLP {
		return func() {}, nil
	}
	r := newRedactor(e.loaded.Config, os.Environ())
	export, err := app.StartLogExport(ctx, version, &e.level, func(text string) string { return string(r.redact([]byte(text))) })
	if err != nil {
		return nil, err
	}
	slog.SetDefault(slog.New(newRepeatFilter(slog.NewMultiHandler(e.log, export))))
	return func() {
		slog.SetDefault(slog.New(newRepeatFilter(e.log)))
		export.Close()
	}, nil
}

// withListenAdvice adds advice to the error of an unavailable address.
func withListenAdvice(err error) error {
	network, ok := errors.AsType[*net.OpError](err)
	switch {
	case !ok || network.Op != "listen":
		return err
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w; stop the process that uses it, or choose another address with --listen (for metrics: --metrics-listen; for HTTP-01 challenges: --tls-acme-http-listen, or off)", err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w; ports below 1024 need a privilege: grant CAP_NET_BIND_SERVICE, or choose a higher port with --listen (for HTTP-01 challenges: --tls-acme-http-listen, or off)", err)
	}
	return err
}

// welcome reports the server's address. At the first start it also shows how to
// use it. The key and the link go to the terminal or to a file that only the owner
// can read, never to a log.
func (e *env) welcome(a *app.App) error {
	structured := e.loaded.Log.Format == "json" && !isTerminal(e.out)
	if structured {
		slog.Info("listening", "version", version, "url", a.ListenURL(), "dashboard", people.BrowserURL(a.URL())+"/dashboard/")
	} else {
		fmt.Fprintf(e.out, "Turnpike %s is listening on %s\n", version, a.ListenURL())
	}
	if a.FirstRun != nil {
		text := firstRunText(a)
		if isTerminal(e.out) {
			fmt.Fprint(e.out, text)
			return nil
		}
		path, err := a.SaveFirstRun(text + "Turnpike then deletes this file. Copy the key first.\n")
		if err != nil {
			return err
		}
		if structured {
			slog.Info("first start; a test key and an example request are in a file", "path", path)
		} else {
			fmt.Fprintf(e.out, "First start: a link to the dashboard, a test key and an example request are in %s\n", path)
		}
	} else if !structured {
		fmt.Fprintf(e.out, "The dashboard is at %s/dashboard/\n", people.BrowserURL(a.URL()))
	}
	if a.NeedsOwner && e.loaded.SetupToken == "" {
		slog.Info("no owner yet; to print a link that creates the owner account, run: turnpike setup-link")
	} else if a.NeedsOwner {
		slog.Info("no owner yet; open /dashboard/setup?token= with the token of setup_token to create the owner account", "dashboard", people.BrowserURL(a.URL())+"/dashboard/")
	}
	return nil
}

func firstRunText(a *app.App) string {
	return fmt.Sprintf(`
This is the first start. Here is a test key. It won't be shown again:

  %[2]s

Requests with test keys are free and answered by a simulator. Try it:

  curl %[1]s/v1/chat/completions \
    -H "Authorization: Bearer %[2]s" \
    -H "Content-Type: application/json" \
    -d '{"model":"gpt-5.4-mini","messages":[{"role":"user","content":"Hello!"}]}'

The API reference is at %[1]s/docs/api

Open the dashboard and become its owner. The link works once:

  %[3]s

`, a.URL(), a.FirstRun.TestKey, a.FirstRun.SetUp.URL(a.URL()))
}
