package gateway

import (
	"context"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/test/fakes/jsonbodytest"
)

// nativeFake is a provider that has the Messages API.
type nativeFake struct {
	*fake
	events []providers.Chunk
	usage  providers.Usage
	seen   []providers.MessagesRequest
}

func (n *nativeFake) Messages(_ context.Context, req *providers.MessagesRequest) (*providers.Response, error) {
	n.seen = append(n.seen, *req)
	if req.Stream {
		return &providers.Response{Stream: &fakeStream{chunks: n.events}}, nil
	}
	return &providers.Response{Body: []byte(`{"type":"message"}`), Usage: n.usage}, nil
}

func (n *nativeFake) CountMessageTokens(_ context.Context, req *providers.MessagesRequest) (*providers.Response, error) {
	n.seen = append(n.seen, *req)
	return &providers.Response{Body: []byte(`{"input_tokens":12}`)}, nil
}

// sendMessage makes a request in Anthropic's format and checks that it leaves nothing behind.
func (r *fixture) sendMessage(body string, o MessageOptions) (out outcome) {
	r.t.Helper()
	c := r.newCall()
	c.Body = []byte(body)
	out.Response, out.err = r.Messages(r.t.Context(), c, o)
	if out.err == nil && out.Stream != nil {
		out.chunks, out.err = readAll(out.Stream)
		_ = out.Stream.Close()
	}
	r.settle(c, &out)
	return out
}

const (
	messageBody       = `{"model":"small","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}`
	messageStreamBody = `{"model":"small","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"hi"}]}`
)

func event(name, data string) providers.Chunk {
	return providers.Chunk{Event: name, Data: []byte(data)}
}

func TestMessagesAreChargedByTheProvidersUsage(t *testing.T) {
	t.Parallel()
	used := providers.Usage{InputTokens: 100, CachedInput: 40, CacheWrite: 20, HourWrite: 10, OutputTokens: 7}
	last := event("message_delta", `{"type":"message_delta"}`)
	last.Usage = &used
	n := &nativeFake{fake: newFake("claude"), usage: used, events: []providers.Chunk{event("message_start", `{"type":"message_start"}`), last, event("message_stop", `{"type":"message_stop"}`)}}
	r := newFixture(t, []providers.Provider{n})
	want := credits.Micro(90*1000 + 10*2000 + 7*2000) // cached input has the price of input here, an hour's twice that
	plain, streamed := r.sendMessage(messageBody, MessageOptions{}), r.sendMessage(messageStreamBody, MessageOptions{})
	for _, out := range []outcome{plain, streamed} {
		if out.err != nil || out.Charged != want || out.Source != "provider" || out.Input != 100 || out.Output != 7 {
			t.Errorf("got %+v, %v, want %s", out.entry, out.err, want)
		}
	}
	if fmt.Sprint(streamed.chunks) != `[{"type":"message_start"} {"type":"message_delta"} {"type":"message_stop"}]` {
		t.Errorf("got %v", streamed.chunks)
	}
	// What an hour's cache costs is reserved.
	long := strings.Replace(messageBody, `"hi"`, `[{"type":"text","text":"hi","cache_control":{"type":"ephemeral","ttl":"1h"}}]`, 1)
	if out := r.sendMessage(long, MessageOptions{}); out.Reserved != credits.Micro(len(long)+frameTokens)*2000+100*2000 {
		t.Errorf("reserved %s", out.Reserved)
	}
}

func TestMessageStreamBeyondItsReservationIsCut(t *testing.T) {
	t.Parallel()
	events := []providers.Chunk{event("message_start", `{"type":"message_start"}`), event("content_block_start", `{"type":"content_block_start","index":0}`)}
	for range 3000 {
		events = append(events, event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}`))
	}
	r := newFixture(t, []providers.Provider{&nativeFake{fake: newFake("claude"), events: events}})
	out := r.sendMessage(messageStreamBody, MessageOptions{})
	n := len(out.chunks)
	if out.err != nil || n > 1000 || n < 100 || out.Charged != out.Reserved || out.chunks[n-3] != `{"type":"content_block_stop","index":0}` || !strings.Contains(out.chunks[n-2], `"max_tokens"`) || out.chunks[n-1] != `{"type":"message_stop"}` {
		t.Errorf("%d events, ending in %v; charged %s of %s, %v", n, out.chunks[max(0, n-3):], out.Charged, out.Reserved, out.err)
	}
}

func TestMessagesOverBudgetReachNoProvider(t *testing.T) {
	t.Parallel()
	n := &nativeFake{fake: newFake("claude")}
	r := newFixture(t, []providers.Provider{n})
	budget := credits.Micro(len(messageBody)+frameTokens)*1000 + 100*2000 - 1
	r.keyBudget = &budget
	if out := r.sendMessage(messageBody, MessageOptions{}); out.code != string(fault.BudgetExceeded) || len(n.seen) > 0 || out.Charged != 0 {
		t.Errorf("got %v, %d requests", out.err, len(n.seen))
	}
	budget++
	if out := r.sendMessage(messageBody, MessageOptions{}); out.err != nil {
		t.Errorf("with enough: %v", out.err)
	}
}

func TestUnknownPricesAreRejected(t *testing.T) {
	t.Parallel()
	n := &nativeFake{fake: newFake("claude")}
	r := newFixture(t, []providers.Provider{n})
	for more, param := range map[string]string{
		`"tools":[{"type":"custom","name":"a"},{"type":"web_search_20250305","name":"web_search"}]`: "tools[1].type",
		`"tools":[{"type":"code_execution_20250825","name":"x"}]`:                                   "tools[0].type",
		`"mcp_servers":[{"type":"url"}]`:                                                            "mcp_servers",
		`"speed":"fast"`:                                                                            "speed",
		`"inference_geo":"us"`:                                                                      "inference_geo",
	} {
		out := r.sendMessage(strings.Replace(messageBody, `{`, `{`+more+`,`, 1), MessageOptions{})
		if f, ok := fault.As(out.err); !ok || f.Param != param {
			t.Errorf("%s: got %v", more, out.err)
		}
	}
	for _, more := range []string{`"tools":[{"type":"bash_20250124","name":"bash"}]`, `"mcp_servers":[]`, `"speed":"standard"`} {
		if out := r.sendMessage(strings.Replace(messageBody, `{`, `{`+more+`,`, 1), MessageOptions{}); out.err != nil {
			t.Errorf("%s: %v", more, out.err)
		}
	}
	free := r.withProviders(t, []providers.Provider{n}, catalog.Supplier{Local: true, Models: []catalog.ListedModel{{ID: "small"}}})
	if out := free.sendMessage(strings.Replace(messageBody, `{`, `{"speed":"fast",`, 1), MessageOptions{}); out.err != nil {
		t.Errorf("free: %v", out.err)
	}
}

func TestWebSearchesOfMessagesAreCharged(t *testing.T) {
	t.Parallel()
	n := &nativeFake{fake: newFake("claude")}
	r := newFixture(t, []providers.Provider{n}, catalog.Supplier{Tools: catalog.ToolListPrices{catalog.WebSearch: big.NewRat(1, 100)}, Models: []catalog.ListedModel{{ID: "small", Price: dollars(1, 2), ContextWindow: 10_000}}})
	body := strings.Replace(messageBody, `{`, `{"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":2}],`, 1)
	const search = 10 * credits.Credit
	const input = 10_000 * 1000 // the results may fill the context window
	budget := input + 100*2000 + 2*search - 1
	r.keyBudget = &budget
	if out := r.sendMessage(body, MessageOptions{}); out.code != string(fault.BudgetExceeded) || len(n.seen) > 0 {
		t.Errorf("over the budget: %v, %d requests", out.err, len(n.seen))
	}
	budget++
	n.usage = providers.Usage{InputTokens: 10, OutputTokens: 5, ToolCalls: catalog.ToolCalls{catalog.WebSearch: 1}}
	if out := r.sendMessage(body, MessageOptions{}); out.err != nil || out.Reserved != budget || out.Charged != credits.Micro(out.Input)*1000+credits.Micro(out.Output)*2000+search {
		t.Errorf("got %+v, %v", out.entry, out.err)
	}
	r.keyBudget = nil
	out := r.sendMessage(strings.Replace(body, `,"max_uses":2`, "", 1), MessageOptions{})
	if f, ok := fault.As(out.err); !ok || f.Param != "tools[0].max_uses" {
		t.Errorf("without a limit: %v", out.err)
	}
}

func TestBetasThatChangeThePriceAreOmitted(t *testing.T) {
	t.Parallel()
	small, large := target{offer: &catalog.Offer{}}, target{offer: &catalog.Offer{}}
	small.offer.ContextWindow, large.offer.ContextWindow = 200_000, 1_000_000
	in := []string{"a-1, context-1m-2025-08-07", "b-2"}
	if got := fmt.Sprint(allowedBetas(in, small), allowedBetas(in, large)); got != "[a-1 b-2] [a-1, context-1m-2025-08-07 b-2]" {
		t.Errorf("got %s", got)
	}
}

func TestMessageFieldsAreRegistered(t *testing.T) {
	t.Parallel()
	jsonbodytest.WantRegistered[messageFields](t, messageNames)
}

func TestTokensAreCountedWithoutCost(t *testing.T) {
	t.Parallel()
	n := &nativeFake{fake: newFake("claude")}
	r := newFixture(t, []providers.Provider{n})
	c := r.newCall()
	c.Body = []byte(`{"model":"small","messages":[{"role":"user","content":"hi"}]}`)
	var out outcome
	out.Response, out.err = r.CountTokens(t.Context(), c, MessageOptions{Beta: []string{"x"}})
	r.settle(c, &out)
	if out.err != nil || string(out.Body) != `{"input_tokens":12}` || out.Charged != 0 || out.Reserved != 0 || len(n.seen) != 1 || n.seen[0].Beta[0] != "x" {
		t.Errorf("got %+v, %v", out.entry, out.err)
	}
}
