package bedrock

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// explain returns the message of an error, and sets what the HTTP status alone doesn't say.
func explain(f *providers.Failure, body []byte) string {
	var e struct {
		Message string `json:"message"`
		Capital string `json:"Message"` // of the servers before Bedrock
	}
	_ = json.Unmarshal(body, &e, wire.Lenient) // other bodies have no message
	text := cmp.Or(e.Message, e.Capital)
	switch {
	case f.Status == http.StatusFailedDependency: // the model failed
		f.Kind = providers.KindServer
	case f.Kind == providers.KindInvalid && (strings.Contains(text, "model identifier is invalid") || strings.Contains(text, "on-demand throughput")):
		f.Kind = providers.KindNoModel
	}
	return text
}
