package simulator

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/budget"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

var (
	// categories are those of OpenAI's moderations, and imageCategories those that apply to images too.
	categories = []string{"harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent", "self-harm", "self-harm/instructions",
		"self-harm/intent", "sexual", "sexual/minors", "violence", "violence/graphic"}
	imageCategories = []string{"self-harm", "self-harm/instructions", "self-harm/intent", "sexual", "violence", "violence/graphic"}

	moderationMagicHelp = "Known magic inputs: [[sim:flag=CATEGORY]] (" + strings.Join(categories, ", ") + "), " +
		"[[sim:error=STATUS]] (400, 401, 402, 403, 404, 408, 409, 413, 429, 500, 502, 503, 504) and [[sim:delay=2s]] (up to 60s)."
)

type moderation struct {
	ID      string             `json:"id"`
	Model   string             `json:"model"`
	Results []moderationResult `json:"results"`
}

type moderationResult struct {
	Flagged    bool                `json:"flagged"`
	Categories map[string]bool     `json:"categories"`
	Scores     map[string]float64  `json:"category_scores"`
	Applied    map[string][]string `json:"category_applied_input_types"`
}

// moderationPart is a part of an input that is judged as a whole.
type moderationPart struct {
	Type     string         `json:"type"`
	Text     *string        `json:"text"`
	ImageURL jsontext.Value `json:"image_url"`
}

// moderationItem is what one result is about.
type moderationItem struct {
	text   string
	images int
}

// bytesPerResult is the memory of a result, whose categories are in three maps, and of its JSON.
const bytesPerResult = 6 << 10

// Moderate flags what the magic inputs of a text request, and nothing else.
func (s *Simulator) Moderate(ctx context.Context, model string, body []byte) (*providers.Response, error) {
	items, err := readModerationItems(body)
	if err != nil {
		return nil, err
	}
	if err := budget.Of(ctx).Reserve(int64(len(items)) * bytesPerResult); err != nil {
		return nil, err
	}
	out := moderation{ID: "modr-" + newID(sha256.Sum256(body), 29), Model: model}
	var usage providers.Usage
	var texts []string
	for _, item := range items {
		m := &magic{param: "input", moderates: true}
		text, err := m.extract(item.text)
		if err != nil {
			return nil, err
		}
		if err := m.obey(ctx); err != nil {
			return nil, err
		}
		out.Results = append(out.Results, newModerationResult(text, item.images, m.flags))
		usage.InputTokens += int64(item.images * tokensPerImage)
		texts = append(texts, text)
	}
	err = s.tokenizer.counting(ctx, len(body), func(c *counter) error {
		for _, text := range texts {
			usage.InputTokens += int64(c.count(text))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(out, json.Deterministic(true))
	return &providers.Response{Body: text, Usage: usage}, err
}

func newModerationResult(text string, images int, flags []string) moderationResult {
	out := moderationResult{Flagged: len(flags) > 0, Categories: map[string]bool{}, Scores: map[string]float64{}, Applied: map[string][]string{}}
	seed := sha256.Sum256([]byte(text))
	for i, name := range categories {
		score := float64(seed[i]) / 1e5 // below 0.003
		if out.Categories[name] = slices.Contains(flags, name); out.Categories[name] {
			score += 0.95
		}
		out.Scores[name] = score
		out.Applied[name] = []string{}
		if text != "" || images == 0 {
			out.Applied[name] = append(out.Applied[name], "text")
		}
		if images > 0 && slices.Contains(imageCategories, name) {
			out.Applied[name] = append(out.Applied[name], "image")
		}
	}
	return out
}

// readModerationItems reads a string, an array of strings, or an array of parts, which get one result.
func readModerationItems(body []byte) ([]moderationItem, error) {
	var in struct {
		Input jsontext.Value `json:"input"`
	}
	if err := jsonbody.DecodeLenient(body, &in); err != nil {
		return nil, err
	}
	var one string
	if in.Input.Kind() == '"' && json.Unmarshal(in.Input, &one) == nil {
		return []moderationItem{{text: one}}, nil
	}
	var texts []string
	if json.Unmarshal(in.Input, &texts) == nil && len(texts) > 0 {
		var items []moderationItem
		for _, text := range texts {
			items = append(items, moderationItem{text: text})
		}
		return items, nil
	}
	var parts []moderationPart
	var item moderationItem
	ok := json.Unmarshal(in.Input, &parts) == nil && len(parts) > 0
	for _, p := range parts {
		switch {
		case p.Type == "text" && p.Text != nil:
			item.text += *p.Text
		case p.Type == "image_url" && p.ImageURL.Kind() == '{':
			item.images++
		default:
			ok = false
		}
	}
	if !ok {
		return nil, fault.Invalid("input", "input must be a string, an array of strings, or an array of text and image_url parts, and not empty.")
	}
	return []moderationItem{item}, nil
}
