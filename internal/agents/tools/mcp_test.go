package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/openai"
)

// tool is a tool of a real MCP server.
type tool struct {
	name   string
	hints  *mcp.ToolAnnotations
	schema string
	run    mcp.ToolHandler
}

// mcpServer is a server made with the official SDK.
func mcpServer(opts *mcp.StreamableHTTPOptions, tools ...tool) http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{PageSize: 2})
	for _, tool := range tools {
		if tool.schema == "" {
			tool.schema = `{"type":"object","properties":{"q":{"type":"string"}}}`
		}
		if tool.run == nil {
			tool.run = texts("done")
		}
		s.AddTool(&mcp.Tool{Name: tool.name, Description: "does " + tool.name, Annotations: tool.hints, InputSchema: json.RawMessage(tool.schema)}, tool.run)
	}
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, opts)
}

func texts(parts ...string) mcp.ToolHandler {
	return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		result := &mcp.CallToolResult{}
		for _, part := range parts {
			result.Content = append(result.Content, &mcp.TextContent{Text: part})
		}
		return result, nil
	}
}

func returns(result *mcp.CallToolResult) mcp.ToolHandler {
	return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return result, nil }
}

// dialects are the ways in which servers speak MCP.
var dialects = map[string]*mcp.StreamableHTTPOptions{
	"with sessions":    nil,
	"without sessions": {Stateless: true},
	"as JSON":          {JSONResponse: true},
}

func server(url string, more object) object {
	fields := object{"type": "mcp", "server_label": "docs", "server_url": url}
	for name, value := range more {
		fields[name] = value
	}
	return fields
}

func TestMCPToolsAreListed(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for dialect, opts := range dialects {
		url := serve(t, mcpServer(opts,
			tool{name: "a_plain"},
			tool{name: "b_reads", hints: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true}},
			tool{name: "c_destroys", hints: &mcp.ToolAnnotations{DestructiveHint: &yes}},
			tool{name: "d_contradicts", hints: &mcp.ToolAnnotations{ReadOnlyHint: true, DestructiveHint: &yes}},
			tool{name: "e.dotted", hints: &mcp.ToolAnnotations{DestructiveHint: &no}},
		).ServeHTTP)
		all := []string{"a_plain", "b_reads", "c_destroys", "d_contradicts", "e.dotted"}
		for what, c := range map[string]struct {
			more          object
			want, approve []string
		}{
			"by default":       {object{}, all, all},
			"always":           {object{"require_approval": "always"}, all, all},
			"never":            {object{"require_approval": "never"}, all, []string{"c_destroys", "d_contradicts"}},
			"never by name":    {object{"require_approval": object{"never": object{"tool_names": []string{"c_destroys"}}}}, all, []string{"a_plain", "b_reads", "d_contradicts", "e.dotted"}},
			"some are allowed": {object{"allowed_tools": []string{"e.dotted", "b_reads"}, "require_approval": "never"}, []string{"b_reads", "e.dotted"}, nil},
		} {
			specs, secrets := parsed(t, local(), `{"type":"function","name":"f"}`, server(url, c.more))
			tools, err := local().Resolve(t.Context(), specs, secrets)
			if err != nil {
				t.Errorf("%s, %s: %v", dialect, what, err)
				continue
			}
			var names, approve []string
			for _, tool := range tools[1:] {
				names = append(names, tool.Remote)
				if tool.NeedsApproval {
					approve = append(approve, tool.Remote)
				}
				if tool.Idempotent || tool.Spec != 1 || tool.Kind != MCP || !strings.HasPrefix(tool.Name, "docs__") || !openai.ValidName(tool.Name) ||
					tool.Description != "does "+tool.Remote || CheckArguments(tool, json.RawMessage(`{"q":1}`)) == nil {
					t.Errorf("%s, %s: %+v", dialect, what, tool)
				}
			}
			if !reflect.DeepEqual(names, c.want) || !reflect.DeepEqual(approve, c.approve) {
				t.Errorf("%s, %s: %v, approval for %v", dialect, what, names, approve)
			}
		}
	}
}

func TestMCPToolIsCalledOnceWithItsArguments(t *testing.T) {
	t.Parallel()
	for dialect, opts := range dialects {
		var calls atomic.Int64
		var arguments, key, secret, agent atomic.Value
		inner := mcpServer(opts, tool{name: "search", run: func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			calls.Add(1)
			arguments.Store(string(req.Params.Arguments))
			key.Store(fmt.Sprint(req.Params.Meta[metaIdempotencyKey]))
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "found"}}}, nil
		}})
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			secret.Store(r.Header.Get("Authorization"))
			agent.Store(r.Header.Get("User-Agent"))
			inner.ServeHTTP(w, r)
		})
		x := local()
		specs, secrets := parsed(t, x, server(url, object{"headers": object{"Authorization": testSecret}}))
		tools, err := x.Resolve(t.Context(), specs, secrets)
		if err != nil {
			t.Fatalf("%s: %v", dialect, err)
		}
		out, err := x.Run(t.Context(), Invocation{tools[0], specs[0], secrets, json.RawMessage(`{"q":"x","n":12345678901234567890}`), "run_1:call_1", nil})
		if err != nil || out != (Output{Text: "found"}) {
			t.Errorf("%s: %+v, %v", dialect, out, err)
		}
		if calls.Load() != 1 || arguments.Load() != `{"q":"x","n":12345678901234567890}` || key.Load() != "run_1:call_1" || secret.Load() != testSecret || agent.Load() != "Turnpike/1.2.3 (agents)" {
			t.Errorf("%s: %d calls, %v %v %v %v", dialect, calls.Load(), arguments.Load(), key.Load(), secret.Load(), agent.Load())
		}
	}
}

// A server that knows sessions only, as most still do, hears of their end.
func TestMCPSessionsAreClosed(t *testing.T) {
	t.Parallel()
	deleted := make(chan string, 8)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			deleted <- r.Header.Get("Mcp-Session-Id")
			return
		}
		oldServer(w, r, `{"content":[{"type":"text","text":"old"}]}`)
	})
	x := local()
	specs, secrets := parsed(t, x, server(url, nil))
	tools, err := x.Resolve(t.Context(), specs, secrets)
	if err != nil || len(tools) != 1 {
		t.Fatalf("%+v, %v", tools, err)
	}
	out, err := x.Run(t.Context(), Invocation{tools[0], specs[0], secrets, nil, "k", nil})
	if err != nil || out.Text != "old" {
		t.Errorf("%+v, %v", out, err)
	}
	for range 2 {
		select {
		case id := <-deleted:
			if id != "session-1" {
				t.Errorf("the session %q was closed", id)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a session stays open")
		}
	}
}

// oldServer speaks the protocol of 2025 by hand and answers calls with result.
func oldServer(w http.ResponseWriter, r *http.Request, result string) {
	var msg struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	_ = json.NewDecoder(r.Body).Decode(&msg)
	answer := map[string]string{
		"initialize": `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"1"}}`,
		"tools/list": `{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`,
		"tools/call": result,
	}[msg.Method]
	w.Header().Set("Mcp-Session-Id", "session-1")
	switch {
	case msg.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case answer == "":
		http.Error(w, "no such method", http.StatusBadRequest)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, msg.ID, answer)
	}
}

func TestMCPResultsAreLimitedText(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		run    mcp.ToolHandler
		error  bool
		begins string
		ends   string
		atMost int
	}{
		"texts":      {texts("a", "b"), false, "a\nb", "a\nb", 3},
		"nothing":    {texts(), false, "", "", 0},
		"an error":   {returns(&mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "no such file"}}}), true, "no such file", "", 20},
		"structured": {returns(&mcp.CallToolResult{StructuredContent: object{"a": 1}}), false, `{"a":1}`, "", 7},
		"both the same": {returns(&mcp.CallToolResult{StructuredContent: object{"a": 1}, Content: []mcp.Content{&mcp.TextContent{Text: `{"a": 1}`}}}),
			false, `{"a": 1}`, "", 8},
		"both": {returns(&mcp.CallToolResult{StructuredContent: object{"a": 1}, Content: []mcp.Content{&mcp.TextContent{Text: `one thing`}}}),
			false, "one thing\n{\"a\":1}", "", 17},
		"large numbers": {returns(&mcp.CallToolResult{StructuredContent: json.RawMessage(`{"id":9007199254740993,"n":1.50}`)}),
			false, `{"id":9007199254740993,"n":1.50}`, "", 40},
		"JSON of something else": {returns(&mcp.CallToolResult{StructuredContent: object{"answer": 42, "name": "x"}, Content: []mcp.Content{&mcp.TextContent{Text: "42"}}}),
			false, "42\n{\"answer\":42,\"name\":\"x\"}", "", 29},
		"nearly the same": {returns(&mcp.CallToolResult{StructuredContent: json.RawMessage(`{"a":9007199254740993}`), Content: []mcp.Content{&mcp.TextContent{Text: `{"a":9007199254740992}`}}}),
			false, "{\"a\":9007199254740992}\n{\"a\":9007199254740993}", "", 60},
		"a picture": {returns(&mcp.CallToolResult{Content: []mcp.Content{&mcp.ImageContent{Data: []byte("12345"), MIMEType: "image/png"}}}),
			false, "[an image, image/png, 5 bytes, not shown]", "", 50},
		"a link": {returns(&mcp.CallToolResult{Content: []mcp.Content{&mcp.ResourceLink{URI: "file:///etc/passwd", Name: "x"}}}),
			false, "[a link to the resource file:///etc/passwd]", "", 50},
		"a resource": {returns(&mcp.CallToolResult{Content: []mcp.Content{&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "x:y", Text: "inside"}}}}),
			false, "inside", "", 10},
		"much":       {texts(strings.Repeat("a", 1<<20)), false, "aaa", "longer than 256 KiB]", maxOutput + 100},
		"too much":   {texts(strings.Repeat("a", 9<<20)), true, "the tool failed at its MCP server: it sent more than 8 MiB", "", 100},
		"the secret": {texts("you sent " + testSecret), false, "you sent [hidden]", "", 20},
		"a protocol error": {func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: -32602, Message: "bad " + testSecret}
		}, true, "the tool failed at its MCP server: it reported error -32602: bad [hidden]", "", 100},
		"a long protocol error": {func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: -32602, Message: strings.Repeat("a", maxPage-12) + testSecret}
		}, true, "the tool failed at its MCP server: it reported error -32602: aaa", "aa[hidden]…", maxPage + 100},
	} {
		for dialect, opts := range dialects {
			t.Run(what+", "+dialect, func(t *testing.T) {
				t.Parallel()
				url := serve(t, mcpServer(opts, tool{name: "t", run: c.run}).ServeHTTP)
				specs, secrets := parsed(t, local(), server(url, object{"headers": object{"X-Key": testSecret}}))
				out, err := local().Run(t.Context(), Invocation{Tool{Kind: MCP, Remote: "t"}, specs[0], secrets, nil, "k", nil})
				if err != nil || out.IsError != c.error || !strings.HasPrefix(out.Text, c.begins) || !strings.HasSuffix(out.Text, c.ends) || len(out.Text) > c.atMost {
					t.Errorf("%t %d %.300q, %v", out.IsError, len(out.Text), out.Text, err)
				}
			})
		}
	}
}

func TestMCPLargeToolCanBeExcluded(t *testing.T) {
	t.Parallel()
	url := serve(t, mcpServer(nil, tool{name: "t", schema: `{"type":"object","description":"` + strings.Repeat("a", 100<<10) + `"}`}, tool{name: "u"}).ServeHTTP)
	specs, secrets := parsed(t, local(), server(url, object{"allowed_tools": []string{"u"}}))
	if tools, err := local().Resolve(t.Context(), specs, secrets); err != nil || len(tools) != 1 {
		t.Errorf("%v, %v", tools, err)
	}
}

// A server may ask back instead of answering. Nobody is there, and asking the
// tool again would be a second call.
func TestMCPElicitationDoesNotRepeatTheCall(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	url := serve(t, mcpServer(&mcp.StreamableHTTPOptions{Stateless: true}, tool{name: "t", run: func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		calls.Add(1)
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": &mcp.ElicitParams{Mode: "form", Message: "sure?"}}}, nil
	}}).ServeHTTP)
	specs, secrets := parsed(t, local(), server(url, nil))
	out, err := local().Run(t.Context(), Invocation{Tool{Kind: MCP, Remote: "t"}, specs[0], secrets, nil, "k", nil})
	if err != nil || !out.IsError || !strings.Contains(out.Text, "asks for more input") || calls.Load() != 1 {
		t.Errorf("%+v, %v, %d calls", out, err, calls.Load())
	}
}

func TestMCPToolsOfAllServersAreLimited(t *testing.T) {
	t.Parallel()
	many := make([]tool, 70)
	for i := range many {
		many[i] = tool{name: fmt.Sprintf("t%d", i)}
	}
	url := serve(t, mcpServer(nil, many...).ServeHTTP)
	specs, secrets := parsed(t, local(), server(url, nil), server(url, object{"server_label": "more"}))
	_, err := local().Resolve(t.Context(), specs, secrets)
	if f := failure(t, err); !strings.Contains(f.Message, "140 tools") {
		t.Error(f)
	}
	specs, secrets = parsed(t, local(), server(url, nil), `{"type":"function","name":"docs__t1"}`)
	_, err = local().Resolve(t.Context(), specs, secrets)
	if f := failure(t, err); !strings.Contains(f.Message, "two tools are named docs__t1") {
		t.Error(f)
	}
}

// TestMCPListsDoNotContainSecrets: a server may put what it was sent into what it
// says of its tools.
func TestMCPListsDoNotContainSecrets(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "t", Description: "for " + testSecret, InputSchema: json.RawMessage(`{"type":"object","description":"with sk-very-secret\u002dvalue"}`)}, texts("done"))
	url := serve(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil).ServeHTTP)
	specs, secrets := parsed(t, local(), server(url, object{"headers": object{"Authorization": testSecret}}))
	tools, err := local().Resolve(t.Context(), specs, secrets)
	if err != nil || len(tools) != 1 || tools[0].Description != "for [hidden]" || string(tools[0].Parameters) != `{"type":"object","description":"with [hidden]"}` &&
		string(tools[0].Parameters) != `{"description":"with [hidden]","type":"object"}` {
		t.Errorf("%+v, %v", tools, err)
	}
}

// TestMCPToolNameWithSecretIsRejected: its name is what the model and the log call
// it by, so that it cannot be hidden there.
func TestMCPToolNameWithSecretIsRejected(t *testing.T) {
	t.Parallel()
	url := serve(t, mcpServer(nil, tool{name: "t"}, tool{name: "of-sk-very-secret-value"}).ServeHTTP)
	headers := object{"Authorization": testSecret}
	specs, secrets := parsed(t, local(), server(url, object{"headers": headers}))
	_, err := local().Resolve(t.Context(), specs, secrets)
	if f := failure(t, err); !f.Final || strings.Contains(f.Message, "secret") || !strings.Contains(f.Message, "allowed_tools") {
		t.Errorf("%+v", f)
	}
	specs, secrets = parsed(t, local(), server(url, object{"headers": headers, "allowed_tools": []string{"t"}}))
	if tools, err := local().Resolve(t.Context(), specs, secrets); err != nil || len(tools) != 1 {
		t.Errorf("%+v, %v", tools, err)
	}
}
