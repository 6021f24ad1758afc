package simulator

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
)

const (
	opening = "[[sim:"
	closing = "]]"
)

const magicHelp = "Known magic inputs: [[sim:error=STATUS]] (400, 401, 402, 403, 404, 408, 409, 413, 429, 500, 502, 503, 504), " +
	"[[sim:delay=2s]] and [[sim:chunk_delay=20ms]] (up to 60s), [[sim:length=500]] (1 to 16384 tokens), [[sim:text=…]], [[sim:tool=NAME]] (up to 16 times), " +
	"[[sim:finish=REASON]] (stop, length, content_filter), [[sim:refusal]], [[sim:cut=5]], [[sim:tool_result=…]] and [[sim:script=STEPS]] (tool:NAME, tool:NAME{…}, unknown:NAME, " +
	"broken:NAME, joined by + for one response; text:…, answer, invalid, refusal, error:STATUS; separated by semicolons, repeated by *3, or by * forever at the end)."

const (
	maxDelay  = 60 * time.Second
	maxLength = 16_384
	// maxMagicTools limits the work for schemas: each call gets its own arguments.
	maxMagicTools = 16
)

// errorCodes are the errors that a magic input can request, by status.
var errorCodes = map[int]fault.Code{
	400: fault.InvalidParameter,
	401: fault.Authentication,
	402: fault.InsufficientCredits,
	403: fault.InsufficientScope,
	404: fault.ModelNotFound,
	408: fault.RequestTimeout,
	409: fault.Conflict,
	413: fault.RequestTooLarge,
	429: fault.RateLimitExceeded,
	500: fault.Internal,
	502: fault.Upstream,
	503: fault.Overloaded,
	504: fault.UpstreamTimeout,
}

// magic holds the magic inputs of a message. If one is repeated, the last counts,
// except that every tool is called.
type magic struct {
	param      string      // the field it comes from, or "" for a message
	fail       failureCode // of an image, speech or a video
	status     int         // of an error, or 0
	delay      time.Duration
	chunkDelay time.Duration
	length     int // in tokens, or 0
	text       string
	hasText    bool
	tools      []string
	finish     string
	refusal    bool
	cut        int // content chunks before a stream fails
	hasCut     bool
	script     script
	calls      []scriptCall // of a step

	toolResult    string // of simulated tool calls in an agent run
	hasToolResult bool

	moderates bool     // it comes from a moderation
	flags     []string // the categories to flag
}

// extract reads the magic inputs of a text and returns the text without them.
func (m *magic) extract(text string) (rest string, err error) {
	start := strings.Index(text, opening)
	if start < 0 {
		return text, nil
	}
	var b strings.Builder
	for start >= 0 {
		b.WriteString(text[:start])
		text = text[start+len(opening):]
		end := strings.Index(text, closing)
		if end < 0 {
			return "", m.invalid(text)
		}
		// The last two of several brackets close the input: [[sim:text=[1]]].
		for strings.HasPrefix(text[end+1:], closing) {
			end++
		}
		if err := m.apply(text[:end]); err != nil {
			return "", err
		}
		text = text[end+len(closing):]
		start = strings.Index(text, opening)
	}
	b.WriteString(text)
	return b.String(), nil
}

// invalid returns the error for a magic input, which lists the valid ones.
func (m *magic) invalid(input string) error {
	if len(input) > 40 {
		input = strings.ToValidUTF8(input[:40], "") + "…"
	}
	param, help := "messages", magicHelp
	switch {
	case m.moderates:
		param, help = m.param, moderationMagicHelp
	case m.param != "":
		param, help = m.param, mediaMagicHelp
	}
	return fault.Invalid(param, "The magic input \"%s%s\" is not valid. %s", opening, input, help)
}

func (m *magic) apply(input string) error {
	name, value, hasValue := strings.Cut(input, "=")
	ok := hasValue
	if !m.accepts(name) {
		return m.invalid(input + closing)
	}
	switch name {
	case "error":
		m.status, ok = number(value, 0, 599)
		ok = ok && errorCodes[m.status] != ""
	case "delay":
		m.delay, ok = duration(value)
	case "chunk_delay":
		m.chunkDelay, ok = duration(value)
	case "length":
		m.length, ok = number(value, 1, maxLength)
	case "text":
		m.text, m.hasText = value, true
	case "tool":
		m.tools = append(m.tools, value)
		ok = openai.ValidName(value) && len(m.tools) <= maxMagicTools
	case "finish":
		m.finish = value
		ok = slices.Contains([]string{"stop", "length", "content_filter"}, value)
	case "refusal":
		m.refusal = true
		ok = !hasValue
	case "cut":
		m.cut, ok = number(value, 0, maxLength)
		m.hasCut = true
	case "script":
		m.script, ok = parseScript(value)
	case "tool_result":
		m.toolResult, m.hasToolResult = value, true
	case "fail":
		m.fail = failureCode(value)
		ok = failures[m.fail] != ""
	case "flag":
		m.flags = append(m.flags, value)
		ok = slices.Contains(categories, value)
	default:
		ok = false
	}
	if !ok {
		return m.invalid(input + closing)
	}
	return nil
}

// accepts reports whether the field of the text has a magic input.
func (m *magic) accepts(name string) bool {
	switch {
	case m.moderates:
		return name == "flag" || name == "error" || name == "delay"
	case m.param != "":
		return slices.Contains(mediaMagic, name)
	}
	return name != "fail" && name != "flag"
}

func number(s string, low, high int) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && low <= n && n <= high
}

func duration(s string) (time.Duration, bool) {
	d, err := time.ParseDuration(s)
	return d, err == nil && 0 <= d && d <= maxDelay
}

func (m *magic) requestedFault() error {
	f := fault.New(errorCodes[m.status], "Simulated error, requested by [[sim:error=%d]].", m.status)
	switch m.status {
	case 400:
		f.Param = cmp.Or(m.param, "messages")
	case 429:
		f.RetryAfter = time.Second
	}
	return f
}

// mediaMagic are the magic inputs for images, videos and speech.
var mediaMagic = []string{"error", "delay", "fail"}

const mediaMagicHelp = "Known magic inputs: [[sim:fail=CODE]] (moderation_blocked_input, moderation_blocked_output, invalid_input, upstream_error, upstream_timeout, capacity), " +
	"[[sim:error=STATUS]] (400, 401, 402, 403, 404, 408, 409, 413, 429, 500, 502, 503, 504) and [[sim:delay=2s]] (up to 60s)."

type failureCode string

var failures = map[failureCode]providers.Kind{
	"moderation_blocked_input":  providers.KindBlockedInput,
	"moderation_blocked_output": providers.KindBlockedOutput,
	"invalid_input":             providers.KindInvalid,
	"upstream_error":            providers.KindServer,
	"upstream_timeout":          providers.KindTimeout,
	"capacity":                  providers.KindOverloaded,
}

func extractMediaMagic(param, text string) (m *magic, rest string, err error) {
	m = &magic{param: param}
	rest, err = m.extract(text)
	return m, rest, err
}

func (m *magic) failure() *providers.Failure {
	if m.fail == "" {
		return nil
	}
	f := &providers.Failure{Kind: failures[m.fail], Err: errors.New("simulated failure, requested by [[sim:fail=" + string(m.fail) + "]]")}
	if f.Kind == providers.KindInvalid {
		f.Param = m.param
	}
	return f
}

// obeyMagic waits and fails as the magic inputs of a text request, and returns the text without them.
func obeyMagic(ctx context.Context, param, text string) (rest string, err error) {
	m, rest, err := extractMediaMagic(param, text)
	if err != nil {
		return "", err
	}
	return rest, m.obey(ctx)
}

// obey waits and fails as requested.
func (m *magic) obey(ctx context.Context) error {
	if err := wait(ctx, m.delay); err != nil {
		return err
	}
	if m.status != 0 {
		return m.requestedFault()
	}
	if f := m.failure(); f != nil {
		return f
	}
	return nil
}
