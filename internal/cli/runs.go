package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/agents"
	"turnpike/internal/events"
	"turnpike/internal/ids"
)

func newRuns(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List, look into, watch, approve and cancel agent runs",
		Long: `An agent run asks a model, executes the tools that it calls, and so on until it has
an answer. These commands use the API, with the server's address in TURNPIKE_BASE_URL
and a key in TURNPIKE_API_KEY, and see the runs of the key's workspace and environment.`,
		Example: `  turnpike runs list --status awaiting_approval
  turnpike runs watch run_01h455vb4pex5vsknk084sn02q
  turnpike runs approve run_01h455vb4pex5vsknk084sn02q
  turnpike runs deny run_01h455vb4pex5vsknk084sn02q --reason "not on a Friday"
  turnpike runs cancel run_01h455vb4pex5vsknk084sn02q`,
		RunE: noSuchCommand,
	}
	cmd.AddCommand(e.runsList(), e.runsShow(), e.runsWatch(), e.runsDecide(approving), e.runsDecide(denying), e.runsCancel())
	return cmd
}

// runPath is where a run is. What cannot be an id is not asked for.
func runPath(id string) (string, error) {
	if !ids.Valid(ids.Run, id) {
		return "", fmt.Errorf("%q is not the id of a run, which looks like run_01h455vb4pex5vsknk084sn02q; turnpike runs list shows them", id)
	}
	return "/v1/agents/runs/" + id, nil
}

// run reads a run as the API shows it.
func (c *apiClient) run(ctx context.Context, path string) (raw json.RawMessage, r *events.AgentRun, err error) {
	if err := c.do(ctx, http.MethodGet, path, nil, &raw); err != nil {
		return nil, nil, err
	}
	r, err = readRun(raw)
	return raw, r, err
}

func readRun(raw json.RawMessage) (*events.AgentRun, error) {
	var r events.AgentRun
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("read run: %w", err)
	}
	return &r, nil
}

// runStep is a model call of a run as the API shows it.
type runStep struct {
	Number    int64              `json:"number"`
	Status    string             `json:"status"`
	Model     *string            `json:"model"`
	Provider  *string            `json:"provider"`
	Text      *string            `json:"text"`
	ToolCalls []*runCall         `json:"tool_calls"`
	Usage     events.AgentUsage  `json:"usage"`
	Error     *events.AgentError `json:"error"`
}

type runCall struct {
	ID        string  `json:"id"`
	Tool      string  `json:"tool"`
	Arguments string  `json:"arguments"`
	Hash      string  `json:"arguments_hash"`
	Status    string  `json:"status"`
	Output    *string `json:"output"`
	IsError   bool    `json:"is_error"`
	Simulated bool    `json:"simulated"`
	Approval  *struct {
		ID        string  `json:"id"`
		Decision  *string `json:"decision"`
		DecidedBy *string `json:"decided_by"`
		DecidedAt *int64  `json:"decided_at"`
		Reason    *string `json:"reason"`
	} `json:"approval"`
}

// maxRunSteps is more than a run can have.
const maxRunSteps = 1000

func (c *apiClient) steps(ctx context.Context, path string) (raw []json.RawMessage, steps []*runStep, err error) {
	raw, _, err = c.list(ctx, path+"/steps", url.Values{}, maxRunSteps)
	if err != nil {
		return nil, nil, err
	}
	steps = make([]*runStep, len(raw))
	for i := range raw {
		if err := json.Unmarshal(raw[i], &steps[i]); err != nil {
			return nil, nil, fmt.Errorf("read step: %w", err)
		}
	}
	return raw, steps, nil
}

func (e *env) runsList() *cobra.Command {
	var status string
	var limit int
	statuses := make([]string, len(agents.Statuses))
	for i, s := range agents.Statuses {
		statuses[i] = string(s)
	}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, newest first",
		Example: `  turnpike runs list
  turnpike runs list --status awaiting_approval
  turnpike runs list --limit 500 --json`,
	}
	cmd.Flags().StringVar(&status, "status", "", "only those that are "+strings.Join(statuses, ", "))
	cmd.Flags().IntVar(&limit, "limit", 20, fmt.Sprintf("show this many at most, up to %d", maxListed))
	// It fails for a flag that does not exist, which the first run finds.
	if err := cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
	return e.client(cmd, func(ctx context.Context, c *apiClient, _ []string) error {
		q := url.Values{}
		switch {
		case status != "" && !slices.Contains(statuses, status):
			return usageError{cmd.CommandPath(), fmt.Errorf("--status must be one of %s", strings.Join(statuses, ", "))}
		case limit < 1 || limit > maxListed:
			return usageError{cmd.CommandPath(), fmt.Errorf("--limit must be from 1 to %d", maxListed)}
		case status != "":
			q.Set("status", status)
		}
		list, more, err := c.list(ctx, "/v1/agents/runs", q, limit)
		if err != nil {
			return err
		}
		return e.printRuns(list, more)
	})
}

func (e *env) printRuns(list []json.RawMessage, more bool) error {
	if e.asJSON {
		return e.printJSON(list)
	}
	if len(list) == 0 {
		fmt.Fprintln(e.err, "There are no such runs.")
		return nil
	}
	rows := make([][]any, len(list))
	for i, raw := range list {
		r, err := readRun(raw)
		if err != nil {
			return err
		}
		rows[i] = []any{r.ID, painted(e.runStatus(r.Status)), fmt.Sprintf("%d/%d", r.StepsUsed, r.MaxSteps), r.Model, r.Usage.Credits, e.at(r.CreatedAt)}
	}
	if err := e.table("ID\t"+e.status("STATUS")+"\tSTEPS\tMODEL\tCREDITS\tCREATED", rows); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(e.err, "There are more than these %d; see --limit.\n", len(rows))
	}
	return nil
}

// runStatus colours a run's state: those that wait for somebody stand out.
func (e *env) runStatus(word string) string {
	switch agents.Status(word) {
	case agents.AwaitingApproval, agents.RequiresAction:
		return e.paint(yellow, word)
	case agents.Verifying:
		return e.paint(blue, word)
	}
	return e.status(word)
}

func (e *env) runsShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show RUN_ID",
		Short: "Show a run with its steps",
		Long: `Shows a run: how far it has come, every step with the tools that it called and what
was decided about them, what it waits for, its result and what it cost.`,
		Example: `  turnpike runs show run_01h455vb4pex5vsknk084sn02q
  turnpike runs show run_01h455vb4pex5vsknk084sn02q --json`,
		Args: cobra.ExactArgs(1),
	}
	return e.client(cmd, func(ctx context.Context, c *apiClient, args []string) error {
		path, err := runPath(args[0])
		if err != nil {
			return usageError{cmd.CommandPath(), err}
		}
		raw, r, err := c.run(ctx, path)
		if err != nil {
			return err
		}
		rawSteps, steps, err := c.steps(ctx, path)
		if err != nil {
			return err
		}
		if e.asJSON {
			list, err := json.Marshal(rawSteps)
			if err != nil {
				return err
			}
			return e.printJSON(withField(raw, "steps", list))
		}
		e.printRun(r)
		for _, s := range steps {
			e.printStep(s)
		}
		e.printWaits(r, true)
		e.printResult(r)
		return nil
	})
}

// withField adds a field to an object.
func withField(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	open := strings.TrimSuffix(strings.TrimSpace(string(object)), "}")
	return json.RawMessage(fmt.Sprintf("%s,%q:%s}", open, name, value))
}

// printRun shows a run without its steps and its result.
func (e *env) printRun(r *events.AgentRun) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(e.out, "%-9s "+format+"\n", append([]any{name}, args...)...)
	}
	line("Run", "%s", r.ID)
	line("Status", "%s", e.runStatus(r.Status))
	if r.Error != nil {
		line("Error", "%s", e.paint(red, runFailure(r.Error)))
	}
	line("Model", "%s", visible(r.Model))
	line("Steps", "%d of at most %d", r.StepsUsed, r.MaxSteps)
	cost := fmt.Sprintf("%s credits", r.Usage.Credits)
	if r.Budget != nil {
		cost += fmt.Sprintf(" of at most %s", r.Budget.MaxCredits)
	}
	line("Cost", "%s; %s tokens in, %s out", cost, grouped(r.Usage.InputTokens), grouped(r.Usage.OutputTokens))
	for _, name := range slices.Sorted(maps.Keys(r.Metadata)) {
		line("Metadata", "%s: %s", visible(name), visible(r.Metadata[name]))
	}
	line("Created", "%s", e.at(r.CreatedAt))
	if r.StartedAt != nil {
		line("Started", "%s", e.at(*r.StartedAt))
	}
	if r.CompletedAt != nil {
		line("Ended", "%s", e.at(*r.CompletedAt))
	}
}

// runFailure is why a run or a step failed, with the word for it.
func runFailure(f *events.AgentError) string {
	return fmt.Sprintf("%s (%s)", shortened(f.Message), visible(f.Code))
}

func (e *env) printStep(s *runStep) {
	by := ""
	if s.Model != nil && s.Provider != nil {
		by = fmt.Sprintf(", %s of %s", visible(*s.Model), visible(*s.Provider))
	}
	fmt.Fprintf(e.out, "\nStep %d  %s%s, %s credits\n", s.Number, e.status(s.Status), by, s.Usage.Credits)
	if s.Error != nil {
		fmt.Fprintf(e.out, "  %s\n", e.paint(red, runFailure(s.Error)))
	}
	if s.Text != nil {
		e.printIndented("  ", longText(*s.Text))
	}
	for _, k := range s.ToolCalls {
		e.printCall(k)
	}
}

func (e *env) printCall(k *runCall) {
	status := e.runStatus(k.Status)
	if k.IsError && k.Status == "completed" {
		status = e.paint(red, "failed")
	}
	if k.Simulated {
		status += ", simulated"
	}
	fmt.Fprintf(e.out, "  %s  %s  %s\n", visible(k.ID), visible(k.Tool), status)
	e.printIndented("    Arguments  ", longText(k.Arguments))
	if a := k.Approval; a != nil && a.Decision != nil {
		text := decided(*a.Decision)
		if a.DecidedBy != nil {
			text += " by " + visible(*a.DecidedBy)
		}
		if a.DecidedAt != nil {
			text += ", " + e.at(*a.DecidedAt)
		}
		if a.Reason != nil {
			text += ": " + *a.Reason
		}
		e.printIndented("    Approval   ", text)
	}
	if k.Output != nil {
		e.printIndented("    Output     ", longText(*k.Output))
	}
}

func decided(decision string) string {
	switch decision {
	case agents.Approve:
		return "approved"
	case agents.Deny:
		return "denied"
	}
	return decision
}

// printIndented prints what strangers wrote, so that no line of theirs looks
// like one of ours.
func (e *env) printIndented(lead, text string) {
	for line := range strings.Lines(visible(text)) {
		fmt.Fprintf(e.out, "%s%s\n", lead, strings.TrimSuffix(line, "\n"))
		lead = strings.Repeat(" ", len(lead))
	}
}

// longText is the beginning of a text for people.
func longText(text string) string {
	if r := []rune(text); len(r) > longBody {
		return fmt.Sprintf("%s…\n(%d bytes; --json has all of it)", string(r[:longBody]), len(text))
	}
	return text
}

// printWaits shows what a run waits for. Arguments are shown whole: somebody is
// to decide about them.
func (e *env) printWaits(r *events.AgentRun, commands bool) {
	for i, a := range r.RequiredActions {
		if i == 0 {
			fmt.Fprintln(e.out, "\nWaits for")
		}
		until := ahead(&a.ExpiresAt, time.Now())
		if a.Type != "approval" {
			fmt.Fprintf(e.out, "  the output of %s  %s, which your program sends; it ends %s\n", visible(a.CallID), visible(a.Tool), until)
			e.printIndented("    Arguments  ", a.Arguments)
			continue
		}
		fmt.Fprintf(e.out, "  the approval %s of %s  %s; it ends %s\n", a.ID, visible(a.CallID), visible(a.Tool), until)
		e.printIndented("    Arguments  ", a.Arguments)
		if a.Note != "" {
			e.printIndented("    Note       ", a.Note)
		}
		if commands {
			fmt.Fprintf(e.out, "    turnpike runs approve %s %s\n    turnpike runs deny %s %s\n", r.ID, a.ID, r.ID, a.ID)
		}
	}
}

// printResult shows what came of a run.
func (e *env) printResult(r *events.AgentRun) {
	switch {
	case r.Result != nil:
		fmt.Fprintln(e.out, "\nResult")
		e.printIndented("  ", longText(r.Result.OutputText))
		if r.Result.Truncated {
			fmt.Fprintln(e.out, "\nThe result breaks off: the answer has as many tokens as it may.")
		}
		if v := r.Result.Verification; v != nil {
			fmt.Fprintln(e.out, "\nChecks")
			for _, c := range v.Checks {
				e.printIndented("  ", verdict(c))
			}
		}
	case r.PartialResult != nil:
		fmt.Fprintln(e.out, "\nLast words, which are no result")
		e.printIndented("  ", longText(*r.PartialResult))
	}
}

// verdict is what a check came to.
func verdict(c events.VerificationCheck) string {
	text := c.Type + " passed"
	switch {
	case c.Simulated:
		text = c.Type + " simulated"
	case !c.Passed:
		text = c.Type + " failed"
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}

// runEnd is nil for a run that is completed.
func runEnd(r *events.AgentRun) error {
	switch {
	case agents.Status(r.Status) == agents.Completed:
		return nil
	case r.Error != nil:
		return fmt.Errorf("%s is %s: %s", r.ID, r.Status, runFailure(r.Error))
	}
	return fmt.Errorf("%s is %s", r.ID, r.Status)
}

func (e *env) runsCancel() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel RUN_ID",
		Short: "Stop a run; what it came to is kept",
		Long: `Stops a run that has not ended. One that is being worked is cancelling until its
present step has stopped; one that waits ends at once. Its steps stay.`,
		Example: `  turnpike runs cancel run_01h455vb4pex5vsknk084sn02q`,
		Args:    cobra.ExactArgs(1),
	}
	return e.client(cmd, func(ctx context.Context, c *apiClient, args []string) error {
		path, err := runPath(args[0])
		if err != nil {
			return usageError{cmd.CommandPath(), err}
		}
		var raw json.RawMessage
		if err := c.do(ctx, http.MethodPost, path+"/cancel", struct{}{}, &raw); err != nil {
			return err
		}
		if e.asJSON {
			return e.printJSON(raw)
		}
		r, err := readRun(raw)
		if err != nil {
			return err
		}
		if !agents.Status(r.Status).Ended() {
			fmt.Fprintf(e.out, "%s is %s: what is under way still ends; to see it: turnpike runs watch %s\n", r.ID, e.runStatus(r.Status), r.ID)
			return nil
		}
		fmt.Fprintf(e.out, "%s is %s.\n", r.ID, e.runStatus(r.Status))
		return nil
	})
}
