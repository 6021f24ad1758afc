// Package catalog holds the known models with their capabilities and prices.
package catalog

import (
	"cmp"
	_ "embed"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"turnpike/internal/catalog/table"
)

//go:generate go run ./generate -out models.json $MODEL_PRICES

//go:embed models.json
var embedded []byte

// Kind is what a model generates.
type Kind string

// The kinds of models.
const (
	Chat          Kind = "chat"
	Embedding     Kind = "embedding"
	Image         Kind = "image"
	Video         Kind = "video"
	Speech        Kind = "speech"
	Transcription Kind = "transcription" // of speech
	Moderation    Kind = "moderation"
	Rerank        Kind = "rerank" // the relevance of documents to a query
)

// Model describes a model.
type Model struct {
	ID       string
	Provider string // such as "openai"

	Kind            Kind
	ContextWindow   int64 // 0 if unknown
	MaxOutputTokens int64 // 0 if unknown
	Modalities      []string
	Capabilities    Capabilities
	Deprecated      time.Time // zero if not deprecated
	Price           Price
	Priced          bool // false if its price is unknown
	Outdated        bool // its last snapshot is much older than the table
}

// Capabilities are what a model supports in addition to text.
type Capabilities struct {
	Vision, Tools, JSONSchema, Reasoning, AudioInput, PromptCaching bool
}

// ParseCapabilities reads the names vision, tools, json_schema, reasoning, audio_input and
// prompt_caching.
func ParseCapabilities(names []string) (c Capabilities, err error) {
	fields := c.fields()
	for _, name := range names {
		field := fields[name]
		if field == nil {
			return c, fmt.Errorf("%q is not a capability", name)
		}
		*field = true
	}
	return c, nil
}

func (c *Capabilities) fields() map[string]*bool {
	return map[string]*bool{"vision": &c.Vision, "tools": &c.Tools, "json_schema": &c.JSONSchema,
		"reasoning": &c.Reasoning, "audio_input": &c.AudioInput, "prompt_caching": &c.PromptCaching}
}

// Names returns the names of the capabilities, sorted.
func (c Capabilities) Names() []string {
	names := []string{}
	for name, has := range c.fields() {
		if *has {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Catalog is the table of models at the operator's prices.
type Catalog struct {
	AsOf      time.Time
	CreditUSD *big.Rat // the value of a credit in dollars, or nil if the operator hasn't set it
	version   string
	models    []*Model // by ID, the original vendor before hosts
	byKey     map[modelKey]*Model
	byID      map[string]*Model          // the first of each ID
	suppliers map[string]*supplierModels // by name
}

type modelKey struct{ provider, id string }

// Load prices a table.
func Load(t Terms) (*Catalog, error) {
	r, err := newRate(t)
	if err != nil {
		return nil, err
	}
	from := t.Table
	if from == nil {
		if from, err = Embedded(); err != nil {
			return nil, err
		}
	}
	c := &Catalog{AsOf: from.AsOf, CreditUSD: t.CreditUSD, version: t.version(from), byKey: map[modelKey]*Model{}, byID: map[string]*Model{}, suppliers: map[string]*supplierModels{}}
	for _, row := range from.rows {
		m, err := newModel(row, r)
		if err != nil {
			return nil, fmt.Errorf("model table: %s at %s: %w", row.ID, row.Provider, err)
		}
		c.models = append(c.models, m)
		c.byKey[modelKey{m.Provider, m.ID}] = m
	}
	slices.SortFunc(c.models, byIDThenVendor)
	for _, m := range c.models {
		if c.byID[m.ID] == nil {
			c.byID[m.ID] = m
		}
	}
	c.markOutdated()
	for _, s := range t.Suppliers {
		if err := c.addSupplier(s, r); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func newModel(row table.Row, r rate) (*Model, error) {
	can, err := ParseCapabilities(row.Capabilities)
	if err != nil {
		return nil, err
	}
	list, err := listPrice(row.USD)
	if err != nil {
		return nil, err
	}
	price, err := r.price(list)
	if err != nil {
		return nil, err
	}
	var deprecated time.Time
	if row.DeprecatedOn != "" {
		if deprecated, err = time.Parse(time.DateOnly, row.DeprecatedOn); err != nil {
			return nil, err
		}
	}
	kind := Kind(row.Kind)
	m := &Model{ID: row.ID, Provider: row.Provider, Kind: kind, ContextWindow: row.ContextWindow,
		MaxOutputTokens: row.MaxOutputTokens, Modalities: modalities(kind, can), Capabilities: can, Deprecated: deprecated,
		Price: price, Priced: list.covers(kind) && !generatesAudio(kind, row.ID)}
	tools, err := r.tools(m.Provider, ToolListPrices{})
	m.Price.Tools = tools.of(m)
	return m, err
}

// generatesAudio reports by its name whether a chat model generates audio, whose price the table
// doesn't have.
func generatesAudio(kind Kind, id string) bool { return kind == Chat && strings.Contains(id, "audio") }

// requiredPrices names what covers requires.
var requiredPrices = map[Kind]string{"": "input and output", Chat: "input and output alone", Embedding: "input", Image: "per_image, or input and output",
	Video: "per_second", Speech: "per_character, per_second, or input and output",
	Transcription: "per_second, or input and output", Moderation: "input",
	Rerank: "per_search or input"}

// covers reports whether a price has everything that a kind of model charges for. A model of
// unknown kind is charged by token. A chat model that charges per image has no usable price,
// because images in chats aren't counted.
func (l ListPrice) covers(kind Kind) bool {
	switch kind {
	case "":
		return l.Input != nil || l.Output != nil
	case Chat:
		return l.Input != nil && l.Output != nil && (l.PerImage == nil || l.PerImage.Sign() == 0)
	case Embedding, Moderation:
		return l.Input != nil
	case Rerank:
		return l.PerSearch != nil || l.Input != nil
	case Image:
		return l.PerImage != nil || l.Input != nil && l.Output != nil
	case Video:
		return l.PerSecond != nil
	case Speech:
		return l.PerCharacter != nil || l.PerSecond != nil || l.Input != nil && l.Output != nil
	case Transcription:
		return l.PerSecond != nil || l.Input != nil && l.Output != nil
	}
	return false
}

// hosts run other vendors' models, so they come after the vendor.
var hosts = []string{"groq", "together"}

func byIDThenVendor(a, b *Model) int {
	rank := func(m *Model) int { return slices.Index(hosts, m.Provider) }
	return cmp.Or(strings.Compare(a.ID, b.ID), rank(a)-rank(b), strings.Compare(a.Provider, b.Provider))
}

// Models returns the whole table by ID, with one entry for each provider of a model.
func (c *Catalog) Models() []*Model { return c.models }

// Distinct returns each ID of the kinds once, as Lookup finds it.
func (c *Catalog) Distinct(kinds ...Kind) []*Model {
	var out []*Model
	for _, m := range c.models {
		if slices.Contains(kinds, m.Kind) && c.byID[m.ID] == m {
			out = append(out, m)
		}
	}
	return out
}

// Find returns a provider's model, or nil. A snapshot that the table doesn't have gets the facts
// of its model.
func (c *Catalog) Find(provider, id string) *Model {
	return find(id, func(id string) *Model { return c.byKey[modelKey{provider, id}] })
}

// Lookup is Find at the original vendor, or else at a host.
func (c *Catalog) Lookup(id string) *Model {
	return find(id, func(id string) *Model { return c.byID[id] })
}

// HasProvider reports whether the table has models of a provider.
func (c *Catalog) HasProvider(name string) bool { return slices.Contains(c.Providers(), name) }

// Providers returns the names of the table's providers.
func (c *Catalog) Providers() []string {
	var names []string
	for _, m := range c.models {
		names = append(names, m.Provider)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// PriceVersion identifies the current prices: the table's date and, after a "+", a hash of the
// operator's changes.
func (c *Catalog) PriceVersion() string { return c.version }

func modalities(kind Kind, can Capabilities) []string {
	out := []string{"text"}
	if can.Vision || kind == Image {
		out = append(out, "image")
	}
	if can.AudioInput || kind == Speech || kind == Transcription {
		out = append(out, "audio")
	}
	if kind == Video {
		out = append(out, "video")
	}
	return out
}

// specialWords occur in the names of chat models that serve one purpose, may disappear at any
// time, or don't support chat completions.
var specialWords = []string{"audio", "beta", "code", "computer-use", "deep-research", "devstral", "experimental", "gemma", "guard", "image", "learnlm", "live", "lyria",
	"preview", "realtime", "robotics", "search", "transcribe", "tts"}

// SpecialPurpose reports by its name whether the router must not choose a model on its own.
func (m *Model) SpecialPurpose() bool {
	id := strings.ToLower(m.ID)
	switch {
	case m.Kind == Embedding && m.Provider == "gemini":
		return !strings.Contains(id, "embedding") // the table lists a chat model among them
	case m.Kind == Embedding:
		return strings.Contains(id, "code")
	case m.Kind == Transcription:
		return strings.Contains(id, "diarize")
	case m.Kind != Chat:
		return strings.Contains(id, "deep-research")
	}
	for _, word := range specialWords {
		if strings.Contains(id, word) {
			return true
		}
	}
	switch {
	case strings.Contains(id+"-", "-exp-"):
		return true
	case m.Provider == "openai" && strings.Contains(id+"-", "-pro-"): // only in the Responses API
		return true
	case m.Provider == "openai" && strings.Contains(id, "chat"): // ChatGPT's own, which changes over time
		return true
	case m.Provider == "together" && strings.HasPrefix(id, "together-ai-"): // a price, not a model
		return true
	}
	return m.TypicalCost() == 0 // free models don't stay free
}
