package simulator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"turnpike/internal/budget"
	"turnpike/internal/fault"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
)

// OpenAI's limits.
const (
	defaultDimensions = 1536
	largeDimensions   = 3072
	maxInputTokens    = 8192
	maxTotalTokens    = 300_000
)

// numbersPerWord is how many numbers of a vector a word changes. Changing all of
// them would take 50 times as long.
const numbersPerWord = 32

// bytesPerNumber is the memory of a number: four bytes, its text, and the growth of the response.
const bytesPerNumber = 40

// Embeddings returns vectors of length 1 that depend only on the text. Texts
// with common words are closer to each other than others.
func (s *Simulator) Embeddings(ctx context.Context, model string, body []byte) (*providers.Response, error) {
	in, err := openai.DecodeEmbeddings(body)
	if err != nil {
		return nil, err
	}
	inputs, err := readInputs(in)
	if err != nil {
		return nil, err
	}
	size := defaultDimensions
	if strings.Contains(model, "large") {
		size = largeDimensions
	}
	if in.Dimensions != nil {
		if *in.Dimensions > int64(size) {
			return nil, fault.Invalid("dimensions", "dimensions must be from 1 to %d.", size)
		}
		size = int(*in.Dimensions)
	}
	if err := budget.Of(ctx).Reserve(int64(len(inputs) * size * bytesPerNumber)); err != nil {
		return nil, err
	}
	var out []byte
	tokens := 0
	err = s.tokenizer.counting(ctx, len(body)+len(inputs)*4*size, func(c *counter) (err error) {
		if tokens, err = c.countInputs(inputs); err != nil {
			return err
		}
		vectors := make([][]float32, len(inputs))
		for i, x := range inputs {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("simulator: %w", err)
			}
			vectors[i] = embed(x.text, size)
		}
		out, err = openai.EncodeEmbeddings(model, vectors, in.EncodingFormat, int64(tokens))
		return err
	})
	return &providers.Response{Body: out, Usage: providers.Usage{InputTokens: int64(tokens)}}, err
}

type embeddingsInput struct {
	text   string
	tokens int // if the request has tokens, or uncounted
}

const uncounted = -1

// readInputs reads a string, an array of strings, an array of tokens or an array of those.
func readInputs(r *openai.EmbeddingsRequest) ([]embeddingsInput, error) {
	var out []embeddingsInput
	texts, isTexts := r.Texts()
	for _, text := range texts {
		out = append(out, embeddingsInput{text, uncounted})
	}
	if !isTexts {
		var one []int
		var lists [][]int
		switch {
		case json.Unmarshal(r.Input, &one) == nil:
			lists = [][]int{one}
		case json.Unmarshal(r.Input, &lists) != nil:
			return nil, fault.Invalid("input", "input must be a string, an array of strings, an array of tokens, or an array of arrays of tokens.")
		}
		for _, list := range lists {
			out = append(out, embeddingsInput{fmt.Sprint(list), len(list)})
		}
	}
	if len(out) == 0 || len(out) > openai.MaxEmbeddings {
		return nil, fault.Invalid("input", "input must have from 1 to %d entries.", openai.MaxEmbeddings)
	}
	return out, nil
}

func (c *counter) countInputs(inputs []embeddingsInput) (total int, err error) {
	for i, x := range inputs {
		tokens := x.tokens
		if tokens == uncounted {
			tokens = c.count(x.text)
		}
		if tokens == 0 || tokens > maxInputTokens {
			return 0, fault.Invalid("input", "input[%d] must have from 1 to %d tokens.", i, maxInputTokens)
		}
		if total += tokens; total > maxTotalTokens {
			return 0, fault.Invalid("input", "The entries of input have more than %d tokens. Send them in several requests.", maxTotalTokens)
		}
	}
	return total, nil
}

// embed adds a direction for each word.
func embed(text string, size int) []float32 {
	sum := make([]float64, size)
	for word := range strings.FieldsSeq(strings.ToLower(text)) {
		addWord(sum, word)
	}
	addText(sum, text) // the order of words matters a little, and no vector is zero
	length := 0.0
	for _, x := range sum {
		length += x * x
	}
	out := make([]float32, size)
	for i, x := range sum {
		out[i] = float32(x / math.Sqrt(length))
	}
	return out
}

// addWord adds a vector whose average length is that of addText's.
func addWord(sum []float64, word string) {
	random := rand.NewChaCha8(sha256.Sum256([]byte(word)))
	length := math.Sqrt(float64(len(sum)) / numbersPerWord)
	for range numbersPerWord {
		bits := random.Uint64()
		sum[bits>>1%uint64(len(sum))] += length * float64(1-2*int(bits&1))
	}
}

func addText(sum []float64, text string) {
	random := rand.New(rand.NewChaCha8(sha256.Sum256([]byte(text))))
	for i := range sum {
		sum[i] += random.NormFloat64()
	}
}
