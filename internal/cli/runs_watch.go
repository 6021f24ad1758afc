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
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"turnpike/internal/agents"
	"turnpike/internal/credits"
	"turnpike/internal/events"
)

func (e *env) runsWatch() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch RUN_ID",
		Short: "Show what a run does, as it does it",
		Long: `Shows every step, tool call and approval of a run from its beginning on, as it
happens, until the run has ended; then its result. A connection that is lost is made
again, and nothing is missed. On a terminal it also shows the commands that approve
or deny what the run asks about. With --json it prints the run's log, a line each.

It exits with 0 when the run is completed, and with 1 when it failed or was cancelled.`,
		Example: `  turnpike runs watch run_01h455vb4pex5vsknk084sn02q
  turnpike runs watch run_01h455vb4pex5vsknk084sn02q --json | jq .type`,
		Args: cobra.ExactArgs(1),
	}
	return e.client(cmd, func(ctx context.Context, c *apiClient, args []string) error {
		path, err := runPath(args[0])
		if err != nil {
			return usageError{cmd.CommandPath(), err}
		}
		w := &runWatcher{env: e, client: c, id: args[0], path: path, state: newStateLine(e.err)}
		err = w.follow(ctx)
		w.state.end()
		if err != nil {
			return err
		}
		_, r, err := c.run(ctx, path)
		if err != nil {
			return err
		}
		if !e.asJSON {
			fmt.Fprintln(e.out)
			e.printRun(r)
			e.printResult(r)
		}
		return runEnd(r)
	})
}

// runEvent is a line of a run's log.
type runEvent struct {
	Seq  int64  `json:"seq"`
	Type string `json:"type"`
	Data struct {
		Step       int64                      `json:"step"`
		Text       string                     `json:"text"`
		Credits    credits.Micro              `json:"credits"`
		CallID     string                     `json:"call_id"`
		Tool       string                     `json:"tool"`
		Output     string                     `json:"output"`
		IsError    bool                       `json:"is_error"`
		Simulated  bool                       `json:"simulated"`
		ApprovalID string                     `json:"approval_id"`
		Arguments  string                     `json:"arguments"`
		Decision   string                     `json:"decision"`
		DecidedBy  string                     `json:"decided_by"`
		Reason     string                     `json:"reason"`
		Status     string                     `json:"status"`
		Error      *events.AgentError         `json:"error"`
		Passed     bool                       `json:"passed"`
		Checks     []events.VerificationCheck `json:"checks"`
	} `json:"data"`
	CreatedAt int64 `json:"created_at"`
}

// runWatcher reads a run's log.
type runWatcher struct {
	*env
	client *apiClient
	id     string
	path   string
	state  *stateLine

	last  int64     // event that was shown
	heard time.Time // when the server last said anything; zero before it did
	away  bool      // the connection was lost, and that was said
}

// follow reads the log to its end, over as many connections as that takes.
func (w *runWatcher) follow(ctx context.Context) error {
	lost, pause := time.Now(), firstJobLook
	for {
		before := w.heard
		err := w.stream(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("not watched any longer; %s goes on by itself (turnpike runs watch %s)", w.id, w.id)
		case !passing(err) || w.heard.IsZero() && !asksForTime(err):
			return err
		case w.heard != before: // it was there, and is gone
			lost, pause = time.Now(), firstJobLook
		case time.Since(lost) >= patience:
			return err
		}
		if !w.away && !w.asJSON {
			w.state.aside(func() {
				fmt.Fprintf(w.err, "Not connected (%s). Trying to come back; the run goes on meanwhile.\n", message(err))
			})
		}
		w.away = true
		select {
		case <-ctx.Done():
		case <-time.After(max(pause, timeAskedFor(err))):
		}
		pause = min(pause*3/2, lastJobLook)
	}
}

const (
	// silence is when a connection counts as lost: the server says something
	// three times as often.
	silence = 45 * time.Second
	// maxRunEvent is more than an event's length: an output has 256 KiB, and
	// each of its bytes may be six in JSON.
	maxRunEvent = 4 << 20
)

// stream reads the log over one connection, for as long as that says something.
// It is nil at the log's end.
func (w *runWatcher) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer late.Stop()
	err := w.connect(ctx, late)
	if err != nil && context.Cause(ctx) == errSilent {
		return errSilent
	}
	return err
}

// errSilent is a connection that nothing came over.
var errSilent = errors.New("the server fell silent")

func (w *runWatcher) connect(ctx context.Context, late *time.Timer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.client.base+w.path+"/events?stream=true", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+w.client.key)
	req.Header.Set("User-Agent", "turnpike-cli/"+version)
	if w.last > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(w.last, 10))
	}
	unhurried := *w.client.http
	unhurried.Timeout = 0 // it may take days
	res, err := unhurried.Do(req)
	if err != nil {
		return unreachable(w.client.base, err)
	}
	defer res.Body.Close()
	if res.StatusCode >= http.StatusMultipleChoices {
		answer, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer)) // what came is all that there is to say
		return refusal(w.client.base, res, answer)
	}
	w.heard = time.Now()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxRunEvent)
	failed := false
	for lines.Scan() {
		late.Reset(silence)
		w.heard, w.away = time.Now(), false
		line := lines.Bytes()
		if bytes.Equal(line, []byte("event: error")) {
			failed = true
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		switch {
		case !ok:
		case failed:
			return refusal(w.client.base, &http.Response{StatusCode: http.StatusServiceUnavailable}, data)
		case string(data) == "[DONE]":
			return nil
		default:
			if err := w.show(ctx, data); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return unreachable(w.client.base, err)
	}
	return unreachable(w.client.base, io.ErrUnexpectedEOF)
}

// show prints an event, once.
func (w *runWatcher) show(ctx context.Context, data []byte) error {
	var e runEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("read event: %w", err)
	}
	if e.Seq <= w.last {
		return nil
	}
	w.last = e.Seq
	if w.asJSON {
		_, err := fmt.Fprintf(w.out, "%s\n", data)
		return err
	}
	var waits *events.AgentRun
	if s := agents.Status(e.Data.Status); s == agents.AwaitingApproval && w.interactive() || s == agents.RequiresAction {
		// Asked for, and not in the log: an old one may be decided about already.
		_, r, err := w.client.run(ctx, w.path)
		if err != nil && !passing(err) {
			return err
		}
		if err == nil && r.Status == e.Data.Status {
			waits = r
		}
	}
	w.state.set(&e)
	w.state.aside(func() {
		w.print(&e)
		if waits != nil {
			w.printWaits(waits, w.interactive())
			fmt.Fprintln(w.out)
		}
	})
	return nil
}

// print writes an event as a line, and what it brought below it.
func (w *runWatcher) print(e *runEvent) {
	d := &e.Data
	line := func(format string, args ...any) {
		fmt.Fprintf(w.out, "%s  %s\n", w.clock(e.CreatedAt), fmt.Sprintf(format, args...))
	}
	switch e.Type {
	case "step.started":
		line("step %d", d.Step)
	case "step.completed":
		line("step %d %s, %s credits", d.Step, w.status("completed"), d.Credits)
		w.printIndented("    ", longText(d.Text))
	case "tool_call.requested":
		line("%s  %s wanted", visible(d.CallID), visible(d.Tool))
		w.printIndented("    ", longText(d.Arguments))
	case "tool_call.started":
		line("%s  %s", visible(d.CallID), visible(d.Tool))
	case "tool_call.completed":
		word := w.status("completed")
		if d.IsError {
			word = w.status("failed")
		}
		if d.Simulated {
			word += ", simulated"
		}
		line("%s  %s %s", visible(d.CallID), visible(d.Tool), word)
		w.printIndented("    ", longText(d.Output))
	case "approval.requested":
		line("%s  %s asks for the %s %s", visible(d.CallID), visible(d.Tool), w.paint(yellow, "approval"), d.ApprovalID)
		w.printIndented("    ", d.Arguments)
	case "approval.decided":
		line("%s  %s by %s", visible(d.CallID), decided(visible(d.Decision)), visible(d.DecidedBy))
		w.printIndented("    ", longText(d.Reason))
	case "run.verified":
		line("checked")
		for _, c := range d.Checks {
			w.printIndented("    ", longText(verdict(c)))
		}
	default:
		if d.Status == "" {
			line("%s", visible(e.Type)) // of a server that is newer
			return
		}
		line("%s", w.runStatus(d.Status))
		if d.Error != nil {
			w.printIndented("    ", runFailure(d.Error))
		}
	}
}

// clock is a moment of today for people, and a whole one for other programs.
func (w *runWatcher) clock(unix int64) string {
	if isTerminal(w.out) {
		return time.Unix(unix, 0).Local().Format(time.TimeOnly)
	}
	return w.at(unix)
}

// stateLine is the last line of a terminal: how far the run is, and for how
// long it has been there. Elsewhere it is nothing.
type stateLine struct {
	bar *progress // knows the terminal

	mu     sync.Mutex
	status string
	step   int64
	since  time.Time
	stop   chan struct{}
	over   sync.WaitGroup
}

func newStateLine(out io.Writer) *stateLine {
	s := &stateLine{bar: newProgress(out, "", 0)}
	if s.bar.width == nil {
		return s
	}
	s.stop = make(chan struct{})
	s.over.Go(func() {
		second := time.NewTicker(time.Second)
		defer second.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-second.C:
				s.aside(func() {})
			}
		}
	})
	return s
}

// set takes over what an event says.
func (s *stateLine) set(e *runEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Data.Status != "" {
		s.status, s.since = e.Data.Status, time.Unix(e.CreatedAt, 0)
	}
	if e.Data.Step > s.step {
		s.step = e.Data.Step
	}
}

// aside clears the line, has something else printed, and draws it again.
func (s *stateLine) aside(write func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar.width == nil {
		write()
		return
	}
	width := s.bar.width()
	s.bar.clear(width)
	write()
	if s.status == "" {
		return
	}
	text := s.text(width - 1) // the last column would make some terminals wrap
	fmt.Fprint(s.bar.out, text)
	s.bar.occupied = utf8.RuneCountInString(text)
}

func (s *stateLine) text(room int) string {
	parts := []string{strings.ReplaceAll(visible(s.status), "_", " ")}
	if s.step > 0 {
		parts = append(parts, fmt.Sprintf("step %d", s.step))
	}
	r := []rune(strings.Join(append(parts, "for "+span(max(0, time.Since(s.since)))), ", "))
	return string(r[:max(0, min(len(r), room))])
}

// end clears the line for good.
func (s *stateLine) end() {
	if s.stop == nil {
		return
	}
	close(s.stop)
	s.over.Wait()
	s.bar.clear(s.bar.width())
}
