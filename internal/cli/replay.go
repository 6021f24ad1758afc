package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/ids"
	"turnpike/internal/webhooks"
)

// replayFlags say what is sent again.
type replayFlags struct {
	endpoint     string
	since, until string
	types        []string
	status       string
	newID        bool
	yes          bool
	noWait       bool
}

// replay is one as the API shows it. Done counts what was handed to the
// endpoint's lane; the deliveries say what came of it.
type replay struct {
	ID         string `json:"id"`
	EndpointID string `json:"endpoint_id"`
	Status     string `json:"status"`
	Since      int64  `json:"since"`
	Until      int64  `json:"until"`
	Total      int64  `json:"total"`
	Done       int64  `json:"done"`
}

var replayStatuses = []string{webhooks.ReplayFailed, webhooks.ReplayAll, webhooks.ReplayMissed}

func (e *env) deliveriesReplay() *cobra.Command {
	var r replayFlags
	cmd := &cobra.Command{
		Use:   "replay DELIVERY_ID... | replay --endpoint wh_… --since TIME",
		Short: "Send deliveries again: some by their ids, or many of an endpoint",
		Long: `Sends deliveries again, each with a full schedule of retries. Events can be
replayed for 30 days.

With ids it replays those. With --endpoint and --since it replays what happened
since then: it says how much that is, asks on a terminal, and shows how far it has
come until everything is handed to the endpoint's queue. It exits with 1 when the
endpoint is paused meanwhile, which stops the replay.

A replayed delivery keeps its id, so a receiver that has it already knows it
again; with --new-id it gets a new one and is processed a second time.`,
		Example: `  turnpike deliveries replay dlv_01h455vb4pex5vsknk084sn02q
  turnpike deliveries replay --endpoint wh_01h455vb4pex5vsknk084sn02q --since 2h
  turnpike deliveries replay --endpoint wh_01h455vb4pex5vsknk084sn02q --since 3d --until 1d --status all --yes
  turnpike deliveries replay --endpoint wh_01h455vb4pex5vsknk084sn02q --since 30d --status missed --type image.batch.completed`,
		Args: cobra.ArbitraryArgs,
	}
	f := cmd.Flags()
	f.StringVar(&r.endpoint, "endpoint", "", "replay many: those of this endpoint (wh_…)")
	f.StringVar(&r.since, "since", "", "replay events since: a span back from now (2h, 7d), a date, RFC 3339 or Unix seconds")
	f.StringVar(&r.until, "until", "", "replay events before: the same forms (default: now)")
	f.StringSliceVar(&r.types, "type", nil, "replay only these events, comma-separated")
	f.StringVar(&r.status, "status", webhooks.ReplayFailed, "what to replay: failed, all that were finished, or missed, which are events that the endpoint never got")
	f.BoolVar(&r.newID, "new-id", false, "give each a new delivery id, so that the receiver processes it again")
	f.BoolVar(&r.yes, "yes", false, "do not ask")
	f.BoolVar(&r.noWait, "no-wait", false, "start it and return; the server goes on")
	completeDeliveryFlags(cmd, replayStatuses)
	return e.client(cmd, func(ctx context.Context, c *apiClient, args []string) error {
		if err := r.check(cmd, args); err != nil {
			return usageError{cmd.CommandPath(), err}
		}
		if len(args) > 0 {
			return e.replaySome(ctx, c, args, r.newID)
		}
		return e.replayMany(ctx, c, cmd.CommandPath(), &r)
	})
}

// check refuses what would be ambiguous.
func (r *replayFlags) check(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		switch {
		case r.endpoint == "":
			return errors.New("say what to replay: delivery ids, or --endpoint wh_… and --since")
		case !ids.Valid(ids.Endpoint, r.endpoint):
			return fmt.Errorf("--endpoint: %q is not the id of an endpoint, which looks like wh_01h455vb4pex5vsknk084sn02q", r.endpoint)
		case r.since == "":
			return errors.New("say from when on with --since, such as --since 2h")
		case !slices.Contains(replayStatuses, r.status):
			return fmt.Errorf("--status must be %s", strings.Join(replayStatuses, ", "))
		}
		return nil
	}
	for _, id := range args {
		if _, err := deliveryPath(id); err != nil {
			return err
		}
	}
	for _, name := range []string{"endpoint", "since", "until", "type", "status", "no-wait"} {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s is for many deliveries and does not go with ids", name)
		}
	}
	return nil
}

// replaySome replays deliveries one by one; one that cannot be does not keep
// the others from it.
func (e *env) replaySome(ctx context.Context, c *apiClient, list []string, newID bool) error {
	replayed := []json.RawMessage{}
	var failed []error
	for _, id := range list {
		var raw json.RawMessage
		err := c.do(ctx, http.MethodPost, "/v1/deliveries/"+id+"/replay", map[string]bool{"new_id": newID}, &raw)
		if refused := (*apiError)(nil); err != nil && !errors.As(err, &refused) {
			return err // the next one would not fare better
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", id, err))
			continue
		}
		replayed = append(replayed, raw)
		if e.asJSON {
			continue
		}
		var d delivery
		if err := json.Unmarshal(raw, &d); err != nil {
			return fmt.Errorf("read delivery: %w", err)
		}
		as := ""
		if d.ID != id {
			as = " as " + d.ID
		}
		fmt.Fprintf(e.out, "%s is sent again%s; to see what comes of it: turnpike deliveries show %s\n", id, as, d.ID)
	}
	if e.asJSON {
		if err := e.printJSON(replayed); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

func (e *env) replayMany(ctx context.Context, c *apiClient, command string, f *replayFlags) error {
	now := time.Now()
	since, err := parseMoment(f.since, now)
	if err != nil {
		return usageError{command, fmt.Errorf("--since: %w", err)}
	}
	until, err := parseMoment(f.until, now)
	if err != nil {
		return usageError{command, fmt.Errorf("--until: %w", err)}
	}
	// As far back as possible is now, and a moment later too far.
	if edge := now.Add(time.Minute - webhooks.ReplayWindow); since.Before(edge) && edge.Sub(since) < 2*time.Minute {
		since = edge
	}
	body := map[string]any{"since": since.Unix(), "status": f.status, "new_id": f.newID}
	if len(f.types) > 0 {
		body["types"] = f.types
	}
	if !until.IsZero() {
		body["until"] = until.Unix()
	}
	if !f.yes && e.interactive() {
		if err := e.confirmReplay(ctx, c, f, since, until); err != nil {
			return err
		}
	}
	var raw json.RawMessage
	if err := c.do(ctx, http.MethodPost, "/v1/webhooks/"+f.endpoint+"/replay", body, &raw); err != nil {
		return err
	}
	var r replay
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("read replay: %w", err)
	}
	if f.noWait {
		if e.asJSON {
			return e.printJSON(raw)
		}
		fmt.Fprintf(e.out, "%s %s; it goes on by itself.\n", r.ID, f.work(r.Total))
		return nil
	}
	if !e.asJSON {
		fmt.Fprintf(e.out, "%s %s.\n", r.ID, f.work(r.Total))
	}
	if raw, err = e.watchReplay(ctx, c, &r, raw); err != nil {
		return err
	}
	return e.reportReplay(ctx, c, f, &r, raw)
}

// interactive reports whether there is somebody to ask.
func (e *env) interactive() bool {
	f, ok := e.in.(*os.File)
	return ok && isTerminal(f)
}

// previewed is how many deliveries are counted before asking.
const previewed = 2000

// confirmReplay says what would be done and asks whether it should be.
func (e *env) confirmReplay(ctx context.Context, c *apiClient, f *replayFlags, since, until time.Time) error {
	what, err := c.previewReplay(ctx, f, since, until)
	if err != nil {
		return err
	}
	period := "since " + e.at(since.Unix())
	if !until.IsZero() {
		period = "from " + e.at(since.Unix()) + " to " + e.at(until.Unix())
	}
	fmt.Fprintf(e.err, "This sends to %s again: %s, of events %s. Go on? [y/N] ", f.endpoint, what, period)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(e.in).ReadString('\n') // at its end the answer is no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(e.err)
	case a := <-answer:
		if a == "y" || a == "yes" {
			return nil
		}
	}
	return errors.New("nothing was replayed")
}

// previewReplay counts what a replay would send. What was missed has no
// deliveries to count.
func (c *apiClient) previewReplay(ctx context.Context, f *replayFlags, since, until time.Time) (string, error) {
	if f.status == webhooks.ReplayMissed {
		return "the events that it never got", nil
	}
	// A delivery is never older than its event, so this finds them all, and
	// perhaps some of older events, which are sorted out below.
	q := url.Values{"endpoint": {f.endpoint}, "since": {strconv.FormatInt(since.Unix(), 10)}}
	if f.status == webhooks.ReplayFailed {
		q.Set("status", string(webhooks.Failed))
	}
	if len(f.types) == 1 {
		q.Set("type", f.types[0])
	}
	list, more, err := c.list(ctx, "/v1/deliveries", q, previewed)
	if err != nil {
		return "", err
	}
	var n int64
	for _, raw := range list {
		var d delivery
		if err := json.Unmarshal(raw, &d); err != nil {
			return "", fmt.Errorf("read delivery: %w", err)
		}
		if f.wants(&d, since, until) {
			n++
		}
	}
	what := counted(n, "delivery", "deliveries")
	if f.status == webhooks.ReplayFailed {
		what = counted(n, "failed delivery", "failed deliveries")
	}
	if more {
		what += " or more"
	}
	return what, nil
}

// wants reports whether the replay would take the delivery.
func (f *replayFlags) wants(d *delivery, since, until time.Time) bool {
	finished := []string{string(webhooks.Succeeded), string(webhooks.Failed), string(webhooks.Discarded)}
	return slices.Contains(finished, d.Status) && (len(f.types) == 0 || slices.Contains(f.types, d.Type)) &&
		d.EventAt >= since.Unix() && (until.IsZero() || d.EventAt < until.Unix())
}

const (
	firstLook = 50 * time.Millisecond // at a replay; then less and less often
	lastLook  = 500 * time.Millisecond
	// patience is how long the server may be away: the replay goes on when it is back.
	patience = time.Minute
)

// watchReplay shows how far a replay has come until it ends.
func (e *env) watchReplay(ctx context.Context, c *apiClient, r *replay, raw json.RawMessage) (json.RawMessage, error) {
	bar := newProgress(e.err, "Replaying", r.Total)
	defer bar.Done()
	pause, answered := firstLook, time.Now()
	for r.Status == webhooks.ReplayRunning {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("not waited for any longer; %s goes on by itself (GET /v1/replays/%s)", r.ID, r.ID)
		case <-time.After(pause):
		}
		pause = min(2*pause, lastLook)
		err := c.do(ctx, http.MethodGet, "/v1/replays/"+r.ID, nil, &raw)
		if ctx.Err() != nil || err != nil && passing(err) && time.Since(answered) < patience {
			continue
		}
		if err == nil {
			err = json.Unmarshal(raw, r)
		}
		if err != nil {
			return nil, fmt.Errorf("read replay: %w", err)
		}
		answered = time.Now()
		bar.Set(r.Done)
	}
	return raw, nil
}

// passing reports whether an error may be gone at the next try.
func passing(err error) bool {
	var refused *apiError
	return !errors.As(err, &refused) || refused.Status >= http.StatusInternalServerError || refused.Status == http.StatusTooManyRequests
}

// reportReplay says how a replay ended.
func (e *env) reportReplay(ctx context.Context, c *apiClient, f *replayFlags, r *replay, raw json.RawMessage) error {
	if e.asJSON {
		if err := e.printJSON(raw); err != nil {
			return err
		}
	}
	if r.Status == webhooks.ReplayStopped {
		return fmt.Errorf("the replay stopped after %s of %s: %s", grouped(r.Done), grouped(r.Total), c.afterStop(ctx, f, r))
	}
	switch {
	case e.asJSON:
	case r.Done == 0:
		fmt.Fprintln(e.out, "There was nothing to replay.")
	default:
		what := counted(r.Done, "delivery", "deliveries") + " handed over"
		if f.status == webhooks.ReplayMissed {
			what = "what was missing of " + counted(r.Done, "event", "events") + " is handed over"
		}
		fmt.Fprintf(e.out, "%s, %s. To see what comes of it: turnpike deliveries list --endpoint %s\n", e.status(r.Status), what, r.EndpointID)
	}
	return nil
}

// work is what a replay has to do: for what was missed, to look at every event.
func (f *replayFlags) work(total int64) string {
	if f.status == webhooks.ReplayMissed {
		return "looks through " + counted(total, "event", "events")
	}
	return "replays " + counted(total, "delivery", "deliveries")
}

// afterStop says why a replay was stopped and how to go on.
func (c *apiClient) afterStop(ctx context.Context, f *replayFlags, r *replay) string {
	var endpoint struct {
		Status string  `json:"status"`
		Reason *string `json:"paused_reason"`
		Stats  struct {
			LastError *string `json:"last_error"`
		} `json:"stats"`
	}
	err := c.do(ctx, http.MethodGet, "/v1/webhooks/"+r.EndpointID, nil, &endpoint)
	if refused := (*apiError)(nil); errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return fmt.Sprintf("the endpoint %s was deleted", r.EndpointID)
	}
	why := "was paused"
	if err == nil && endpoint.Reason != nil && *endpoint.Reason == webhooks.PausedFailed && endpoint.Stats.LastError != nil {
		why += " because a delivery failed to the last (" + visible(*endpoint.Stats.LastError) + ")"
	}
	return fmt.Sprintf(`the endpoint %s %s.
Mend it and resume it (POST /v1/webhooks/%s/resume), which delivers what was handed over; then run:
  %s`, r.EndpointID, why, r.EndpointID, f.again(r))
}

// again is the command line for the rest of a replay.
func (f *replayFlags) again(r *replay) string {
	line := fmt.Sprintf("turnpike deliveries replay --endpoint %s --since %d", r.EndpointID, r.Since)
	if f.until != "" {
		line += fmt.Sprintf(" --until %d", r.Until)
	}
	line += " --status " + f.status
	if len(f.types) > 0 {
		line += " --type " + strings.Join(f.types, ",")
	}
	if f.newID {
		line += " --new-id"
	}
	return line
}
