package simulator

import (
	"testing"

	"turnpike/internal/providers"
	"turnpike/test/fakes/jsonbodytest"
)

func TestEveryFieldHasARegisteredName(t *testing.T) {
	t.Parallel()
	jsonbodytest.WantRegistered[embeddingsRequest](t, providers.EmbeddingNames)
	jsonbodytest.WantRegistered[imageRequest](t, providers.ImageNames)
}
