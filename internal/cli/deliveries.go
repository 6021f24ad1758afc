package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"turnpike/internal/ids"
	"turnpike/internal/webhooks"
)

var deliveries = &resource{
	name: "deliveries", noun: "a delivery", argument: "DELIVERY_ID",
	collections: []collection{{"", ids.Delivery, "/v1/deliveries"}},
	filters: []filter{
		{flag: "endpoint", usage: "only to this endpoint (wh_…)"},
		{flag: "type", usage: "only of this event type, such as image.batch.completed", values: eventNames()},
		{flag: "status", usage: "only with this status: " + strings.Join(words(webhooks.States), ", "), values: words(webhooks.States)},
		{flag: "since", usage: "only of events since " + timeUsage, isTime: true},
		{flag: "until", usage: "only of events before " + timeUsage, isTime: true},
	},
	header:    "ID\tSTATUS\tEVENT\tENDPOINT\tATTEMPTS\tCREATED\tNEXT ATTEMPT",
	row:       "{{.id}}\t{{status .status}}\t{{.type}}\t{{.endpoint_id}}\t{{.attempt_count}}\t{{at .created_at}}\t{{until .next_attempt_at}}",
	attached:  &attachment{"event", "also show the event, which is the request body", fetchEvent},
	templates: []string{"delivery"},
}

const timeUsage = "this time: a duration ago (2h, 7d), a date, RFC 3339 or Unix seconds"

func words[S ~string](values []S) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

func newDeliveries(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deliveries",
		Short: "List, inspect and replay webhook deliveries",
		Long: `A delivery sends one event to one webhook endpoint. These commands call the API
with TURNPIKE_BASE_URL and TURNPIKE_API_KEY, and see the deliveries of the key's
workspace and environment.`,
		Example: `  turnpike deliveries list --status failed --since 24h
  turnpike deliveries show dlv_01h455vb4pex5vsknk084sn02q
  turnpike deliveries replay --endpoint wh_01h455vb4pex5vsknk084sn02q --since 2h`,
		RunE: unknownCommand,
	}
	cmd.AddCommand(deliveries.list(e, `  turnpike deliveries list
  turnpike deliveries list --endpoint wh_01h455vb4pex5vsknk084sn02q --status retrying
  turnpike deliveries list --type agent.run.failed --since 7d --limit 500 --json
  turnpike deliveries list --since 2026-03-01T00:00:00Z --until 2026-03-02T00:00:00Z`),
		deliveries.show(e, &cobra.Command{
			Short: "Show a delivery and its attempts",
			Long: `Shows a delivery and its attempts: the request, the response, the error, how long
each phase took, and the time of the next attempt.`,
			Example: `  turnpike deliveries show dlv_01h455vb4pex5vsknk084sn02q
  turnpike deliveries show dlv_01h455vb4pex5vsknk084sn02q --event
  turnpike deliveries show dlv_01h455vb4pex5vsknk084sn02q --json`,
		}), e.deliveriesReplay())
	return cmd
}

func fetchEvent(ctx context.Context, c *apiClient, _ string, delivery object) (body json.RawMessage, err error) {
	return body, c.do(ctx, http.MethodGet, "/v1/events/"+delivery.str("event_id"), nil, &body)
}
