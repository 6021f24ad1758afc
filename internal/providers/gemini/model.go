package gemini

import (
	"slices"
	"strconv"
	"strings"

	"turnpike/internal/fault"
)

// family is what a model's name says of it. Google lists no such abilities.
type family struct {
	version float64 // 2.5, 3.1; 0 if the name has none
	latest  bool    // an alias without a version, which is 2.5 or later
	pro     bool
	lite    bool
	// noInstructions is for a model that refuses a system instruction.
	noInstructions bool
}

func familyOf(model string) family {
	name, ok := strings.CutPrefix(strings.TrimPrefix(model, "models/"), "gemini-")
	if !ok {
		return family{noInstructions: strings.HasPrefix(name, "gemma-3")}
	}
	words := strings.Split(name, "-")
	f := family{pro: slices.Contains(words, "pro"), lite: slices.Contains(words, "lite")}
	if version, err := strconv.ParseFloat(words[0], 64); err == nil {
		f.version = version
	} else {
		f.latest = words[len(words)-1] == "latest"
	}
	return f
}

// wantsSignatures says whether a model refuses a function call of the past
// that has no signature.
func (f family) wantsSignatures() bool { return f.version >= 3 || f.latest }

// fetchesURLs says whether a model fetches files from the web.
func (f family) fetchesURLs() bool { return f.version == 0 || f.version >= 2.5 }

// jsonBesideTools says whether a JSON format and functions go together.
func (f family) jsonBesideTools() bool { return f.version >= 3 }

// penalties says whether a model takes presence_penalty and frequency_penalty.
func (f family) penalties() bool { return !f.latest && f.version < 2.5 }

// candidates says whether a model gives more than one answer to a request.
func (f family) candidates() bool { return !f.latest && f.version < 3 }

// settled is for 3.5 Flash-Lite and all from 3.6 on.
func (f family) settled() bool { return f.version > 3.5 || f.version == 3.5 && f.lite }

// sampling says whether temperature and topP do anything. Google has announced
// that models after those that ignore them will refuse them.
func (f family) sampling() bool { return !f.settled() }

// continuesItself says whether a model takes a conversation that ends with its
// own words.
func (f family) continuesItself() bool { return !f.settled() }

// thinkingConfig has either a budget or a level.
type thinkingConfig struct {
	IncludeThoughts bool   `json:"includeThoughts,omitzero"`
	Budget          *int64 `json:"thinkingBudget,omitzero"`
	Level           string `json:"thinkingLevel,omitzero"`
}

// Thinking budgets in tokens, as Google translates OpenAI's words for its own
// models. leastOfPro is the least that 2.5 Pro can think.
const (
	budgetLow    = 1024
	budgetMedium = 8192
	budgetHigh   = 24576
	leastOfPro   = 128
)

// thinking translates reasoning_effort. A model that does not think, or that
// is not known to, gets nothing.
func (f family) thinking(effort string) (*thinkingConfig, error) {
	if effort == "" {
		return nil, nil
	}
	if !slices.Contains([]string{"none", "minimal", "low", "medium", "high", "xhigh"}, effort) {
		return nil, fault.Invalid("reasoning_effort", "reasoning_effort must be none, minimal, low, medium, high or xhigh")
	}
	c := &thinkingConfig{IncludeThoughts: effort != "none"}
	switch {
	case f.version >= 3:
		c.Level = f.level(effort)
	case f.version >= 2.5 || f.latest: // later versions take a budget too
		c.Budget = new(f.budget(effort))
	default:
		return nil, nil
	}
	return c, nil
}

func (f family) budget(effort string) int64 {
	switch effort {
	case "none":
		if f.pro {
			return leastOfPro
		}
		return 0
	case "minimal", "low":
		return budgetLow
	case "medium":
		return budgetMedium
	}
	return budgetHigh
}

// level is the nearest that the model has: thinking cannot be turned off from
// version 3 on, Pro has no minimal level, and 3.0 Pro no medium one.
func (f family) level(effort string) string {
	switch effort {
	case "none", "minimal":
		if f.pro {
			return "LOW"
		}
		return "MINIMAL"
	case "low":
		return "LOW"
	case "medium":
		if f.pro && f.version < 3.1 {
			return "HIGH"
		}
		return "MEDIUM"
	}
	return "HIGH"
}
