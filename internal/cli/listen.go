package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// line prints a line: JSON to standard output, or text.
func (p *listenPrinter) line(v map[string]any, to io.Writer, format string, args ...any) {
	if !p.asJSON {
		fmt.Fprintf(to, format+"\n", args...)
		return
	}
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the reader may be gone
}

func (p *listenPrinter) onReady(r tunnel.Ready) {
	p.disconnected = false
	ready := map[string]any{"type": "ready", "endpoint": r.Endpoint, "events": r.Events, "secret": r.Secret, "mirrors": r.Mirrors,
		"again": r.Reconnected, "replaced": r.Replaced, "forward_to": p.target}
	state := "Ready. The signing secret is the same as before"
	switch {
	case r.Replaced && r.Mirrors == "":
		state = "The tunnel no longer exists. Opened another one with a new signing secret: " + r.Secret
	case r.Reconnected:
		p.line(ready, p.err, "Reconnected.")
		return
	case r.Mirrors != "":
		state = "Ready. Signed with the secret of " + r.Mirrors
	case r.Secret != "":
		state = "Ready. Signing secret: " + r.Secret
	}
	p.line(ready, p.out, "%s (forwarding %s to %s)", state, strings.Join(r.Events, ", "), p.target)
}

func (p *listenPrinter) onLost(err error) {
	if p.asJSON || !p.disconnected {
		p.line(map[string]any{"type": "lost", "error": message(err)}, p.err,
			"Not connected (%s). Reconnecting; the server holds deliveries meanwhile.", message(err))
	}
	p.disconnected = true
}

func (p *listenPrinter) onForward(f tunnel.Forwarded) {
	ok := f.Status >= http.StatusOK && f.Status < http.StatusMultipleChoices
	p.forwarded++
	if !ok {
		p.failed++
	}
	line := map[string]any{"type": "forwarded", "time": time.Now().Unix(), "event": f.Type, "delivery": f.ID, "attempt": f.Attempt,
		"status": f.Status, "latency_ms": f.Took.Milliseconds()}
	color, result, attempt, body := red, strconv.Itoa(f.Status), "", ""
	if ok {
		color = green
	}
	if f.Error != "" {
		line["error"] = f.Error
	}
	if f.Status == 0 {
		result = f.Error
	}
	if f.Attempt > 1 {
		attempt = fmt.Sprintf(", attempt %d", f.Attempt)
	}
	if p.body {
		line["body"], body = string(f.Body), "\n"+visible(string(f.Body))
	}
	p.line(line, p.out, "%s  %-27s  %s  → %s  (%d ms%s)%s",
		time.Now().Format(time.TimeOnly), f.Type, f.ID, p.paint(color, result), f.Took.Milliseconds(), attempt, body)
}

func (p *listenPrinter) onEnd(endpoint, to string) {
	text := "Forwarded " + counted(p.forwarded, "delivery", "deliveries")
	if p.failed > 0 {
		text += fmt.Sprintf(", %d of which failed", p.failed)
	}
	p.line(map[string]any{"type": "end", "endpoint": endpoint, "forwarded": p.forwarded, "failed": p.failed}, p.err,
		"%s. The server holds deliveries for 24 hours. To resume:\n  turnpike listen --resume %s --forward-to %s", text, endpoint, to)
}
