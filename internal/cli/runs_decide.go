package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"turnpike/internal/agents"
	"turnpike/internal/ids"
)

var decisionHelp = map[agents.Verdict]struct{ short, long, example string }{
	agents.Approve: {"Approve a tool call of a run",
		`Approves a tool call that a run waits for, with exactly the arguments that are
shown. The approval ID is optional if only one is pending.`,
		`  turnpike runs approve run_01h455vb4pex5vsknk084sn02q
  turnpike runs approve run_01h455vb4pex5vsknk084sn02q appr_01h455vb4pex5vsknk084sn02q --yes`},
	agents.Deny: {"Deny a tool call of a run",
		`Denies a tool call that a run waits for. The call is never made. The run continues,
and its model receives the reason. The approval ID is optional if only one is
pending.`,
		`  turnpike runs deny run_01h455vb4pex5vsknk084sn02q --reason "not on a Friday"
  turnpike runs deny run_01h455vb4pex5vsknk084sn02q appr_01h455vb4pex5vsknk084sn02q --yes`},
}

func (e *env) runsDecide(decision agents.Verdict) *cobra.Command {
	help := decisionHelp[decision]
	cmd := &cobra.Command{
		Use:   string(decision) + " RUN_ID [APPROVAL_ID]",
		Short: help.short,
		Long: help.long + `

The command shows the call first, and on a terminal it asks for confirmation. The
decision is only valid for these arguments. The key needs the scope
agents.runs:approve, and agents.runs:read to show the call. Without the latter,
pass the approval ID and --yes to decide without seeing it.`,
		Example: help.example,
		Args:    cobra.RangeArgs(1, 2),
	}
	reason := cmd.Flags().String("reason", "", "why; it is recorded, and sent to the model if you deny")
	yes := cmd.Flags().Bool("yes", false, "don't ask for confirmation")
	return runs.withObject(e, cmd, func(ctx context.Context, c *apiClient, path string, args []string) error {
		id := ""
		if len(args) > 1 {
			if id = args[1]; !ids.Valid(ids.Approval, id) {
				return wrongUsage(cmd, fmt.Errorf("%q is not the ID of an approval, which looks like appr_01h455vb4pex5vsknk084sn02q", id))
			}
		}
		_, r, err := c.fetch(ctx, http.MethodGet, path, nil)
		if lacksScope(err) {
			if id == "" || !*yes {
				return fmt.Errorf("cannot show the call: %w; to decide without seeing it, pass the approval ID and --yes", err)
			}
			return e.decide(ctx, c, path+"/approvals/"+id, agents.Decision{Decision: decision, Reason: *reason})
		}
		if err != nil {
			return err
		}
		a, err := findApproval(r, id)
		if err != nil {
			return err
		}
		out := e.out
		if e.asJSON {
			out = e.err
		}
		if err := e.render(out, a, "approval"); err != nil {
			return err
		}
		if isTerminal(e.in) && !*yes && !e.confirmed(ctx, string(decision)+" this call? [y/N] ") {
			return errors.New("nothing was decided")
		}
		return e.decide(ctx, c, path+"/approvals/"+a.str("id"), agents.Decision{Decision: decision, Reason: *reason, Hash: a.str("arguments_hash")})
	})
}

// findApproval returns the pending approval with the ID, or the only one.
func findApproval(r object, id string) (object, error) {
	var pending []object
	list := ""
	for _, a := range r.list("required_actions") {
		if a.str("type") != "approval" {
			continue
		}
		if a.str("id") == id {
			return a, nil
		}
		pending = append(pending, a)
		list += fmt.Sprintf("\n  %s  %s  %s", a.str("id"), a.str("tool"), oneLine(a.str("arguments")))
	}
	switch {
	case id != "":
		return nil, fmt.Errorf("the run has no pending approval %s; its status is %s", id, r.str("status"))
	case len(pending) == 0:
		return nil, fmt.Errorf("%s has no pending approval; its status is %s", r.str("id"), r.str("status"))
	case len(pending) > 1:
		return nil, errors.New(r.str("id") + " has several pending approvals; pass the ID of one:" + list)
	}
	return pending[0], nil
}

func (e *env) decide(ctx context.Context, c *apiClient, path string, d agents.Decision) error {
	raw, r, err := c.fetch(ctx, http.MethodPost, path, d)
	if err != nil {
		return err
	}
	color, word := green, "Approved"
	if d.Decision == agents.Deny {
		color, word = red, "Denied"
	}
	return e.report(raw, "%s the call; %s is %s. To watch it: turnpike runs watch %s\n",
		e.paint(color, word), r.str("id"), e.status(r.str("status")), r.str("id"))
}
