package responses

import (
	"testing"

	"turnpike/internal/jsonbody/jsonbodytest"
	"turnpike/internal/providers"
)

func TestChatFieldsAreRegistered(t *testing.T) {
	t.Parallel()
	jsonbodytest.WantRegistered[chat](t, providers.ChatNames)
}
