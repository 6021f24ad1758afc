package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// maxListed limits the stored description of an MCP server's tools, in bytes.
const maxListed = 1 << 20

// CheckServer validates the URL, the headers and the allowed tools of an MCP server that a workspace
// registers. It returns the headers with normalized names.
func (x *Executor) CheckServer(s *Spec, headers map[string]string) (map[string]string, error) {
	normal, err := checkHeaders("headers", MCP, headers)
	return normal, errors.Join(x.checkURL("url", s.ServerURL), err, checkAllowed(s.AllowedTools))
}

func checkAllowed(names []string) error {
	if names == nil {
		return nil
	}
	return (&Spec{}).setAllowedNames("allowed_tools", names)
}

// ListedName returns the name under which clients see a tool of an MCP server: label__tool.
func ListedName(label, tool string) string { return mcpToolName(label, tool) }

// List returns the tools of an MCP server as it describes them, without the values of the headers. It
// returns a *Failure if the server fails or its tools can't be used.
func (x *Executor) List(ctx context.Context, spec Spec, headers map[string]string) ([]*mcp.Tool, error) {
	list, err := x.listRemote(ctx, spec, headers)
	if err != nil {
		return nil, err
	}
	size := 0
	for i, remote := range list {
		if remote.InputSchema == nil {
			remote.InputSchema = json.RawMessage(anyParameters)
		}
		raw, err := json.Marshal(remote)
		if err != nil {
			return nil, serverFailure(spec, true, "its tool %s cannot be read; select others with allowed_tools", truncate(remote.Name, maxName))
		}
		if size += len(raw); size > maxListed {
			return nil, serverFailure(spec, true, "its list of tools has more than %d KiB; select some with allowed_tools", maxListed>>10)
		}
		if list[i], err = cleanTool(raw, headers); err != nil {
			return nil, serverFailure(spec, true, "its tool %s cannot be used: %s; select others with allowed_tools", truncate(remote.Name, maxName), err)
		}
	}
	return list, nil
}

// cleanTool removes secrets from the description of a tool, and checks that clients can read it.
func cleanTool(raw []byte, headers map[string]string) (*mcp.Tool, error) {
	var tool mcp.Tool
	if err := json.Unmarshal([]byte(redact(db.Storable(string(raw)), headers)), &tool); err != nil {
		return nil, fmt.Errorf("its description is not valid JSON")
	}
	var schema struct {
		Type any `json:"type"`
	}
	input, err := json.Marshal(tool.InputSchema)
	if err != nil || json.Unmarshal(input, &schema) != nil || schema.Type != "object" {
		return nil, fmt.Errorf(`its inputSchema must have "type": "object"`)
	}
	return &tool, nil
}

// Call calls a tool of an MCP server once and returns its result as the server sent it, except for the
// values of the headers. An error that the server reports is a result. A call without a response is a
// *Failure.
func (x *Executor) Call(ctx context.Context, c Invocation) (*mcp.CallToolResult, error) {
	return withTimeout(ctx, c, func(ctx context.Context, c Invocation) (*mcp.CallToolResult, error) {
		r, err := x.callMCP(ctx, c)
		switch {
		case err != nil:
			return nil, err
		case r.problem != "":
			return ErrorResult(r.problem), nil
		case r.result.InputRequests != nil:
			return ErrorResult(needsInput), nil
		}
		return cleanResult(r, c.headers())
	})
}

// ErrorResult returns a result that reports an error to the model.
func ErrorResult(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

func cleanResult(r mcpResponse, headers map[string]string) (*mcp.CallToolResult, error) {
	result := r.result
	if len(headers) > 0 {
		raw, err := json.Marshal(result)
		if err != nil {
			return nil, fmt.Errorf("result of an MCP tool: %w", err)
		}
		if clean := redact(string(raw), headers); clean != string(raw) {
			result = new(mcp.CallToolResult)
			if json.Unmarshal([]byte(clean), result) != nil {
				return ErrorResult("the tool returned a secret of its server, so its result is hidden"), nil
			}
		}
	}
	if r.structured != nil {
		if result.StructuredContent = json.RawMessage(redact(string(r.structured), headers)); !json.Valid(result.StructuredContent.(json.RawMessage)) {
			return ErrorResult("the tool returned a secret of its server, so its result is hidden"), nil
		}
	}
	return result, nil
}

// SimulatedTools returns the tools of a simulated MCP server.
func SimulatedTools(spec Spec) ([]*mcp.Tool, error) {
	list, err := ResolveSimulated([]Spec{spec})
	if err != nil {
		f, _ := err.(*Failure)
		return nil, fault.Invalid("allowed_tools", "%s", f.Message)
	}
	out := make([]*mcp.Tool, len(list))
	for i, t := range list {
		out[i] = &mcp.Tool{Name: t.Remote, Description: t.Description, InputSchema: json.RawMessage(t.Parameters)}
	}
	return out, nil
}
