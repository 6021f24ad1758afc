package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/safehttp"
)

func TestOtherServersAreRejectedAsMCP(t *testing.T) {
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

func TestMCPFailuresSayWhetherTheCallMayHaveHadAnEffect(t *testing.T) {
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
			_, err := local().Run(t.Context(), Invocation{Tool{Kind: MCP, Remote: "t"}, specs[0], secrets, nil, "k", nil})
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
			out, err := local().Run(t.Context(), Invocation{Tool{Kind: MCP, Remote: "t"}, specs[0], secrets, nil, "k", nil})
			if err != nil || !out.IsError || !strings.Contains(out.Text, c.says) {
				t.Errorf("%+v, %v", out, err)
			}
		})
	}
}

func TestMCPPrivateAddressIsRefused(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	url := serve(t, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	specs, secrets := parsed(t, local(), server(url, nil))
	strict := NewExecutor(safehttp.New(safehttp.Policy{AllowHTTP: true}), "1")
	_, err := strict.Resolve(t.Context(), specs, secrets)
	if f := failure(t, err); f.Unknown || !strings.Contains(f.Message, "loopback") {
		t.Errorf("%v", f)
	}
	_, err = strict.Run(t.Context(), Invocation{Tool{Kind: MCP, Remote: "t"}, specs[0], secrets, nil, "k", nil})
	if f := failure(t, err); f.Unknown || !strings.Contains(f.Message, "loopback") || reached.Load() {
		t.Errorf("%v, reached %t", f, reached.Load())
	}
}

func TestCanceledMCPCallEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	url := serve(t, mcpServer(nil, tool{name: "t", run: func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}}).ServeHTTP)
	specs, secrets := parsed(t, local(), server(url, object{"timeout_seconds": 300}))
	_, err := local().Run(ctx, Invocation{Tool{Kind: MCP, Remote: "t"}, specs[0], secrets, nil, "k", nil})
	if f := failure(t, err); !f.Unknown || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v", f)
	}
	if _, err := local().Resolve(ctx, specs, secrets); err == nil {
		t.Error("a cancelled list")
	}
}

// TestMCPFinalFailuresAreMarked are told from those that may pass.
func TestMCPFinalFailuresAreMarked(t *testing.T) {
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
