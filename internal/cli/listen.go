package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/tunnel"
)

// listening is what turnpike listen was asked for.
type listening struct {
	to         string
	events     []string
	endpoint   string
	resume     string
	skipVerify bool
	printBody  bool
}

func newListen(e *env) *cobra.Command {
	var l listening
	cmd := &cobra.Command{
		Use:   "listen --forward-to ADDRESS",
		Short: "Forward webhook deliveries to an address on this machine",
		Long: `Opens a tunnel to the server and forwards deliveries to a local address, signed
and retried as in production, with the same headers and the same bytes. What
your server answers is recorded as the delivery's attempt.

A new tunnel has a signing secret of its own, which is printed. With --endpoint
it gets what that endpoint gets, signed with that endpoint's secret, and has no
effect on it.

While the connection is away the server holds what comes, for up to a day. The
tunnel comes back by itself; after Ctrl-C, --resume comes back to it. Only the key
that opened a tunnel can resume it.

The key needs the scope webhooks:write. A test key gets test events.`,
		Example: `  turnpike listen --forward-to localhost:3000/hooks
  turnpike listen --forward-to localhost:3000/hooks --events agent.run.*,billing.credits.low
  turnpike listen --forward-to https://localhost:8443/hooks --skip-verify --endpoint wh_…`,
	}
	f := cmd.Flags()
	f.StringVar(&l.to, "forward-to", "", "local address, such as localhost:3000/hooks (required)")
	f.StringSliceVar(&l.events, "events", nil, "events to forward, comma-separated (default: all)")
	f.StringVar(&l.endpoint, "endpoint", "", "forward what this endpoint gets, signed with its secret")
	f.StringVar(&l.resume, "resume", "", "come back to this tunnel")
	f.BoolVar(&l.skipVerify, "skip-verify", false, "accept any certificate at the local address")
	f.BoolVar(&l.printBody, "print-body", false, "print each delivery's body")
	return e.client(cmd, func(ctx context.Context, c *apiClient, _ []string) error {
		target, err := l.check()
		if err != nil {
			return usageError{cmd.CommandPath(), err}
		}
		return e.listen(ctx, c, &l, target)
	})
}

// check refuses what makes no sense before anything is called.
func (l *listening) check() (*url.URL, error) {
	if l.to == "" {
		return nil, errors.New("say where deliveries go: --forward-to localhost:3000/hooks")
	}
	chosen := 0
	for _, given := range []bool{len(l.events) > 0, l.endpoint != "", l.resume != ""} {
		if given {
			chosen++
		}
	}
	if chosen > 1 {
		return nil, errors.New("--events, --endpoint and --resume exclude each other: a mirror has the events of its endpoint, and a tunnel keeps its own")
	}
	return tunnel.ParseTarget(l.to)
}

func (e *env) listen(ctx context.Context, c *apiClient, l *listening, target *url.URL) error {
	said := &narrator{env: e, target: target.String(), body: l.printBody}
	client := tunnel.NewClient(tunnel.Options{BaseURL: c.base, Key: c.key, UserAgent: "turnpike-cli/" + version,
		Events: l.events, Endpoint: l.endpoint, Resume: l.resume, Target: target, SkipVerify: l.skipVerify,
		OnReady: said.onReady, OnForward: said.onForward,
		OnLost: func(err error) { said.onLost(reached(c.base, err)) }})
	if err := client.Run(ctx); err != nil {
		return reached(c.base, err)
	}
	if client.Endpoint() != "" {
		said.goodbye(client.Endpoint(), l.to)
	}
	return nil
}

// reached tells what the server said from not reaching it.
func reached(base string, err error) error {
	var refused *tunnel.Refusal
	var transport *url.Error
	switch {
	case errors.As(err, &refused):
		return &apiError{Status: refused.Status, Code: refused.Code, Message: refused.Message}
	case errors.As(err, &transport):
		return unreachable(base, err)
	}
	return err
}

// narrator prints what happens: deliveries to standard output, the state of
// the connection to standard error, with --json all of it as lines of JSON to
// standard output.
type narrator struct {
	*env
	target string
	body   bool

	away              bool // the connection was lost, and that was said
	forwarded, failed int
}

// line writes one object for machines.
func (n *narrator) line(v any) {
	enc := json.NewEncoder(n.out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // whoever reads it may have left
}

func (n *narrator) onReady(r tunnel.Ready) {
	n.away = false
	if n.asJSON {
		n.line(map[string]any{"type": "ready", "endpoint": r.Endpoint, "events": r.Events, "secret": r.Secret, "mirrors": r.Mirrors,
			"again": r.Again, "replaced": r.Replaced, "forward_to": n.target})
		return
	}
	forwarding := fmt.Sprintf("forwarding %s to %s", strings.Join(r.Events, ", "), n.target)
	switch {
	case r.Replaced && r.Mirrors == "":
		fmt.Fprintf(n.out, "The tunnel was gone, and here is another. Its signing secret is new: %s (%s)\n", r.Secret, forwarding)
	case r.Again:
		fmt.Fprintln(n.err, "Connected again.")
	case r.Mirrors != "":
		fmt.Fprintf(n.out, "Ready. Signed with the secret of %s (%s)\n", r.Mirrors, forwarding)
	case r.Secret != "":
		fmt.Fprintf(n.out, "Ready. Signing secret: %s (%s)\n", r.Secret, forwarding)
	default:
		fmt.Fprintf(n.out, "Ready. The signing secret is that of before (%s)\n", forwarding)
	}
}

func (n *narrator) onLost(err error) {
	if n.asJSON {
		n.line(map[string]any{"type": "lost", "error": message(err)})
		return
	}
	if !n.away {
		fmt.Fprintf(n.err, "Not connected (%s). Trying to come back; the server holds what comes meanwhile.\n", message(err))
	}
	n.away = true
}

func (n *narrator) onForward(f tunnel.Forwarded) {
	n.forwarded++
	if f.Status < 200 || f.Status > 299 {
		n.failed++
	}
	if n.asJSON {
		line := map[string]any{"type": "forwarded", "time": time.Now().Unix(), "event": f.Type, "delivery": f.ID, "attempt": f.Attempt,
			"status": f.Status, "latency_ms": f.Took.Milliseconds()}
		if f.Error != "" {
			line["error"] = f.Error
		}
		if n.body {
			line["body"] = string(f.Body)
		}
		n.line(line)
		return
	}
	answer := n.paint(red, strconv.Itoa(f.Status))
	switch {
	case f.Status == 0:
		answer = n.paint(red, f.Error)
	case f.Status >= 200 && f.Status <= 299:
		answer = n.paint(green, strconv.Itoa(f.Status))
	}
	again := ""
	if f.Attempt > 1 {
		again = fmt.Sprintf(", attempt %d", f.Attempt)
	}
	fmt.Fprintf(n.out, "%s  %-27s  %s  → %s  (%d ms%s)\n", time.Now().Format(time.TimeOnly), f.Type, f.ID, answer, f.Took.Milliseconds(), again)
	if n.body {
		fmt.Fprintf(n.out, "%s\n", visible(string(f.Body)))
	}
}

func (n *narrator) goodbye(endpoint, to string) {
	if n.asJSON {
		n.line(map[string]any{"type": "end", "endpoint": endpoint, "forwarded": n.forwarded, "failed": n.failed})
		return
	}
	text := fmt.Sprintf("Forwarded %d deliveries", n.forwarded)
	if n.forwarded == 1 {
		text = "Forwarded 1 delivery"
	}
	if n.failed > 0 {
		text += fmt.Sprintf(", %d of which failed", n.failed)
	}
	fmt.Fprintf(n.err, "%s. The server holds what comes for 24 hours; come back with:\n  turnpike listen --resume %s --forward-to %s\n", text, endpoint, to)
}
