package responses

import (
	"encoding/base64"
	"strings"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

// A request that ends with a compaction_trigger asks for a compaction item, which replaces the
// conversation so far. Providers without the Responses API write a summary instead.
const (
	compactionTrigger = "compaction_trigger"
	compactionItem    = "compaction"

	summaryPrompt = "Summarize this conversation for yourself, so that you can continue without it. Include the user's requests, decisions, " +
		"important facts, changed files, and the next steps. Reply with the summary only, and don't call tools."
	summaryIntroduction = "This is your summary of the conversation before this point:\n\n"

	// summaryPrefix marks the content of our compaction items. Those of other providers are encrypted.
	summaryPrefix = "summary."
)

func encodeSummary(text string) string {
	return summaryPrefix + base64.RawURLEncoding.EncodeToString([]byte(text))
}

// addCompaction adds the summary of a compaction item as a message.
func (c *conversation) addCompaction(i *item, at string) error {
	encoded, ours := strings.CutPrefix(value(i.EncryptedContent), summaryPrefix)
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if !ours || err != nil {
		return fault.Invalid(at+".encrypted_content", "%s.encrypted_content can only be read by the provider that created it. Use a model of that provider, or send the conversation without this item.", at)
	}
	c.add("user", []openai.Part{openai.TextPart(summaryIntroduction + string(text))}, origin{at: at, content: "encrypted_content"})
	return nil
}

// addTrigger asks for the summary.
func (c *conversation) addTrigger(at string) error {
	c.compacting = true
	c.add("user", []openai.Part{openai.TextPart(summaryPrompt)}, origin{at: at})
	return nil
}

func compactionOutput(id, summary string) outputItem {
	return outputItem{ID: id, Type: compactionItem, EncryptedContent: new(encodeSummary(summary))}
}
