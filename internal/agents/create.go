package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/ids"
	"turnpike/internal/jsonbody"
	"turnpike/internal/lanes"
)

// Request is the body of a request to create a run.
type Request struct {
	Model             string            `json:"model"`
	Instructions      string            `json:"instructions"`
	Input             jsontext.Value    `json:"input"`
	Tools             []json.RawMessage `json:"tools"`
	MaxSteps          *int64            `json:"max_steps"`
	Budget            *Budget           `json:"budget"`
	TimeoutSeconds    *int64            `json:"timeout_seconds"`
	ApprovalSeconds   *int64            `json:"approval_timeout_seconds"`
	ToolOutputSeconds *int64            `json:"tool_output_timeout_seconds"`
	Output            *Output           `json:"output"`
	Metadata          map[string]string `json:"metadata"`
	Stream            bool              `json:"stream"`
}

// Budget limits the cost of a run.
type Budget struct {
	MaxCredits *credits.Micro `json:"max_credits"`
}

// Output says how the result is checked.
type Output struct {
	Schema       jsontext.Value `json:"schema"`
	Checks       []check        `json:"checks"`
	MaxRevisions *int64         `json:"max_revisions"`
}

// check is a check of the result: by a judge, which is a model with a rubric, or
// by an HTTP server.
type check struct {
	Type   string `json:"type"`
	Model  string `json:"model,omitzero"`
	Rubric string `json:"rubric,omitzero"`
	URL    string `json:"url,omitzero"`
}

const (
	checkJudge = "judge"
	checkHTTP  = "http"
)

const (
	defaultMaxSteps   = 20
	maxMaxSteps       = 200
	defaultApproval   = 86_400
	maxApproval       = 30 * 86_400
	defaultToolOutput = 600
	maxToolOutput     = 86_400
	maxTimeout        = 7 * 86_400
	defaultRevisions  = 1
	maxRevisions      = 10
	maxChecks         = 8
	maxRubric         = 16_000
	maxMessages       = 1000
	maxInstructions   = 256 << 10
)

// Caller is the client that creates a run, and its request.
type Caller struct {
	Principal *access.Principal
	Project   string
	RequestID string
	IP        string
	Record    *audit.Record // of that request; may be nil
}

func (c Caller) owner() gateway.Owner {
	return gateway.Owner{Principal: c.Principal, Project: c.Project, Record: c.Record}
}

// Draft is a validated run that is not stored yet.
type Draft struct {
	Run       *Run
	messages  []json.RawMessage
	principal *access.Principal
}

// Draft validates a request.
func (s *Service) Draft(ctx context.Context, from Caller, in Request) (*Draft, error) {
	p := from.Principal
	if in.Model == "" {
		return nil, fault.Missing("model", "model is required. GET /v1/models lists the available models.")
	}
	if _, err := s.Gateway.Quote(ctx, from.owner(), []string{in.Model}, catalog.Chat, catalog.Units{}); err != nil {
		return nil, err
	}
	if len(in.Instructions) > maxInstructions {
		return nil, fault.Invalid("instructions", "instructions must have at most %d bytes.", maxInstructions)
	}
	if err := accounts.CheckMetadata(in.Metadata); err != nil {
		return nil, err
	}
	messages, err := readInput(in.Input)
	if err != nil {
		return nil, err
	}
	now := s.Now()
	r := &Run{ID: ids.New(ids.Run), Tenant: p.Tenant, Project: from.Project, KeyID: p.KeyID, Reader: p.Reader(),
		RequestID: from.RequestID, Status: Queued, Model: in.Model, Metadata: in.Metadata, DueAt: &now, CreatedAt: now, Messages: int64(len(messages)), Preview: previewOf(messages)}
	if r.Metadata == nil {
		r.Metadata = map[string]string{}
	}
	r.Lane = lanes.ShardOf(fmt.Sprintf("%s.%s", r.WorkspaceID, r.Environment), r.ID)
	r.Config = config{Instructions: in.Instructions, IP: from.IP, Token: p.TokenLimits()}
	for _, n := range []struct {
		name              string
		value             *int64
		smallest, largest int64
		byDefault         int64
		into              *int64
	}{
		{"max_steps", in.MaxSteps, 1, maxMaxSteps, defaultMaxSteps, &r.MaxSteps},
		{"timeout_seconds", in.TimeoutSeconds, 1, maxTimeout, 0, &r.Config.TimeoutSeconds},
		{"approval_timeout_seconds", in.ApprovalSeconds, 1, maxApproval, defaultApproval, &r.Config.ApprovalSeconds},
		{"tool_output_timeout_seconds", in.ToolOutputSeconds, 1, maxToolOutput, defaultToolOutput, &r.Config.ToolOutputSeconds},
	} {
		*n.into = n.byDefault
		if n.value == nil {
			continue
		}
		if *n.value < n.smallest || *n.value > n.largest {
			return nil, fault.Invalid(n.name, "%s must be from %d to %d.", n.name, n.smallest, n.largest)
		}
		*n.into = *n.value
	}
	if in.Budget != nil {
		if in.Budget.MaxCredits == nil || *in.Budget.MaxCredits < 0 {
			return nil, fault.Invalid("budget.max_credits", "budget.max_credits must be an amount of credits.")
		}
		r.Budget = in.Budget.MaxCredits
	}
	if err := s.readOutput(ctx, from, in.Output, &r.Config); err != nil {
		return nil, err
	}
	var secrets tools.Secrets
	if r.Specs, secrets, err = s.tools.Parse(in.Tools); err != nil {
		return nil, err
	}
	if len(secrets) > 0 {
		text, err := json.Marshal(secrets)
		if err != nil {
			return nil, err
		}
		r.Secrets = s.Ring.Seal(text, secretsContext(r.ID))
	}
	return &Draft{r, messages, p}, nil
}

func (s *Service) readOutput(ctx context.Context, from Caller, out *Output, into *config) error {
	if out == nil {
		return nil
	}
	if len(out.Schema) > 0 && out.Schema.Kind() != 'n' {
		if err := tools.CheckSchema("output.schema", json.RawMessage(out.Schema)); err != nil {
			return err
		}
		into.Schema = json.RawMessage(out.Schema)
	}
	if len(out.Checks) > maxChecks {
		return fault.Invalid("output.checks", "output.checks can have at most %d entries.", maxChecks)
	}
	for i, c := range out.Checks {
		param := fmt.Sprintf("output.checks[%d]", i)
		switch c.Type {
		case checkJudge:
			if c.URL != "" {
				return fault.Invalid(param+".type", "A check of type judge has a model and a rubric, and no url.")
			}
			if strings.TrimSpace(c.Rubric) == "" || len(c.Rubric) > maxRubric {
				return fault.Invalid(param+".rubric", "rubric is required and must have at most %d bytes. Describe a good answer.", maxRubric)
			}
			if c.Model == "" {
				return fault.Missing(param+".model", "model is required. Name the model that judges.")
			}
			if _, err := s.Gateway.Quote(ctx, gateway.Owner{Principal: from.Principal, Project: from.Project}, []string{c.Model}, catalog.Chat, catalog.Units{}); err != nil {
				if f, ok := fault.As(err); ok && f.Param == "model" {
					return fault.Param(f.Code, param+".model", "%s", f.Message)
				}
				return err
			}
		case checkHTTP:
			if c.Model != "" || c.Rubric != "" {
				return fault.Invalid(param+".type", "A check of type http has a url, and no model or rubric.")
			}
			if _, err := s.Guard.CheckURL(param+".url", c.URL); err != nil {
				return err
			}
		default:
			return fault.Invalid(param+".type", "type must be judge or http.")
		}
	}
	into.Checks = out.Checks
	into.MaxRevisions = defaultRevisions
	if out.MaxRevisions != nil {
		if *out.MaxRevisions < 0 || *out.MaxRevisions > maxRevisions {
			return fault.Invalid("output.max_revisions", "output.max_revisions must be from 0 to %d.", maxRevisions)
		}
		into.MaxRevisions = *out.MaxRevisions
	}
	return nil
}

// readInput parses the input: a string, or an array of messages.
func readInput(v jsontext.Value) ([]json.RawMessage, error) {
	switch v.Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(nil, v)
		if err != nil || strings.TrimSpace(string(text)) == "" {
			return nil, fault.Missing("input", "input is required. Describe what the run should do.")
		}
		return []json.RawMessage{textMessage("user", string(text))}, nil
	case '[':
		var list []json.RawMessage
		if err := jsonbody.DecodeLenient(v, &list); err != nil {
			return nil, err
		}
		if len(list) == 0 || len(list) > maxMessages {
			return nil, fault.Invalid("input", "input must have 1 to %d messages.", maxMessages)
		}
		if err := gateway.CheckMessages("input", v); err != nil {
			return nil, err
		}
		for i, m := range list {
			var head struct {
				Role    string         `json:"role"`
				Content jsontext.Value `json:"content"`
			}
			param := fmt.Sprintf("input[%d]", i)
			if err := json.Unmarshal(m, &head); err != nil {
				return nil, fault.Invalid(param, "%s must be a message: an object with role and content.", param)
			}
			switch head.Role {
			case "user", "assistant", "system", "developer":
			default:
				return nil, fault.Invalid(param+".role", "role must be user, assistant, system or developer.")
			}
			if !isContent(head.Content) {
				return nil, fault.Invalid(param+".content", "content must be a string or an array of parts, which are objects with a type.")
			}
		}
		return list, nil
	}
	return nil, fault.Missing("input", "input must be a string or an array of messages.")
}

// isContent reports whether a value can be the content of a message. The model checks the parts.
func isContent(v jsontext.Value) bool {
	if v.Kind() != '[' {
		return v.Kind() == '"'
	}
	var parts []*struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(v, &parts) != nil {
		return false
	}
	for _, p := range parts {
		if p == nil || p.Type == "" {
			return false
		}
	}
	return true
}

func textMessage(role, text string) json.RawMessage {
	return encode(map[string]string{"role": role, "content": text})
}

// encode encodes strings and valid JSON, which can't fail.
func encode(v any) json.RawMessage {
	text, _ := json.Marshal(v)
	return text
}

// Create stores the run.
func (s *Service) Create(ctx context.Context, tx *db.Tx, d *Draft) error {
	r := d.Run
	r.Logged = 1
	var err error
	if r.Config.ToolMode, err = s.environmentToolMode(ctx, tx, r); err != nil {
		return err
	}
	if err := s.lookUpServers(ctx, tx, r, d.principal); err != nil {
		return err
	}
	if err := checkApprovers(ctx, tx, r, s.Now()); err != nil {
		return err
	}
	if err := insertRun(ctx, tx, r); err != nil {
		return err
	}
	rows := make([][]any, len(d.messages))
	for i, m := range d.messages {
		rows[i] = []any{r.ID, int64(i), string(m)}
	}
	if _, err := insertMessages.Write(ctx, tx, rows); err != nil {
		return fmt.Errorf("store messages: %w", err)
	}
	if _, err := insertEntries.Write(ctx, tx, [][]any{{r.ID, int64(1), "run.queued", `{"status":"queued"}`, r.CreatedAt.UnixMicro()}}); err != nil {
		return fmt.Errorf("store run log: %w", err)
	}
	return wake(ctx, tx, r.Lane, r.CreatedAt)
}

// wake marks a lane as having work from a point in time on.
func wake(ctx context.Context, tx *db.Tx, lane string, due time.Time) error {
	return lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{lane: due})
}
