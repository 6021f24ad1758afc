package openai

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// withoutEffect are fields that never change a response, so that no one misses them: Turnpike's own, and
// those about storing completions at OpenAI.
var withoutEffect = []string{"models", "store", "metadata"}

// IgnoredFields returns the fields of a request that a translation doesn't express: those of names
// that are set, and all that aren't part of a ChatRequest.
func (r *ChatRequest) IgnoredFields(names ...string) []string {
	set := map[string]bool{
		"temperature": r.Temperature != nil, "top_p": r.TopP != nil, "seed": r.Seed != nil,
		"presence_penalty": r.PresencePenalty != nil && *r.PresencePenalty != 0, "frequency_penalty": r.FrequencyPenalty != nil && *r.FrequencyPenalty != 0,
		"verbosity": r.Verbosity != "", "user": r.User != "", "safety_identifier": r.SafetyIdentifier != "", "prompt_cache_key": r.PromptCacheKey != "",
		"service_tier": r.ServiceTier != "" && r.ServiceTier != "auto" && r.ServiceTier != "default",
	}
	var out []string
	for _, name := range names {
		if set[name] {
			out = append(out, name)
		}
	}
	for i := range r.Messages {
		if m := &r.Messages[i]; m.Name != "" && m.Role != "function" {
			out = append(out, "messages["+strconv.Itoa(i)+"].name")
			break // one tells enough
		}
	}
	return append(out, UnknownFields(r.Extra)...)
}

// UnknownFields returns the names of an object's members except for known ones, null ones and those without effect.
func UnknownFields(object []byte, known ...string) (names []string) {
	d := jsontext.NewDecoder(bytes.NewReader(object))
	if d.PeekKind() != '{' {
		return nil
	}
	_, _ = d.ReadToken()
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return names
		}
		text := name.String()
		null := d.PeekKind() == 'n'
		if d.SkipValue() != nil {
			return names
		}
		if !null && !slices.Contains(known, text) && !slices.Contains(withoutEffect, text) {
			names = append(names, text)
		}
	}
	return names
}
