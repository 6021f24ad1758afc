package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/agents/tools"
	"turnpike/internal/audit"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
)

// prompt returns the request body of a step's model call.
func (s *Service) prompt(ctx context.Context, r *Run) ([]byte, error) {
	messages, err := s.conversation(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if r.Config.Instructions != "" {
		first, err := textMessage("system", r.Config.Instructions)
		if err != nil {
			return nil, err
		}
		messages = append([]json.RawMessage{first}, messages...)
	}
	body := map[string]any{"model": r.Model, "messages": messages}
	if len(r.Tools) > 0 {
		body["tools"] = toolDefinitions(r.Tools)
	}
	if len(r.Config.Schema) > 0 {
		body["response_format"] = map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "result", "schema": r.Config.Schema}}
	}
	return json.Marshal(body)
}

// toolDefinitions returns tools in the format of the chat completions API.
func toolDefinitions(list []tools.Tool) []any {
	out := make([]any, len(list))
	for i, t := range list {
		function := map[string]any{"name": t.Name}
		if t.Description != "" {
			function["description"] = t.Description
		}
		if len(t.Parameters) > 0 {
			function["parameters"] = t.Parameters
		}
		out[i] = map[string]any{"type": "function", "function": function}
	}
	return out
}

// answer is a model's answer.
type answer struct {
	model, provider string
	text            string
	calls           []toolRequest
	raw             []map[string]json.RawMessage // the calls as the provider sent them
	truncated       bool                         // at the token limit
	usage
}

type toolRequest struct{ name, arguments string }

// errUnlogged means that a call may be missing in the request log.
var errUnlogged = errors.New("agents: the request log cannot be written")

// recordTimeout is how long a step waits for its entry in the request log.
const recordTimeout = 4 * time.Second

// chat makes a model call through the gateway like any other request: with the
// key's budgets, and in the request log.
func (s *Service) chat(ctx context.Context, r *Run, p *access.Principal, requestID string, body []byte) (answer, error) {
	start := s.now()
	record := s.log.Open(audit.Entry{RequestID: requestID, Tenant: r.Tenant, KeyID: p.KeyID, KeyHint: p.KeyHint,
		IP: r.Config.IP, Method: http.MethodPost, Path: "/v1/agents/runs/" + r.ID, Project: r.Project, UserAgent: "Turnpike agent run", CreatedAt: start})
	c := gateway.Call{Principal: p, Project: r.Project, Record: record, Body: body, Header: http.Header{}, Step: true}
	if r.Budget != nil {
		c.Allowance = &gateway.Allowance{Limit: *r.Budget, Spent: r.Credits}
	}
	calling, stop := withoutDeadline(ctx)
	defer stop()
	got, err := s.complete(calling, c)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = ctx.Err()
	}
	status, code := http.StatusOK, ""
	if err != nil {
		status = http.StatusBadGateway
		if f, ok := fault.As(err); ok {
			status, code = fault.FamilyOf(f.Code).Status, string(f.Code)
		}
	}
	record.Settle(func(e *audit.Entry) { e.Status, e.ErrorCode, e.Latency = status, code, s.now().Sub(start) })
	if unlogged := record.Settled(recordTimeout); unlogged != nil {
		s.trackUnlogged(requestID, record)
		if err == nil {
			return answer{}, fmt.Errorf("%w: %w", errUnlogged, unlogged) // an answer counts only once it is in the log
		}
	}
	a := answer{usage: usageOfRecord(record)}
	if err != nil {
		return a, err
	}
	a.model, a.provider = got.Model, got.Provider
	return a, a.read(got.Body)
}

// withoutDeadline returns a context that is canceled when ctx ends but has no
// deadline. A call that the run's timeout interrupts is then charged like one whose
// client disconnected. The gateway would take a deadline for the provider's.
func withoutDeadline(ctx context.Context) (context.Context, func()) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	return out, func() {
		stop()
		cancel()
	}
}

// read parses the response of a chat completion.
func (a *answer) read(body []byte) error {
	body = bytes.ToValidUTF8(body, []byte("\uFFFD")) // also in raw
	var in struct {
		Choices []struct {
			Message struct {
				Content *string                      `json:"content"`
				Refusal *string                      `json:"refusal"`
				Calls   []map[string]json.RawMessage `json:"tool_calls"`
			} `json:"message"`
			Finish string `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(body, &in); err != nil || len(in.Choices) == 0 {
		return fault.New(fault.Upstream, "The model's response could not be parsed.").Because(err)
	}
	m := in.Choices[0].Message
	switch {
	case m.Content != nil:
		a.text = storable(*m.Content)
	case m.Refusal != nil:
		a.text = storable(*m.Refusal)
	}
	a.raw, a.truncated = m.Calls, in.Choices[0].Finish == "length"
	for _, c := range m.Calls {
		var function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		}
		if err := json.Unmarshal(c["function"], &function); err != nil {
			return fault.New(fault.Upstream, "The model's response could not be parsed.").Because(err)
		}
		if function.Arguments == "" {
			function.Arguments = "{}"
		}
		a.calls = append(a.calls, toolRequest{storable(function.Name), storable(function.Arguments)})
	}
	return nil
}

// storable replaces what the databases can't hold: PostgreSQL rejects NUL.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// message is the answer as a message of the conversation. Its calls get our IDs,
// and valid names and arguments. Other fields of a provider are sent back to it.
func (a *answer) message(step int64) json.RawMessage {
	out := map[string]any{"role": "assistant", "content": a.text}
	if len(a.raw) > 0 {
		if a.text == "" {
			out["content"] = nil
		}
		list := make([]map[string]json.RawMessage, len(a.raw))
		for i, c := range a.raw {
			list[i] = map[string]json.RawMessage{}
			for name, value := range c {
				list[i][name] = value
			}
			list[i]["id"] = json.RawMessage(`"` + callID(step, i) + `"`)
			if function, changed := a.calls[i].normalized(c["function"]); changed {
				list[i]["function"] = function
			}
		}
		out["tool_calls"] = list
	}
	text, err := json.Marshal(out)
	if err != nil { // it was read from JSON
		return json.RawMessage(`{"role":"assistant","content":""}`)
	}
	return text
}
