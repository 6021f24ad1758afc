package gemini

import (
	"testing"

	"turnpike/internal/providers"
	"turnpike/test/fakes/jsonbodytest"
)

func TestReadFieldsAreRegistered(t *testing.T) {
	t.Parallel()
	jsonbodytest.WantRegistered[extraContent](t, providers.ChatNames["messages"]["tool_calls"]["extra_content"])
	jsonbodytest.WantRegistered[speechExtras](t, providers.SpeechNames)
}
