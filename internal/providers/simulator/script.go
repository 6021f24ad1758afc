package simulator

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

// script is what an agent does from a user's message on, a step for each
// answer: [[sim:script=tool:search;tool:now+unknown:later;invalid*2;answer]].
type script []step

// step is one answer, or several that are alike.
type step struct {
	calls   []scriptCall
	text    string
	hasText bool
	refusal bool
	status  int // of an error
	times   int // 0 is for ever
}

// scriptCall is a call of a tool. Without arguments it gets some that are
// valid for the tool.
type scriptCall struct {
	name      string
	arguments string
	unknown   bool // the tool need not be one of the request's
}

const (
	maxSteps   = 200 // as many as a run may have
	maxRepeats = 1000

	// What a model writes that loses its thread.
	brokenArguments = `{"simulated": "these arguments break o`
	brokenDocument  = `{"simulated": "this answer is no JSON`
)

// parseScript reads the steps, which semicolons separate.
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
		// Nothing comes after what goes on for ever.
		if rest, ok = strings.CutPrefix(rest, ";"); !ok || one.times == 0 {
			return nil, false
		}
	}
}

// parseStep reads one step and returns what follows it.
func parseStep(text string) (s step, rest string, ok bool) {
	s.times = 1
	if text, ok = strings.CutPrefix(text, "text:"); ok {
		end := upTo(text, ";")
		s.text, s.hasText = text[:end], true
		return s, text[end:], true
	}
	end := upTo(text, ":+*;")
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
		end := upTo(rest, "*;")
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

// parseTimes reads how often a step is taken: *3, or * for ever.
func parseTimes(text string) (n int, rest string, ok bool) {
	rest, repeated := strings.CutPrefix(text, "*")
	if !repeated {
		return 1, text, true
	}
	end := upTo(rest, ";")
	if end == 0 {
		return 0, rest, true
	}
	n, ok = number(rest[:end], 1, maxRepeats)
	return n, rest[end:], ok
}

// parseCalls reads the calls of one step, which plus signs join.
func parseCalls(text string) (calls []scriptCall, rest string, ok bool) {
	for rest = text; ; {
		kind, after, hasName := strings.Cut(rest, ":")
		end := upTo(after, "{+*;")
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

// parseArguments reads an object, if there is one.
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

// upTo is where the first of the characters is, or the text's end.
func upTo(text, characters string) int {
	if i := strings.IndexAny(text, characters); i >= 0 {
		return i
	}
	return len(text)
}

// step is the nth, counted from 0; nil when the script is over.
func (s script) step(n int) *step {
	for i := range s {
		if s[i].times == 0 || n < s[i].times {
			return &s[i]
		}
		n -= s[i].times
	}
	return nil
}

// follow is what is asked for when a script is under way: its next step, which
// is as far along as the assistant has spoken since. m is what the answered
// message asks for.
func (r *request) follow(m *magic) *magic {
	spoken := 0
	for i := len(r.Messages) - 1; i >= 0; i-- {
		switch message := &r.Messages[i]; message.Role {
		case "assistant":
			spoken++
		case "user":
			asked, some := messageMagic(message)
			if !some {
				continue
			}
			// The last message that asks for anything is the one that counts.
			if s := asked.script.step(spoken); s != nil {
				return s.magic(asked)
			}
			return m
		}
	}
	return m
}

// magic reads what a message asks for, and whether that is anything. What
// cannot be read was refused when it was answered.
func messageMagic(m *openai.Message) (asked *magic, some bool) {
	asked = new(magic)
	for _, text := range textsOf(m) {
		if strings.Contains(text, opening) {
			some = true
		}
		if _, err := asked.read(text); err != nil {
			return new(magic), true
		}
	}
	return asked, some
}

// magic is the step as a message of its own would ask for it. The script's
// delays hold for all of its steps.
func (s *step) magic(of *magic) *magic {
	return &magic{delay: of.delay, chunkDelay: of.chunkDelay, status: s.status, text: s.text, hasText: s.hasText, refusal: s.refusal, calls: s.calls}
}

// scriptedCalls are the calls of a step.
func (r *request) scriptedCalls(list []scriptCall) (calls []call, err error) {
	for _, want := range list {
		c := call{name: want.name, arguments: want.arguments}
		switch {
		case !want.unknown && r.ToolIndex(want.name) < 0:
			return nil, fault.Invalid("messages", "the step tool:%s of [[sim:script]] names no tool in tools; unknown:%s calls it all the same", want.name, want.name)
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
