package anthropic

import (
	"testing"

	"turnpike/internal/jsonbody/jsonbodytest"
	"turnpike/internal/providers"
)

func TestFieldsThatAreReadAreRegistered(t *testing.T) {
	t.Parallel()
	jsonbodytest.WantRegistered[chat](t, providers.ChatNames)
	jsonbodytest.WantRegistered[givenChoice](t, providers.ChatNames["tool_choice"])
}
