package gateway

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/gateway/responses"
	"turnpike/internal/providers"
)

// readers read the body of each endpoint in the table. The body lacks the last brace.
var readers = map[string]struct {
	body string
	kind catalog.Kind
	read func(body []byte) (*request, error)
}{
	"chat": {`{"model":"small","messages":[]`, catalog.Chat, readChat},
	"responses": {`{"model":"small","input":"x"`, catalog.Chat, func(body []byte) (*request, error) {
		in, err := responses.Read(body)
		if err != nil {
			return nil, err
		}
		return readResponses(in)
	}},
	"messages":   {`{"model":"small","max_tokens":1,"messages":[]`, catalog.Chat, readMessages},
	"embeddings": {`{"model":"small","input":"x"`, catalog.Embedding, readEmbeddings},
}

// N1: fields that change the price in a way that no reservation covers are rejected, unless they are null, the
// model is free, or the operator allows them.
func TestFieldsThatChangeThePriceNeedTheOperator(t *testing.T) {
	t.Parallel()
	models := func(price *catalog.ListPrice) catalog.Supplier {
		return catalog.Supplier{Local: price == nil, Models: []catalog.ListedModel{{ID: "small", Price: price}}}
	}
	r := newFixture(t, []providers.Provider{newFake("paid", respond(1, 1)), newFake("other", respond(1, 1))}, models(dollars(1, 2)), models(dollars(1, 2)))
	free := r.withProviders(t, []providers.Provider{newFake("free", respond(1, 1))}, models(nil)).current.Load()
	s := r.current.Load()
	for endpoint, e := range readers {
		for _, name := range append(slices.Sorted(maps.Keys(pricedFields[endpoint])), "Plugins", "pl\\u0075gins") {
			q, err := e.read([]byte(e.body + `,"` + name + `":[1]}`))
			if err != nil {
				if f, ok := fault.As(err); !ok || f.Param != name {
					t.Errorf("%s: %s: %v", endpoint, name, err)
				}
				continue
			}
			field := strings.ReplaceAll(name, `\u0075`, "u")
			targets := s.targetsFor(accounts.Live, "small", catalog.Chat)
			if _, err := s.checkFields(q, targets); !rejects(err, field) {
				t.Errorf("%s: %s: got %v", endpoint, name, err)
			}
			if _, err := free.checkFields(q, free.targetsFor(accounts.Live, "small", catalog.Chat)); err != nil {
				t.Errorf("%s: %s at a free model: %v", endpoint, name, err)
			}
			if name == field && strings.ToLower(name) == name {
				allowing := &snapshot{Gateway: s.Gateway, Settings: s.Settings}
				allowing.Upstreams = slices.Clone(s.Upstreams)
				allowing.Upstreams[1].AllowFields = []string{name}
				if left, err := allowing.checkFields(q, targets); err != nil || len(left) != 1 || left[0].provider.Name() != "other" {
					t.Errorf("%s: %s, which a provider allows: %v at %d targets", endpoint, name, err, len(left))
				}
			}
			if q, err := e.read([]byte(e.body + `,"` + name + `":null}`)); err == nil {
				if _, err := s.checkFields(q, targets); err != nil && name != "Plugins" {
					t.Errorf("%s: null in %s: %v", endpoint, name, err)
				}
			}
		}
	}
}

func rejects(err error, field string) bool {
	f, ok := fault.As(err)
	return ok && f.Code == fault.InvalidParameter && f.Param == field && strings.Contains(f.Message, "allow_fields")
}

// Every call passes the check, because all of them get their targets from route.
func TestCallsRejectFieldsThatChangeThePrice(t *testing.T) {
	t.Parallel()
	p := newFake("one", respond(10, 5))
	r := newFixture(t, []providers.Provider{p})
	for field, body := range map[string]string{
		"plugins":        strings.Replace(plainBody, "{", `{"plugins":[{"id":"web"}],`, 1),
		"n_cmpl":         strings.Replace(plainBody, "{", `{"n_cmpl":100,`, 1),
		"best_of":        strings.Replace(plainBody, "{", `{"best_of":100,`, 1),
		hostedToolsField: strings.Replace(plainBody, "{", `{"tools":[{"type":"function","function":{"name":"f"}},{"type":"web_search"}],`, 1),
	} {
		if out := r.chat(body); !rejects(out.err, field) || p.calls() != 0 {
			t.Errorf("%s: got %v", body, out.err)
		}
		r.env = accounts.Test
		if out := r.chat(strings.Replace(body, `"small"`, `"gpt-4o-mini"`, 1)); !rejects(out.err, field) {
			t.Errorf("test key: %s: got %v", body, out.err)
		}
		r.env = accounts.Live
	}
	for _, tools := range []string{`[{"google_search":{}}]`, `[{"type":7,"function":{"name":"f"}}]`} {
		if out := r.chat(strings.Replace(plainBody, "{", `{"tools":`+tools+`,`, 1)); !rejects(out.err, hostedToolsField) {
			t.Errorf("%s: got %v", tools, out.err)
		}
	}
	for _, tools := range []string{`[{"function":{"name":"f"}}]`, `[{"type":"custom","custom":{"name":"f"}}]`, `null`} {
		if out := r.chat(strings.Replace(plainBody, "{", `{"tools":`+tools+`,`, 1)); out.err != nil {
			t.Errorf("%s: got %v", tools, out.err)
		}
	}
}

func TestPredictionsAreReserved(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("one", respond(10, 5))})
	const prediction = `{"type":"content","content":"abc"}`
	body := strings.Replace(plainBody, "{", `{"max_tokens":7,"prediction":`+prediction+`,`, 1)
	if out := r.chat(body); out.err != nil || int64(out.Reserved) != int64(len(body)+frameTokens)*1000+int64(7+len(prediction))*2000 {
		t.Errorf("reserved %s: %v", out.Reserved, out.err)
	}
}

func TestCompactionOfMessagesIsRejected(t *testing.T) {
	t.Parallel()
	n := &nativeFake{fake: newFake("claude")}
	r := newFixture(t, []providers.Provider{n})
	body := func(edit string) string {
		return strings.Replace(messageBody, `{`, `{"context_management":{"edits":[{"type":"`+edit+`"}]},`, 1)
	}
	if out := r.sendMessage(body("compact_20260112"), MessageOptions{}); out.code != string(fault.InvalidParameter) || len(n.seen) > 0 {
		t.Errorf("got %v", out.err)
	}
	if out := r.sendMessage(body("clear_thinking_20251015"), MessageOptions{}); out.err != nil {
		t.Error(out.err)
	}
}

func BenchmarkCheckFields(b *testing.B) {
	r := newFixture(b, []providers.Provider{newFake("one", respond(10, 5))})
	s := r.current.Load()
	targets := s.targetsFor(accounts.Live, "small", catalog.Chat)
	body := `{"model":"small","max_tokens":100,"temperature":0.7,"messages":[{"role":"system","content":"You are helpful."},{"role":"user","content":"` + strings.Repeat("word ", 180) + `"}]}`
	q, err := readChat([]byte(body))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.checkFields(q, targets); err != nil {
			b.Fatal(err)
		}
	}
}
