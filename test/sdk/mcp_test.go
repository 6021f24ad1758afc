//go:build clients

package sdk_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/accounts"
	"turnpike/internal/ids"
	"turnpike/test/harness"
	"turnpike/test/npm"
)

// conformance runs the suite and fails if a scenario has another result than testdata/mcp-conformance.yml says.
func conformance(t *testing.T, env []string, args ...string) {
	t.Helper()
	modules, err := npm.Install("@modelcontextprotocol/conformance")
	if err != nil {
		t.Fatal(err)
	}
	node, err := npm.Node()
	if err != nil {
		t.Fatal(err)
	}
	known, err := filepath.Abs("testdata/mcp-conformance.yml")
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js")}, args...)
	cmd := exec.CommandContext(t.Context(), node, append(args, "--expected-failures", known)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// startForTools starts a server that may call tool servers on this machine.
func startForTools(t *testing.T) (s *harness.Server, key string) {
	t.Helper()
	cfg := harness.Config(t, "sqlite")
	cfg.Agents.AllowHTTP = true
	cfg.Agents.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	s = harness.Start(t, cfg, harness.NewClock())
	key, _ = s.Key(t, s.Workspace(t, "acme"), accounts.Live)
	return s, key
}

// TestMCPServerConformance runs the suite against /mcp/{label}, with a server that has the suite's tools behind it.
func TestMCPServerConformance(t *testing.T) {
	t.Parallel()
	s, key := startForTools(t)
	upstream := suiteTools(t)
	s.Do(t, harness.Request{Method: "POST", Path: "/v1/tool_servers", Key: key, Body: map[string]any{"label": "suite", "url": upstream, "require_approval": "never"}}).Want(t, 200, "")
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	// The suite can't send a key.
	front := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.URL.Path = "/mcp/suite"
		r.Out.Header.Set("Authorization", "Bearer "+key)
	}})
	t.Cleanup(front.Close)
	conformance(t, nil, "server", "--url", front.URL+"/mcp", "--suite", "all")
}

// suiteTools starts an MCP server with the tools that the suite calls.
func suiteTools(t *testing.T) string {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "suite", Version: "1"}, nil)
	add := func(name string, call func(ctx context.Context, r *mcp.CallToolRequest) *mcp.CallToolResult) {
		server.AddTool(&mcp.Tool{Name: name, Description: "A tool of the suite.", InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return call(ctx, r), nil
		})
	}
	content := func(list ...mcp.Content) func(context.Context, *mcp.CallToolRequest) *mcp.CallToolResult {
		return func(context.Context, *mcp.CallToolRequest) *mcp.CallToolResult {
			return &mcp.CallToolResult{Content: list}
		}
	}
	image := &mcp.ImageContent{MIMEType: "image/png", Data: []byte("\x89PNG\r\n")}
	resource := &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "test://resource", MIMEType: "text/plain", Text: "A resource."}}
	text := &mcp.TextContent{Text: "This is a simple text response for testing."}
	add("test_simple_text", content(text))
	add("test_image_content", content(image))
	add("test_audio_content", content(&mcp.AudioContent{MIMEType: "audio/wav", Data: []byte("RIFF")}))
	add("test_embedded_resource", content(resource))
	add("test_multiple_content_types", content(text, image, resource))
	add("test_error_handling", func(context.Context, *mcp.CallToolRequest) *mcp.CallToolResult {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "This tool intentionally returns an error for testing"}}}
	})
	add("test_tool_with_progress", func(ctx context.Context, r *mcp.CallToolRequest) *mcp.CallToolResult {
		for _, n := range []float64{0, 50, 100} {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: n, Total: 100})
		}
		return &mcp.CallToolResult{Content: []mcp.Content{text}}
	})
	server.AddTool(&mcp.Tool{Name: "json_schema_2020_12_tool", Description: "A tool with JSON Schema 2020-12.", InputSchema: json.RawMessage(`{
		"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
		"$defs":{"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
		"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"}},"additionalProperties":false}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{text}}, nil
		})
	front := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(front.Close)
	return front.URL
}

// clientScenarios are those in which Turnpike is the client. The others test OAuth and elicitation, which it doesn't offer
// to tool servers.
var clientScenarios = []string{"initialize", "tools_call", "sse-retry"}

const conformanceURL, conformanceKey = "TURNPIKE_CONFORMANCE_URL", "TURNPIKE_CONFORMANCE_KEY"

// TestMCPClientConformance registers the suite's servers as tool servers.
func TestMCPClientConformance(t *testing.T) {
	t.Parallel()
	s, key := startForTools(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, scenario := range clientScenarios {
		t.Run(scenario, func(t *testing.T) {
			conformance(t, []string{conformanceURL + "=" + s.URL, conformanceKey + "=" + key}, "client", "--scenario", scenario,
				"--command", program+" -test.run=^TestMCPClientProcess$")
		})
	}
}

// TestMCPClientProcess is the program that the suite runs. Its argument is the URL of the suite's server.
func TestMCPClientProcess(t *testing.T) {
	base := os.Getenv(conformanceURL)
	if base == "" {
		t.Skip("the conformance suite runs it")
	}
	label := "s" + ids.New("")[10:]
	post := func(path string, body any) string {
		t.Helper()
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), "POST", base+path, strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer " + os.Getenv(conformanceKey)}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var out strings.Builder
		if err := res.Write(&out); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s (%v)", path, res.StatusCode, out.String(), err)
		}
		return out.String()
	}
	post("/v1/tool_servers", map[string]any{"label": label, "url": flag.Arg(0), "require_approval": "never"})
	listed := post("/mcp/"+label, map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
	for tool, arguments := range map[string]any{"add_numbers": map[string]any{"a": 2, "b": 3}, "test_reconnection": map[string]any{}} {
		if strings.Contains(listed, fmt.Sprintf("%q", tool)) {
			post("/mcp/"+label, map[string]any{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments}})
		}
	}
}
