package catalog

import "strings"

// specialWords occur in the names of chat models that serve one purpose, may disappear at any
// time, or don't support chat completions.
var specialWords = []string{"audio", "beta", "code", "computer-use", "deep-research", "devstral", "experimental", "gemma", "guard", "image", "learnlm", "live", "lyria",
	"preview", "realtime", "robotics", "search", "transcribe", "tts"}

// SpecialPurpose reports by its name whether the router must not choose a model on its own.
func (m *Model) SpecialPurpose() bool {
	id := strings.ToLower(m.ID)
	switch {
	case m.Kind == Embedding && m.Provider == "gemini":
		return !strings.Contains(id, "embedding") // the table lists a chat model among them
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
	case m.Provider == "openai" && strings.Contains(id+"-", "-pro-"): // only in the Responses API
		return true
	case m.Provider == "openai" && strings.Contains(id, "chat"): // ChatGPT's own, which changes over time
		return true
	case m.Provider == "together" && strings.HasPrefix(id, "together-ai-"): // a price, not a model
		return true
	}
	return m.TypicalCost() == 0 // free models don't stay free
}
