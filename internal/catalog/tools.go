package catalog

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"turnpike/internal/credits"
)

// Tool is a tool that runs at a provider, which charges for it in addition to the tokens.
type Tool int

// The tools with prices.
const (
	WebSearch Tool = iota
	WebSearchPreview
	FileSearch
	CodeInterpreter // counted by container
	ImageGeneration
	toolCount
)

var toolNames = [toolCount]string{"web_search", "web_search_preview", "file_search", "code_interpreter", "image_generation"}

func (t Tool) String() string { return toolNames[t] }

// ToolNamed returns the tool with the type of a request, which may end in the date of a version.
func ToolNamed(kind string) (Tool, bool) {
	if name, _, dated := strings.Cut(kind, "_20"); dated {
		kind = name
	}
	i := slices.Index(toolNames[:], kind)
	return Tool(i), i >= 0
}

// ToolCalls counts the calls of each tool.
type ToolCalls [toolCount]int64

// ToolPrices are the prices per call of each tool.
type ToolPrices [toolCount]ToolPrice

// ToolPrice is the price of a call. It may be known to be zero.
type ToolPrice struct {
	PerCall credits.Micro
	Known   bool
}

// Named returns the known prices by name.
func (p ToolPrices) Named() map[string]credits.Micro {
	out := map[string]credits.Micro{}
	for i, price := range p {
		if price.Known {
			out[Tool(i).String()] = price.PerCall
		}
	}
	return out
}

// ToolListPrices are the prices of tools in dollars per call. Unknown prices are nil.
type ToolListPrices [toolCount]*big.Rat

// vendorTools are list prices that vendors publish for the tools of all their models.
var vendorTools = map[string]ToolListPrices{
	"openai":    {WebSearch: big.NewRat(10, 1000), WebSearchPreview: big.NewRat(25, 1000), FileSearch: big.NewRat(25, 10_000), CodeInterpreter: big.NewRat(3, 100)},
	"anthropic": {WebSearch: big.NewRat(10, 1000)},
}

// supplierTools are the prices of the tools of a supplier's models.
type supplierTools struct{ plain, reasoning ToolPrices }

// tools returns the operator's prices or else the vendor's.
func (r rate) tools(vendor string, own ToolListPrices) (out supplierTools, err error) {
	list := vendorTools[vendor]
	for i := range list {
		if own[i] != nil {
			list[i] = own[i]
		}
		if out.plain[i].PerCall, err = r.micro(list[i]); err != nil {
			return out, err
		}
		out.plain[i].Known = list[i] != nil
	}
	out.reasoning = out.plain
	if vendor == "openai" && own[WebSearchPreview] == nil { // the same there
		out.reasoning[WebSearchPreview] = out.plain[WebSearch]
	}
	return out, nil
}

// of returns the prices of a model's tools.
func (t *supplierTools) of(m *Model) ToolPrices {
	switch {
	case m.Kind != Chat && m.Kind != "":
		return ToolPrices{}
	case m.Capabilities.Reasoning:
		return t.reasoning
	}
	return t.plain
}

// String formats the prices for the hash.
func (l ToolListPrices) String() string {
	var b strings.Builder
	for i, usd := range l {
		if usd != nil {
			fmt.Fprintf(&b, "tool %s %s\n", Tool(i), usd.RatString())
		}
	}
	return b.String()
}

// IsFree reports whether tokens and media cost nothing. Tools may still have prices.
func (p Price) IsFree() bool {
	p.Tools = ToolPrices{}
	return p == Price{}
}
