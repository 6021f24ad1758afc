package anthropic

import (
	"strconv"
	"strings"
)

// model is what a model's name says about it. The Messages API is one, but its
// models accept different parts of it: what a newer one has dropped is refused
// with a 400. The version numbers below are those of Anthropic's migration guides.
type model struct {
	family string // opus, sonnet, haiku, fable, mythos; "" for others
	// version is 100 × major + minor: 405 is 4.5. A name without Claude in it
	// is 0 and gets only what the API has had from the beginning: it belongs
	// to another server that speaks it. Claude without a number is the newest.
	version int
}

const newest = 99_99

// readModel reads names like claude-opus-4-6-20260205, claude-3-5-haiku-latest
// and anthropic/claude-opus-4.6.
func readModel(name string) model {
	_, rest, isClaude := strings.Cut(strings.ToLower(name), "claude")
	if !isClaude {
		return model{}
	}
	m := model{version: newest}
	words := strings.FieldsFunc(rest, func(c rune) bool { return strings.ContainsRune("-.@:_/", c) })
	for i, word := range words {
		switch word {
		case "opus", "sonnet", "haiku", "fable", "mythos":
			m.family = word
		}
		major, ok := versionNumber(word)
		if !ok || m.version != newest {
			continue
		}
		m.version = 100 * major
		if i+1 < len(words) {
			if minor, ok := versionNumber(words[i+1]); ok {
				m.version += minor
			}
		}
	}
	return m
}

// versionNumber reads a number of one or two digits: longer ones are dates.
func versionNumber(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && len(s) <= 2 && n >= 0
}

// structured: output_config.format constrains the answer to a JSON schema.
func (m model) structured() bool { return m.version >= 405 }

// forcedTools: tool_choice may be "any" or name a tool.
func (m model) forcedTools() bool {
	switch m.family {
	case "haiku":
		return true
	case "opus", "sonnet":
		return m.version < 505
	}
	return m.version < 501
}

// sampling: temperature and top_p are accepted.
func (m model) sampling() bool { return m.version < 407 }

// bothSampling: temperature and top_p are accepted together.
func (m model) bothSampling() bool { return m.version < 401 }

// prefill: the conversation may end with words of the assistant.
func (m model) prefill() bool { return m.version < 406 }

// budget: the model thinks when it is given a number of tokens to do so.
func (m model) budget() bool { return m.version >= 307 && m.version < 406 }

// adaptive: the model decides how much to think, guided by an effort.
func (m model) adaptive() bool { return m.version >= 406 }

// hidesThinking: thinking is returned only when that is asked for.
func (m model) hidesThinking() bool { return m.version >= 407 }

// effort is the nearest that the model has to an OpenAI effort.
func (m model) effort(wanted string) string {
	switch {
	case wanted == "minimal":
		return "low"
	case wanted == "xhigh" && m.version < 407:
		return "high"
	}
	return wanted
}

// thinkingOff is the type that switches an adaptive model's thinking off, or
// "" if it is off by default or cannot be switched off.
func (m model) thinkingOff() string {
	switch {
	case m.version < 500:
		return ""
	case m.family == "haiku", m.version < 505 && (m.family == "opus" || m.family == "sonnet"):
		return "disabled"
	case m.family == "sonnet" && m.version == 505:
		return "between_tools"
	}
	return ""
}

// alwaysThinks: an adaptive model whose thinking cannot be switched off.
func (m model) alwaysThinks() bool { return m.version >= 500 && m.thinkingOff() == "" }
