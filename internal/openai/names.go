package openai

import "turnpike/internal/jsonbody"

// ChatNames are the fields of a chat request that the gateway or a provider
// reads, sets or drops. The gateway rejects other spellings of them: a provider
// that ignores case would otherwise read "Model" where Turnpike has priced "model".
var ChatNames = chatNames()

func chatNames() jsonbody.Names {
	names := jsonbody.NamesOf[ChatRequest]()
	names["models"] = nil    // Turnpike's fallbacks
	names["n_predict"] = nil // llama.cpp's max_tokens
	names["messages"]["content"]["image"] = nil
	names["messages"]["tool_calls"]["extra_content"] = jsonbody.Names{"google": jsonbody.NewNames("thought_signature", nil)}
	return names
}
