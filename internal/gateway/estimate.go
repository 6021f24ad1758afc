package gateway

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// estimateTokens returns the usual number of tokens of a text.
func estimateTokens(bytes int64) int64 { return (bytes + 3) / 4 }

// estimateOutput returns about how many output tokens the choices of a plain response have.
func estimateOutput(body []byte) int64 {
	var in struct {
		Choices []struct {
			Message struct {
				Content   jsontext.Value `json:"content"`
				Refusal   jsontext.Value `json:"refusal"`
				Reasoning jsontext.Value `json:"reasoning_content"`
				Thoughts  jsontext.Value `json:"reasoning"`
				Audio     audioOutput    `json:"audio"`
				Function  functionCall   `json:"function_call"`
				ToolCalls []struct {
					Function functionCall `json:"function"`
				} `json:"tool_calls"`
			} `json:"message"`
		} `json:"choices"`
	}
	// Everything before malformed JSON was read and counts.
	_ = json.Unmarshal(body, &in, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var bytes int64
	for _, c := range in.Choices {
		m := c.Message
		bytes += textSize(m.Content) + textSize(m.Refusal) + textSize(m.Reasoning) + textSize(m.Thoughts) + m.Audio.size() + m.Function.size()
		for _, call := range m.ToolCalls {
			bytes += call.Function.size()
		}
	}
	return estimateTokens(bytes)
}

type audioOutput struct {
	Transcript jsontext.Value `json:"transcript"`
	Data       jsontext.Value `json:"data"`
}

// size counts 800 bytes of base64 as one: a token of OpenAI's audio is 50 ms of samples at
// 48,000 bytes per second.
func (a audioOutput) size() int64 { return textSize(a.Transcript) + textSize(a.Data)/800 }

type functionCall struct {
	Name      jsontext.Value `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
}

func (c functionCall) size() int64 { return textSize(c.Name) + textSize(c.Arguments) }

// textSize returns the bytes of a string, or of a value that contains strings.
func textSize(v jsontext.Value) int64 {
	switch v.Kind() {
	case '"':
		return int64(len(v)) - 2
	case '[', '{':
		return int64(len(v))
	}
	return 0
}
