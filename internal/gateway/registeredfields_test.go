package gateway

import (
	"testing"

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
	// The walk over content reads these by name.
	jsonbodytest.WantRegistered[struct {
		Role    any `json:"role"`
		Content struct {
			Type     any `json:"type"`
			Image    any `json:"image"`
			ImageURL struct {
				URL any `json:"url"`
			} `json:"image_url"`
			InputAudio struct {
				Data any `json:"data"`
			} `json:"input_audio"`
		} `json:"content"`
	}](t, providers.ChatNames["messages"])
}
