package providers

import (
	"testing"

	"turnpike/test/fakes/jsonbodytest"
)

func TestReadFieldsAreRegistered(t *testing.T) {
	t.Parallel()
	jsonbodytest.WantRegistered[speechFields](t, SpeechNames)
}
