package openai_test

import (
	"fmt"
	"slices"
	"testing"

	"turnpike/internal/providers"
	"turnpike/test/fakes/upstreams"
)

// TestResponseDeltasCountTheSameUnparsed: named deltas aren't parsed, unnamed events are.
func TestResponseDeltasCountTheSameUnparsed(t *testing.T) {
	t.Parallel()
	deltas := []string{
		`"delta":"12345678"`, `"delta":"日本語の"`, `"delta":"\u00e9\"\\\n","obfuscation":"xyz"`, `"delta": "spaced"`,
		`"delta":{"not":"text"}`, `"delta":"\\"`, `"delta":""`, `"logprobs":[],"delta":"x"`,
	}
	completed := `{"type":"response.completed","response":{"output":[]}}`
	run := func(header string) providers.Usage {
		var data []string
		upstream, p := start(t)
		body := ""
		for _, d := range deltas {
			text := fmt.Sprintf(`{"type":"response.output_text.delta","item_id":"msg_1",%s}`, d)
			data = append(data, text)
			body += header + event(text)
		}
		upstream.Queue(upstreams.OpenAIReply{Body: body + event(completed)})
		result, err := p.Respond(t.Context(), &providers.ResponsesRequest{Model: "m", Body: []byte(`{"stream":true}`), Stream: true})
		got, _, err := collect(result, err)
		if err != nil {
			t.Fatal(err)
		}
		if want := append(data, completed); !slices.Equal(got, want) {
			t.Errorf("got the events %q, want %q", got, want)
		}
		return result.Stream.SoFar()
	}
	parsed := run("")
	unparsed := run("event: response.output_text.delta\n")
	if parsed != unparsed || parsed.OutputTokens == 0 {
		t.Errorf("counted %+v parsed, %+v unparsed", parsed, unparsed)
	}
}
