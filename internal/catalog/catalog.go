// Package catalog knows the models: what each can do and what it costs.
package catalog

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"turnpike/internal/credits"
)

//go:embed models.json
var embedded []byte

// perMillion is the unit of prices: they are quoted for so many tokens.
const perMillion = 1_000_000

// creditsPerUSD: one credit is a thousandth of a dollar of list price.
const creditsPerUSD = 1000

// Price is what a million tokens cost.
type Price struct {
	Input       credits.Micro
	Output      credits.Micro
	CachedInput credits.Micro
}

// Cost is the price of a call, rounded up.
func (p Price) Cost(input, output int64) credits.Micro {
	return share(input, p.Input) + share(output, p.Output)
}

// share is tokens × price / 10⁶, rounded up, in 128 bits so that no count can overflow it.
func share(tokens int64, price credits.Micro) credits.Micro {
	hi, lo := bits.Mul64(uint64(max(tokens, 0)), uint64(price))
	lo, carry := bits.Add64(lo, perMillion-1, 0)
	hi += carry
	if hi >= perMillion {
		return credits.Max
	}
	q, _ := bits.Div64(hi, lo, perMillion)
	return min(credits.Micro(min(q, uint64(credits.Max))), credits.Max)
}

// Model is a model's facts.
type Model struct {
	ID              string
	OwnedBy         string
	ContextWindow   int64 // 0: not known
	MaxOutputTokens int64 // 0: not known
	Modalities      []string
	Price           Price
}

// Catalog is the table of models.
type Catalog struct {
	AsOf   time.Time
	models []*Model // by id
	byID   map[string]*Model
}

// Load reads the embedded table.
func Load() (*Catalog, error) {
	var file struct {
		AsOf   string `json:"as_of"`
		Models []struct {
			ID              string
			OwnedBy         string `json:"owned_by"`
			Input           string `json:"input_usd_per_million"`
			Output          string `json:"output_usd_per_million"`
			CachedInput     string `json:"cached_input_usd_per_million"`
			ContextWindow   int64  `json:"context_window"`
			MaxOutputTokens int64  `json:"max_output_tokens"`
			Capabilities    []string
		}
	}
	if err := json.Unmarshal(embedded, &file); err != nil {
		return nil, fmt.Errorf("model table: %w", err)
	}
	asOf, err := time.Parse(time.DateOnly, file.AsOf)
	if err != nil {
		return nil, fmt.Errorf("model table: %w", err)
	}
	c := &Catalog{AsOf: asOf, byID: map[string]*Model{}}
	for _, m := range file.Models {
		model := &Model{ID: m.ID, OwnedBy: m.OwnedBy, ContextWindow: m.ContextWindow, MaxOutputTokens: m.MaxOutputTokens,
			Modalities: modalities(m.Capabilities)}
		for _, p := range []struct {
			text string
			into *credits.Micro
		}{{m.Input, &model.Price.Input}, {m.Output, &model.Price.Output}, {m.CachedInput, &model.Price.CachedInput}} {
			if *p.into, err = fromUSD(p.text); err != nil {
				return nil, fmt.Errorf("model table: price of %s: %w", m.ID, err)
			}
		}
		if m.CachedInput == "" {
			model.Price.CachedInput = model.Price.Input
		}
		c.models = append(c.models, model)
		c.byID[m.ID] = model
	}
	slices.SortFunc(c.models, func(a, b *Model) int { return strings.Compare(a.ID, b.ID) })
	return c, nil
}

// Models lists every model by id.
func (c *Catalog) Models() []*Model { return c.models }

// Find returns a model, or nil.
func (c *Catalog) Find(id string) *Model { return c.byID[id] }

func modalities(capabilities []string) []string {
	out := []string{"text"}
	if slices.Contains(capabilities, "vision") {
		out = append(out, "image")
	}
	if slices.Contains(capabilities, "audio_input") {
		out = append(out, "audio")
	}
	return out
}

// fromUSD turns a decimal dollar price into microcredits exactly.
func fromUSD(s string) (credits.Micro, error) {
	if s == "" {
		return 0, nil
	}
	usd, err := credits.Parse(s) // millionths of a dollar
	return usd * creditsPerUSD, err
}
