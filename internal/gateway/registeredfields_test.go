package gateway

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/test/fakes/jsonbodytest"
)

func TestReadFieldsAreRegistered(t *testing.T) {
	t.Parallel()
	jsonbodytest.WantRegistered[embeddingFields](t, providers.EmbeddingNames)
	jsonbodytest.WantRegistered[moderationFields](t, providers.ModerationNames)
	jsonbodytest.WantRegistered[rerankFields](t, providers.RerankNames)
	jsonbodytest.WantRegistered[imageFields](t, providers.ImageNames)
	jsonbodytest.WantRegistered[speechFields](t, providers.SpeechNames)
	jsonbodytest.WantRegistered[struct {
		Messages struct {
			Content contentPart `json:"content"`
		} `json:"messages"`
	}](t, providers.ChatNames)
	// stringOrMember reads them by name.
	jsonbodytest.WantRegistered[struct {
		ImageURL struct {
			URL jsontext.Value `json:"url"`
		} `json:"image_url"`
		InputAudio struct {
			Data jsontext.Value `json:"data"`
		} `json:"input_audio"`
	}](t, providers.ChatNames["messages"]["content"])
}
