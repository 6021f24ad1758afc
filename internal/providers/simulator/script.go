package simulator

import (
	"encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/openai"
)

// script lists the responses that follow a user message, for example
// [[sim:script=tool:search;tool:now+unknown:later;invalid*2;answer]].
type script []step

type step struct {
	calls   []scriptCall
	text    string
	hasText bool
	refusal bool
	status  int // of an error
	times   int // 0: forever
}

// scriptCall is a tool call. If it has no arguments, they are generated from the tool's schema.
type scriptCall struct {
	name      string
	arguments string
	unknown   bool // the request may lack the tool
}

const (
	maxSteps   = 200 // the limit of a run
	maxRepeats = 1000

	// Invalid JSON, which models occasionally write.
	brokenArguments = `{"simulated": "these arguments break o`
	brokenDocument  = `{"simulated": "this answer is no JSON`
)

func parseScript(rest string) (s script, ok bool) {
	for {
		var one step
		if one, rest, ok = parseStep(rest); !ok || len(s) == maxSteps {
			return nil, false
		}
		s = append(s, one)
		if rest == "" {
			return s, true
		}
		// A step that repeats forever must be the last.
		if rest, ok = strings.CutPrefix(rest, ";"); !ok || one.times == 0 {
			return nil, false
		}
	}
}

func parseStep(text string) (s step, rest string, ok bool) {
	s.times = 1
	if text, ok = strings.CutPrefix(text, "text:"); ok {
		end := indexAny(text, ";")
		s.text, s.hasText = text[:end], true
		return s, text[end:], true
	}
	end := indexAny(text, ":+*;")
	word := text[:end]
	rest = text[end:]
	switch word {
	case "tool", "unknown", "broken":
		if s.calls, rest, ok = parseCalls(text); !ok {
			return s, rest, false
		}
	case "answer":
	case "invalid":
		s.text, s.hasText = brokenDocument, true
	case "refusal":
		s.refusal = true
	case "error":
		if rest, ok = strings.CutPrefix(rest, ":"); !ok {
			return s, rest, false
		}
		end := indexAny(rest, "*;")
		if s.status, ok = number(rest[:end], 0, 599); !ok || errorCodes[s.status] == "" {
			return s, rest, false
		}
		rest = rest[end:]
	default:
		return s, rest, false
	}
	s.times, rest, ok = parseTimes(rest)
	return s, rest, ok
}

// parseTimes parses the repetition of a step: *3, or * for forever.
func parseTimes(text string) (n int, rest string, ok bool) {
	rest, repeated := strings.CutPrefix(text, "*")
	if !repeated {
		return 1, text, true
	}
	end := indexAny(rest, ";")
	if end == 0 {
		return 0, rest, true
	}
	n, ok = number(rest[:end], 1, maxRepeats)
	return n, rest[end:], ok
}

// parseCalls parses the calls of a step, joined by plus signs.
func parseCalls(text string) (calls []scriptCall, rest string, ok bool) {
	for rest = text; ; {
		kind, after, hasName := strings.Cut(rest, ":")
		end := indexAny(after, "{+*;")
		c := scriptCall{name: after[:end], unknown: kind == "unknown"}
		rest = after[end:]
		if !hasName || !openai.ValidName(c.name) || len(calls) == maxMagicTools {
			return nil, rest, false
		}
		switch kind {
		case "tool", "unknown":
			if c.arguments, rest, ok = parseArguments(rest); !ok {
				return nil, rest, false
			}
		case "broken":
			c.arguments = brokenArguments
		default:
			return nil, rest, false
		}
		calls = append(calls, c)
		if rest, ok = strings.CutPrefix(rest, "+"); !ok {
			return calls, rest, true
		}
	}
}

func parseArguments(text string) (arguments, rest string, ok bool) {
	if !strings.HasPrefix(text, "{") {
		return "", text, true
	}
	in := jsontext.NewDecoder(strings.NewReader(text))
	if err := in.SkipValue(); err != nil {
		return "", text, false
	}
	end := in.InputOffset()
	return text[:end], text[end:], true
}

// indexAny returns the offset of the first of the characters, or len(text).
func indexAny(text, characters string) int {
	if i := strings.IndexAny(text, characters); i >= 0 {
		return i
	}
	return len(text)
}

func (s script) step(n int) *step {
	for i := range s {
		if s[i].times == 0 || n < s[i].times {
			return &s[i]
		}
		n -= s[i].times
	}
	return nil
}

// nextStep returns the magic of the next step if a script is in progress, and m
// otherwise. The number of assistant messages since the script is the step.
func (r *request) nextStep(m *magic) *magic {
	steps := 0
	for i := len(r.Messages) - 1; i >= 0; i-- {
		switch message := &r.Messages[i]; message.Role {
		case "assistant":
			steps++
		case "user":
			asked, found := messageMagic(message)
			if !found {
				continue
			}
			// Only the last message with magic inputs counts.
			if s := asked.script.step(steps); s != nil {
				return s.magic(asked)
			}
			return m
		}
	}
	return m
}

// messageMagic returns the magic inputs of a message and whether there are any. It
// ignores invalid ones: the response to that message was an error.
func messageMagic(m *openai.Message) (asked *magic, found bool) {
	asked = new(magic)
	for _, text := range textsOf(m) {
		if strings.Contains(text, opening) {
			found = true
		}
		if _, err := asked.extract(text); err != nil {
			return new(magic), true
		}
	}
	return asked, found
}

// magic returns the magic of the step. The delays of the script's message apply to every step.
func (s *step) magic(script *magic) *magic {
	return &magic{delay: script.delay, chunkDelay: script.chunkDelay, status: s.status, text: s.text, hasText: s.hasText, refusal: s.refusal, calls: s.calls}
}

func (r *request) scriptedCalls(list []scriptCall) (calls []call, err error) {
	for _, want := range list {
		c := call{name: want.name, arguments: want.arguments}
		switch {
		case !want.unknown && r.ToolIndex(want.name) < 0:
			return nil, fault.Invalid("messages", "tool:%s in [[sim:script]] does not name one of the tools. Use unknown:%s to call it nevertheless.", want.name, want.name)
		case c.arguments != "":
		case want.unknown:
			c.arguments = "{}"
		default:
			if c, err = r.newCall(want.name); err != nil {
				return nil, err
			}
		}
		calls = append(calls, c)
		if r.OneCallAtATime() {
			break
		}
	}
	return calls, nil
}

// ToolResult returns the output that the conversation of an agent run sets for simulated tool calls
// with [[sim:tool_result=…]]. As with scripts, the last user message with magic inputs counts.
func ToolResult(messages []json.RawMessage) (result string, found bool) {
	for i := len(messages) - 1; i >= 0; i-- {
		var m openai.Message
		if err := jsonbody.DecodeLenient(messages[i], &m); err != nil || m.Role != "user" {
			continue
		}
		if asked, found := messageMagic(&m); found {
			return asked.toolResult, asked.hasToolResult
		}
	}
	return "", false
}
