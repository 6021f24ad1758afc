package espeak

import (
	"testing"

	"turnpike/internal/jsonbody/jsonbodytest"
	"turnpike/internal/providers"
)

func TestEveryFieldHasARegisteredName(t *testing.T) {
	t.Parallel()
	jsonbodytest.WantRegistered[speechFields](t, providers.SpeechNames)
}
