package responses

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// completion is a chat completion or a chunk of one. They differ only in message and delta.
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
	Message      choiceMessage `json:"message"`
	Delta        choiceMessage `json:"delta"`
	FinishReason text          `json:"finish_reason"`
	Logprobs     struct {
		Content []openai.Logprob `json:"content"`
	} `json:"logprobs"`
}

type choiceMessage struct {
	Content   text       `json:"content"`
	Refusal   text       `json:"refusal"`
	ToolCalls []chatCall `json:"tool_calls"`
}

type chatCall struct {
	Index    *count `json:"index"`
	ID       text   `json:"id"`
	Function struct {
		Name      text       `json:"name"`
		Arguments jsonSource `json:"arguments"`
	} `json:"function"`
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
	Credits jsontext.Value `json:"credits"` // added by Turnpike
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

func readCompletion(data []byte) (*completion, error) {
	c := &completion{}
	if err := json.Unmarshal(data, c, lenient...); err != nil {
		return nil, fault.New(fault.Upstream, "The model provider returned an invalid response.").Because(err)
	}
	return c, nil
}

func (c *completion) firstChoice() *choice {
	for i := range c.Choices {
		if c.Choices[i].Index == 0 {
			return &c.Choices[i]
		}
	}
	return nil
}

// text is a string. An array of parts, as in Mistral's content, is joined; other types are empty.
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

// jsonSource is JSON inside a string. Some servers don't wrap it.
type jsonSource string

func (s *jsonSource) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	switch in.PeekKind() {
	case jsontext.KindString:
		return json.UnmarshalDecode(in, (*string)(s))
	case jsontext.KindNull:
		return in.SkipValue()
	}
	value, err := in.ReadValue()
	*s = jsonSource(value)
	return err
}

// count is a non-negative number. Some servers write 12 as 12.0.
type count int64

func (c *count) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if in.PeekKind() != jsontext.KindNumber {
		return in.SkipValue()
	}
	token, err := in.ReadToken()
	if err != nil {
		return err
	}
	const maxCount = 1e12
	if f, err := token.Float(); err == nil && f > 0 && f < maxCount {
		*c = count(f)
	}
	return nil
}
