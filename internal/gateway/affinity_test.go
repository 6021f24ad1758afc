package gateway

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"turnpike/internal/catalog"
	"turnpike/internal/modelroutes"
	"turnpike/internal/providers"
)

// firstProvider returns the provider that a request of a workspace goes to first.
func (r *fixture) firstProvider(workspace, name, body string) string {
	r.t.Helper()
	req, err := readChat([]byte(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.session = &session{tenant: workspace, name: name, of: &request{body: []byte(body)}}
	list, err := r.current.Load().route(r.t.Context(), anyone(r.env), req.models, catalog.Chat, req)
	if err != nil {
		r.t.Fatal(err)
	}
	return list[0].provider.Name()
}

func chatBody(key string, messages ...string) string {
	var list []string
	for i, text := range messages {
		role := []string{"system", "user", "assistant"}[min(i, 2)]
		list = append(list, fmt.Sprintf(`{"role":%q,"content":%q}`, role, text))
	}
	if key != "" {
		key = fmt.Sprintf(`"prompt_cache_key":%q,`, key)
	}
	return `{"model":"small",` + key + `"messages":[` + strings.Join(list, ",") + `]}`
}

func threeProviders(t *testing.T) *fixture {
	return newFixture(t, []providers.Provider{newFake("one", respond(1, 1)), newFake("two", respond(1, 1)), newFake("three", respond(1, 1))})
}

func TestSessionStaysWithItsProvider(t *testing.T) {
	t.Parallel()
	r := threeProviders(t)
	long := strings.Repeat("A long system prompt. ", 300)
	used := map[string]int{}
	for i := range 60 {
		var first []string
		for turn := range 5 {
			text := fmt.Sprintf("turn %d", turn)
			first = append(first,
				r.firstProvider("ws", "", chatBody(fmt.Sprintf("cache-%d", i), text)),
				r.firstProvider("ws", fmt.Sprintf("session-%d", i), chatBody("", text)),
				r.firstProvider("ws", "", chatBody("", long, fmt.Sprintf("question %d", i), text)))
			for n := range 3 {
				if first[n] != first[len(first)-3+n] {
					t.Fatalf("session %d moved from %s to %s in turn %d", i, first[n], first[len(first)-3+n], turn)
				}
			}
		}
		for _, name := range first[:3] {
			used[name]++
		}
	}
	for _, name := range []string{"one", "two", "three"} {
		if used[name] < 30 || used[name] > 90 { // of 180 sessions
			t.Errorf("the sessions are at %v, want about 60 each", used)
		}
	}
}

func TestSessionIsTheTenantsOwn(t *testing.T) {
	t.Parallel()
	r := threeProviders(t)
	same := 0
	for i := range 60 {
		key := fmt.Sprintf("cache-%d", i)
		if r.firstProvider("ws_1", "", chatBody(key, "hi")) == r.firstProvider("ws_2", "", chatBody(key, "hi")) {
			same++
		}
	}
	if same > 40 { // a third by chance
		t.Errorf("two workspaces share the provider of %d of 60 keys", same)
	}
}

func TestSessionYieldsToAFailingProvider(t *testing.T) {
	t.Parallel()
	r := threeProviders(t)
	body := chatBody("cache", "hi")
	before := r.firstProvider("ws", "", body)
	at := r.current.Load().health.get(modelKey{before, "small"}, time.Now)
	at.recordFailure(&providers.Failure{Kind: providers.KindOverloaded}, time.Now())
	meanwhile := r.firstProvider("ws", "", body)
	if meanwhile == before {
		t.Errorf("the session stays with %s, which fails", before)
	}
	for range 20 {
		if got := r.firstProvider("ws", "", body); got != meanwhile {
			t.Fatalf("the session moved on from %s to %s", meanwhile, got)
		}
	}
	at.recordSuccess(time.Now())
	if got := r.firstProvider("ws", "", body); got != before {
		t.Errorf("the session is at %s, want %s again", got, before)
	}
}

func TestShortPromptWithoutSessionIsDistributed(t *testing.T) {
	t.Parallel()
	r := threeProviders(t)
	used := map[string]bool{}
	for range 100 {
		used[r.firstProvider("ws", "", chatBody("", "system", "hi"))] = true
	}
	if len(used) != 3 {
		t.Errorf("used only %v", used)
	}
}

// The formats of the other APIs begin with other fields, and clients move the mark of the cache.
func TestSessionIsFoundInEveryFormat(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", minPrompt)
	digest := func(body string) string {
		return fmt.Sprintf("%x", (&session{tenant: "ws", of: &request{body: []byte(body)}}).find())
	}
	for name, c := range map[string]struct {
		first, next string
		same        bool
	}{
		"messages":          {`{"system":"` + long + `","messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]}`, `{"system":"` + long + `", "messages": [{"role": "user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":"b"}]}`, true},
		"other system":      {`{"system":"` + long + `","messages":[{"role":"user","content":"a"}]}`, `{"system":"y` + long + `","messages":[{"role":"user","content":"a"}]}`, false},
		"responses":         {`{"instructions":"` + long + `","input":"a"}`, `{"instructions":"` + long + `","input":"a","stream":true}`, true},
		"responses, array":  {`{"input":[{"role":"developer","content":"` + long + `"},{"role":"user","content":"a"}]}`, `{"input":[{"role":"developer","content":"` + long + `"},{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`, true},
		"other question":    {`{"input":[{"role":"developer","content":"` + long + `"},{"role":"user","content":"a"}]}`, `{"input":[{"role":"developer","content":"` + long + `"},{"role":"user","content":"b"}]}`, false},
		"joined texts":      {`{"input":[{"role":"user","content":["a","b` + long + `"]}]}`, `{"input":[{"role":"user","content":["ab` + long + `",""]}]}`, false},
		"no messages":       {`{"other":"` + long + `"}`, `{}`, true},
		"number as its key": {`{"prompt_cache_key":1}`, `{"prompt_cache_key":2}`, true},
	} {
		if same := digest(c.first) == digest(c.next); same != c.same {
			t.Errorf("%s: same session is %t, want %t", name, same, c.same)
		}
	}
}

func TestRouteStrategyOrdersItsModels(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("acme", respond(1, 1))}, tieredSupplier())
	s := r.current.Load()
	s.routes = map[string]*Route{
		"order":            {Spec: modelroutes.Spec{Models: []string{"dear", "cheap", "middle"}}},
		"price":            {Spec: modelroutes.Spec{Models: []string{"dear", "cheap", "middle"}, Strategy: modelroutes.ByPrice}},
		"weighted price":   {Spec: modelroutes.Spec{Models: []string{"dear", "cheap", "middle"}, Strategy: modelroutes.ByPrice, Weights: []int{10, 1, 1}}},
		"latency":          {Spec: modelroutes.Spec{Models: []string{"dear", "cheap", "middle"}, Strategy: modelroutes.ByLatency}},
		"weighted latency": {Spec: modelroutes.Spec{Models: []string{"dear", "cheap", "middle"}, Strategy: modelroutes.ByLatency, Weights: []int{1, 1, 20}}},
		"weight":           {Spec: modelroutes.Spec{Models: []string{"dear", "cheap"}, Strategy: modelroutes.ByWeight, Weights: []int{3, 1}}},
	}
	at := func(model string) *health { return s.health.get(modelKey{"acme", model}, time.Now) }
	at("dear").recordFirstByte(200 * time.Millisecond)
	at("cheap").recordFirstByte(100 * time.Millisecond)
	at("middle").recordFirstByte(time.Second)
	models := func(route string) string {
		got, err := r.routedModels(`{"model":"route/` + route + `","max_tokens":10}`)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(strings.Join(got, " "), "acme/", "")
	}
	for route, want := range map[string]string{
		"order": "dear cheap middle", "price": "cheap middle dear", "weighted price": "dear cheap middle",
		"latency": "cheap dear middle", "weighted latency": "middle cheap dear",
	} {
		if got := models(route); got != want {
			t.Errorf("%s: got %s, want %s", route, got, want)
		}
	}
	n := 0
	for range 4000 {
		if strings.HasPrefix(models("weight"), "dear") {
			n++
		}
	}
	if n < 2850 || n > 3150 { // five standard deviations
		t.Errorf("weight 3 of 4 got %d of 4000, want about 3000", n)
	}
	at("cheap").recordFailure(&providers.Failure{Kind: providers.KindOverloaded}, time.Now())
	if got := models("price"); got != "middle dear cheap" {
		t.Errorf("a failing model is %s, want it last", got)
	}
}

func TestRouteTimeoutTriesTheNextModel(t *testing.T) {
	t.Parallel()
	for _, owned := range []bool{false, true} {
		for _, stream := range []bool{false, true} {
			r := newFixture(t, []providers.Provider{newFake("acme", hangOn("large"))})
			s := r.current.Load()
			s.routes = map[string]*Route{"r": {Spec: modelroutes.Spec{Models: []string{"large", "small"}, Timeout: 50 * time.Millisecond}, Owned: owned}}
			out := r.chat(fmt.Sprintf(`{"model":"route/r","stream":%t,"messages":[{"role":"user","content":"hi"}]}`, stream))
			if out.err != nil || out.Model != "small" || !strings.Contains(out.Attempts, `"timeout"`) {
				t.Errorf("owned %t, stream %t: %v from %s after %s", owned, stream, out.err, out.Model, out.Attempts)
			}
			// A workspace's short timeout must not move other workspaces to another provider.
			if failed := s.health.get(modelKey{"acme", "large"}, time.Now).failures > 0; failed == owned {
				t.Errorf("owned %t: the provider counts as failing: %t", owned, failed)
			}
			// Without another model, the client gets the timeout.
			s.routes["r"].Models = []string{"large"}
			if out := r.chat(`{"model":"route/r","messages":[{"role":"user","content":"hi"}]}`); out.err == nil || !strings.Contains(out.err.Error(), "timed out") {
				t.Errorf("owned %t: got %v", owned, out.err)
			}
		}
	}
}

// hangOn never answers for a model.
func hangOn(model string) chatFunc {
	return func(ctx context.Context, req *providers.ChatRequest) (*providers.Response, error) {
		if req.ID == model {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return respond(1, 1)(ctx, req)
	}
}
