package providers

import (
	"turnpike/internal/jsonbody"
	"turnpike/internal/openai"
)

// ChatNames and the others are the fields of requests in OpenAI's format that
// the gateway or a provider reads, sets or drops. The gateway rejects other
// spellings of them. All other fields are forwarded unchanged. Tests of each
// package that reads such requests check that its fields are registered here.
var (
	ChatNames = openai.ChatNames

	EmbeddingNames = jsonbody.NewNames("model models input dimensions encoding_format", nil)

	// ImageNames are also the fields of a multipart form.
	ImageNames = jsonbody.NewNames(`model models prompt n size stream response_format output_format output_compression partial_images
		image image[] mask`, nil)

	SpeechNames = jsonbody.NewNames("model models input instructions response_format stream_format speed", jsonbody.Names{
		"voice": jsonbody.NewNames("id", nil),
	})

	// TranscriptionNames are the fields of a multipart form.
	TranscriptionNames = jsonbody.NewNames("file model models language prompt response_format stream timestamp_granularities", nil)
)
