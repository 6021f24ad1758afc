package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/ids"
	"turnpike/internal/webhooks"
)

func newDeliveries(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deliveries",
		Short: "List, look into and replay webhook deliveries",
		Long: `A delivery is one event on its way to one webhook endpoint. These commands use the
API, with the server's address in TURNPIKE_BASE_URL and a key in TURNPIKE_API_KEY,
and see the deliveries of the key's workspace and environment.`,
		Example: `  turnpike deliveries list --status failed --since 24h
  turnpike deliveries show dlv_01h455vb4pex5vsknk084sn02q
  turnpike deliveries replay --endpoint wh_01h455vb4pex5vsknk084sn02q --since 2h`,
		RunE: noSuchCommand,
	}
	cmd.AddCommand(e.deliveriesList(), e.deliveriesShow(), e.deliveriesReplay())
	return cmd
}

// delivery is one as the API shows it.
type delivery struct {
	ID            string             `json:"id"`
	EndpointID    string             `json:"endpoint_id"`
	EventID       string             `json:"event_id"`
	Type          string             `json:"type"`
	Status        string             `json:"status"`
	Reason        *string            `json:"reason"`
	AttemptCount  int64              `json:"attempt_count"`
	NextAttemptAt *int64             `json:"next_attempt_at"`
	EventAt       int64              `json:"event_created_at"`
	CreatedAt     int64              `json:"created_at"`
	FinishedAt    *int64             `json:"finished_at"`
	Attempts      []*deliveryAttempt `json:"attempts"`
}

// deliveryAttempt is one try to deliver.
type deliveryAttempt struct {
	Number    int64   `json:"number"`
	StartedAt int64   `json:"started_at"`
	LatencyMS float64 `json:"latency_ms"`
	Timings   struct {
		DNS       float64 `json:"dns_ms"`
		Connect   float64 `json:"connect_ms"`
		TLS       float64 `json:"tls_ms"`
		FirstByte float64 `json:"first_byte_ms"`
	} `json:"timings"`
	URL             *string           `json:"url"`
	Address         *string           `json:"address"`
	RequestHeaders  map[string]string `json:"request_headers"`
	ResponseStatus  *int              `json:"response_status"`
	ResponseHeaders map[string]string `json:"response_headers"`
	ResponseBody    *string           `json:"response_body"`
	Error           *struct {
		Class   string `json:"class"`
		Message string `json:"message"`
	} `json:"error"`
	NextRetryAt *int64 `json:"next_retry_at"`
}

const maxListed = 10_000

func (e *env) deliveriesList() *cobra.Command {
	var endpoint, typ, status, since, until string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List deliveries, newest first",
		Example: `  turnpike deliveries list
  turnpike deliveries list --endpoint wh_01h455vb4pex5vsknk084sn02q --status retrying
  turnpike deliveries list --type agent.run.failed --since 7d --limit 500 --json
  turnpike deliveries list --since 2026-03-01T00:00:00Z --until 2026-03-02T00:00:00Z`,
	}
	f := cmd.Flags()
	f.StringVar(&endpoint, "endpoint", "", "only those to this endpoint (wh_…)")
	f.StringVar(&typ, "type", "", "only those of this event, such as image.batch.completed")
	f.StringVar(&status, "status", "", "only those that are pending, retrying, succeeded, failed, held or discarded")
	f.StringVar(&since, "since", "", "only those of events since: a span back from now (2h, 7d), a date, RFC 3339 or Unix seconds")
	f.StringVar(&until, "until", "", "only those of events before: the same forms")
	f.IntVar(&limit, "limit", 20, fmt.Sprintf("show this many at most, up to %d", maxListed))
	completeDeliveryFlags(cmd, deliveryStatuses())
	return e.client(cmd, func(ctx context.Context, c *apiClient, _ []string) error {
		q := url.Values{}
		for name, value := range map[string]string{"endpoint": endpoint, "type": typ, "status": status} {
			if value != "" {
				q.Set(name, value)
			}
		}
		for name, value := range map[string]string{"since": since, "until": until} {
			at, err := parseMoment(value, time.Now())
			if err != nil {
				return usageError{cmd.CommandPath(), fmt.Errorf("--%s: %w", name, err)}
			}
			if !at.IsZero() {
				q.Set(name, strconv.FormatInt(at.Unix(), 10))
			}
		}
		if limit < 1 || limit > maxListed {
			return usageError{cmd.CommandPath(), fmt.Errorf("--limit must be from 1 to %d", maxListed)}
		}
		list, more, err := c.list(ctx, "/v1/deliveries", q, limit)
		if err != nil {
			return err
		}
		return e.printDeliveries(list, more)
	})
}

func deliveryStatuses() []string {
	out := make([]string, len(webhooks.States))
	for i, s := range webhooks.States {
		out[i] = string(s)
	}
	return out
}

// completeDeliveryFlags lets the shell complete what has a fixed set of values.
func completeDeliveryFlags(cmd *cobra.Command, statuses []string) {
	for name, values := range map[string][]string{"type": eventNames(), "status": statuses} {
		// It fails for a flag that does not exist, which the first run finds.
		if err := cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err)
		}
	}
}

// list reads up to limit records of a list, page by page.
func (c *apiClient) list(ctx context.Context, path string, q url.Values, limit int) (all []json.RawMessage, more bool, err error) {
	all = []json.RawMessage{}
	for {
		q.Set("limit", strconv.Itoa(min(limit-len(all), 100)))
		var page struct {
			Data    []json.RawMessage `json:"data"`
			LastID  *string           `json:"last_id"`
			HasMore bool              `json:"has_more"`
		}
		if err := c.do(ctx, http.MethodGet, path+"?"+q.Encode(), nil, &page); err != nil {
			return nil, false, err
		}
		// A page may be empty and not the last: filters look at a bounded number.
		all = append(all, page.Data...)
		if len(all) >= limit || !page.HasMore || page.LastID == nil {
			return all, page.HasMore, nil
		}
		q.Set("after", *page.LastID)
	}
}

func (e *env) printDeliveries(list []json.RawMessage, more bool) error {
	if e.asJSON {
		return e.printJSON(list)
	}
	now := time.Now()
	rows := make([][]any, len(list))
	for i, raw := range list {
		var d delivery
		if err := json.Unmarshal(raw, &d); err != nil {
			return fmt.Errorf("read delivery: %w", err)
		}
		rows[i] = []any{d.ID, painted(e.status(d.Status)), d.Type, d.EndpointID, d.AttemptCount, e.at(d.CreatedAt), ahead(d.NextAttemptAt, now)}
	}
	if len(rows) == 0 {
		fmt.Fprintln(e.err, "There are no such deliveries.")
		return nil
	}
	if err := e.table("ID\t"+e.status("STATUS")+"\tEVENT\tENDPOINT\tATTEMPTS\tCREATED\tNEXT ATTEMPT", rows); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(e.err, "There are more than these %d; see --limit.\n", len(rows))
	}
	return nil
}

func (e *env) deliveriesShow() *cobra.Command {
	var event bool
	cmd := &cobra.Command{
		Use:   "show DELIVERY_ID",
		Short: "Show a delivery with all of its attempts",
		Long: `Shows a delivery with all of its attempts: when, how long each part took, what was
sent, what was answered, what went wrong and when the next attempt is made.`,
		Example: `  turnpike deliveries show dlv_01h455vb4pex5vsknk084sn02q
  turnpike deliveries show dlv_01h455vb4pex5vsknk084sn02q --event
  turnpike deliveries show dlv_01h455vb4pex5vsknk084sn02q --json`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&event, "event", false, "also show the event, which is the body that is sent")
	return e.client(cmd, func(ctx context.Context, c *apiClient, args []string) error {
		path, err := deliveryPath(args[0])
		if err != nil {
			return usageError{cmd.CommandPath(), err}
		}
		var raw, body json.RawMessage
		if err := c.do(ctx, http.MethodGet, path, nil, &raw); err != nil {
			return err
		}
		var d delivery
		if err := json.Unmarshal(raw, &d); err != nil {
			return fmt.Errorf("read delivery: %w", err)
		}
		if event {
			if err := c.do(ctx, http.MethodGet, "/v1/events/"+d.EventID, nil, &body); err != nil {
				return err
			}
		}
		if e.asJSON {
			return e.printJSON(withEvent(raw, body))
		}
		e.printDelivery(&d)
		if event {
			fmt.Fprintln(e.out, "\nEvent")
			return e.printJSON(body)
		}
		return nil
	})
}

// deliveryPath is where a delivery is. What cannot be an id is not asked for.
func deliveryPath(id string) (string, error) {
	if !ids.Valid(ids.Delivery, id) {
		return "", fmt.Errorf("%q is not the id of a delivery, which looks like dlv_01h455vb4pex5vsknk084sn02q", id)
	}
	return "/v1/deliveries/" + id, nil
}

// withEvent adds the event to a delivery's record.
func withEvent(record, event json.RawMessage) json.RawMessage {
	if event == nil {
		return record
	}
	open := bytes.TrimSuffix(bytes.TrimSpace(record), []byte("}"))
	return slices.Concat(open, []byte(`,"event":`), event, []byte("}"))
}

// longBody is how much of an answer people are shown.
const longBody = 2000

func (e *env) printDelivery(d *delivery) {
	now := time.Now()
	w := e.out
	fmt.Fprintf(w, "Delivery  %s\n", d.ID)
	fmt.Fprintf(w, "Event     %s, %s, %s\n", d.Type, d.EventID, e.at(d.EventAt))
	fmt.Fprintf(w, "Endpoint  %s\n", d.EndpointID)
	fmt.Fprintf(w, "Status    %s\n", e.standing(d, now))
	fmt.Fprintf(w, "Created   %s\n", e.at(d.CreatedAt))
	if d.FinishedAt != nil {
		fmt.Fprintf(w, "Finished  %s\n", e.at(*d.FinishedAt))
	}
	for _, a := range d.Attempts {
		fmt.Fprintf(w, "\nAttempt %d  %s\n", a.Number, e.at(a.StartedAt))
		e.printAttempt(a)
	}
}

// standing is the status with what follows from it.
func (e *env) standing(d *delivery, now time.Time) string {
	text := e.status(d.Status)
	switch {
	case d.NextAttemptAt != nil:
		text += fmt.Sprintf(", next attempt %s (%s)", ahead(d.NextAttemptAt, now), e.at(*d.NextAttemptAt))
	case d.Reason != nil:
		text += ", " + visible(*d.Reason)
	case d.Status == string(webhooks.Held):
		text += ", until its endpoint is resumed"
	case d.Status == string(webhooks.Failed):
		text += "; to send it again: turnpike deliveries replay " + d.ID
	}
	return text
}

func (e *env) printAttempt(a *deliveryAttempt) {
	w := e.out
	to := "the tunnel"
	if a.URL != nil {
		to = visible(*a.URL)
	}
	if a.Address != nil {
		to += " at " + visible(*a.Address)
	}
	answer := "no answer"
	if a.ResponseStatus != nil {
		answer = strings.TrimSpace(fmt.Sprintf("%d %s", *a.ResponseStatus, http.StatusText(*a.ResponseStatus)))
	}
	fmt.Fprintf(w, "  To        %s\n", to)
	fmt.Fprintf(w, "  Answer    %s after %s (DNS %s, connect %s, TLS %s, first byte %s)\n", answer, millis(a.LatencyMS),
		millis(a.Timings.DNS), millis(a.Timings.Connect), millis(a.Timings.TLS), millis(a.Timings.FirstByte))
	if a.Error != nil {
		fmt.Fprintf(w, "  Error     %s\n", e.paint(red, fmt.Sprintf("%s (%s)", a.Error.Message, a.Error.Class)))
	}
	if a.NextRetryAt != nil {
		fmt.Fprintf(w, "  Retry at  %s\n", e.at(*a.NextRetryAt))
	}
	printHeaders(w, "Sent", a.RequestHeaders)
	printHeaders(w, "Received", a.ResponseHeaders)
	if a.ResponseBody != nil && *a.ResponseBody != "" {
		fmt.Fprintln(w, "  Body")
		text := visible(*a.ResponseBody)
		if r := []rune(text); len(r) > longBody {
			text = fmt.Sprintf("%s…\n(%d bytes; --json has all that was kept)", string(r[:longBody]), len(*a.ResponseBody))
		}
		for line := range strings.Lines(text) {
			fmt.Fprintf(w, "    %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
}

func printHeaders(w io.Writer, title string, headers map[string]string) {
	if len(headers) == 0 {
		return
	}
	fmt.Fprintf(w, "  %s\n", title)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		fmt.Fprintf(w, "    %s: %s\n", visible(name), visible(headers[name]))
	}
}

func millis(ms float64) string { return strconv.FormatFloat(ms, 'f', 1, 64) + " ms" }
