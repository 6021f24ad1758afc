package simulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/providers/simulator/o200k"
)

const created = 1_750_000_000

func newSimulator() *Simulator {
	return New(Options{Now: func() time.Time { return time.Unix(created, 0) }})
}

// completion is the response as a client reads it.
type completion struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices []struct {
		Index        int             `json:"index"`
		Message      reading         `json:"message"`
		Delta        reading         `json:"delta"`
		Logprobs     json.RawMessage `json:"logprobs"`
		FinishReason *string         `json:"finish_reason"`
	} `json:"choices"`
	Usage             *usage `json:"usage"`
	ServiceTier       string `json:"service_tier"`
	SystemFingerprint string `json:"system_fingerprint"`
}

type reading struct {
	Role      string  `json:"role"`
	Content   *string `json:"content"`
	Refusal   *string `json:"refusal"`
	ToolCalls []struct {
		Index    int    `json:"index"`
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

type usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
}

// say returns a body with one user message and further fields.
func say(text string, fields ...string) string {
	quoted, _ := json.Marshal(text)
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%s}]`, quoted)
	for _, f := range fields {
		body += "," + f
	}
	return body + "}"
}

func ask(t *testing.T, body string) completion {
	t.Helper()
	answer, err := newSimulator().Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(body)})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var c completion
	if err := json.Unmarshal(answer.Body, &c); err != nil {
		t.Fatalf("%s: %v", answer.Body, err)
	}
	if len(c.Choices) == 0 || c.Choices[0].FinishReason == nil || c.Usage == nil {
		t.Fatalf("incomplete answer: %s", answer.Body)
	}
	if c.Usage.PromptTokens != answer.Usage.InputTokens || c.Usage.CompletionTokens != answer.Usage.OutputTokens {
		t.Fatalf("the body's usage %+v is not the answer's %+v", c.Usage, answer.Usage)
	}
	return c
}

// openStream starts a streamed request.
func openStream(ctx context.Context, t *testing.T, body string) providers.Stream {
	t.Helper()
	answer, err := newSimulator().Chat(ctx, &providers.ChatRequest{Model: "m", Body: []byte(body), Stream: true})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return answer.Stream
}

// readAll returns a stream's chunks and the error it ended with.
func readAll(t *testing.T, s providers.Stream) ([]completion, *providers.Usage, error) {
	t.Helper()
	var chunks []completion
	var used *providers.Usage
	for {
		chunk, err := s.Next()
		if err != nil {
			if _, again := s.Next(); !errors.Is(again, err) {
				t.Fatalf("after %v came %v", err, again)
			}
			if err == io.EOF {
				err = nil
			}
			return chunks, used, err
		}
		var c completion
		if err := json.Unmarshal(chunk.Data, &c); err != nil {
			t.Fatalf("%s: %v", chunk.Data, err)
		}
		chunks = append(chunks, c)
		used = chunk.Usage
	}
}

func askFor(body string) error {
	_, err := newSimulator().Chat(context.Background(), &providers.ChatRequest{Model: "m", Body: []byte(body)})
	return err
}

func TestResponseHasOpenAIsShape(t *testing.T) {
	t.Parallel()
	answer, err := newSimulator().Chat(t.Context(), &providers.ChatRequest{Model: `odd "model"`, Body: []byte(say("Hello there"))})
	if err != nil {
		t.Fatal(err)
	}
	var c completion
	if err := json.Unmarshal(answer.Body, &c); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"id":"%s","object":"chat.completion","created":1750000000,"model":"odd \"model\"","service_tier":"default","system_fingerprint":"fp_simulator",`+
		`"choices":[{"index":0,"message":{"role":"assistant","content":"This is a simulated answer to: Hello there","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0,"audio_tokens":0},`+
		`"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}`, c.ID)
	if string(answer.Body) != want {
		t.Errorf("got  %s\nwant %s", answer.Body, want)
	}
	if !strings.HasPrefix(c.ID, "chatcmpl-") || len(c.ID) != len("chatcmpl-")+29 {
		t.Errorf("id %q", c.ID)
	}
}

func TestEqualRequestsGetEqualResponses(t *testing.T) {
	t.Parallel()
	first, again, other := ask(t, say("one")), ask(t, say("one")), ask(t, say("two"))
	if first.ID != again.ID || *first.Choices[0].Message.Content != *again.Choices[0].Message.Content {
		t.Errorf("the same call gave %q, then %q", first.ID, again.ID)
	}
	if first.ID == other.ID {
		t.Errorf("two calls have the id %q", first.ID)
	}
}

func TestLongMessageIsTruncatedInTheReply(t *testing.T) {
	t.Parallel()
	c := ask(t, say(strings.Repeat("many\n\n words ", 10_000)))
	if got := *c.Choices[0].Message.Content; len(got) > 200 || !strings.HasSuffix(got, "…") || strings.Contains(got, "\n") {
		t.Errorf("content %q", got)
	}
}

func TestPromptIsCountedByOpenAIsFormula(t *testing.T) {
	t.Parallel()
	n := o200k.Count
	for body, want := range map[string]int{
		say("Hello there"): 3 + 3 + n("user") + n("Hello there"),
		`{"messages":[{"role":"system","content":"Be brief."},{"role":"user","name":"ada","content":"Hi"}]}`: 3 +
			3 + n("system") + n("Be brief.") + 3 + n("user") + n("Hi") + 1 + n("ada"),
		`{"messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"https://example.com/a.png"}},{"type":"image_url","image_url":{"url":"https://example.com/a.png","detail":"low"}}]}]}`: 3 +
			3 + n("user") + n("What is this?") + 765 + 85,
		`{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}},{"type":"file","file":{"file_id":"f"}}]}]}`: 3 +
			3 + n("user") + 300 + 1000,
		say("Hi", `"tools":[{"type":"function","function":{"name":"now","description":"The time","parameters":{ "type": "object" }}}]`): 3 +
			3 + n("user") + n("Hi") + 12 + 7 + n("now") + n("The time") + n(`{"type":"object"}`),
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"now","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"noon"}]}`: 3 +
			3 + n("assistant") + 3 + n("now") + n("{}") + 3 + n("tool") + n("noon"),
	} {
		if got := ask(t, body).Usage.PromptTokens; got != int64(want) {
			t.Errorf("%s: %d prompt tokens, want %d", body, got, want)
		}
	}
}

func TestCompletionTokensAreThoseOfTheText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"Hello there", "Grüße aus 日本 👩‍🚀", "", "a  b\n\n  c"} {
		c := ask(t, say(text))
		if want := o200k.Count(*c.Choices[0].Message.Content); c.Usage.CompletionTokens != int64(want) {
			t.Errorf("%q: %d completion tokens, want %d", text, c.Usage.CompletionTokens, want)
		}
	}
}

func TestMaxTokensTruncatesExactly(t *testing.T) {
	t.Parallel()
	whole := ask(t, say("Tell me something long and nice"))
	for limit := int64(1); limit <= whole.Usage.CompletionTokens+1; limit++ {
		for _, field := range []string{"max_tokens", "max_completion_tokens"} {
			c := ask(t, say("Tell me something long and nice", fmt.Sprintf(`"%s":%d`, field, limit)))
			text := *c.Choices[0].Message.Content
			finish := "length"
			if limit >= whole.Usage.CompletionTokens {
				finish = "stop"
			}
			want := min(limit, whole.Usage.CompletionTokens)
			if c.Usage.CompletionTokens != want || int64(o200k.Count(text)) != want || *c.Choices[0].FinishReason != finish {
				t.Errorf("%s %d: %q, %d tokens, %s", field, limit, text, c.Usage.CompletionTokens, *c.Choices[0].FinishReason)
			}
		}
	}
}

func TestMaxTokensNeverSplitsACharacter(t *testing.T) {
	t.Parallel()
	for limit := 1; limit < 12; limit++ {
		body := say("[[sim:text=🦩🦩🦩🦩]]", fmt.Sprintf(`"max_tokens":%d`, limit))
		c := ask(t, body)
		text := *c.Choices[0].Message.Content
		if strings.Trim(text, "🦩") != "" {
			t.Errorf("max_tokens %d: %q", limit, text)
		}
		if streamed := readStream(t, body); streamed.text != text {
			t.Errorf("max_tokens %d: streamed %q, plain %q", limit, streamed.text, text)
		}
	}
}

func TestStopSequenceTruncatesTheText(t *testing.T) {
	t.Parallel()
	for stop, want := range map[string]string{
		`"simulated"`:            "This is a ",
		`["answer","simulated"]`: "This is a ",
		`["nowhere"]`:            "This is a simulated answer to: Hello",
		`null`:                   "This is a simulated answer to: Hello",
		`"This"`:                 "",
	} {
		c := ask(t, say("Hello", `"stop":`+stop))
		if got := *c.Choices[0].Message.Content; got != want || *c.Choices[0].FinishReason != "stop" {
			t.Errorf("stop %s: %q, %s; want %q", stop, got, *c.Choices[0].FinishReason, want)
		}
		if n := o200k.Count(want); c.Usage.CompletionTokens != int64(n) {
			t.Errorf("stop %s: %d tokens, want %d", stop, c.Usage.CompletionTokens, n)
		}
	}
}

func TestEveryChoiceIsCounted(t *testing.T) {
	t.Parallel()
	one, three := ask(t, say("Hi")), ask(t, say("Hi", `"n":3`))
	if len(three.Choices) != 3 || three.Choices[2].Index != 2 {
		t.Fatalf("choices %+v", three.Choices)
	}
	if three.Usage.PromptTokens != one.Usage.PromptTokens || three.Usage.CompletionTokens != 3*one.Usage.CompletionTokens {
		t.Errorf("usage of three %+v, of one %+v", three.Usage, one.Usage)
	}
}

func TestLogprobsCoverEveryToken(t *testing.T) {
	t.Parallel()
	body := say("[[sim:text=Hi 🦩]]", `"logprobs":true,"top_logprobs":2`)
	type logprobs struct {
		Content []struct {
			Token       string
			Bytes       []int
			TopLogprobs []struct{ Token string } `json:"top_logprobs"`
		}
	}
	collect := func(raw json.RawMessage) (bytes []byte, tokens int) {
		var l logprobs
		if err := json.Unmarshal(raw, &l); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		for _, token := range l.Content {
			for _, b := range token.Bytes {
				bytes = append(bytes, byte(b))
			}
			if len(token.TopLogprobs) != 1 || token.TopLogprobs[0].Token != token.Token {
				t.Errorf("top_logprobs %+v of %q", token.TopLogprobs, token.Token)
			}
		}
		return bytes, len(l.Content)
	}
	c := ask(t, body)
	if text, tokens := collect(c.Choices[0].Logprobs); string(text) != "Hi 🦩" || int64(tokens) != c.Usage.CompletionTokens {
		t.Errorf("logprobs of %q, %d tokens", text, tokens)
	}
	var text []byte
	chunks, _, _ := readAll(t, openStream(t.Context(), t, body))
	for _, c := range chunks {
		if len(c.Choices) > 0 && c.Choices[0].Delta.Content != nil && *c.Choices[0].Delta.Content != "" {
			part, _ := collect(c.Choices[0].Logprobs)
			text = append(text, part...)
		}
	}
	if string(text) != "Hi 🦩" {
		t.Errorf("streamed logprobs of %q", text)
	}
}

func TestJSONObjectFormatReturnsAnObject(t *testing.T) {
	t.Parallel()
	c := ask(t, say(`Say "JSON"`, `"response_format":{"type":"json_object"}`))
	var object struct {
		Simulated bool
		Answer    string
	}
	if err := json.Unmarshal([]byte(*c.Choices[0].Message.Content), &object); err != nil || !object.Simulated || !strings.Contains(object.Answer, `Say "JSON"`) {
		t.Errorf("content %q: %v", *c.Choices[0].Message.Content, err)
	}
}

func TestJSONSchemaFormatReturnsAValidDocument(t *testing.T) {
	t.Parallel()
	c := ask(t, say("Hi", `"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":3}},"required":["city","days"],"additionalProperties":false}}}`))
	if got := *c.Choices[0].Message.Content; got != `{"city":"simulated city","days":3}` {
		t.Errorf("content %s", got)
	}
	err := askFor(say("Hi", `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"$ref":"#"}}}`))
	if f, ok := fault.As(err); !ok || f.Code != fault.InvalidParameter || f.Param != "response_format.json_schema.schema" {
		t.Errorf("endless schema: %v", err)
	}
}

func TestRequestsRunConcurrently(t *testing.T) {
	t.Parallel()
	s := newSimulator()
	done := make(chan string)
	for range 8 {
		go func() {
			answer, err := s.Chat(context.Background(), &providers.ChatRequest{Model: "m", Body: []byte(say("Zwölfboxkämpfer"))})
			if err != nil {
				done <- err.Error()
				return
			}
			done <- string(answer.Body)
		}()
	}
	first := <-done
	for range 7 {
		if next := <-done; next != first {
			t.Errorf("got %s and %s", first, next)
		}
	}
}
