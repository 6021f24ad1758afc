package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const metaIdempotencyKey = "turnpike/idempotency-key"

// needsInput is the output of a tool that asks its client for more input.
const needsInput = "the tool asks for more input, which Turnpike cannot give"

// runMCP calls a tool of an MCP server for a run.
func (x *Executor) runMCP(ctx context.Context, c Invocation) (Output, error) {
	r, err := x.callMCP(ctx, c)
	switch {
	case err != nil:
		return Output{}, err
	case r.problem != "":
		return Output{Text: r.problem, IsError: true}, nil
	}
	return mcpOutput(r.result, r.structured, c.headers()), nil
}

// mcpResponse is what an MCP server returned: a result, or a problem that it reported instead.
type mcpResponse struct {
	result     *mcp.CallToolResult
	structured json.RawMessage // the structured content as the server wrote it
	problem    string
}

// callMCP calls a tool of an MCP server in a new session.
func (x *Executor) callMCP(ctx context.Context, c Invocation) (mcpResponse, error) {
	headers, arguments := c.headers(), c.Arguments
	progress := newProgress(c.Progress)
	session, w, err := x.connect(ctx, c.Spec, headers, progress.notify)
	if err != nil {
		return mcpResponse{}, &Failure{Message: "the tool's MCP server: " + w.explain(ctx, err), Unauthorized: w.unauthorized(), Cause: ctx.Err()}
	}
	defer x.endSession(session)
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	params := &mcp.CallToolParams{Meta: mcp.Meta{metaIdempotencyKey: c.IdempotencyKey}, Name: c.Tool.Remote, Arguments: arguments}
	if c.Progress != nil {
		params.SetProgressToken(c.IdempotencyKey)
	}
	w.calling.Store(true)
	result, err := session.CallTool(ctx, params)
	if err == nil {
		progress.wait(w.responses.count("notifications/progress"))
		return mcpResponse{result: result, structured: w.responses.structured()}, nil
	}
	if ctx.Err() == nil {
		if problem := w.responseProblem(err); problem != "" {
			return mcpResponse{problem: "the tool failed at its MCP server: " + problem}, nil
		}
	}
	return mcpResponse{}, &Failure{Message: "the tool's MCP server: " + w.explain(ctx, err), Unknown: w.sent.Load(), Cause: ctx.Err()}
}

// mcpOutput returns a result as the model sees it: its texts, and descriptions of other content.
// Structured content is added unless a text repeats it, as the protocol recommends.
func mcpOutput(result *mcp.CallToolResult, structured json.RawMessage, headers map[string]string) Output {
	if result.InputRequests != nil {
		return Output{Text: needsInput, IsError: true}
	}
	if structured == nil {
		structured, _ = json.Marshal(result.StructuredContent) // it was decoded from JSON
	}
	var parts []string
	repeated := result.StructuredContent == nil
	for _, content := range result.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			repeated = repeated || sameJSON(text.Text, structured)
		}
		if part := describe(content); part != "" {
			parts = append(parts, part)
		}
	}
	if !repeated {
		parts = append(parts, string(structured))
	}
	return Output{Text: modelText(strings.Join(parts, "\n"), headers, maxOutput), IsError: result.IsError}
}

func describe(content mcp.Content) string {
	switch c := content.(type) {
	case *mcp.TextContent:
		return c.Text
	case *mcp.ImageContent:
		return fmt.Sprintf("[an image, %s, %d bytes, not shown]", c.MIMEType, len(c.Data))
	case *mcp.AudioContent:
		return fmt.Sprintf("[audio, %s, %d bytes, not shown]", c.MIMEType, len(c.Data))
	case *mcp.ResourceLink:
		return fmt.Sprintf("[a link to the resource %s]", c.URI)
	case *mcp.EmbeddedResource:
		switch {
		case c.Resource == nil:
			return ""
		case c.Resource.Text != "":
			return c.Resource.Text
		}
		return fmt.Sprintf("[the resource %s, %s, %d bytes, not shown]", c.Resource.URI, c.Resource.MIMEType, len(c.Resource.Blob))
	}
	return "[content of a kind that cannot be shown]"
}
