package responses

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// HostedTool is a tool that isn't a function of the client: the provider runs it, or has made it for
// a purpose of its own.
type HostedTool struct {
	Type string
	At   string // where its type is in the request
	Free bool   // providers charge no more than its tokens
	// Model runs it, by its name at the provider. It is empty for the provider's default.
	Model string

	inItem bool // an input item adds it
}

// HostedTools returns the tools of the request that aren't functions and weren't dropped.
func (r *Request) HostedTools() (list []HostedTool) {
	add := func(tools []tool, at string, inItem bool) {
		for i := range tools {
			if t := &tools[i]; !t.isFunction() && (inItem || !slices.Contains(r.withheld, t.Type)) {
				list = append(list, HostedTool{t.Type, at + "[" + strconv.Itoa(i) + "].type", t.isFree(), t.model(), inItem})
			}
		}
	}
	add(r.in.Tools, "tools", false)
	for i := range r.in.Input.Value {
		add(r.in.Input.Value[i].Tools, r.itemPath(i)+".tools", true)
	}
	return list
}

// HasHostedTools reports whether the provider may add to the input, such as the results of a search.
func (r *Request) HasHostedTools() bool { return len(r.HostedTools()) > 0 }

func (t *tool) isFunction() bool {
	return slices.Contains([]string{"function", "custom", "namespace", toolSearch}, t.Type)
}

// freeTools are those that cost no more than their tokens: the client runs them, or calls a server
// of its own.
var freeTools = []string{"mcp", "computer", "computer_use", "computer_use_preview", "local_shell", "apply_patch"}

func (t *tool) isFree() bool {
	if t.Type != "shell" {
		return slices.Contains(freeTools, t.Type)
	}
	var in struct {
		Environment struct {
			Type string `json:"type"`
		} `json:"environment"`
	}
	_ = json.Unmarshal(t.Extra, &in, lenient...)
	return in.Environment.Type == "local" // others are containers of the provider
}

// model returns the name of the model that runs a hosted tool, or the JSON of what isn't a name.
func (t *tool) model() string {
	if !isSet(t.Model) {
		return ""
	}
	if name, err := jsontext.AppendUnquote(nil, t.Model); err == nil {
		return string(name)
	}
	return string(t.Model)
}

// MaxToolCalls returns the client's limit on the calls of hosted tools, or 0.
func (r *Request) MaxToolCalls() int64 {
	if n := r.in.MaxToolCalls; n != nil {
		return *n
	}
	return 0
}

// DropHosted leaves a tool out of the request to providers with the Responses API. It reports
// whether the model can work without it.
func (r *Request) DropHosted(t HostedTool) bool {
	if t.inItem || !isDropped(t.Type) {
		return false
	}
	if !slices.Contains(r.withheld, t.Type) {
		r.withheld = append(r.withheld, t.Type)
	}
	return true
}

// KeptTools returns the tools without those that were dropped, or nil if none was.
func (r *Request) KeptTools() jsontext.Value {
	if len(r.withheld) == 0 {
		return nil
	}
	var in struct {
		Tools []jsontext.Value `json:"tools"`
	}
	_ = json.Unmarshal(r.body, &in, lenient...) // Read has decoded it
	kept := []jsontext.Value{}
	for i, t := range r.in.Tools {
		if !slices.Contains(r.withheld, t.Type) {
			kept = append(kept, in.Tools[i])
		}
	}
	out, _ := json.Marshal(kept, lenient...)
	return out
}

// Warning says which tools the model doesn't get, or is empty. native is set for a provider with the
// Responses API.
func (r *Request) Warning(native bool) string {
	switch {
	case native && len(r.withheld) > 0:
		return "Ignored tools: " + strings.Join(r.withheld, ", ") + ". They have no price on this server, or you may not use their model."
	case !native && len(r.tools.dropped) > 0:
		return "Ignored tools: " + strings.Join(r.tools.dropped, ", ") + ". The provider of this model does not have them."
	}
	return ""
}

// Ignored returns the fields of a translated request that had no effect: those that chat completions
// don't have, and those that the provider ignored.
func (r *Request) Ignored(chat []string) (out []string) {
	in := r.in
	if in.MaxToolCalls != nil {
		out = append(out, "max_tool_calls")
	}
	if in.Truncation != nil && *in.Truncation != "disabled" {
		out = append(out, "truncation")
	}
	for _, name := range chat {
		out = append(out, r.fieldName(name))
	}
	return out
}
