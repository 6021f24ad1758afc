package simulator

import "strings"

// prompt is the request at the end of a conversation: the last user message, or
// the results of tools. Magic inputs count only in the user message. Tool
// results get a summary, so that an agent's loop ends. Only a script continues
// (nextStep).
type prompt struct {
	texts   []string // the text parts of the user message
	results []toolResult
}

type toolResult struct {
	tool  string
	texts []string
}

// prompt returns the prompt, which instructions may follow.
func (r *request) prompt() prompt {
	last := len(r.Messages) - 1
	for last >= 0 && r.Messages[last].IsInstruction() {
		last--
	}
	if last < 0 {
		return prompt{}
	}
	if r.Messages[last].Role == "user" {
		return prompt{texts: textsOf(&r.Messages[last])}
	}
	first := last
	for first >= 0 && (r.Messages[first].Role == "tool" || r.Messages[first].Role == "function") {
		first--
	}
	var p prompt
	for i := first + 1; i <= last; i++ {
		m := &r.Messages[i]
		result := toolResult{tool: m.Name, texts: textsOf(m)}
		if first >= 0 {
			for _, call := range r.Messages[first].ToolCalls {
				if call.ID == m.ToolCallID {
					result.tool = call.Function.Name
				}
			}
		}
		p.results = append(p.results, result)
	}
	return p
}

func (p *prompt) extractMagic() (*magic, error) {
	m := new(magic)
	for i, text := range p.texts {
		rest, err := m.extract(text)
		if err != nil {
			return nil, err
		}
		p.texts[i] = rest
	}
	return m, nil
}

const (
	greeting = "This is a simulated answer"
	// maxQuote is the number of characters of a message that a response repeats.
	maxQuote = 100
	// maxResults is the number of tool results that a response names.
	maxResults = 8
)

func (p *prompt) sentence() string {
	var b strings.Builder
	b.Grow(2 * maxQuote)
	b.WriteString(greeting)
	if len(p.results) == 0 {
		quote(&b, " to: ", p.texts...)
		if b.Len() == len(greeting) {
			b.WriteByte('.')
		}
		return b.String()
	}
	b.WriteString(" from the tool results: ")
	for i, r := range p.results {
		if i > 0 {
			b.WriteString("; ")
		}
		if i == maxResults {
			b.WriteString("and more")
			break
		}
		b.WriteString(r.tool)
		b.WriteString(" returned")
		quote(&b, " ", r.texts...)
	}
	b.WriteByte('.')
	return b.String()
}

// quote writes the beginning of the texts with collapsed white space. A prefix
// precedes it unless the texts are empty.
func quote(b *strings.Builder, prefix string, texts ...string) {
	count := 0
	for _, text := range texts {
		for word := range strings.FieldsSeq(text) {
			b.WriteString(prefix)
			prefix = " "
			for _, c := range word {
				if count == maxQuote {
					b.WriteString("…")
					return
				}
				b.WriteRune(c)
				count++
			}
		}
	}
}
