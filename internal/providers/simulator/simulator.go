// Package simulator serves the requests of test keys: free, deterministic, in OpenAI's exact format
// and with real token counts. docs/reference/simulator.md documents the magic inputs that control it.
package simulator

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/simulator/o200k"
)

// Options are the settings of a Simulator. The zero value is usable.
type Options struct {
	Now func() time.Time // for "created"; time.Now if nil
}

// Simulator is a providers.Provider that needs no model.
type Simulator struct {
	now       func() time.Time
	tokenizer *tokenizer
}

var (
	_ providers.Provider     = (*Simulator)(nil)
	_ providers.TokenCounter = (*Simulator)(nil)
)

// New returns a simulator.
func New(o Options) *Simulator {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Simulator{now: o.Now, tokenizer: &tokenizer{ends: o200k.Ends}}
}

// Name returns the name of the provider.
func (s *Simulator) Name() string { return "simulator" }

// Chat responds to a chat request. It accepts every model name.
func (s *Simulator) Chat(ctx context.Context, req *providers.ChatRequest) (*providers.Response, error) {
	r, err := parseRequest(req.Body, req.Stream)
	if err != nil {
		return nil, err
	}
	p := r.prompt()
	m, err := p.extractMagic()
	if err != nil {
		return nil, err
	}
	m = r.nextStep(m)
	if err := wait(ctx, m.delay); err != nil {
		return nil, err
	}
	if m.status != 0 {
		return nil, m.requestedFault()
	}
	reply, err := r.reply(p, m)
	if err != nil {
		return nil, err
	}
	inputTokens, err := s.count(ctx, r, reply, len(req.Body), m)
	if err != nil {
		return nil, err
	}
	a := &response{reply: reply, digest: digest(req), choices: 1}
	a.head = openai.Head{
		ID: "chatcmpl-" + newID(a.digest, 29), Created: s.now().Unix(), Model: req.Model,
		ServiceTier: "default", SystemFingerprint: "fp_simulator",
	}
	if r.N != nil {
		a.choices = int(*r.N)
	}
	a.logprobs, a.topLogprobs = r.Logprobs, r.TopLogprobs != nil && *r.TopLogprobs > 0
	a.usage = providers.Usage{
		InputTokens:  int64(inputTokens),
		OutputTokens: int64(reply.tokens * a.choices),
	}
	if req.Stream {
		s := newStream(ctx, a, m, r.IncludeUsage())
		s.beforeWait = req.BeforeWait
		return &providers.Response{Stream: s}, nil
	}
	if m.hasCut {
		return nil, errCut()
	}
	return &providers.Response{Body: a.body(), Usage: a.usage}, nil
}

// CountTokens counts the input tokens of a chat request.
func (s *Simulator) CountTokens(ctx context.Context, body []byte) (int64, error) {
	r, err := parseRequest(body, true)
	if err != nil {
		return 0, err
	}
	tokens := 0
	err = s.tokenizer.counting(ctx, len(body), func(c *counter) error {
		tokens = r.promptTokens(c)
		return nil
	})
	return int64(tokens), err
}

func (s *Simulator) count(ctx context.Context, r *request, reply *reply, bodySize int, m *magic) (inputTokens int, err error) {
	err = s.tokenizer.counting(ctx, bodySize+reply.size(), func(c *counter) error {
		reply.count(c, r.limit(), m)
		inputTokens = r.promptTokens(c)
		return nil
	})
	return inputTokens, err
}

// digest returns the seed of all IDs: equal requests get equal IDs.
func digest(req *providers.ChatRequest) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00", req.Model)
	h.Write(req.Body)
	return [sha256.Size]byte(h.Sum(nil))
}

// errCut ends a response that [[sim:cut]] truncates.
func errCut() error {
	return fault.New(fault.Upstream, "Simulated failure in the middle of the response, requested by [[sim:cut]].")
}

func wait(ctx context.Context, d time.Duration) error {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("simulator: %w", err)
	}
	return nil
}
