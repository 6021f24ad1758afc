package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/agents"
)

func (e *env) runsWatch() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch RUN_ID",
		Short: "Show the steps of a run as they happen",
		Long: `Shows every step, tool call and approval of a run from the beginning, as they
happen, and then its result. If the connection is lost, the command reconnects
and continues where it was. On a terminal it also shows the commands that approve
or deny pending calls. With --json it prints the run's events, one per line.

It exits with 0 if the run completed, and with 1 if it failed or was canceled.`,
		Example: `  turnpike runs watch run_01h455vb4pex5vsknk084sn02q
  turnpike runs watch run_01h455vb4pex5vsknk084sn02q --json | jq .type`,
		Args: cobra.ExactArgs(1),
	}
	return runs.withObject(e, cmd, func(ctx context.Context, c *apiClient, path string, args []string) error {
		w := &runWatcher{env: e, client: c, id: args[0], path: path, terminal: isTerminal(e.err) && os.Getenv("TERM") != "dumb"}
		err := w.follow(ctx)
		w.lastLine = ""
		w.printAbove(func() {})
		if err != nil {
			return err
		}
		_, r, err := c.fetch(ctx, http.MethodGet, path, nil)
		if err != nil {
			return err
		}
		if !e.asJSON {
			fmt.Fprintln(e.out)
			if err := e.render(e.out, r, "run", "result"); err != nil {
				return err
			}
		}
		return r.endError()
	})
}

type runWatcher struct {
	*env
	client *apiClient
	id     string
	path   string

	terminal bool   // the last line shows the status
	state    string // of the run
	step     int64
	lastLine string

	last         int64 // sequence number of the last event shown
	connected    bool  // the current connection has returned something
	disconnected bool  // and the user knows
}

// follow reads the events to the end, and reconnects as often as necessary.
func (w *runWatcher) follow(ctx context.Context) error {
	b := newBackoff()
	for {
		w.connected = false
		err := w.stream(ctx)
		if w.connected {
			b = newBackoff()
			b.lastOK = time.Now()
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("stopped watching; %s continues on the server (turnpike runs watch %s)", w.id, w.id)
		case !b.retryable(err):
			return err
		}
		if !w.disconnected && !w.asJSON {
			w.printAbove(func() {
				fmt.Fprintf(w.err, "Not connected (%s). Reconnecting; the run continues on the server.\n", message(err))
			})
		}
		w.disconnected = true
		b.wait(ctx, err)
	}
}

const (
	// silenceTimeout is three times the interval of the server's keep-alives.
	silenceTimeout = 45 * time.Second
	// maxRunEvent is larger than any event: an output has up to 256 KiB, and JSON may
	// need six bytes for each.
	maxRunEvent = 4 << 20
)

var errSilence = errors.New("the server sent nothing for " + silenceTimeout.String())

// stream reads events over one connection. It returns nil at the end of the run.
func (w *runWatcher) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(silenceTimeout, func() { cancel(errSilence) })
	defer silence.Stop()
	err := w.connect(ctx, silence)
	if err != nil && context.Cause(ctx) == errSilence {
		return errSilence
	}
	return err
}

func (w *runWatcher) connect(ctx context.Context, silence *time.Timer) error {
	req, err := w.client.request(ctx, http.MethodGet, w.path+"/events?stream=true", nil)
	if err != nil {
		return err
	}
	if w.last > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(w.last, 10))
	}
	client := *w.client.http
	client.Timeout = 0 // a run may take days
	res, err := client.Do(req)
	if err != nil {
		return connectionError(w.client.base, err)
	}
	defer res.Body.Close()
	if res.StatusCode >= http.StatusMultipleChoices {
		text, _ := io.ReadAll(io.LimitReader(res.Body, maxResponse)) // errorResponse handles a part
		return errorResponse(w.client.base, res, text)
	}
	w.connected = true
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxRunEvent)
	failed := false
	for lines.Scan() {
		silence.Reset(silenceTimeout)
		w.disconnected = false
		failed = failed || bytes.Equal(lines.Bytes(), []byte("event: error"))
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		switch {
		case !ok:
		case failed:
			return errorResponse(w.client.base, &http.Response{StatusCode: http.StatusServiceUnavailable}, data)
		case string(data) == "[DONE]":
			return nil
		default:
			if err := w.show(ctx, data); err != nil {
				return err
			}
		}
	}
	err = lines.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return connectionError(w.client.base, err)
}

// show prints an event, unless it was printed before.
func (w *runWatcher) show(ctx context.Context, data json.RawMessage) error {
	ev, err := decode(data)
	if err != nil || ev.num("seq") <= w.last {
		return err
	}
	w.last = ev.num("seq")
	if w.asJSON {
		_, err := fmt.Fprintf(w.out, "%s\n", data)
		return err
	}
	status := ev.sub("data").str("status")
	var waiting object
	if s := agents.Status(status); s == agents.AwaitingApproval && isTerminal(w.in) || s == agents.RequiresAction {
		// The actions of an old event may have been taken already.
		_, r, err := w.client.fetch(ctx, http.MethodGet, w.path, nil)
		if refused, ok := errors.AsType[*apiError](err); ok && refused.Status < http.StatusInternalServerError {
			return err
		}
		if r.str("status") == status {
			waiting = r
		}
	}
	w.updateStatus(ev)
	w.printAbove(func() {
		err = w.print(ev)
		if waiting != nil {
			err = errors.Join(err, w.render(w.out, waiting, "required actions"))
			fmt.Fprintln(w.out)
		}
	})
	return err
}

func (w *runWatcher) print(ev object) error {
	at := w.at(ev.num("created_at"))
	if isTerminal(w.out) {
		at = time.Unix(ev.num("created_at"), 0).Local().Format(time.TimeOnly)
	}
	fmt.Fprint(w.out, at+"  ")
	switch {
	case w.detailTemplates().Lookup(ev.str("type")) != nil:
		return w.render(w.out, ev.sub("data"), ev.str("type"))
	case ev.sub("data").str("status") != "":
		return w.render(w.out, ev.sub("data"), "run status")
	}
	_, err := fmt.Fprintln(w.out, ev.str("type")) // of a newer server
	return err
}

// printAbove calls write. On a terminal, the last line is the status of the run.
func (w *runWatcher) printAbove(write func()) {
	if !w.terminal {
		write()
		return
	}
	fmt.Fprint(w.err, eraseLine)
	write()
	fmt.Fprint(w.err, w.lastLine)
}

const eraseLine = "\r\x1b[J"

// updateStatus sets the last line from an event.
func (w *runWatcher) updateStatus(ev object) {
	if status := ev.sub("data").str("status"); status != "" {
		w.state = strings.ReplaceAll(status, "_", " ")
	}
	w.step = max(w.step, ev.sub("data").num("step"))
	w.lastLine = w.state
	if w.step > 0 {
		w.lastLine += fmt.Sprintf(", step %d", w.step)
	}
}
