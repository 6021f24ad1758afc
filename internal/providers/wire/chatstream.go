package wire

import (
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/openai"
	"turnpike/internal/providers"
)

// ChunkQueue holds the chunks of a translated stream that haven't been returned
// yet.
type ChunkQueue struct {
	Head         openai.Head
	IncludeUsage bool // every chunk has a usage field
	chunks       []providers.Chunk
	err          error // returned after the chunks
}

// Next returns the next chunk. It calls read, which queues chunks, until there is
// one. After an error it returns that error again.
func (q *ChunkQueue) Next(read func() error) (providers.Chunk, error) {
	for len(q.chunks) == 0 {
		if q.err != nil {
			return providers.Chunk{}, q.err
		}
		q.err = read()
	}
	next := q.chunks[0]
	q.chunks = q.chunks[1:]
	return next, nil
}

// Send queues a chunk of a choice. The finish reason may be empty.
func (q *ChunkQueue) Send(index int, delta openai.Delta, finish string) {
	choice := openai.ChunkChoice{Index: index, Delta: delta}
	if finish != "" {
		choice.FinishReason = &finish
	}
	q.SendChoice(choice)
}

// SendChoice queues a chunk of a choice.
func (q *ChunkQueue) SendChoice(choice openai.ChunkChoice) {
	chunk := q.Head.Chunk(choice)
	if q.IncludeUsage {
		chunk.Usage = jsontext.Value("null")
	}
	q.chunks = append(q.chunks, providers.Chunk{Data: openai.Encode(chunk)})
}

// SendUsage queues the last chunk. reasoning is a part of the output tokens.
func (q *ChunkQueue) SendUsage(u providers.Usage, reasoning int64) {
	chunk := q.Head.Chunk()
	chunk.Usage = openai.Encode(ChatUsage(u, reasoning))
	q.chunks = append(q.chunks, providers.Chunk{Data: openai.Encode(chunk), Usage: &u})
}

// ChatUsage returns the usage in OpenAI's format. reasoning is a part of the output tokens.
func ChatUsage(u providers.Usage, reasoning int64) openai.Usage {
	return openai.Usage{
		PromptTokens:      u.InputTokens,
		CompletionTokens:  u.OutputTokens,
		TotalTokens:       u.InputTokens + u.OutputTokens,
		PromptDetails:     openai.PromptDetails{CachedTokens: u.CachedInput, CacheWriteTokens: u.CacheWrite},
		CompletionDetails: openai.CompletionDetails{ReasoningTokens: min(reasoning, u.OutputTokens)},
	}
}

// EstimateTokens assumes four bytes per token, as in English. Other languages have
// more bytes and more tokens per word.
func EstimateTokens(bytes int) int64 { return int64(bytes+3) / 4 }
