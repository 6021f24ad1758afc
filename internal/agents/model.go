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

// prompt is the body of the model call.
func (s *Service) prompt(ctx context.Context, r *Run) ([]byte, error) {
	messages, err := s.conversation(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if r.Orders.Instructions != "" {
		first, err := plainMessage("system", r.Orders.Instructions)
		if err != nil {
			return nil, err
		}
		messages = append([]json.RawMessage{first}, messages...)
	}
	body := map[string]any{"model": r.Model, "messages": messages}
	if len(r.Tools) > 0 {
		body["tools"] = offered(r.Tools)
	}
	if len(r.Orders.Schema) > 0 {
		body["response_format"] = map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "result", "schema": r.Orders.Schema}}
	}
	return json.Marshal(body)
}

// offered are tools as a model is told of them.
func offered(list []tools.Tool) []any {
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

// answer is what a model said.
type answer struct {
	model, provider string
	text            string
	calls           []wantedCall
	raw             []map[string]json.RawMessage // the calls as they came
	cut             bool                         // it has as many tokens as it may, and would go on
	bill
}

type wantedCall struct{ name, arguments string }

// errUnlogged is a call that may not be in the request log.
var errUnlogged = errors.New("agents: the request log cannot be written")

// recordPatience is how long a step waits for its entry in the request log.
const recordPatience = 4 * time.Second

// chat makes a model call through the gateway, as any other: with the key's
// budgets, and in the request log.
func (s *Service) chat(ctx context.Context, r *Run, p *access.Principal, requestID string, body []byte) (answer, error) {
	start := s.now()
	record := s.log.Open(audit.Entry{RequestID: requestID, WorkspaceID: r.WorkspaceID, Environment: string(r.Environment), KeyID: p.KeyID, KeyHint: p.KeyHint,
		IP: r.Orders.IP, Method: http.MethodPost, Path: "/v1/agents/runs/" + r.ID, Project: r.Project, UserAgent: "Turnpike agent run", CreatedAt: start})
	c := gateway.Call{Principal: p, Project: r.Project, Record: record, Body: body, Header: http.Header{}, Step: true}
	if r.Budget != nil {
		c.Allowance = &gateway.Allowance{Limit: *r.Budget, Spent: r.Credits}
	}
	asking, stop := leaving(ctx)
	defer stop()
	got, err := s.gateway.Chat(asking, c)
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
	if unlogged := record.Settled(recordPatience); unlogged != nil {
		s.late(requestID, record)
		if err == nil {
			return answer{}, fmt.Errorf("%w: %w", errUnlogged, unlogged) // what is not in the log did not happen
		}
	}
	a := answer{bill: billOf(record)}
	if err != nil {
		return a, err
	}
	a.model, a.provider = got.Model, got.Provider
	return a, a.read(got.Body)
}

// leaving is ctx for a call that is broken off when the run's time is over as
// if its client had left: the provider has done its work, and is paid for it.
// A deadline would be taken for the provider's own.
func leaving(ctx context.Context) (context.Context, func()) {
	out, leave := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, leave)
	return out, func() {
		forget()
		leave()
	}
}

// read takes the answer of a chat completion apart.
func (a *answer) read(body []byte) error {
	body = bytes.ToValidUTF8(body, []byte("\uFFFD")) // of the calls as they came, too
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
		return fault.New(fault.Upstream, "the model's answer cannot be understood").Because(err)
	}
	m := in.Choices[0].Message
	switch {
	case m.Content != nil:
		a.text = storable(*m.Content)
	case m.Refusal != nil:
		a.text = storable(*m.Refusal)
	}
	a.raw, a.cut = m.Calls, in.Choices[0].Finish == "length"
	for _, c := range m.Calls {
		var function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		}
		if err := json.Unmarshal(c["function"], &function); err != nil {
			return fault.New(fault.Upstream, "the model's answer cannot be understood").Because(err)
		}
		if function.Arguments == "" {
			function.Arguments = "{}"
		}
		a.calls = append(a.calls, wantedCall{storable(function.Name), storable(function.Arguments)})
	}
	return nil
}

// storable makes a stranger's text one that every store can hold: PostgreSQL
// takes no NUL.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// message is the answer as a part of the conversation. Its calls have our own
// ids, and names and arguments that can be sent; what else a provider has put
// into them must come back to it.
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
			if function, mended := a.calls[i].mended(c["function"]); mended {
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
