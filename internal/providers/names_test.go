package providers

import (
	"testing"

	"turnpike/internal/openai"
	"turnpike/test/fakes/jsonbodytest"
)

func TestReadFieldsAreRegistered(t *testing.T) {
	t.Parallel()
	jsonbodytest.WantRegistered[speechFields](t, SpeechNames)
	jsonbodytest.WantRegistered[ImageFields](t, ImageNames)
	jsonbodytest.WantRegistered[openai.EmbeddingsRequest](t, EmbeddingNames)
}
