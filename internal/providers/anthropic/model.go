package anthropic

import (
	"strconv"
	"strings"
)

// model is what a model's name says about its abilities. Models accept different
// parts of the Messages API and reject the rest with 400. The version numbers
// below are from Anthropic's migration guides.
type model struct {
	family string // opus, sonnet, haiku, fable, mythos; "" for others
	// version is 100 × major + minor: 405 is 4.5. It is 0 for models of other servers with the API,
	// which get only what the API has had from the start. Claude without a number is the newest.
	version int
}

const newest = 99_99

// parseModel parses names such as claude-opus-4-6-20260205, claude-3-5-haiku-latest
// and anthropic/claude-opus-4.6.
func parseModel(name string) model {
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

// versionNumber parses one or two digits. Longer numbers are dates.
func versionNumber(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && len(s) <= 2 && n >= 0
}

// structured reports whether output_config.format takes a JSON Schema.
func (m model) structured() bool { return m.version >= 405 }

// forcedTools reports whether tool_choice may be "any" or name a tool.
func (m model) forcedTools() bool {
	switch m.family {
	case "haiku":
		return true
	case "opus", "sonnet":
		return m.version < 505
	}
	return m.version < 501
}

// sampling reports whether temperature and top_p are accepted.
func (m model) sampling() bool { return m.version < 407 }

// bothSampling reports whether temperature and top_p are accepted together.
func (m model) bothSampling() bool { return m.version < 401 }

// prefill reports whether the conversation may end with an assistant message.
func (m model) prefill() bool { return m.version < 406 }

// budget reports whether the model thinks if it gets a number of tokens for it.
func (m model) budget() bool { return m.version >= 307 && m.version < 406 }

// adaptive reports whether the model decides how much to think, by an effort.
func (m model) adaptive() bool { return m.version >= 406 }

// hidesThinking reports whether thinking is returned only on request.
func (m model) hidesThinking() bool { return m.version >= 407 }

func (m model) effort(wanted string) string {
	switch {
	case wanted == "minimal":
		return "low"
	case wanted == "xhigh" && m.version < 407:
		return "high"
	}
	return wanted
}

// thinkingOff returns the type that turns off the thinking of an adaptive model,
// or "" if it is off by default or can't be turned off.
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

func (m model) alwaysThinks() bool { return m.version >= 500 && m.thinkingOff() == "" }
