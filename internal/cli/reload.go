package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/app"
	"turnpike/internal/config"
)

// watchInterval is how often a server checks the files of its configuration. A
// change is applied when two checks find the same content, because a file may be
// half written.
const watchInterval = 2 * time.Second

func newReload(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Apply changed settings to the running server",
		Long: `Makes the server that uses the same data directory read its configuration again,
with its own flags and environment variables. It applies new providers, prices,
routes, limits, certificates, mail and sign-in servers, backups and other settings
without interrupting requests, and prints which settings changed and which need a
restart. If a setting is invalid, the server changes nothing, and the command exits
with 1.`,
		Example: `  turnpike reload
  turnpike reload --data /var/lib/turnpike`,
	}
	e.withConfig(cmd, nil)
	cmd.RunE = e.reload
	return cmd
}

func (e *env) reload(cmd *cobra.Command, _ []string) error {
	loaded, _, invalid := readConfig(cmd)
	if invalid != nil {
		// The server reports what is wrong. To find it, the file isn't needed if a flag
		// or variable has the data directory.
		loaded, _ = config.Load(config.Sources{Flags: cmd.Flags(), Environ: os.Environ(), ReadFile: func(string) ([]byte, error) { return nil, nil }})
	}
	result, err := app.RequestReload(cmd.Context(), loaded.Data)
	if errors.Is(err, app.ErrNoServer) {
		if invalid != nil {
			return invalid
		}
		return fmt.Errorf("%w in %s; pass the server's data directory with --data or TURNPIKE_DATA", err, loaded.Data)
	}
	if err != nil {
		return fmt.Errorf("the server changed nothing: %w", err)
	}
	return e.report(result, "%s", reloadText(result))
}

func reloadText(r app.Reloaded) string {
	text := "Applied " + strings.Join(r.Applied, ", ") + ".\n"
	if len(r.Applied) == 0 {
		text = "No setting that the server can apply has changed.\n"
	}
	if len(r.Restart) > 0 {
		text += "Restart the server to apply " + strings.Join(r.Restart, ", ") + ".\n"
	}
	return text
}

// fileSums are the files that a configuration was read from, with their hashes.
type fileSums map[string][sha256.Size]byte

// read reads a file and records its content.
func (s fileSums) read(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		s[path] = sha256.Sum256([]byte(err.Error()))
		return nil, err
	}
	s[path] = sha256.Sum256(data)
	return data, nil
}

// current returns the hashes of the same files as they are now.
func (s fileSums) current() fileSums {
	now := fileSums{}
	for path := range s {
		_, _ = now.read(path) // the hash records an error, too
	}
	return now
}

func (s fileSums) equal(other fileSums) bool {
	for path, sum := range s {
		if other[path] != sum {
			return false
		}
	}
	return true
}

func readConfig(cmd *cobra.Command) (config.Loaded, fileSums, error) {
	files := fileSums{}
	loaded, err := config.Load(config.Sources{Flags: cmd.Flags(), Environ: os.Environ(), ReadFile: files.read})
	return loaded, files, err
}

// reloader applies changed settings to a running server.
type reloader struct {
	env     *env
	cmd     *cobra.Command
	hangups chan struct{}
	running sync.WaitGroup

	mu    sync.Mutex
	app   *app.App
	files fileSums // of the last attempt
}

func newReloader(e *env, cmd *cobra.Command) *reloader {
	return &reloader{env: e, cmd: cmd, hangups: make(chan struct{}, 1), files: e.files}
}

// handleHangup reloads on SIGHUP. If the server had a terminal and it is gone,
// the signal means that it was closed, and the server stops.
func (r *reloader) handleHangup(stop func()) {
	hadTerminal := hasTerminal()
	handle := func() {
		if hadTerminal && !hasTerminal() {
			stop()
			return
		}
		select {
		case r.hangups <- struct{}{}:
		default: // one is pending
		}
	}
	r.env.onHangup.Store(&handle)
}

// start accepts requests to reload until ctx ends, and watches the files.
func (r *reloader) start(ctx context.Context, a *app.App) {
	r.app = a
	a.ServeControl(r.reload)
	r.running.Go(func() {
		tick := time.NewTicker(watchInterval)
		defer tick.Stop()
		var changed fileSums // seen by the last check, if the files had changed
		for {
			select {
			case <-r.hangups:
				_, _ = r.reload(ctx) // which logs the error
			case <-tick.C:
				changed = r.check(ctx, changed)
			case <-ctx.Done():
				return
			}
		}
	})
}

// check reloads if the files have changed, and are the same as in the check
// before. It returns changes that the next check may confirm.
func (r *reloader) check(ctx context.Context, before fileSums) fileSums {
	r.mu.Lock()
	tried := r.files
	r.mu.Unlock()
	now := tried.current()
	switch {
	case tried.equal(now):
		return nil
	case before == nil || !before.equal(now):
		return now
	}
	if _, err := r.reload(ctx); errors.Is(err, app.ErrRejoining) {
		r.mu.Lock()
		r.files = tried // so that the next check retries
		r.mu.Unlock()
		return now
	}
	return nil
}

// reload reads the configuration again, applies it and logs the result.
func (r *reloader) reload(ctx context.Context) (app.Reloaded, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var next config.Loaded
	result, err := r.app.Reload(ctx, func() (config.Config, error) {
		loaded, files, err := readConfig(r.cmd)
		for path, sum := range r.files { // a file that wasn't read because of an error in another
			if _, read := files[path]; !read && err != nil {
				files[path] = sum
			}
		}
		next, r.files = loaded, files
		if err == nil {
			err = loaded.Validate()
		}
		return loaded.Config, err
	})
	if err != nil {
		slog.Error("failed to reload the configuration; nothing has changed", "error", err)
		return result, err
	}
	r.env.level.Set(next.Log.Level)
	for _, w := range next.Warnings {
		slog.Warn(w)
	}
	slog.Info("reloaded the configuration", "applied", result.Applied, "hash", result.Hash)
	if len(result.Restart) > 0 {
		slog.Warn("changed settings need a restart", "settings", result.Restart)
	}
	return result, nil
}
