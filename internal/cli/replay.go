package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/ids"
	"turnpike/internal/webhooks"
)

type replayFlags struct {
	endpoint     string
	since, until string
	types        []string
	status       string
	newID        bool
	yes          bool
	noWait       bool

	from, to time.Time // since and until
}

var replayStatuses = []string{webhooks.ReplayFailed, webhooks.ReplayAll, webhooks.ReplayMissed}

func (e *env) deliveriesReplay() *cobra.Command {
	var r replayFlags
	cmd := &cobra.Command{
		Use:   "replay DELIVERY_ID... | replay --endpoint wh_… --since TIME",
		Short: "Send deliveries again, by ID or by endpoint and time",
		Long: `Sends deliveries again, each with the full retry schedule. Events can be
replayed for 30 days.

With IDs it replays these deliveries. With --endpoint and --since it replays the
deliveries of that time: on a terminal it asks first, and then it shows its
progress until all are queued. It exits with 1 if the endpoint is paused
meanwhile, which stops the replay.

A replayed delivery keeps its ID, so that receivers can ignore a duplicate. With
--new-id it gets a new one, and receivers process it again.`,
		Example: `  turnpike deliveries replay dlv_01h455vb4pex5vsknk084sn02q
  turnpike deliveries replay --endpoint wh_01h455vb4pex5vsknk084sn02q --since 2h
  turnpike deliveries replay --endpoint wh_01h455vb4pex5vsknk084sn02q --since 3d --until 1d --status all --yes
  turnpike deliveries replay --endpoint wh_01h455vb4pex5vsknk084sn02q --since 30d --status missed --type image.batch.completed`,
		Args: cobra.ArbitraryArgs,
	}
	f := cmd.Flags()
	f.StringVar(&r.endpoint, "endpoint", "", "replay deliveries of this endpoint (wh_…)")
	f.StringVar(&r.since, "since", "", "replay events since "+timeUsage)
	f.StringVar(&r.until, "until", "", "replay events before such a time (default: now)")
	f.StringSliceVar(&r.types, "type", nil, "only these event types, comma-separated")
	f.StringVar(&r.status, "status", webhooks.ReplayFailed, "failed deliveries, all that have ended, or missed: events that the endpoint never received")
	f.BoolVar(&r.newID, "new-id", false, "give each a new delivery ID, so that receivers process it again")
	f.BoolVar(&r.yes, "yes", false, "don't ask for confirmation")
	f.BoolVar(&r.noWait, "no-wait", false, "start the replay and exit")
	completeFlag(cmd, "type", eventNames())
	completeFlag(cmd, "status", replayStatuses)
	return e.withClient(cmd, func(ctx context.Context, c *apiClient, args []string) error {
		if err := r.check(cmd, args); err != nil {
			return wrongUsage(cmd, err)
		}
		if len(args) > 0 {
			return e.replayIDs(ctx, c, args, r.newID)
		}
		return e.replayEndpoint(ctx, c, &r)
	})
}

// check rejects ambiguous flags and parses the times.
func (r *replayFlags) check(cmd *cobra.Command, args []string) (err error) {
	for _, id := range args {
		if _, err := deliveries.path(id); err != nil {
			return err
		}
	}
	for _, name := range []string{"endpoint", "since", "until", "type", "status", "no-wait"} {
		if len(args) > 0 && cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s cannot be combined with delivery IDs", name)
		}
	}
	switch {
	case len(args) > 0:
		return nil
	case r.endpoint == "":
		return errors.New("missing delivery IDs, or --endpoint wh_… and --since")
	case !ids.Valid(ids.Endpoint, r.endpoint):
		return fmt.Errorf("--endpoint: %q is not the ID of an endpoint, which looks like wh_01h455vb4pex5vsknk084sn02q", r.endpoint)
	case r.since == "":
		return errors.New("missing --since, such as --since 2h")
	case !slices.Contains(replayStatuses, r.status):
		return fmt.Errorf("--status must be one of %s", strings.Join(replayStatuses, ", "))
	}
	now := time.Now()
	if r.from, err = parseTime(r.since, now); err != nil {
		return fmt.Errorf("--since: %w", err)
	}
	if r.to, err = parseTime(r.until, now); err != nil {
		return fmt.Errorf("--until: %w", err)
	}
	// --since 30d is the whole window, and would be outside it a moment later.
	if edge := now.Add(time.Minute - webhooks.ReplayWindow); r.from.Before(edge) && edge.Sub(r.from) < 2*time.Minute {
		r.from = edge
	}
	return nil
}

// replayIDs replays deliveries one by one. It continues if one can't be replayed.
func (e *env) replayIDs(ctx context.Context, c *apiClient, list []string, newID bool) error {
	replayed := []json.RawMessage{}
	var failed []error
	for _, id := range list {
		var raw json.RawMessage
		if err := c.do(ctx, http.MethodPost, "/v1/deliveries/"+id+"/replay", map[string]bool{"new_id": newID}, &raw); err != nil {
			if _, ok := errors.AsType[*apiError](err); !ok {
				return err // no connection
			}
			failed = append(failed, fmt.Errorf("%s: %w", id, err))
			continue
		}
		replayed = append(replayed, raw)
		if e.asJSON {
			continue
		}
		now := idOf(raw)
		as := ""
		if now != id {
			as = " as " + now
		}
		fmt.Fprintf(e.out, "Queued %s%s. To see the result: turnpike deliveries show %s\n", id, as, now)
	}
	if e.asJSON {
		if err := e.printJSON(replayed); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

func (e *env) replayEndpoint(ctx context.Context, c *apiClient, f *replayFlags) error {
	body := map[string]any{"since": f.from.Unix(), "status": f.status, "new_id": f.newID}
	if len(f.types) > 0 {
		body["types"] = f.types
	}
	if f.until != "" {
		body["until"] = f.to.Unix()
	}
	if !f.yes && isTerminal(e.in) {
		period := "since " + e.at(f.from.Unix())
		if f.until != "" {
			period = "from " + e.at(f.from.Unix()) + " to " + e.at(f.to.Unix())
		}
		if !e.confirmed(ctx, fmt.Sprintf("Replay %s deliveries to %s, of events %s? [y/N] ", f.status, f.endpoint, period)) {
			return errors.New("nothing was replayed")
		}
	}
	raw, r, err := c.fetch(ctx, http.MethodPost, "/v1/webhooks/"+f.endpoint+"/replay", body)
	if err != nil {
		return err
	}
	unit := []string{"delivery", "deliveries"}
	if f.status == webhooks.ReplayMissed {
		unit = []string{"event", "events"}
	}
	id := r.str("id")
	if f.noWait || !e.asJSON {
		if err := e.report(raw, "Started %s for %s.\n", id, counted(r.num("total"), unit[0], unit[1])); err != nil || f.noWait {
			return err
		}
	}
	raw, r, err = watched{path: "/v1/replays/" + id, label: "Replaying", started: true,
		hint:     fmt.Sprintf("%s continues on the server (GET /v1/replays/%s)", id, id),
		ended:    func(r object) bool { return r.str("status") != webhooks.ReplayRunning },
		progress: func(r object) (int64, int64) { return r.num("done"), r.num("total") }}.watch(ctx, e, c)
	if err != nil {
		return err
	}
	if e.asJSON {
		if err := e.printJSON(raw); err != nil {
			return err
		}
	}
	done := r.num("done")
	switch {
	case r.str("status") == webhooks.ReplayStopped:
		return fmt.Errorf("the replay stopped after %s of %s, because the endpoint was paused or deleted; "+
			"fix it, resume it (POST /v1/webhooks/%s/resume), and replay the rest with --since %d",
			grouped(done), grouped(r.num("total")), f.endpoint, r.num("since"))
	case e.asJSON:
	case done == 0:
		fmt.Fprintln(e.out, "There was nothing to replay.")
	default:
		fmt.Fprintf(e.out, "%s: %s queued. To see the results: turnpike deliveries list --endpoint %s\n", e.status(r.str("status")), counted(done, unit[0], unit[1]), f.endpoint)
	}
	return nil
}
