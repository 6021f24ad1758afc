package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
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
	agents.Edit: {"Approve a tool call with other arguments",
		`Approves a tool call that a run waits for, with other arguments than the model's. They
must be valid for the tool. The run's log has both versions. The approval ID is
optional if only one is pending.`,
		`  turnpike runs edit run_01h455vb4pex5vsknk084sn02q --arguments '{"amount": 10}'
  turnpike runs edit run_01h455vb4pex5vsknk084sn02q --arguments @arguments.json --yes`},
	agents.Respond: {"Answer a tool call of a run yourself",
		`Answers a tool call that a run waits for. The call is never made, and the model receives
your answer as its output. The approval ID is optional if only one is pending.`,
		`  turnpike runs respond run_01h455vb4pex5vsknk084sn02q --response "The customer has no open orders."
  turnpike runs respond run_01h455vb4pex5vsknk084sn02q --response @answer.txt --yes`},
}

// answerFlags are the flags with which a decision replaces the arguments or the output of a call.
var answerFlags = map[agents.Verdict]struct{ name, help string }{
	agents.Edit:    {"arguments", "JSON object with the arguments, or @FILE; @- reads standard input (required)"},
	agents.Respond: {"response", "output for the model, or @FILE; @- reads standard input (required)"},
}

// readAnswer returns the value of a flag, or the content of the file that it names.
func (e *env) readAnswer(value string) (string, error) {
	path, isFile := strings.CutPrefix(value, "@")
	if !isFile {
		return value, nil
	}
	return e.readInput(path)
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
	answer := new(string)
	flag, answers := answerFlags[decision]
	if answers {
		answer = cmd.Flags().String(flag.name, "", flag.help)
	}
	return runs.withObject(e, cmd, func(ctx context.Context, c *apiClient, path string, args []string) error {
		id := ""
		if len(args) > 1 {
			if id = args[1]; !ids.Valid(ids.Approval, id) {
				return wrongUsage(cmd, fmt.Errorf("%q is not the ID of an approval, which looks like appr_01h455vb4pex5vsknk084sn02q", id))
			}
		}
		d := agents.Decision{Decision: decision, Reason: *reason}
		if answers {
			text, err := e.readAnswer(*answer)
			if err != nil {
				return err
			}
			switch {
			case strings.TrimSpace(text) == "":
				return wrongUsage(cmd, fmt.Errorf("missing %s: pass --%[1]s", flag.name))
			case decision == agents.Respond:
				d.Response = text
			case !jsontext.Value(text).IsValid() || jsontext.Value(text).Kind() != jsontext.KindBeginObject:
				return wrongUsage(cmd, errors.New("--arguments must be a JSON object"))
			default:
				d.Arguments = jsontext.Value(text)
			}
		}
		_, r, err := c.fetch(ctx, http.MethodGet, path, nil)
		if lacksScope(err) {
			if id == "" || !*yes || decision == agents.Edit { // an edit replaces arguments that must be known
				return fmt.Errorf("cannot show the call: %w; to decide without seeing it, pass the approval ID and --yes", err)
			}
			return e.decide(ctx, c, path+"/approvals/"+id, d)
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
		d.Hash = a.str("arguments_hash")
		return e.decide(ctx, c, path+"/approvals/"+a.str("id"), d)
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
	switch d.Decision {
	case agents.Deny:
		color, word = red, "Denied"
	case agents.Edit:
		word = "Edited and approved"
	case agents.Respond:
		word = "Answered"
	}
	return e.report(raw, "%s the call; %s is %s. To watch it: turnpike runs watch %s\n",
		e.paint(color, word), r.str("id"), e.status(r.str("status")), r.str("id"))
}
