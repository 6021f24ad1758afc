package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/access"
	"turnpike/internal/agents/tools"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/jsonbody"
)

func (s *Service) prompt(ctx context.Context, r *Run) ([]byte, error) {
	messages, err := s.conversation(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if r.Config.Instructions != "" {
		messages = append([]json.RawMessage{textMessage("system", r.Config.Instructions)}, messages...)
	}
	body := map[string]any{"model": r.Model, "messages": messages}
	if len(r.Tools) > 0 {
		body["tools"] = toolDefinitions(r.Tools)
	}
	if len(r.Config.Schema) > 0 {
		body["response_format"] = jsonFormat("result", r.Config.Schema)
	}
	return json.Marshal(body)
}

func jsonFormat(name string, schema json.RawMessage) map[string]any {
	return map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": name, "schema": schema}}
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
	start := s.Now()
	record := s.Log.Open(audit.Entry{RequestID: requestID, Tenant: r.Tenant, KeyID: p.KeyID, KeyHint: p.KeyHint,
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
	record.Settle(func(e *audit.Entry) { e.End(err, s.Now().Sub(start)) })
	if unlogged := record.Settled(recordTimeout); unlogged != nil {
		s.trackUnlogged(requestID, record)
		if err == nil {
			return answer{}, fmt.Errorf("%w: %w", errUnlogged, unlogged) // an answer counts only once it is in the log
		}
	}
	a := answer{usage: usageOf(record.Entry())}
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
		a.text = db.Storable(*m.Content)
	case m.Refusal != nil:
		a.text = db.Storable(*m.Refusal)
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
		a.calls = append(a.calls, toolRequest{db.Storable(function.Name), db.Storable(function.Arguments)})
	}
	return nil
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
			list[i] = maps.Clone(c)
			list[i]["id"] = json.RawMessage(`"` + callID(step, i) + `"`)
			if function, changed := a.calls[i].normalized(c["function"]); changed {
				list[i]["function"] = function
			}
		}
		out["tool_calls"] = list
	}
	return encode(out)
}

// maxArgumentsDepth limits the nesting of arguments that are sent to a provider.
const maxArgumentsDepth = 100

// normalized returns the call in a form that every provider accepts, and whether
// that changed it. Models invent invalid names and arguments that are not JSON, and
// many providers reject a conversation that contains them.
func (t toolRequest) normalized(original json.RawMessage) (function json.RawMessage, changed bool) {
	var had struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(original, &had) != nil || json.Unmarshal(original, &fields) != nil {
		return original, false // not reached: answer.read has parsed it
	}
	name, arguments := tools.ValidName(t.name), normalizedArguments(t.arguments)
	if name == had.Name && arguments == had.Arguments {
		return original, false
	}
	fields["name"], fields["arguments"] = encode(name), encode(arguments)
	return encode(fields), true
}

// normalizedArguments returns arguments that are a JSON object.
func normalizedArguments(arguments string) string {
	v := jsontext.Value(arguments)
	if v.Kind() == jsontext.KindBeginObject && jsonbody.CheckDepth(v, maxArgumentsDepth) == nil &&
		v.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return arguments
	}
	return `{"not_an_object":` + string(encode(arguments)) + `}`
}
