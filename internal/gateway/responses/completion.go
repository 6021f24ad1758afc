package responses

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

// lenient is for what others made: what is wrong with it is theirs to judge.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// completion is a chat's answer, or a chunk of it: both have the same members,
// but for message and delta.
type completion struct {
	ID          text      `json:"id"`
	Created     count     `json:"created"`
	Model       text      `json:"model"`
	ServiceTier text      `json:"service_tier"`
	Choices     []choice  `json:"choices"`
	Usage       chatUsage `json:"usage"`
}

type choice struct {
	Index        count         `json:"index"`
	Message      said          `json:"message"`
	Delta        said          `json:"delta"`
	FinishReason text          `json:"finish_reason"`
	Logprobs     *chatLogprobs `json:"logprobs"`
}

type said struct {
	Content   text       `json:"content"`
	Refusal   text       `json:"refusal"`
	ToolCalls []chatCall `json:"tool_calls"`
}

type chatCall struct {
	Index    *count `json:"index"`
	ID       text   `json:"id"`
	Function struct {
		Name      text   `json:"name"`
		Arguments source `json:"arguments"`
	} `json:"function"`
}

type chatLogprobs struct {
	Content []logprob `json:"content"`
}

// logprob has the same shape in a chat and in a response.
type logprob struct {
	Token       string       `json:"token"`
	Logprob     float64      `json:"logprob"`
	Bytes       []int64      `json:"bytes"`
	TopLogprobs []topLogprob `json:"top_logprobs"`
}

type topLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int64 `json:"bytes"`
}

type chatUsage struct {
	set     bool
	Prompt  count `json:"prompt_tokens"`
	Output  count `json:"completion_tokens"`
	Total   count `json:"total_tokens"`
	Details struct {
		Cached  count `json:"cached_tokens"`
		Written count `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	OutputDetails struct {
		Reasoning count `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	Credits jsontext.Value `json:"credits"` // ours
}

func (u *chatUsage) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if in.PeekKind() != jsontext.KindBeginObject {
		return in.SkipValue()
	}
	type plain chatUsage // without this method
	if err := json.UnmarshalDecode(in, (*plain)(u)); err != nil {
		return err
	}
	u.set = true
	return nil
}

// readCompletion reads an answer or a chunk.
func readCompletion(data []byte) (*completion, error) {
	c := &completion{}
	if err := json.Unmarshal(data, c, lenient...); err != nil {
		return nil, fault.New(fault.Upstream, "the model provider's answer cannot be understood").Because(err)
	}
	return c, nil
}

// first is the choice that a response is made of, or nil.
func (c *completion) first() *choice {
	for i := range c.Choices {
		if c.Choices[i].Index == 0 {
			return &c.Choices[i]
		}
	}
	return nil
}

func (c *choice) logprobs() []logprob {
	if c.Logprobs == nil {
		return nil
	}
	return c.Logprobs.Content
}

// text is a string. A list of parts, as Mistral's content may be, is their
// text; all else is nothing.
type text string

func (t *text) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	switch in.PeekKind() {
	case jsontext.KindString:
		return json.UnmarshalDecode(in, (*string)(t))
	case jsontext.KindBeginArray:
		var parts []struct {
			Text string `json:"text"`
		}
		if err := json.UnmarshalDecode(in, &parts); err != nil {
			return err
		}
		var all strings.Builder
		for _, p := range parts {
			all.WriteString(p.Text)
		}
		*t = text(all.String())
		return nil
	}
	return in.SkipValue()
}

// source is JSON inside a string. Not every server wraps it.
type source string

func (s *source) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	switch in.PeekKind() {
	case jsontext.KindString:
		return json.UnmarshalDecode(in, (*string)(s))
	case jsontext.KindNull:
		return in.SkipValue()
	}
	value, err := in.ReadValue()
	*s = source(value)
	return err
}

// count is a number of things. Not every server writes 12 as 12.
type count int64

func (c *count) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if in.PeekKind() != jsontext.KindNumber {
		return in.SkipValue()
	}
	token, err := in.ReadToken()
	if err != nil {
		return err
	}
	const absurd = 1e12
	if f, err := token.Float(); err == nil && f > 0 && f < absurd {
		*c = count(f)
	}
	return nil
}
