package gateway

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/gateway/responses"
	"turnpike/internal/providers"
)

// defaultToolCalls limits the calls of hosted tools in a response, unless the client sets a limit.
const defaultToolCalls = 32

// hostedTools are the tools of a request that run at the provider and have a price per call.
type hostedTools struct {
	// maxCalls returns an upper bound of the calls at a target.
	maxCalls func(t target) catalog.ToolCalls
	// fixed is set if the provider doesn't report the calls. The bound is charged.
	fixed bool
	// preview is set if searches are those of the preview tool, which reports them as others.
	preview bool
	limit   int64 // of all calls together
}

// maxToolCost returns the maximum price of the hosted tools at a target.
func (r *request) maxToolCost(t target) credits.Micro {
	if r.hosted == nil {
		return 0
	}
	m := catalog.Model{Price: catalog.Price{Tools: t.offer.Price.Tools}}
	return m.Cost(catalog.Units{ToolCalls: r.hosted.maxCalls(t)})
}

// toolCalls returns the calls to charge for.
func (r *request) toolCalls(t target, u providers.Usage) catalog.ToolCalls {
	h, calls := r.hosted, u.ToolCalls
	switch {
	case h == nil:
	case h.fixed:
		return h.maxCalls(t)
	case h.preview:
		calls[catalog.WebSearchPreview], calls[catalog.WebSearch] = calls[catalog.WebSearch], 0
	}
	return calls
}

// defaultImageModel is OpenAI's default for image_generation.
const defaultImageModel = "gpt-image-1"

// checkImageTools checks that the models that generate images for a response are allowed. Coding agents offer the tool
// with every request and name no model, so it is dropped if the default isn't allowed.
func (g *snapshot) checkImageTools(ctx context.Context, o Owner, in *responses.Request, targets []target) error {
	if !slices.ContainsFunc(targets, func(t target) bool { return t.responder() != nil }) {
		return nil
	}
	for _, tool := range in.HostedTools() {
		if kind, _ := catalog.ToolNamed(tool.Type); kind != catalog.ImageGeneration {
			continue
		}
		c, err := g.chooserFor(ctx, o)
		if err != nil {
			return err
		}
		name := cmp.Or(tool.Model, defaultImageModel)
		limit := c.deniedName(name)
		if limit == nil || tool.Model == "" && in.DropHosted(tool) {
			continue
		}
		f := c.notAllowed(ctx, name, catalog.Image, limit)
		f.Param = strings.TrimSuffix(tool.At, "type") + "model"
		return f
	}
	return nil
}

// priceTools finds the hosted tools with a price. Tools without one are dropped if coding agents
// offer them with every request, and rejected otherwise.
func (r *request) priceTools(in *responses.Request, targets []target) error {
	var priced []catalog.Tool
	for _, tool := range in.HostedTools() {
		if tool.Free {
			continue
		}
		kind, known := catalog.ToolNamed(tool.Type)
		unpriced := func(t target) bool {
			return t.responder() != nil && !t.offer.Price.IsFree() && !(known && t.offer.Price.Tools[kind].Known)
		}
		switch {
		case !slices.ContainsFunc(targets, unpriced):
			if known {
				priced = append(priced, kind)
			}
		case !in.DropHosted(tool):
			return fault.Invalid(tool.At, "%s %.40q has its own price, which this server does not know. Omit the tool, or ask the operator to set tool_prices for the provider.", tool.At, tool.Type)
		}
	}
	if len(priced) == 0 {
		return nil
	}
	limit := int64(defaultToolCalls)
	if n := in.MaxToolCalls(); n > 0 {
		limit = min(n, maxTokenCount)
	}
	r.hosted = &hostedTools{limit: limit, preview: slices.Contains(priced, catalog.WebSearchPreview), maxCalls: func(t target) (calls catalog.ToolCalls) {
		if t.responder() == nil {
			return calls
		}
		dearest := catalog.Tool(-1)
		for _, tool := range priced {
			switch {
			case tool == catalog.CodeInterpreter:
				calls[tool] = 1 // all calls share a container
			case dearest < 0 || t.offer.Price.Tools[tool].PerCall > t.offer.Price.Tools[dearest].PerCall:
				dearest = tool
			}
		}
		if dearest >= 0 {
			calls[dearest] = limit
		}
		return calls
	}}
	return nil
}

// maxToolCalls returns the limit to send to a provider, or 0 for none.
func (r *request) maxToolCalls() int64 {
	if r.hosted == nil {
		return 0
	}
	return r.hosted.limit
}

// priceSearch finds the price of the web search of a chat completion. There is one, and the response
// doesn't report it.
func (r *request) priceSearch(targets []target) error {
	if r.hosted != nil {
		return nil
	}
	for _, t := range targets {
		tool, searches := t.searchTool(r.webSearch)
		if !searches {
			continue
		}
		if !t.offer.Price.IsFree() && !t.offer.Price.Tools[tool].Known {
			param := "model"
			if r.webSearch {
				param = "web_search_options"
			}
			return fault.Invalid(param, "A web search by %q has its own price, which this server does not know. Ask the operator to set tool_prices.%s for the provider.", t.offer.ID, tool)
		}
		r.hosted = &hostedTools{fixed: true, maxCalls: func(t target) (calls catalog.ToolCalls) {
			if tool, searches := t.searchTool(r.webSearch); searches {
				calls[tool] = 1
			}
			return calls
		}}
	}
	return nil
}

// searchTool returns which tool a target searches the web with for a chat completion. OpenAI's
// search models always do.
func (t target) searchTool(requested bool) (catalog.Tool, bool) {
	switch name := t.offer.Upstream; {
	case strings.Contains(name, "-search-preview"):
		return catalog.WebSearchPreview, true
	case strings.Contains(name, "-search-api"):
		return catalog.WebSearch, true
	}
	return catalog.WebSearch, requested
}
