package cli

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"turnpike/internal/agents"
	"turnpike/internal/ids"
)

var runs = &resource{
	name: "runs", noun: "a run", argument: "RUN_ID",
	collections: []collection{{"", ids.Run, "/v1/agents/runs"}},
	filters: []filter{{flag: "status", usage: "only with this status: " + strings.Join(words(agents.Statuses), ", "),
		values: words(agents.Statuses), strict: true}},
	header: "ID\tSTATUS\tSTEPS\tMODEL\tCREDITS\tCREATED",
	row:    "{{.id}}\t{{status .status}}\t{{.steps_used}}/{{.max_steps}}\t{{.model}}\t{{.usage.credits}}\t{{at .created_at}}",
	attached: &attachment{field: "steps", fetch: func(ctx context.Context, c *apiClient, path string, _ object) (json.RawMessage, error) {
		const maxSteps = 1000 // more than a run can have
		list, _, err := c.list(ctx, path+"/steps", url.Values{}, maxSteps)
		if err != nil {
			return nil, err
		}
		return json.Marshal(list)
	}},
	templates: []string{"run", "steps", "required actions", "result"},
}

func newRuns(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List, inspect, watch, approve and cancel agent runs",
		Long: `An agent run calls a model, executes the tools that the model requests, and repeats
this until it has a result. These commands call the API with TURNPIKE_BASE_URL and
TURNPIKE_API_KEY, and see the runs of the key's workspace and environment.`,
		Example: `  turnpike runs list --status awaiting_approval
  turnpike runs watch run_01h455vb4pex5vsknk084sn02q
  turnpike runs approve run_01h455vb4pex5vsknk084sn02q
  turnpike runs deny run_01h455vb4pex5vsknk084sn02q --reason "not on a Friday"
  turnpike runs cancel run_01h455vb4pex5vsknk084sn02q`,
		RunE: unknownCommand,
	}
	cmd.AddCommand(runs.list(e, `  turnpike runs list
  turnpike runs list --status awaiting_approval
  turnpike runs list --limit 500 --json`),
		runs.show(e, &cobra.Command{
			Short: "Show a run and its steps",
			Long: `Shows a run: its status, every step with its tool calls and approvals, the actions
that it waits for, its result and its cost.`,
			Example: `  turnpike runs show run_01h455vb4pex5vsknk084sn02q
  turnpike runs show run_01h455vb4pex5vsknk084sn02q --json`,
		}), e.runsWatch(), e.runsDecide(agents.Approve), e.runsDecide(agents.Deny), e.runsDecide(agents.Edit), e.runsDecide(agents.Respond), runs.cancel(e, &cobra.Command{
			Short: "Cancel a run",
			Long: `Cancels a run that has not ended. A run that is working has the status cancelling
until its current step has stopped. A run that is waiting ends immediately. Its
steps are kept.`,
			Example: `  turnpike runs cancel run_01h455vb4pex5vsknk084sn02q`,
		}, "watch"))
	return cmd
}
