package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/access"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/audit"
	"turnpike/internal/fault"
	"turnpike/internal/web"
)

// ownPaths are the resources that Turnpike offers as tools itself, at /mcp/turnpike. They only read, and none
// of them returns a secret.
var ownPaths = []string{"/v1/usage", "/v1/billing", "/v1/keys", "/v1/keys/{id}", "/v1/projects", "/v1/webhooks", "/v1/webhooks/{id}",
	"/v1/deliveries", "/v1/deliveries/{id}", "/v1/events", "/v1/audit", "/v1/audit/{id}"}

// ownTool is a read of the API as a tool.
type ownTool struct {
	*mcp.Tool
	path       string
	scope      access.Scope
	parameters []string // of the query and the path
}

// listedName returns the name that allowed_tools of a key matches.
func (t *ownTool) listedName() string { return toolservers.OwnLabel + "__" + t.Name }

// ownTools returns the tools in the order of ownPaths. The OpenAPI document describes them. It panics on
// errors, because the document is part of the program and the tests load it.
var ownTools = sync.OnceValue(func() []*ownTool {
	var document openAPIDocument
	if err := json.Unmarshal(OpenAPI(), &document); err != nil {
		panic(fmt.Errorf("embedded documentation: %w", err))
	}
	tools := make([]*ownTool, len(ownPaths))
	for i, path := range ownPaths {
		tools[i] = document.tool(path)
	}
	return tools
})

// openAPIDocument is what a tool needs of the OpenAPI document.
type openAPIDocument struct {
	Paths map[string]struct {
		Get struct {
			OperationID string           `json:"operationId"`
			Summary     string           `json:"summary"`
			Description string           `json:"description"`
			Scope       access.Scope     `json:"x-scope"`
			Parameters  []map[string]any `json:"parameters"`
		} `json:"get"`
	} `json:"paths"`
	Components map[string]any `json:"components"`
}

func (d *openAPIDocument) tool(path string) *ownTool {
	op := d.Paths[path].Get
	t := &ownTool{path: path, scope: op.Scope}
	properties, required := map[string]any{}, []string{}
	for _, reference := range op.Parameters {
		p, _ := d.resolve(reference).(map[string]any)
		name, _ := p["name"].(string)
		if p["in"] == "header" || name == "format" { // a file isn't a result
			continue
		}
		schema, _ := p["schema"].(map[string]any)
		if text, ok := p["description"]; ok {
			schema["description"] = text
		}
		properties[name] = schema
		t.parameters = append(t.parameters, name)
		if p["required"] == true {
			required = append(required, name)
		}
	}
	no := false
	t.Tool = &mcp.Tool{Name: snakeCase(op.OperationID), Title: op.Summary, Description: op.Description,
		InputSchema: map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false},
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &no}}
	return t
}

// resolve replaces the references in a part of the document.
func (d *openAPIDocument) resolve(part any) any {
	switch part := part.(type) {
	case map[string]any:
		out := map[string]any{}
		if to, ok := part["$ref"].(string); ok {
			var at any = d.Components
			for name := range strings.SplitSeq(strings.TrimPrefix(to, "#/components/"), "/") {
				at = at.(map[string]any)[name]
			}
			out, _ = d.resolve(at).(map[string]any)
		}
		for name, value := range part {
			if name != "$ref" {
				out[name] = d.resolve(value)
			}
		}
		return out
	case []any:
		out := make([]any, len(part))
		for i, value := range part {
			out[i] = d.resolve(value)
		}
		return out
	}
	return part
}

// snakeCase turns listKeys into list_keys.
func snakeCase(name string) string {
	var out strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}

func (m *mcpCall) offersOwn(t *ownTool) bool {
	return m.Principal.Grant.Allows(t.scope) && m.Principal.AllowsTool(t.listedName())
}

func (m *mcpCall) listOwnTools() mcp.Result {
	out := newToolList()
	for _, t := range ownTools() {
		if m.offersOwn(t) {
			out.Tools = append(out.Tools, t.Tool)
		}
	}
	return out
}

// callOwnTool reads from the API with the client's key, under the same rules as any other request.
func (m *mcpCall) callOwnTool(ctx context.Context, params *mcp.CallToolParamsRaw) (mcp.Result, error) {
	i := slices.IndexFunc(ownTools(), func(t *ownTool) bool { return t.Name == params.Name && m.offersOwn(t) })
	if i < 0 {
		return nil, fault.New(fault.NotFound, "Unknown tool %q. List the tools again.", web.Sanitize(params.Name, web.MaxLoggedText))
	}
	t := ownTools()[i]
	m.record.Note(func(e *audit.Entry) { e.Model, e.Provider = t.listedName(), mcpProvider })
	address, err := t.address(params.Arguments)
	if err != nil {
		return nil, err
	}
	r := m.R.Clone(ctx)
	r.Method, r.URL, r.RequestURI, r.Body, r.ContentLength = http.MethodGet, address, address.RequestURI(), http.NoBody, 0
	for _, name := range []string{"Content-Type", "Content-Length", "Accept", "X-Request-Id"} {
		r.Header.Del(name)
	}
	response := &responseBuffer{header: http.Header{}}
	m.s.ServeHTTP(response, r)
	result := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: response.body.String()}}, StructuredContent: json.RawMessage(response.body.Bytes())}
	if response.status >= http.StatusBadRequest {
		var problem errorBody
		_ = json.Unmarshal(response.body.Bytes(), &problem) // it is for the log only
		m.failure, result.IsError, result.StructuredContent = problem.Error.fault(), true, nil
	}
	return result, nil
}

// address returns the URL of the call.
func (t *ownTool) address(arguments json.RawMessage) (*url.URL, error) {
	given := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(arguments))
	decoder.UseNumber()
	if len(arguments) > 0 {
		if err := decoder.Decode(&given); err != nil {
			return nil, fault.Invalid("arguments", "arguments must be a JSON object.")
		}
	}
	path, query := t.path, url.Values{}
	for name, value := range given {
		switch {
		case value == nil:
			continue
		case !slices.Contains(t.parameters, name):
			return nil, fault.Invalid(name, "Unknown argument %q. Allowed arguments: %s.", web.Sanitize(name, 64), strings.Join(t.parameters, ", "))
		}
		text := fmt.Sprint(value)
		if place := "{" + name + "}"; strings.Contains(path, place) {
			path = strings.Replace(path, place, url.PathEscape(text), 1)
			continue
		}
		query.Set(name, text)
	}
	if strings.Contains(path, "{") {
		return nil, fault.Missing("id", "id is required.")
	}
	return url.Parse(path + "?" + query.Encode())
}

// responseBuffer is the http.ResponseWriter of a request that the server makes to itself.
type responseBuffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *responseBuffer) Header() http.Header         { return b.header }
func (b *responseBuffer) WriteHeader(status int)      { b.status = status }
func (b *responseBuffer) Write(p []byte) (int, error) { return b.body.Write(p) }
