package catalog_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/catalog"
	"turnpike/internal/credits"
)

func load(t *testing.T, terms catalog.Terms) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Load(terms)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTableIsComplete(t *testing.T) {
	t.Parallel()
	c := load(t, catalog.Terms{})
	if got := c.AsOf.Format(time.DateOnly); got != "2026-08-08" {
		t.Errorf("got date %s", got)
	}
	count := map[catalog.Kind]int{}
	for _, m := range c.Models() {
		count[m.Kind]++
		if m.Priced && m.Kind == catalog.Chat && m.Price.HighestInput() < m.Price.Input {
			t.Errorf("%s: the highest input rate is below the input rate", m.ID)
		}
	}
	want := map[catalog.Kind]int{catalog.Chat: 369, catalog.Embedding: 38, catalog.Image: 22, catalog.Video: 9, catalog.Speech: 9, catalog.Transcription: 8, catalog.Moderation: 2, catalog.Rerank: 3}
	for kind, n := range want {
		if count[kind] != n {
			t.Errorf("%d models of kind %q, want %d", count[kind], kind, n)
		}
	}
	m := c.Find("anthropic", "claude-3-7-sonnet-20250219")
	if m == nil {
		t.Fatal("claude-3-7-sonnet-20250219 is not in the table")
	}
	if m.ContextWindow != 200_000 || m.MaxOutputTokens != 64_000 || m.Deprecated.Format(time.DateOnly) != "2026-02-19" ||
		m.Capabilities != (catalog.Capabilities{Vision: true, Tools: true, JSONSchema: true, Reasoning: true, PromptCaching: true}) ||
		!slices.Equal(m.Modalities, []string{"text", "image"}) {
		t.Errorf("got %+v", m)
	}
	for modelKey, withdrawn := range map[[2]string]bool{{"anthropic", "claude-opus-5"}: false, {"openai", "gpt-4o"}: false, {"openai", "gpt-3.5-turbo"}: false,
		{"anthropic", "claude-4-opus-20250514"}: true, {"anthropic", "claude-opus-4-1"}: true, {"xai", "grok-3-latest"}: true, {"xai", "grok-3-mini-latest"}: true} {
		if c.Find(modelKey[0], modelKey[1]).Deprecated.IsZero() == withdrawn {
			t.Errorf("%s is marked as withdrawn: %t", modelKey[1], !withdrawn)
		}
	}
}

func TestListPricesAreExact(t *testing.T) {
	t.Parallel()
	c := load(t, catalog.Terms{})
	const credit = credits.Credit
	for _, tt := range []struct {
		provider, id string
		want         catalog.Price
	}{
		// US$0.15 and US$0.60 a million tokens are 150 and 600 credits. What is
		// written to OpenAI's cache has no price of its own.
		{"openai", "gpt-4o-mini", catalog.Price{Input: 150 * credit, Output: 600 * credit, CachedInput: 75 * credit, CacheWrite: 150 * credit}},
		{"anthropic", "claude-opus-4-5", catalog.Price{Input: 5000 * credit, Output: 25000 * credit, CachedInput: 500 * credit, CacheWrite: 6250 * credit}},
		// Writing costs nothing on top there, so it costs what input costs.
		{"deepseek", "deepseek-v4-pro", catalog.Price{Input: 435 * credit, Output: 870 * credit, CachedInput: 3_625_000, CacheWrite: 435 * credit}},
		{"openai", "text-embedding-3-small", catalog.Price{Input: 20 * credit, CachedInput: 20 * credit, CacheWrite: 20 * credit}},
		{"openai", "dall-e-3", catalog.Price{PerImage: 40 * credit}},
		{"openai", "sora-2", catalog.Price{PerSecond: 100 * credit}},
		{"openai", "tts-1", catalog.Price{PerCharacter: 15_000}},
		{"openai", "whisper-1", catalog.Price{PerSecond: 100_000}},
		{"openai", "gpt-4o-transcribe", catalog.Price{Input: 2500 * credit, Output: 10_000 * credit, CachedInput: 2500 * credit, CacheWrite: 2500 * credit}},
	} {
		m := c.Find(tt.provider, tt.id)
		if m == nil {
			t.Errorf("%s has no %s", tt.provider, tt.id)
			continue
		}
		got := m.Price
		got.Tools = catalog.ToolPrices{}
		if got != tt.want || !m.Priced {
			t.Errorf("price of %s is %+v (priced: %t), want %+v", tt.id, m.Price, m.Priced, tt.want)
		}
	}
	// A price per input token alone does not say what an image costs.
	if c.Find("openai", "gpt-image-1").Priced {
		t.Error("gpt-image-1 counts as priced")
	}
}

func TestLookupPrefersFirstHostOfSharedID(t *testing.T) {
	t.Parallel()
	c := load(t, catalog.Terms{})
	const id = "openai/gpt-oss-120b"
	groq, together := c.Find("groq", id), c.Find("together", id)
	if groq == nil || together == nil || groq == together {
		t.Fatalf("got %v and %v", groq, together)
	}
	if got := c.Lookup(id); got != groq {
		t.Errorf("Lookup found it at %s, want the first of two hosts, groq", got.Provider)
	}
	if c.Find("openai", id) != nil || c.Find("groq", "gpt-4o") != nil {
		t.Error("a model was found at a provider that does not have it")
	}
	once := c.Distinct(catalog.Chat)
	if n := len(slices.DeleteFunc(slices.Clone(once), func(m *catalog.Model) bool { return m.ID != id })); n != 1 {
		t.Errorf("%s is listed %d times", id, n)
	}
	if slices.ContainsFunc(once, func(m *catalog.Model) bool { return m.Kind != catalog.Chat }) {
		t.Error("another kind is listed among the chat models")
	}
	if !slices.IsSortedFunc(once, func(a, b *catalog.Model) int { return strings.Compare(a.ID, b.ID) }) {
		t.Error("the list is not in order")
	}
}

func TestUnknownSnapshotInheritsItsModelsPrice(t *testing.T) {
	t.Parallel()
	c := load(t, catalog.Terms{})
	for _, tt := range []struct{ id, of string }{
		{"gpt-4o-2031-08-06", "gpt-4o"},
		{"gpt-4o-mini-2031-07-18", "gpt-4o-mini"}, // the longest, not gpt-4o
		{"claude-opus-4-5-20310101", "claude-opus-4-5"},
		{"gpt-4-0614", "gpt-4"},
		{"open-mistral-nemo-2712", "open-mistral-nemo"},
		{"gemini-2.5-flash-002", "gemini-2.5-flash"},
		{"gemini-2.5-flash-09-2031", "gemini-2.5-flash"},
		{"gemini-2.5-flash-06-18", "gemini-2.5-flash"},
	} {
		m := c.Lookup(tt.id)
		base := c.Lookup(tt.of)
		if m == nil || base == nil {
			t.Errorf("%s: got %v of %v", tt.id, m, base)
			continue
		}
		if m.ID != tt.id || m.Price != base.Price || m.ContextWindow != base.ContextWindow || base.ID != tt.of {
			t.Errorf("%s: got %+v", tt.id, m)
		}
		if found := c.Find(base.Provider, tt.id); found == nil || found.ID != tt.id {
			t.Errorf("Find(%s, %s) gave %v", base.Provider, tt.id, found)
		}
	}
}

func TestOtherNamesAreNotTakenForSnapshots(t *testing.T) {
	t.Parallel()
	c := load(t, catalog.Terms{})
	for _, id := range []string{
		"gpt-4o-tiny", "gpt-4o-mini-tiny", "gpt-4o2024-08-06", "gpt-4o-", "gpt-4o--2024-08-06", "-2024-08-06", "", "2024-08-06",
		"claude-sonnet-5-1", "claude-opus-5-12", "grok-4-5", // versions, not dates
		"gpt-4-32k", "gpt-4o-2024-13-06", "gpt-4o-99999999", "gpt-4o-12345", "gpt-4o-123", "gpt-4o-0x1", "gpt-4o-20240806-preview",
	} {
		if m := c.Lookup(id); m != nil {
			t.Errorf("%q was taken for a snapshot of %s", id, m.Provider)
		}
	}
	if m := c.Find("anthropic", "gpt-4o-2031-08-06"); m != nil {
		t.Errorf("found another provider's snapshot: %+v", m)
	}
}
