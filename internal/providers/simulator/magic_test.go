package simulator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/providers/simulator/o200k"
)

func TestMagicErrorReturnsRequestedStatus(t *testing.T) {
	t.Parallel()
	for status, code := range map[int]fault.Code{
		400: "invalid_parameter", 401: "authentication_error", 402: "insufficient_credits", 403: "insufficient_scope",
		404: "model_not_found", 408: "request_timeout", 409: "conflict", 413: "request_too_large", 429: "rate_limit_exceeded",
		500: "internal_error", 502: "upstream_error", 503: "overloaded", 504: "upstream_timeout",
	} {
		for _, stream := range []bool{false, true} {
			body := say(fmt.Sprintf("please [[sim:error=%d]] now", status))
			_, err := newSimulator().Chat(t.Context(), &providers.ChatRequest{Body: []byte(body), Stream: stream})
			f, ok := fault.As(err)
			if !ok || f.Code != code || fault.FamilyOf(f.Code).Status != status {
				t.Errorf("status %d gave %v", status, err)
				continue
			}
			if after := f.RetryAfter == time.Second; after != (status == 429) {
				t.Errorf("status %d has RetryAfter %v", status, f.RetryAfter)
			}
		}
	}
}

func TestMagicLengthIsExact(t *testing.T) {
	t.Parallel()
	for _, length := range []int{1, 2, 3, 24, 25, 500, 16384} {
		c := ask(t, say(fmt.Sprintf("[[sim:length=%d]]", length)))
		text := *c.Choices[0].Message.Content
		if c.Usage.CompletionTokens != int64(length) || o200k.Count(text) != length || *c.Choices[0].FinishReason != "stop" {
			t.Errorf("length %d: %d tokens in usage, %d in the text, %s", length, c.Usage.CompletionTokens, o200k.Count(text), *c.Choices[0].FinishReason)
		}
	}
	c := ask(t, say("[[sim:length=500]]", `"max_tokens":100`))
	if c.Usage.CompletionTokens != 100 || *c.Choices[0].FinishReason != "length" {
		t.Errorf("with max_tokens: %+v, %s", c.Usage, *c.Choices[0].FinishReason)
	}
}

func TestMagicTextIsReturnedUnchanged(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"[[sim:text=Hello, world]]":          "Hello, world",
		"[[sim:text=]]":                      "",
		"before [[sim:text=a=b]] after":      "a=b",
		"[[sim:text=[1,[2]]]]":               "[1,[2]]",
		"[[sim:text=[[sim:refusal]]":         "[[sim:refusal",
		"[[sim:text=line\none \"quoted\"]]":  "line\none \"quoted\"",
		"[[sim:text=one]] [[sim:text=two]]":  "two",
		"[[sim:length=9]] [[sim:text=this]]": "this",
	} {
		if got := *ask(t, say(input)).Choices[0].Message.Content; got != want {
			t.Errorf("%s: %q, want %q", input, got, want)
		}
	}
}

func TestMagicFinishSetsFinishReason(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"stop", "length", "content_filter"} {
		if got := *ask(t, say("[[sim:finish="+reason+"]]")).Choices[0].FinishReason; got != reason {
			t.Errorf("finish_reason %q, want %q", got, reason)
		}
	}
}

func TestMagicRefusalReplacesContent(t *testing.T) {
	t.Parallel()
	c := ask(t, say("[[sim:refusal]]"))
	m := c.Choices[0].Message
	if m.Content != nil || m.Refusal == nil || *m.Refusal != refusalText || *c.Choices[0].FinishReason != "stop" {
		t.Errorf("message %+v", m)
	}
	if want := o200k.Count(refusalText); c.Usage.CompletionTokens != int64(want) {
		t.Errorf("%d tokens, want %d", c.Usage.CompletionTokens, want)
	}
}

func TestMagicInputsAreNotQuoted(t *testing.T) {
	t.Parallel()
	c := ask(t, say("Say [[sim:delay=0s]] hello [[sim:finish=stop]]"))
	if got := *c.Choices[0].Message.Content; got != "This is a simulated answer to: Say hello" {
		t.Errorf("content %q", got)
	}
}

func TestInvalidMagicInputIsRejectedWithHelp(t *testing.T) {
	t.Parallel()
	for _, input := range []string{
		"[[sim:]]", "[[sim:nonsense]]", "[[sim:nonsense=1]]", "[[sim:Error=429]]", "[[sim: error=429]]", "[[sim:error]]", "[[sim:error=]]",
		"[[sim:error=418]]", "[[sim:error=200]]", "[[sim:error=abc]]", "[[sim:delay]]", "[[sim:delay=2]]", "[[sim:delay=-1s]]", "[[sim:delay=61s]]",
		"[[sim:chunk_delay=soon]]", "[[sim:length=0]]", "[[sim:length=16385]]", "[[sim:length=1.5]]", "[[sim:tool]]", "[[sim:tool=]]", "[[sim:tool=a b]]",
		"[[sim:finish=tool_calls]]", "[[sim:refusal=yes]]", "[[sim:cut=-1]]", "[[sim:cut]]", "[[sim:text]]", "[[sim:error=429", "[[sim:" + strings.Repeat("日", 100),
		strings.Repeat("[[sim:tool=a]]", 17),
	} {
		err := askFor(say(input))
		f, ok := fault.As(err)
		if !ok || f.Code != fault.InvalidParameter || f.Param != "messages" {
			t.Errorf("%s: %v", input, err)
			continue
		}
		for _, name := range []string{"error", "delay", "chunk_delay", "length", "text", "tool", "finish", "refusal", "cut"} {
			if !strings.Contains(f.Message, "[[sim:"+name) {
				t.Errorf("%s: the help does not list %s: %s", input, name, f.Message)
			}
		}
	}
}
