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

	ModerationNames = jsonbody.NewNames("model models", jsonbody.Names{"input": openai.ChatNames["messages"]["content"]})

	RerankNames = jsonbody.NewNames("model models query top_n return_documents", jsonbody.Names{"documents": jsonbody.NewNames("text", nil)})

	// ImageNames are also the fields of a multipart form.
	ImageNames = jsonbody.NewNames(`model models prompt n size stream response_format output_format output_compression partial_images quality background
		image image[] mask`, nil)

	// VideoNames are also the fields of a multipart form. A provider must not get the numbers, which
	// other servers than OpenAI's multiply the price by.
	VideoNames = jsonbody.NewNames("model prompt seconds size metadata n n_seconds n_variants", jsonbody.Names{
		"input_reference": jsonbody.NewNames("image_url file_id", nil),
	})

	SpeechNames = jsonbody.NewNames("model models input instructions response_format stream_format speed", jsonbody.Names{
		"voice": jsonbody.NewNames("id", nil),
	})

	// TranscriptionNames are the fields of a multipart form.
	TranscriptionNames = jsonbody.NewNames("file model models language prompt response_format stream timestamp_granularities", nil)
)
