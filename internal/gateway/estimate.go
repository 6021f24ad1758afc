package gateway

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// aboutTokens is how many tokens so many bytes of text usually are.
func aboutTokens(bytes int64) int64 { return (bytes + 3) / 4 }

// saidIn is about how many tokens a plain answer is, by what its choices say:
// its frame is nobody's output.
func saidIn(body []byte) int64 {
	var in struct {
		Choices []struct {
			Message struct {
				Content   jsontext.Value `json:"content"`
				Refusal   jsontext.Value `json:"refusal"`
				Reasoning jsontext.Value `json:"reasoning_content"`
				Thoughts  jsontext.Value `json:"reasoning"`
				Audio     sound          `json:"audio"`
				Call      called         `json:"function_call"`
				Calls     []struct {
					Function called `json:"function"`
				} `json:"tool_calls"`
			} `json:"message"`
		} `json:"choices"`
	}
	// What comes before something that is not as expected was read, and counts.
	_ = json.Unmarshal(body, &in, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var bytes int64
	for _, c := range in.Choices {
		m := c.Message
		bytes += size(m.Content) + size(m.Refusal) + size(m.Reasoning) + size(m.Thoughts) + m.Audio.size() + m.Call.size()
		for _, call := range m.Calls {
			bytes += call.Function.size()
		}
	}
	return aboutTokens(bytes)
}

type sound struct {
	Transcript jsontext.Value `json:"transcript"`
	Data       jsontext.Value `json:"data"`
}

// size counts 800 bytes of base64 as one, as a token of OpenAI's is 50 ms of
// samples, of which there are 48,000 bytes in a second.
func (s sound) size() int64 { return size(s.Transcript) + size(s.Data)/800 }

type called struct {
	Name      jsontext.Value `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
}

func (c called) size() int64 { return size(c.Name) + size(c.Arguments) }

// size is of a value that is text or holds some.
func size(v jsontext.Value) int64 {
	switch v.Kind() {
	case '"':
		return int64(len(v)) - 2
	case '[', '{':
		return int64(len(v))
	}
	return 0
}
