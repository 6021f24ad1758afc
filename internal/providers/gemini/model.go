package gemini

import (
	"slices"
	"strconv"
	"strings"

	"turnpike/internal/fault"
)

// model is what a model's name says about its abilities, which Google doesn't list.
type model struct {
	version        float64 // 2.5, 3.1; 0 if the name has none
	latest         bool    // alias without a version, which is 2.5 or later
	pro            bool
	lite           bool
	noInstructions bool // the model rejects a system instruction
}

func parseModel(id string) model {
	name, ok := strings.CutPrefix(strings.TrimPrefix(id, "models/"), "gemini-")
	if !ok {
		return model{noInstructions: strings.HasPrefix(name, "gemma-3")}
	}
	words := strings.Split(name, "-")
	m := model{pro: slices.Contains(words, "pro"), lite: slices.Contains(words, "lite")}
	if version, err := strconv.ParseFloat(words[0], 64); err == nil {
		m.version = version
	} else {
		m.latest = words[len(words)-1] == "latest"
	}
	return m
}

// requiresSignatures reports whether the model rejects earlier function calls without a signature.
func (m model) requiresSignatures() bool { return m.version >= 3 || m.latest }

func (m model) fetchesURLs() bool { return m.version == 0 || m.version >= 2.5 }

// jsonWithTools reports whether a request may have a JSON format and functions.
func (m model) jsonWithTools() bool { return m.version >= 3 }

// penalties reports whether presence_penalty and frequency_penalty are accepted.
func (m model) penalties() bool { return !m.latest && m.version < 2.5 }

// candidates reports whether the model can make more than one candidate.
func (m model) candidates() bool { return !m.latest && m.version < 3 }

// recent is true for 3.5 Flash-Lite and everything from 3.6 on.
func (m model) recent() bool { return m.version > 3.5 || m.version == 3.5 && m.lite }

// sampling reports whether temperature and topP have an effect. Google has
// announced that models after those that ignore them will reject them.
func (m model) sampling() bool { return !m.recent() }

// prefill reports whether the conversation may end with a message of the model.
func (m model) prefill() bool { return !m.recent() }

type thinkingConfig struct {
	IncludeThoughts bool   `json:"includeThoughts,omitzero"`
	Budget          *int64 `json:"thinkingBudget,omitzero"`
	Level           string `json:"thinkingLevel,omitzero"`
}

// Thinking budgets in tokens, as in Google's own OpenAI-compatible API. 2.5 Pro
// can't think less than minBudgetPro.
const (
	budgetLow    = 1024
	budgetMedium = 8192
	budgetHigh   = 24576
	minBudgetPro = 128
)

// thinking translates reasoning_effort. It returns nil for models that aren't known to think.
func (m model) thinking(effort string) (*thinkingConfig, error) {
	if effort == "" {
		return nil, nil
	}
	if !slices.Contains([]string{"none", "minimal", "low", "medium", "high", "xhigh"}, effort) {
		return nil, fault.Invalid("reasoning_effort", "reasoning_effort must be none, minimal, low, medium, high or xhigh.")
	}
	c := &thinkingConfig{IncludeThoughts: effort != "none"}
	switch {
	case m.version >= 3:
		c.Level = m.level(effort)
	case m.version >= 2.5 || m.latest: // later versions accept a budget too
		c.Budget = new(m.budget(effort))
	default:
		return nil, nil
	}
	return c, nil
}

func (m model) budget(effort string) int64 {
	switch effort {
	case "none":
		if m.pro {
			return minBudgetPro
		}
		return 0
	case "minimal", "low":
		return budgetLow
	case "medium":
		return budgetMedium
	}
	return budgetHigh
}

// level returns the model's nearest level. From version 3 on thinking can't be
// turned off. Pro has no minimal level, and 3.0 Pro no medium one.
func (m model) level(effort string) string {
	switch effort {
	case "none", "minimal":
		if m.pro {
			return "LOW"
		}
		return "MINIMAL"
	case "low":
		return "LOW"
	case "medium":
		if m.pro && m.version < 3.1 {
			return "HIGH"
		}
		return "MEDIUM"
	}
	return "HIGH"
}
