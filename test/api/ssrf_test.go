package api_test

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"turnpike/internal/config"
	"turnpike/internal/ids"
	"turnpike/test/fakes/safehttptest"
	"turnpike/test/harness"
)

// atEverySurface returns the requests that make the server call an address.
func atEverySurface(url string) map[string]harness.Request {
	run := func(more ...any) harness.Request {
		return harness.Request{Method: "POST", Path: runs, Body: runBody("x", nil, more...)}
	}
	return map[string]harness.Request{
		"webhook":     {Method: "POST", Path: "/v1/webhooks", Body: map[string]any{"url": url, "events": []string{"*"}}},
		"http tool":   run("tools", []any{webTool("t", url)}),
		"MCP server":  run("tools", []any{map[string]any{"type": "mcp", "server_label": "docs", "server_url": url}}),
		"tool server": {Method: "POST", Path: "/v1/tool_servers", Body: map[string]any{"label": ids.New("")[14:], "url": url}},
		"HTTP check":  run("output", map[string]any{"schema": map[string]any{"type": "object"}, "checks": []any{map[string]any{"type": "http", "url": url}}}),
	}
}

func TestInternalURLsAreRejectedEverywhere(t *testing.T) {
	eachAgents(t, sqlite, func(cfg *config.Config) {
		cfg.Webhooks.AllowCIDRs, cfg.Agents.AllowCIDRs = nil, nil
	}, func(t *testing.T, l *agentClient) {
		for _, url := range safehttptest.InternalURLs {
			for surface, request := range atEverySurface(url) {
				request.Key = l.key
				if r := l.Do(t, request); r.Status != 400 || !strings.Contains(r.Text("error.param"), "url") {
					t.Errorf("%s at %q: %d %s, want 400 about the url", surface, url, r.Status, r.Body)
				}
			}
		}
		for surface, request := range atEverySurface("https://example.invalid/") { // proves that the requests above work
			request.Key = l.key
			if r := l.Do(t, request); r.Status != 200 {
				t.Errorf("%s at a public name: %d %s, want 200", surface, r.Status, r.Body)
			}
		}
	})
}

func TestNamesOfInternalAddressesAreNotDialed(t *testing.T) {
	eachAgents(t, sqlite, func(cfg *config.Config) {
		cfg.Webhooks.AllowCIDRs, cfg.Agents.AllowCIDRs = prefixes(t, "::1/128"), prefixes(t, "::1/128")
	}, func(t *testing.T, l *agentClient) {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		var reached atomic.Int32
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				reached.Add(1)
				conn.Close()
			}
		}()
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		at := "http://localhost:" + port

		hook, _ := l.endpoint(t, at)
		l.waitForDelivery(t, l.post(t, "/v1/webhooks/"+hook+"/test", nil).Text("id"), "retrying", 1)
		tool := l.startRun(t, runBody(l.model.addScript("tool", calls(toolCall{name: "t", arguments: ok}), reply{text: "Done."}), []any{webTool("t", at)}))
		l.waitForEnd(t, tool, "completed")
		for _, body := range []map[string]any{
			runBody(l.model.addScript("mcp", reply{text: "Never."}), []any{map[string]any{"type": "mcp", "server_label": "docs", "server_url": at}}),
			runBody(l.model.addScript("check", reply{text: "{}"}), nil, "output", map[string]any{"schema": map[string]any{"type": "object"},
				"checks": []any{map[string]any{"type": "http", "url": at}}}),
		} {
			path := l.startRun(t, body)
			l.exhaustRetries(t, path)
			l.waitForEnd(t, path, "failed")
		}
		if n := reached.Load(); n != 0 {
			t.Errorf("127.0.0.1 was dialed %d times", n)
		}
		conn, err := net.Dial("tcp", listener.Addr().String()) // proves that the listener works
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		l.Eventually(t, func() bool { return reached.Load() == 1 })
	})
}
