package simulator

import (
	"testing"

	"turnpike/internal/jsonbody/jsonbodytest"
	"turnpike/internal/providers"
)

func TestEveryFieldHasARegisteredName(t *testing.T) {
	t.Parallel()
	jsonbodytest.WantRegistered[embeddingsRequest](t, providers.EmbeddingNames)
	jsonbodytest.WantRegistered[imageRequest](t, providers.ImageNames)
	jsonbodytest.WantRegistered[speechFields](t, providers.SpeechNames)
}
