package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/safehttp"
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
				if tool.Idempotent || tool.Spec != 1 || tool.Kind != MCP || !strings.HasPrefix(tool.Name, "docs__") || !validName(tool.Name) ||
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
		out, err := x.Run(t.Context(), Invocation{tools[0], specs[0], secrets, json.RawMessage(`{"q":"x","n":12345678901234567890}`), "run_1:call_1"})
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
	out, err := x.Run(t.Context(), Invocation{tools[0], specs[0], secrets, nil, "k"})
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

func TestMCPResultsAreBoundedText(t *testing.T) {
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
				out, err := local().Run(t.Context(), Invocation{Tool{Kind: MCP, Remote: "t"}, specs[0], secrets, nil, "k"})
				if err != nil || out.IsError != c.error || !strings.HasPrefix(out.Text, c.begins) || !strings.HasSuffix(out.Text, c.ends) || len(out.Text) > c.atMost {
					t.Errorf("%t %d %.300q, %v", out.IsError, len(out.Text), out.Text, err)
				}
			})
		}
	}
}

func TestMCPServersThatAreNone(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	private := serve(t, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	many := make([]tool, 10_000)
	for i := range many {
		many[i] = tool{name: fmt.Sprintf("t%05d", i)}
	}
	huge := `{"type":"object","description":"` + strings.Repeat("a", 10<<20) + `"}`
	large := `{"type":"object","description":"` + strings.Repeat("a", 100<<10) + `"}`
	plain := func(h http.HandlerFunc) http.HandlerFunc { return h }
	for what, c := range map[string]struct {
		serve http.HandlerFunc
		says  string
		more  object
	}{
		"a web page": {plain(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>hello</html>")
		}), "text/html, which is not MCP", nil},
		"an endless page": {plain(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}), "more than 8 MiB", nil},
		"an endless error": {plain(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}), "more than 8 MiB", nil},
		"an endless stream": {plain(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat(": "+strings.Repeat("nothing", 1000)+"\n\n", 10)); err != nil {
					return
				}
			}
		}), "more than 8 MiB", nil},
		"a redirect": {plain(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, private, http.StatusTemporaryRedirect)
		}),
			"307 Temporary Redirect, a redirect, which is not followed", nil},
		"no permission": {plain(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, testSecret, http.StatusUnauthorized) }), "401 Unauthorized; check the headers", nil},
		"trouble":       {plain(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "x", http.StatusBadGateway) }), "502 Bad Gateway", nil},
		"nonsense": {plain(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":[[`)
		}), "not valid MCP", nil},
		"deep nonsense": {plain(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":`+strings.Repeat("[", 4<<20))
		}), "not valid MCP", nil},
		"a broken connection":    {plain(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), "closed the connection", nil},
		"another protocol":       {switching, "101 Switching Protocols", nil},
		"ten thousand tools":     {mcpServer(nil, many...).ServeHTTP, "more than 128 tools", nil},
		"ten megabytes of tool":  {mcpServer(nil, tool{name: "t", schema: huge}).ServeHTTP, "more than 8 MiB", nil},
		"a large schema":         {mcpServer(nil, tool{name: "t", schema: large}).ServeHTTP, "its tool t cannot be used: inputSchema must have at most 65536 bytes", nil},
		"a schema of elsewhere":  {mcpServer(nil, tool{name: "t", schema: `{"type":"object","properties":{"a":{"$ref":"https://example.com/"}}}`}).ServeHTTP, "only to itself", nil},
		"a tool that is not one": {mcpServer(nil, tool{name: "t"}).ServeHTTP, "has no tool u", object{"allowed_tools": []string{"u"}}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			more := object{"headers": object{"Authorization": testSecret}}
			for name, value := range c.more {
				more[name] = value
			}
			specs, secrets := parsed(t, local(), server(serve(t, c.serve), more))
			tools, err := local().Resolve(t.Context(), specs, secrets)
			f := failure(t, err)
			if len(tools) > 0 || !strings.Contains(f.Message, c.says) || !strings.Contains(f.Message, "docs") || strings.Contains(f.Message, "sk-very") || len(f.Message) > 1000 {
				t.Errorf("%d tools, %v", len(tools), f)
			}
		})
	}
	t.Cleanup(func() {
		if reached.Load() {
			t.Error("a redirect was followed")
		}
	})
}

func TestMCPLargeToolCanBeLeftOut(t *testing.T) {
	t.Parallel()
	url := serve(t, mcpServer(nil, tool{name: "t", schema: `{"type":"object","description":"` + strings.Repeat("a", 100<<10) + `"}`}, tool{name: "u"}).ServeHTTP)
	specs, secrets := parsed(t, local(), server(url, object{"allowed_tools": []string{"u"}}))
	if tools, err := local().Resolve(t.Context(), specs, secrets); err != nil || len(tools) != 1 {
		t.Errorf("%v, %v", tools, err)
	}
}

func TestMCPFailuresSayWhetherTheCallMayHaveHappened(t *testing.T) {
	t.Parallel()
	// misbehaves acts like a good server until the tool is called.
	misbehaves := func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			if strings.Contains(string(body), `"tools/call"`) {
				h(w, r)
				return
			}
			oldServer(w, r, "")
		}
	}
	hangs := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "notifications/cancelled") {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		<-r.Context().Done()
	}
	for what, c := range map[string]struct {
		serve   http.HandlerFunc
		unknown bool
		says    string
	}{
		"hanging from the start": {hangs, false, "no response within 1 s"},
		"hanging at the call":    {misbehaves(hangs), true, "no response within 1 s"},
		"breaking at the call":   {misbehaves(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), true, "closed the connection"},
		"a stream that ends": {misbehaves(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, ": nothing\n\n")
		}), true, "was cut off"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			specs, secrets := parsed(t, local(), server(serve(t, c.serve), object{"timeout_seconds": 1}))
			start := time.Now()
			_, err := local().Run(t.Context(), Invocation{Tool{Kind: MCP, Remote: "t"}, specs[0], secrets, nil, "k"})
			if took := time.Since(start); took > 4*time.Second {
				t.Errorf("it took %v", took)
			}
			if f := failure(t, err); f.Unknown != c.unknown || !strings.Contains(f.Message, c.says) {
				t.Errorf("%q, unknown %t", f.Message, f.Unknown)
			}
		})
	}
	for what, c := range map[string]struct {
		serve http.HandlerFunc
		says  string
	}{
		"trouble": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "x", http.StatusInternalServerError) }, "500 Internal Server Error"},
		"a page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
		}, "text/html, which is not MCP"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			specs, secrets := parsed(t, local(), server(serve(t, misbehaves(c.serve)), nil))
			out, err := local().Run(t.Context(), Invocation{Tool{Kind: MCP, Remote: "t"}, specs[0], secrets, nil, "k"})
			if err != nil || !out.IsError || !strings.Contains(out.Text, c.says) {
				t.Errorf("%+v, %v", out, err)
			}
		})
	}
}

func TestMCPPrivateAddressIsRefusedWhenItIsDialled(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	url := serve(t, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	specs, secrets := parsed(t, local(), server(url, nil))
	strict := NewExecutor(safehttp.New(safehttp.Policy{AllowHTTP: true}), "1")
	_, err := strict.Resolve(t.Context(), specs, secrets)
	if f := failure(t, err); f.Unknown || !strings.Contains(f.Message, "loopback") {
		t.Errorf("%v", f)
	}
	_, err = strict.Run(t.Context(), Invocation{Tool{Kind: MCP, Remote: "t"}, specs[0], secrets, nil, "k"})
	if f := failure(t, err); f.Unknown || !strings.Contains(f.Message, "loopback") || reached.Load() {
		t.Errorf("%v, reached %t", f, reached.Load())
	}
}

func TestMCPCancelledCallEndsAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	url := serve(t, mcpServer(nil, tool{name: "t", run: func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}}).ServeHTTP)
	specs, secrets := parsed(t, local(), server(url, object{"timeout_seconds": 300}))
	_, err := local().Run(ctx, Invocation{Tool{Kind: MCP, Remote: "t"}, specs[0], secrets, nil, "k"})
	if f := failure(t, err); !f.Unknown || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v", f)
	}
	if _, err := local().Resolve(ctx, specs, secrets); err == nil {
		t.Error("a cancelled list")
	}
}

// A server may ask back instead of answering. Nobody is there, and asking the
// tool again would be a second call.
func TestMCPServerThatAsksBackGetsNoSecondCall(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	url := serve(t, mcpServer(&mcp.StreamableHTTPOptions{Stateless: true}, tool{name: "t", run: func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		calls.Add(1)
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": &mcp.ElicitParams{Mode: "form", Message: "sure?"}}}, nil
	}}).ServeHTTP)
	specs, secrets := parsed(t, local(), server(url, nil))
	out, err := local().Run(t.Context(), Invocation{Tool{Kind: MCP, Remote: "t"}, specs[0], secrets, nil, "k"})
	if err != nil || !out.IsError || !strings.Contains(out.Text, "asks for more input") || calls.Load() != 1 {
		t.Errorf("%+v, %v, %d calls", out, err, calls.Load())
	}
}

func TestMCPToolsOfAllServersTogetherAreBounded(t *testing.T) {
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

// TestMCPListsShowNoSecrets: a server may put what it was sent into what it
// says of its tools.
func TestMCPListsShowNoSecrets(t *testing.T) {
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

// TestMCPFailuresThatStay are told from those that may pass.
func TestMCPFailuresThatStay(t *testing.T) {
	t.Parallel()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	lasting := map[int]bool{302: true, 401: true, 403: true, 404: true, 408: false, 429: false, 500: false, 503: false}
	for code, final := range lasting {
		specs, secrets := parsed(t, local(), server(serve(t, status(code)), nil))
		_, err := local().Resolve(t.Context(), specs, secrets)
		if f := failure(t, err); f.Final != final {
			t.Errorf("%d: %+v", code, f)
		}
	}
	good := serve(t, mcpServer(nil, tool{name: "t"}).ServeHTTP)
	for what, given := range map[string][]any{
		"two of one name":    {server(good, nil), `{"type":"function","name":"docs__t"}`},
		"one that is absent": {server(good, object{"allowed_tools": []string{"u"}})},
		"an unusable schema": {server(serve(t, mcpServer(nil, tool{name: "t", schema: `{"type":"object","properties":{"a":{"$ref":"https://example.com/"}}}`}).ServeHTTP), nil)},
	} {
		specs, secrets := parsed(t, local(), given...)
		_, err := local().Resolve(t.Context(), specs, secrets)
		if f := failure(t, err); !f.Final {
			t.Errorf("%s: %+v", what, f)
		}
	}
	broken := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	specs, secrets := parsed(t, local(), server(broken, nil))
	_, err := local().Resolve(t.Context(), specs, secrets)
	if f := failure(t, err); f.Final {
		t.Errorf("a broken connection: %+v", f)
	}
}

// TestMCPToolIsNotCalledByASecret: its name is what the model and the log call
// it by, so that it cannot be hidden there.
func TestMCPToolIsNotCalledByASecret(t *testing.T) {
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
