package tools

import (
	stdjson "encoding/json"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// simulatedTool is the tool of a simulated MCP server without allowed_tools.
const simulatedTool = "echo"

var anyParameters = stdjson.RawMessage(`{"type":"object"}`)

// ResolveSimulated lists the tools that the model can call if tools are simulated.
// An MCP server has the tools that allowed_tools names, or echo.
func ResolveSimulated(specs []Spec) ([]Tool, error) {
	lists := make([][]Tool, len(specs))
	for i, spec := range specs {
		if spec.Type != MCP {
			lists[i] = []Tool{describedTool(spec, i)}
			continue
		}
		names := spec.AllowedTools
		if len(names) == 0 {
			names = []string{simulatedTool}
		}
		for j, name := range names {
			if slices.Contains(names[:j], name) {
				continue
			}
			lists[i] = append(lists[i], Tool{Name: mcpToolName(spec.ServerLabel, name), Kind: MCP, Description: "A simulated tool.", Parameters: anyParameters,
				NeedsApproval: spec.Approval.needed(name, false), Spec: i, Remote: name})
		}
	}
	return combine(lists)
}

// Simulate returns the output of a simulated call: the given result, or the call itself.
func Simulate(tool, arguments string, result *string) (Output, error) {
	if result != nil {
		return Output{Text: modelText(*result, nil, maxOutput)}, nil
	}
	text, err := json.Marshal(struct {
		Simulated bool           `json:"simulated"`
		Tool      string         `json:"tool"`
		Arguments jsontext.Value `json:"arguments"`
	}{true, tool, jsontext.Value(arguments)})
	return Output{Text: modelText(string(text), nil, maxOutput)}, err
}
