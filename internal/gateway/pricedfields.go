package gateway

import (
	"slices"
	"strings"

	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// Fields with which clients choose another model or provider, or turn on what has a price of its own.
const (
	// OpenRouter, LiteLLM, Vercel's gateway, and Google's endpoints in OpenAI's format.
	routingFields = "plugins provider preset fallbacks provideroptions providerOptions extra_body cached_content"
	// Searches of xAI, Qwen, Cohere, Groq and Azure.
	searchFields = "search_parameters enable_search search_options connectors compound_custom search_settings data_sources dataSources datasources"
	// More choices or tokens than Turnpike counts: llama.cpp, vLLM, SGLang and others.
	countFields = "n_cmpl use_beam_search beam_width num_predict max_new_tokens chat_template mm_processor_kwargs media_io_kwargs prompt_embeds image_config"
)

// pricedFields has for each endpoint the fields of known dialects that change what a request costs in a
// way that its reservation doesn't cover. Providers with OpenAI's API would get them unchanged.
var pricedFields = map[string]jsonbody.Names{
	"chat":        jsonbody.NewNames(routingFields+" "+searchFields+" "+countFields+" best_of", nil),
	"completions": jsonbody.NewNames(routingFields+" "+searchFields+" "+countFields, nil),
	"responses":   jsonbody.NewNames(routingFields+" "+searchFields+" "+countFields+" best_of", nil),
	"messages":    jsonbody.NewNames(routingFields+" "+searchFields+" "+countFields+" n best_of anthropic_beta", nil),
	"embeddings":  jsonbody.NewNames(routingFields+" messages inputs images chat_template mm_processor_kwargs media_io_kwargs", nil),
	"image":       jsonbody.NewNames(routingFields+" num_images num_outputs number_of_images sample_count batch_size steps num_inference_steps width height resolution image_config", nil),
	"":            jsonbody.NewNames(routingFields, nil), // all others
}

// hostedToolsField is the name for tools of chat completions that run at the provider.
const hostedToolsField = "tools.type"

// checkFields returns the targets to which the request's fields may go: those that are free, and those whose
// operator allows each field that could change the price.
func (g *snapshot) checkFields(r *request, targets []target) ([]target, error) {
	if !slices.ContainsFunc(targets, func(t target) bool { return !t.offer.Price.IsFree() }) {
		return targets, nil
	}
	names, known := pricedFields[r.endpoint]
	if !known {
		names = pricedFields[""]
	}
	for name, value := range r.fields().Members() {
		var field string
		switch _, priced := names[string(name)]; {
		case priced && string(value.Text()) == "null":
			continue
		case priced, names.Respells(name):
			field = string(name)
		case string(name) == "tools" && r.endpoint == "chat" && hasHostedTool(value):
			field = hostedToolsField
		default:
			continue
		}
		allowed := slices.DeleteFunc(slices.Clone(targets), func(t target) bool { return !t.offer.Price.IsFree() && !g.allowsField(t, field) })
		if len(allowed) == 0 {
			return nil, fault.Invalid(field, "%s can change the price of a request in a way that this server cannot calculate. Omit it, or ask the operator to add it to allow_fields of the provider.", field)
		}
		targets = allowed
	}
	return targets, nil
}

// allowsField reports whether the target's operator allows a field. The simulator allows what any provider does.
func (g *snapshot) allowsField(t target, field string) bool {
	return slices.ContainsFunc(g.Upstreams, func(u Upstream) bool {
		return (u.Provider.Name() == t.provider.Name() || t.provider == g.Simulator) && slices.Contains(u.AllowFields, field)
	})
}

// hasHostedTool reports whether one of the tools of a chat completion isn't the client's.
func hasHostedTool(tools jsonbody.Value) bool {
	for tool := range tools.Elements() {
		kind := tool.Find("type")
		if !kind.Exists() {
			if !tool.Find("function").Exists() {
				return true
			}
			continue
		}
		if name := string(kind.String()); name != "function" && name != "custom" {
			return true
		}
	}
	return false
}

// checkImageFields is checkFields for an image of a job.
func (g *snapshot) checkImageFields(body []byte, t target) error {
	_, err := g.checkFields(&request{endpoint: string(catalog.Image), body: body}, []target{t})
	return err
}

// contextEdits begin the types of context_management that only make a prompt shorter. Others, such as
// compaction, are model calls of their own.
const contextEdits = "clear_"

func (f *messageFields) compacts() bool {
	return slices.ContainsFunc(f.ContextManagement.Edits, func(e contextEdit) bool { return !strings.HasPrefix(e.Type, contextEdits) })
}

type contextEdit struct {
	Type string `json:"type"`
}
