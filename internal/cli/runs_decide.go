package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"turnpike/internal/agents"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

// verb is one of the two things that can be decided.
type verb struct {
	word, short, long, example string
}

var (
	approving = verb{agents.Approve, "Let a run make the call that it asks about",
		`Approves the call of a tool that a run asks about, with exactly the arguments that
are shown. Without an approval's id it is the only one that waits.`,
		`  turnpike runs approve run_01h455vb4pex5vsknk084sn02q
  turnpike runs approve run_01h455vb4pex5vsknk084sn02q appr_01h455vb4pex5vsknk084sn02q --yes`}
	denying = verb{agents.Deny, "Keep a run from making the call that it asks about",
		`Denies the call of a tool that a run asks about: it is never made. The run goes on,
and its model is told, with the reason. Without an approval's id it is the only one
that waits.`,
		`  turnpike runs deny run_01h455vb4pex5vsknk084sn02q --reason "not on a Friday"
  turnpike runs deny run_01h455vb4pex5vsknk084sn02q appr_01h455vb4pex5vsknk084sn02q --yes`}
)

func (e *env) runsDecide(v verb) *cobra.Command {
	var reason string
	var yes bool
	cmd := &cobra.Command{
		Use:   v.word + " RUN_ID [APPROVAL_ID]",
		Short: v.short,
		Long: v.long + `

The call is shown before anything is decided, and on a terminal you are asked. The
decision holds for those arguments alone. The key needs the scope agents.runs:approve,
and agents.runs:read for the call to be shown. Without that one, name the approval and
say --yes: then it is decided unseen.`,
		Example: v.example,
		Args:    cobra.RangeArgs(1, 2),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; it is recorded, and a denial's is told to the model")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return e.client(cmd, func(ctx context.Context, c *apiClient, args []string) error {
		path, err := runPath(args[0])
		wanted := ""
		if err == nil && len(args) > 1 {
			if wanted = args[1]; !ids.Valid(ids.Approval, wanted) {
				err = fmt.Errorf("%q is not the id of an approval, which looks like appr_01h455vb4pex5vsknk084sn02q", wanted)
			}
		}
		if err != nil {
			return usageError{cmd.CommandPath(), err}
		}
		_, r, err := c.run(ctx, path)
		if mayNotRead(err) {
			if wanted == "" || !yes {
				return fmt.Errorf("the call cannot be shown: %w; or name the approval and say --yes, to decide unseen", err)
			}
			return e.decide(ctx, c, path, &events.RequiredAction{ID: wanted}, agents.Decision{Decision: v.word, Reason: reason})
		}
		if err != nil {
			return err
		}
		a, err := c.approval(ctx, path, r, wanted)
		if err != nil {
			return err
		}
		e.printApproval(a)
		if e.interactive() && !yes && !e.agreed(ctx, v.word+" this? [y/N] ") {
			return errors.New("nothing was decided")
		}
		return e.decide(ctx, c, path, a, agents.Decision{Decision: v.word, Reason: reason, Hash: a.ArgumentsHash})
	})
}

// mayNotRead is a key that lacks the scope to see the run.
func mayNotRead(err error) bool {
	var refused *apiError
	return errors.As(err, &refused) && refused.Code == string(fault.InsufficientScope)
}

// approval finds what is to be decided about. One that was decided about
// already is found, too: a second time may be somebody who heard no answer.
func (c *apiClient) approval(ctx context.Context, path string, r *events.AgentRun, wanted string) (*events.RequiredAction, error) {
	var pending []string
	for i, a := range r.RequiredActions {
		if a.Type != "approval" {
			continue
		}
		if a.ID == wanted {
			return &r.RequiredActions[i], nil
		}
		pending = append(pending, a.ID)
	}
	switch {
	case wanted != "":
		return c.earlierApproval(ctx, path, r, wanted)
	case len(pending) == 0:
		return nil, fmt.Errorf("%s waits for no approval: it is %s", r.ID, r.Status)
	case len(pending) > 1:
		list := ""
		for _, a := range r.RequiredActions {
			if a.Type == "approval" {
				list += fmt.Sprintf("\n  %s  %s  %s", a.ID, visible(a.Tool), shortened(a.Arguments))
			}
		}
		return nil, errors.New(r.ID + " waits for several; name one of them:" + list)
	}
	return c.approval(ctx, path, r, pending[0])
}

func (c *apiClient) earlierApproval(ctx context.Context, path string, r *events.AgentRun, wanted string) (*events.RequiredAction, error) {
	_, steps, err := c.steps(ctx, path)
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		for _, k := range s.ToolCalls {
			if k.Approval != nil && k.Approval.ID == wanted {
				return &events.RequiredAction{ID: wanted, CallID: k.ID, Tool: k.Tool, Arguments: k.Arguments, ArgumentsHash: k.Hash}, nil
			}
		}
	}
	return nil, fmt.Errorf("%s has no approval %s; turnpike runs show %s lists what it waits for", r.ID, wanted, r.ID)
}

// printApproval shows the call, for machines on the side. The arguments are
// shown whole, whatever their length.
func (e *env) printApproval(a *events.RequiredAction) {
	to := *e
	if e.asJSON {
		to.out = e.err
	}
	fmt.Fprintf(to.out, "Approval   %s\nCall       %s\n", a.ID, visible(a.CallID))
	to.printIndented("Tool       ", a.Tool)
	to.printIndented("Arguments  ", a.Arguments)
	if a.Note != "" {
		to.printIndented("Note       ", a.Note)
	}
}

// agreed asks, and takes everything but a yes for a no.
func (e *env) agreed(ctx context.Context, question string) bool {
	fmt.Fprint(e.err, question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(e.in).ReadString('\n') // at its end the answer is no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(e.err)
		return false
	case a := <-answer:
		return a == "y" || a == "yes"
	}
}

func (e *env) decide(ctx context.Context, c *apiClient, path string, a *events.RequiredAction, d agents.Decision) error {
	var raw json.RawMessage
	if err := c.do(ctx, http.MethodPost, path+"/approvals/"+a.ID, d, &raw); err != nil {
		return err
	}
	if e.asJSON {
		return e.printJSON(raw)
	}
	r, err := readRun(raw)
	if err != nil {
		return err
	}
	word := e.paint(green, decided(d.Decision))
	if d.Decision == agents.Deny {
		word = e.paint(red, decided(d.Decision))
	}
	fmt.Fprintf(e.out, "The call is %s; %s is %s. To watch it: turnpike runs watch %s\n", word, r.ID, e.runStatus(r.Status), r.ID)
	return nil
}
