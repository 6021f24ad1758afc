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

// efforts are the thinking budgets in tokens, as in Google's own OpenAI-compatible API, and the
// levels that replace them from version 3 on, by reasoning_effort.
var efforts = map[string]struct {
	budget int64
	level  string
}{
	"none":    {0, "MINIMAL"}, // from version 3 on thinking can't be turned off
	"minimal": {1024, "MINIMAL"},
	"low":     {1024, "LOW"},
	"medium":  {8192, "MEDIUM"},
	"high":    {24576, "HIGH"},
	"xhigh":   {24576, "HIGH"},
}

// minBudgetPro is the least that 2.5 Pro can think.
const minBudgetPro = 128

// thinking translates reasoning_effort. It returns nil for models that aren't known to think.
func (m model) thinking(effort string) (*thinkingConfig, error) {
	if effort == "" {
		return nil, nil
	}
	wanted, known := efforts[effort]
	if !known {
		return nil, fault.Invalid("reasoning_effort", "reasoning_effort must be none, minimal, low, medium, high or xhigh.")
	}
	c := &thinkingConfig{IncludeThoughts: effort != "none"}
	switch {
	case m.version >= 3:
		c.Level = m.nearestLevel(wanted.level)
	case m.version >= 2.5 || m.latest: // later versions accept a budget too
		if m.pro {
			wanted.budget = max(wanted.budget, minBudgetPro)
		}
		c.Budget = &wanted.budget
	default:
		return nil, nil
	}
	return c, nil
}

// nearestLevel returns the level that the model has: Pro has no minimal level, and 3.0 Pro no medium one.
func (m model) nearestLevel(level string) string {
	switch {
	case m.pro && level == "MINIMAL":
		return "LOW"
	case m.pro && m.version < 3.1 && level == "MEDIUM":
		return "HIGH"
	}
	return level
}
