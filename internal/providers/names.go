package providers

import "turnpike/internal/jsonbody"

// These are the members of requests in OpenAI's format that the gateway or a
// provider reads, sets or drops. Everything else goes to providers of that
// format as it is, so the gateway refuses other spellings of these. The tests
// of each package that reads such requests check that its fields are here.
var (
	ChatNames = jsonbody.NewNames(`model models stream n max_tokens max_completion_tokens n_predict
		temperature top_p presence_penalty frequency_penalty seed stop parallel_tool_calls functions web_search_options
		reasoning_effort verbosity user safety_identifier prompt_cache_key service_tier logprobs top_logprobs modalities`, jsonbody.Names{
		"messages":       messageNames,
		"tools":          toolNames,
		"stream_options": jsonbody.NewNames("include_usage include_obfuscation", nil),
		"tool_choice": jsonbody.NewNames("type", jsonbody.Names{
			"function":      functionNames,
			"allowed_tools": jsonbody.NewNames("mode", jsonbody.Names{"tools": toolNames}),
		}),
		"response_format": jsonbody.NewNames("type", jsonbody.Names{
			"json_schema": jsonbody.NewNames("name description schema strict", nil),
		}),
	})

	EmbeddingNames = jsonbody.NewNames("model models input dimensions encoding_format", nil)

	// ImageNames are also the fields of a form.
	ImageNames = jsonbody.NewNames(`model models prompt n size stream response_format output_format output_compression partial_images
		image image[] mask`, nil)

	SpeechNames = jsonbody.NewNames("model models input instructions response_format stream_format speed", jsonbody.Names{
		"voice": jsonbody.NewNames("id", nil),
	})
)

var (
	messageNames = jsonbody.NewNames("role name tool_call_id refusal audio", jsonbody.Names{
		"content": jsonbody.NewNames("type text refusal image cache_control", jsonbody.Names{
			"image_url":   jsonbody.NewNames("url detail", nil),
			"input_audio": jsonbody.NewNames("data format", nil),
			"file":        jsonbody.NewNames("file_id file_data filename", nil),
		}),
		"tool_calls": jsonbody.NewNames("id type", jsonbody.Names{
			"function":      callNames,
			"extra_content": jsonbody.Names{"google": jsonbody.NewNames("thought_signature", nil)},
		}),
		"function_call": callNames,
	})
	callNames     = jsonbody.NewNames("name arguments", nil)
	toolNames     = jsonbody.NewNames("type cache_control", jsonbody.Names{"function": functionNames})
	functionNames = jsonbody.NewNames("name description parameters strict", nil)
)
