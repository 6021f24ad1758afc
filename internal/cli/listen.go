package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/tunnel"
)

type listenFlags struct {
	to         string
	events     []string
	endpoint   string
	resume     string
	skipVerify bool
	printBody  bool
}

func newListen(e *env) *cobra.Command {
	var l listenFlags
	cmd := &cobra.Command{
		Use:   "listen --forward-to ADDRESS",
		Short: "Forward webhook deliveries to a local address",
		Long: `Opens a tunnel to the server and forwards deliveries to a local address, signed
and retried as in production, with the same headers and the same bytes. The
response of your server is recorded as the delivery's attempt.

A new tunnel has its own signing secret, which is printed. With --endpoint it
receives the same events as that endpoint, signed with that endpoint's secret,
and doesn't affect it.

While the tunnel is disconnected, the server holds deliveries for up to a day. The
command reconnects automatically. After Ctrl-C, use --resume to continue. Only
the key that opened a tunnel can resume it.

The key needs the scope webhooks:write. A test key receives test events.`,
		Example: `  turnpike listen --forward-to localhost:3000/hooks
  turnpike listen --forward-to localhost:3000/hooks --events agent.run.*,billing.credits.low
  turnpike listen --forward-to https://localhost:8443/hooks --skip-verify --endpoint wh_…`,
	}
	f := cmd.Flags()
	f.StringVar(&l.to, "forward-to", "", "local address, such as localhost:3000/hooks (required)")
	f.StringSliceVar(&l.events, "events", nil, "event types to forward, comma-separated (default: all)")
	f.StringVar(&l.endpoint, "endpoint", "", "forward the events of this endpoint, signed with its secret")
	f.StringVar(&l.resume, "resume", "", "resume this tunnel")
	f.BoolVar(&l.skipVerify, "skip-verify", false, "accept any certificate at the local address")
	f.BoolVar(&l.printBody, "print-body", false, "print the body of each delivery")
	return e.withClient(cmd, func(ctx context.Context, c *apiClient, _ []string) error {
		target, err := l.check()
		if err != nil {
			return wrongUsage(cmd, err)
		}
		return e.listen(ctx, c, &l, target)
	})
}

func (l *listenFlags) check() (*url.URL, error) {
	if l.to == "" {
		return nil, errors.New("missing address: pass --forward-to localhost:3000/hooks")
	}
	if len(l.events) > 0 && l.endpoint+l.resume != "" || l.endpoint != "" && l.resume != "" {
		return nil, errors.New("--events, --endpoint and --resume exclude each other: a tunnel keeps its events, and a mirror has those of its endpoint")
	}
	return tunnel.ParseTarget(l.to)
}

func (e *env) listen(ctx context.Context, c *apiClient, l *listenFlags, target *url.URL) error {
	p := &listenPrinter{env: e, target: target.String(), body: l.printBody}
	client := tunnel.NewClient(tunnel.Options{BaseURL: c.base, Key: c.key, UserAgent: "turnpike-cli/" + version,
		Events: l.events, Endpoint: l.endpoint, Resume: l.resume, Target: target, SkipVerify: l.skipVerify,
		OnReady: p.onReady, OnForward: p.onForward,
		OnLost: func(err error) { p.onLost(tunnelError(c.base, err)) }})
	if err := client.Run(ctx); err != nil {
		return tunnelError(c.base, err)
	}
	if client.Endpoint() != "" {
		p.onEnd(client.Endpoint(), l.to)
	}
	return nil
}

// tunnelError distinguishes a response of the server from a failed connection.
func tunnelError(base string, err error) error {
	if refused, ok := errors.AsType[*tunnel.Refusal](err); ok {
		return &apiError{Status: refused.Status, Code: refused.Code, Message: refused.Message}
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return connectionError(base, err)
	}
	return err
}

// listenPrinter prints deliveries to standard output and the state of the
// connection to standard error, or with --json all of it as JSON lines to standard
// output.
type listenPrinter struct {
	*env
	target string
	body   bool

	disconnected      bool // and the user knows
	forwarded, failed int64
}

func (p *listenPrinter) jsonLine(v any) {
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the reader may be gone
}

func (p *listenPrinter) onReady(r tunnel.Ready) {
	p.disconnected = false
	if p.asJSON {
		p.jsonLine(map[string]any{"type": "ready", "endpoint": r.Endpoint, "events": r.Events, "secret": r.Secret, "mirrors": r.Mirrors,
			"again": r.Reconnected, "replaced": r.Replaced, "forward_to": p.target})
		return
	}
	forwarding := fmt.Sprintf("forwarding %s to %s", strings.Join(r.Events, ", "), p.target)
	switch {
	case r.Replaced && r.Mirrors == "":
		fmt.Fprintf(p.out, "The tunnel no longer exists. Opened another one with a new signing secret: %s (%s)\n", r.Secret, forwarding)
	case r.Reconnected:
		fmt.Fprintln(p.err, "Reconnected.")
	case r.Mirrors != "":
		fmt.Fprintf(p.out, "Ready. Signed with the secret of %s (%s)\n", r.Mirrors, forwarding)
	case r.Secret != "":
		fmt.Fprintf(p.out, "Ready. Signing secret: %s (%s)\n", r.Secret, forwarding)
	default:
		fmt.Fprintf(p.out, "Ready. The signing secret is the same as before (%s)\n", forwarding)
	}
}

func (p *listenPrinter) onLost(err error) {
	if p.asJSON {
		p.jsonLine(map[string]any{"type": "lost", "error": message(err)})
		return
	}
	if !p.disconnected {
		fmt.Fprintf(p.err, "Not connected (%s). Reconnecting; the server holds deliveries meanwhile.\n", message(err))
	}
	p.disconnected = true
}

func (p *listenPrinter) onForward(f tunnel.Forwarded) {
	ok := f.Status >= http.StatusOK && f.Status < http.StatusMultipleChoices
	p.forwarded++
	if !ok {
		p.failed++
	}
	if p.asJSON {
		line := map[string]any{"type": "forwarded", "time": time.Now().Unix(), "event": f.Type, "delivery": f.ID, "attempt": f.Attempt,
			"status": f.Status, "latency_ms": f.Took.Milliseconds()}
		if f.Error != "" {
			line["error"] = f.Error
		}
		if p.body {
			line["body"] = string(f.Body)
		}
		p.jsonLine(line)
		return
	}
	color, result := red, strconv.Itoa(f.Status)
	switch {
	case ok:
		color = green
	case f.Status == 0:
		result = f.Error
	}
	attempt := ""
	if f.Attempt > 1 {
		attempt = fmt.Sprintf(", attempt %d", f.Attempt)
	}
	fmt.Fprintf(p.out, "%s  %-27s  %s  → %s  (%d ms%s)\n", time.Now().Format(time.TimeOnly), f.Type, f.ID, p.paint(color, result), f.Took.Milliseconds(), attempt)
	if p.body {
		fmt.Fprintf(p.out, "%s\n", visible(string(f.Body)))
	}
}

func (p *listenPrinter) onEnd(endpoint, to string) {
	if p.asJSON {
		p.jsonLine(map[string]any{"type": "end", "endpoint": endpoint, "forwarded": p.forwarded, "failed": p.failed})
		return
	}
	text := "Forwarded " + counted(p.forwarded, "delivery", "deliveries")
	if p.failed > 0 {
		text += fmt.Sprintf(", %d of which failed", p.failed)
	}
	fmt.Fprintf(p.err, "%s. The server holds deliveries for 24 hours. To resume:\n  turnpike listen --resume %s --forward-to %s\n", text, endpoint, to)
}
