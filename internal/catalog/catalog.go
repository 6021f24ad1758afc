// Package catalog knows the models: what each can do and what it costs.
package catalog

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnpike/internal/catalog/table"
)

//go:generate go run ./generate -out models.json $MODEL_PRICES

//go:embed models.json
var embedded []byte

// Kind is what a model makes.
type Kind string

// The kinds.
const (
	Chat      Kind = "chat"
	Embedding Kind = "embedding"
	Image     Kind = "image"
	Video     Kind = "video"
	Speech    Kind = "speech"
)

// Model is a model's facts.
type Model struct {
	ID       string
	Provider string // such as "openai"

	Kind            Kind
	ContextWindow   int64 // 0: not known
	MaxOutputTokens int64 // 0: not known
	Modalities      []string
	Capabilities    Capabilities
	Deprecated      time.Time // zero: not
	Price           Price
	Priced          bool // false: what it costs is not known
	Old             bool // its last snapshot is of long before the table
}

// Capabilities are what a model can do besides reading and writing text.
type Capabilities struct {
	Vision, Tools, JSONSchema, Reasoning, AudioInput, PromptCaching bool
}

// ParseCapabilities reads their names: vision, tools, json_schema, reasoning,
// audio_input, prompt_caching.
func ParseCapabilities(names []string) (Capabilities, error) {
	var c Capabilities
	for _, name := range names {
		switch name {
		case "vision":
			c.Vision = true
		case "tools":
			c.Tools = true
		case "json_schema":
			c.JSONSchema = true
		case "reasoning":
			c.Reasoning = true
		case "audio_input":
			c.AudioInput = true
		case "prompt_caching":
			c.PromptCaching = true
		default:
			return c, fmt.Errorf("%q is not a capability", name)
		}
	}
	return c, nil
}

// Catalog is the table of models at an operator's prices.
type Catalog struct {
	AsOf    time.Time
	version string
	models  []*Model // by id, then the original vendor before others
	byKey   map[key]*Model
	byID    map[string]*Model // the first of each id
	stocks  map[string]*stock // by the supplier's name
}

type key struct{ provider, id string }

// Load reads the embedded table and prices it.
func Load(t Terms) (*Catalog, error) { return load(embedded, t) }

func load(data []byte, t Terms) (*Catalog, error) {
	r, err := newRate(t)
	if err != nil {
		return nil, err
	}
	var file table.Table
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("model table: %w", err)
	}
	asOf, err := time.Parse(time.DateOnly, file.AsOf)
	if err != nil {
		return nil, fmt.Errorf("model table: %w", err)
	}
	c := &Catalog{AsOf: asOf, version: t.version(file.AsOf), byKey: map[key]*Model{}, byID: map[string]*Model{}, stocks: map[string]*stock{}}
	for _, row := range file.Models {
		m, err := newModel(row, r)
		if err != nil {
			return nil, fmt.Errorf("model table: %s at %s: %w", row.ID, row.Provider, err)
		}
		c.models = append(c.models, m)
		c.byKey[key{m.Provider, m.ID}] = m
	}
	slices.SortFunc(c.models, byIDThenVendor)
	for _, m := range c.models {
		if c.byID[m.ID] == nil {
			c.byID[m.ID] = m
		}
	}
	c.markOld()
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
	return &Model{ID: row.ID, Provider: row.Provider, Kind: kind, ContextWindow: row.ContextWindow,
		MaxOutputTokens: row.MaxOutputTokens, Modalities: modalities(kind, can), Capabilities: can, Deprecated: deprecated,
		Price: price, Priced: list.covers(kind) && !speaks(kind, row.ID)}, nil
}

// speaks reports whether a chat of the table makes sound, by its name. What
// that costs the table does not say: its prices are those of text.
func speaks(kind Kind, id string) bool { return kind == Chat && strings.Contains(id, "audio") }

// soldBy says what covers asks for.
var soldBy = map[Kind]string{"": "input and output", Chat: "input and output alone", Embedding: "input", Image: "per_image, or input and output",
	Video: "per_second", Speech: "per_character, per_second, or input and output"}

// covers reports whether a price says all that a kind of model charges for. One
// of no known kind is charged by tokens. What a chat makes beside text is not
// counted, so that one which is sold by it has no price here.
func (l ListPrice) covers(kind Kind) bool {
	switch kind {
	case "":
		return l.Input != nil || l.Output != nil
	case Chat:
		return l.Input != nil && l.Output != nil && (l.PerImage == nil || l.PerImage.Sign() == 0)
	case Embedding:
		return l.Input != nil
	case Image:
		return l.PerImage != nil || l.Input != nil && l.Output != nil
	case Video:
		return l.PerSecond != nil
	case Speech:
		return l.PerCharacter != nil || l.PerSecond != nil || l.Input != nil && l.Output != nil
	}
	return false
}

// hosts run other vendors' models, so theirs come after the vendor's own.
var hosts = []string{"groq", "together"}

func byIDThenVendor(a, b *Model) int {
	rank := func(m *Model) int { return slices.Index(hosts, m.Provider) }
	return cmp.Or(strings.Compare(a.ID, b.ID), rank(a)-rank(b), strings.Compare(a.Provider, b.Provider))
}

// Models lists every model of the table by id; one that several providers have
// stands there once for each.
func (c *Catalog) Models() []*Model { return c.models }

// Distinct lists each id of the given kinds once, as Lookup finds it.
func (c *Catalog) Distinct(kinds ...Kind) []*Model {
	var out []*Model
	for _, m := range c.models {
		if slices.Contains(kinds, m.Kind) && c.byID[m.ID] == m {
			out = append(out, m)
		}
	}
	return out
}

// Find returns a model of one of the table's providers, or nil. A snapshot
// that the table does not have has the facts of the model it is one of.
func (c *Catalog) Find(provider, id string) *Model {
	exact := func(id string) *Model { return c.byKey[key{provider, id}] }
	if m := exact(id); m != nil {
		return m
	}
	return snapshotOf(id, exact)
}

// Lookup is Find at the original vendor, or else at whoever has the model.
func (c *Catalog) Lookup(id string) *Model {
	exact := func(id string) *Model { return c.byID[id] }
	if m := exact(id); m != nil {
		return m
	}
	return snapshotOf(id, exact)
}

// HasProvider reports whether the table has models of a provider.
func (c *Catalog) HasProvider(name string) bool { return slices.Contains(c.Providers(), name) }

// Providers names those whose models the table has.
func (c *Catalog) Providers() []string {
	var names []string
	for _, m := range c.models {
		names = append(names, m.Provider)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// PriceVersion names the prices in force, for the record of a charge: the
// table's day, and behind a "+" a hash of what the operator has changed.
func (c *Catalog) PriceVersion() string { return c.version }

// modalities are what goes in and what comes out.
func modalities(kind Kind, can Capabilities) []string {
	out := []string{"text"}
	if can.Vision || kind == Image {
		out = append(out, "image")
	}
	if can.AudioInput || kind == Speech {
		out = append(out, "audio")
	}
	if kind == Video {
		out = append(out, "video")
	}
	return out
}
