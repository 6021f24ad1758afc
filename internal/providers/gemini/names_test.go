package gemini

import (
	"testing"

	"turnpike/internal/jsonbody/jsonbodytest"
	"turnpike/internal/providers"
)

func TestFieldsThatAreReadAreRegistered(t *testing.T) {
	t.Parallel()
	jsonbodytest.WantRegistered[extraContent](t, providers.ChatNames["messages"]["tool_calls"]["extra_content"])
	jsonbodytest.WantRegistered[embeddingsRequest](t, providers.EmbeddingNames)
	jsonbodytest.WantRegistered[imagesRequest](t, providers.ImageNames)
	jsonbodytest.WantRegistered[speechExtras](t, providers.SpeechNames)
}
