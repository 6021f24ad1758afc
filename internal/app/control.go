package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"time"
)

// controlFile is the socket in the data directory on which a server accepts
// commands of the operator. Only the server's user can open it.
const controlFile = "control.sock"

// maxControlReply limits the result of a command. The metrics of a busy server
// take a few hundred kilobytes.
const maxControlReply = 16 << 20

// ErrNoServer means that no server listens in the data directory.
var ErrNoServer = errors.New("no running server found")

// ServeControl accepts commands of the operator until the server is closed.
// Reload runs when one asks for it. Without a socket the server works as well,
// so a failure is only logged.
func (a *App) ServeControl(reload func(context.Context) (Reloaded, error)) {
	ln, err := listenControl(a.cfg.Data)
	if err != nil {
		slog.Warn("turnpike reload cannot reach this server; send it SIGHUP instead", "error", err)
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /reload", func(w http.ResponseWriter, r *http.Request) {
		result, err := reload(r.Context())
		if err != nil {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, err.Error())
			return
		}
		_ = json.NewEncoder(w).Encode(result)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		i := a.instance.Load()
		if i == nil {
			http.Error(w, ErrRejoining.Error(), http.StatusServiceUnavailable)
			return
		}
		i.registry.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /goroutines", serveGoroutines)
	mux.HandleFunc("GET /memory", serveMemory)
	mux.HandleFunc("GET /profile", pprof.Profile)
	a.control = &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}
	go func() { _ = a.control.Serve(ln) }()
}

func listenControl(data string) (net.Listener, error) {
	if err := createDataDirectory(data); err != nil {
		return nil, err
	}
	path := filepath.Join(data, controlFile)
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("another server uses %s", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a server that crashed
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, err
	}
	return ln, nil
}

// RequestReload makes the server of a data directory reload its configuration.
// It returns ErrNoServer if there is none, and otherwise the server's result.
func RequestReload(ctx context.Context, data string) (out Reloaded, err error) {
	body, err := requestControl(ctx, data, http.MethodPost, "/reload")
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(body, &out)
}

// FetchMetrics returns the metrics of the server of a data directory.
func FetchMetrics(ctx context.Context, data string) ([]byte, error) {
	return requestControl(ctx, data, http.MethodGet, "/metrics")
}

// FetchGoroutines returns the stacks of the goroutines of the server.
func FetchGoroutines(ctx context.Context, data string) ([]byte, error) {
	return requestControl(ctx, data, http.MethodGet, "/goroutines")
}

// FetchMemory returns a summary of the server's memory as JSON.
func FetchMemory(ctx context.Context, data string) ([]byte, error) {
	return requestControl(ctx, data, http.MethodGet, "/memory")
}

// FetchProfile returns a CPU profile of the server over a time.
func FetchProfile(ctx context.Context, data string, over time.Duration) ([]byte, error) {
	return requestControl(ctx, data, http.MethodGet, fmt.Sprintf("/profile?seconds=%g", over.Seconds()))
}

func requestControl(ctx context.Context, data, method, page string) ([]byte, error) {
	path := filepath.Join(data, controlFile)
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{ //budget:own the server of this machine
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, "http://server"+page, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if network, ok := errors.AsType[*net.OpError](err); ok && network.Op == "dial" {
		return nil, fmt.Errorf("%w: %w", ErrNoServer, network.Err)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the running server: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxControlReply)) //budget:own the server of this machine
	if err != nil {
		return nil, fmt.Errorf("ask the running server: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(string(bytes.TrimSpace(body)))
	}
	return body, nil
}
