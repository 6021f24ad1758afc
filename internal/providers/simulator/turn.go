package simulator

import "strings"

// turn is what the conversation's end asks for: the user's last words, or the
// results of tools. Magic inputs count only while the user's words are what
// is answered: once tool results follow them the answer is a summary, so that
// an agent's loop comes to its end. A script alone goes on (follow).
type turn struct {
	texts   []string // the user's text, in parts
	results []result // of tools, if they are what is answered
}

type result struct {
	tool  string
	texts []string
}

// turn finds what is to be answered. Instructions may follow it.
func (r *request) turn() turn {
	last := len(r.Messages) - 1
	for last >= 0 && r.Messages[last].IsInstruction() {
		last--
	}
	if last < 0 {
		return turn{}
	}
	if r.Messages[last].Role == "user" {
		return turn{texts: textsOf(&r.Messages[last])}
	}
	first := last
	for first >= 0 && (r.Messages[first].Role == "tool" || r.Messages[first].Role == "function") {
		first--
	}
	var t turn
	for i := first + 1; i <= last; i++ {
		m := &r.Messages[i]
		res := result{tool: m.Name, texts: textsOf(m)}
		if first >= 0 {
			for _, call := range r.Messages[first].ToolCalls {
				if call.ID == m.ToolCallID {
					res.tool = call.Function.Name
				}
			}
		}
		t.results = append(t.results, res)
	}
	return t
}

// magic reads the magic inputs and takes them out of the texts.
func (t *turn) magic() (*magic, error) {
	m := new(magic)
	for i, text := range t.texts {
		rest, err := m.read(text)
		if err != nil {
			return nil, err
		}
		t.texts[i] = rest
	}
	return m, nil
}

const (
	greeting = "This is a simulated answer"
	// maxQuote is how many characters of a message an answer repeats.
	maxQuote = 100
	// maxResults is how many tool results an answer names.
	maxResults = 8
)

// sentence is the answer where nothing else was asked for.
func (t *turn) sentence() string {
	var b strings.Builder
	b.Grow(2 * maxQuote)
	b.WriteString(greeting)
	if len(t.results) == 0 {
		quote(&b, " to: ", t.texts...)
		if b.Len() == len(greeting) {
			b.WriteByte('.')
		}
		return b.String()
	}
	b.WriteString(" from the tool results: ")
	for i, r := range t.results {
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

// quote writes the beginning of a text with its white space folded, after a
// lead if there is any text.
func quote(b *strings.Builder, lead string, texts ...string) {
	count := 0
	for _, text := range texts {
		for word := range strings.FieldsSeq(text) {
			b.WriteString(lead)
			lead = " "
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
