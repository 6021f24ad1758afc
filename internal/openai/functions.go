package openai

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// UsesFunctions reports whether a chat request may use functions and function_call, the predecessors
// of tools and tool_calls.
func UsesFunctions(body []byte) bool {
	return bytes.Contains(body, []byte(`"functions"`)) || bytes.Contains(body, []byte(`"function_call"`))
}

// functionsRequest is a chat request with the fields that tools have replaced.
type functionsRequest struct {
	ChatRequest
	FunctionCall StringOr[Function] `json:"function_call,omitzero"`
}

// ReplaceFunctions translates functions to tools. replaced is false if the request has tools itself, or
// neither.
func ReplaceFunctions(body []byte) (_ []byte, replaced bool, err error) {
	r := new(functionsRequest)
	if err := jsonbody.DecodeLenient(body, r); err != nil {
		return nil, false, err
	}
	if isSet(r.Functions) {
		if len(r.Tools) > 0 {
			return nil, false, fault.Invalid("functions", "functions and tools exclude each other. Use tools.")
		}
		var functions []Function
		if err := jsonbody.DecodeLenient(slicesOf("functions", r.Functions), &struct {
			Functions *[]Function `json:"functions"`
		}{&functions}); err != nil {
			return nil, false, err
		}
		for i := range functions {
			r.Tools = append(r.Tools, Tool{Type: "function", Function: &functions[i]})
		}
		if err := r.setChoice(); err != nil {
			return nil, false, err
		}
		r.Functions, replaced = nil, true
	}
	if r.replaceCalls(); len(r.Tools) > 0 && replaced {
		r.ParallelToolCalls = new(false) // the response has room for one call
	}
	out, err := json.Marshal(&r.ChatRequest)
	if err != nil {
		return nil, false, fault.New(fault.InvalidJSON, "The body is nested too deeply.").Because(err)
	}
	return out, replaced, nil
}

func slicesOf(name string, value jsontext.Value) []byte {
	return append(append([]byte(`{"`+name+`":`), value...), '}')
}

func (r *functionsRequest) setChoice() error {
	switch c := &r.FunctionCall; {
	case c.IsNull():
	case c.Kind == jsontext.KindString && (c.Text == "auto" || c.Text == "none"):
		r.ToolChoice = StringOr[ChoiceObject]{Kind: jsontext.KindString, Text: c.Text}
	case c.Kind == jsontext.KindBeginObject && c.Value.Name != "":
		r.ToolChoice = StringOr[ChoiceObject]{Kind: jsontext.KindBeginObject, Value: ChoiceObject{Type: "function", Function: &Function{Name: c.Value.Name}}}
	default:
		return fault.Invalid("function_call", `function_call must be "auto", "none", or an object with the name of a function.`)
	}
	return nil
}

// replaceCalls turns function calls in the conversation and their results into tool calls.
func (r *functionsRequest) replaceCalls() {
	id := ""
	for i := range r.Messages {
		switch m := &r.Messages[i]; {
		case m.FunctionCall != nil:
			id = "call_" + strconv.Itoa(i)
			m.ToolCalls, m.FunctionCall = []ToolCall{FunctionToolCall(id, m.FunctionCall.Name, m.FunctionCall.Arguments)}, nil
		case m.Role == "function" && id != "":
			m.Role, m.ToolCallID, m.Name = "tool", id, ""
			id = ""
		}
	}
}

// FunctionsFieldName returns the name in a request with functions for the name of a field that ReplaceFunctions
// made of it.
func FunctionsFieldName(name string) string {
	if i, rest, ok := SplitIndex(name, "tools"); ok {
		return "functions[" + strconv.Itoa(i) + "]" + strings.TrimPrefix(rest, ".function")
	}
	if strings.HasPrefix(name, "tool_choice") {
		return "function_call"
	}
	return name
}

const (
	finishToolCalls    = "tool_calls"
	finishFunctionCall = "function_call"
)

// functionsCompletion is a completion or a chunk whose calls are function calls.
type functionsCompletion struct {
	Head
	Choices []functionsChoice `json:"choices"`
	Usage   jsontext.Value    `json:"usage,omitzero"`
}

type functionsChoice struct {
	Index        int               `json:"index"`
	Message      *functionsMessage `json:"message,omitzero"`
	Delta        *functionsDelta   `json:"delta,omitzero"`
	Logprobs     jsontext.Value    `json:"logprobs"`
	FinishReason *string           `json:"finish_reason"`
}

type functionsMessage struct {
	AssistantMessage
	FunctionCall *FunctionCall `json:"function_call,omitzero"`
}

type functionsDelta struct {
	Delta
	FunctionCall *FunctionCall `json:"function_call,omitzero"`
}

// ToFunctionCalls turns the tool calls of a completion, or of a chunk of one, back into function calls.
func ToFunctionCalls(body []byte) ([]byte, error) {
	var c functionsCompletion
	if err := json.Unmarshal(body, &c, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, err
	}
	for i := range c.Choices {
		choice := &c.Choices[i]
		if m := choice.Message; m != nil && len(m.ToolCalls) > 0 {
			m.FunctionCall, m.ToolCalls = m.ToolCalls[0].Function, nil
		}
		if d := choice.Delta; d != nil && len(d.ToolCalls) > 0 {
			d.FunctionCall, d.ToolCalls = d.ToolCalls[0].Function, nil
		}
		if choice.FinishReason != nil && *choice.FinishReason == finishToolCalls {
			choice.FinishReason = new(finishFunctionCall)
		}
	}
	return json.Marshal(&c, jsontext.AllowInvalidUTF8(true))
}
