package catalog

import "strings"

// specialWords are parts of the names of chat models that are made for one
// purpose, may go at any time, or are not to be had by chat completions.
var specialWords = []string{"audio", "beta", "code", "computer-use", "deep-research", "devstral", "experimental", "gemma", "guard", "image", "learnlm", "live", "lyria",
	"preview", "realtime", "robotics", "search", "transcribe", "tts"}

// Special reports whether a model of the table is one that is to be called by
// its name alone: the router does not choose it by itself. The table has no
// such column.
func (m *Model) Special() bool {
	id := strings.ToLower(m.ID)
	switch {
	case m.Kind == Embedding && m.Provider == "gemini":
		return !strings.Contains(id, "embedding") // the facts have a chat model among them
	case m.Kind == Embedding:
		return strings.Contains(id, "code")
	case m.Kind != Chat:
		return strings.Contains(id, "deep-research")
	}
	for _, word := range specialWords {
		if strings.Contains(id, word) {
			return true
		}
	}
	switch {
	case strings.Contains(id+"-", "-exp-"):
		return true
	case m.Provider == "openai" && strings.Contains(id+"-", "-pro-"): // by the Responses API alone
		return true
	case m.Provider == "openai" && strings.Contains(id, "chat"): // ChatGPT's own, which changes with it
		return true
	case m.Provider == "together" && strings.HasPrefix(id, "together-ai-"): // a price, not a model
		return true
	}
	return m.Typical() == 0 // nobody gives a model away for good
}
