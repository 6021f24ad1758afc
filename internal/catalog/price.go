package catalog

import (
	"math/bits"

	"turnpike/internal/credits"
)

const perMillion = 1_000_000

// Price is the price of a model: per million tokens of each kind, per image, per second, per
// character and per search.
type Price struct {
	Input       credits.Micro
	Output      credits.Micro
	CachedInput credits.Micro // input that the provider read from its cache
	CacheWrite  credits.Micro // input that the provider wrote to its cache

	PerImage     credits.Micro
	PerSecond    credits.Micro
	PerCharacter credits.Micro
	PerSearch    credits.Micro // of documents by a rerank model

	Tools ToolPrices // per call, in addition to all others
}

// Tokens are the tokens of a call. CachedInput and CacheWrite are part of Input, and HourWrite is
// the part of CacheWrite that the provider keeps for an hour.
type Tokens struct {
	Input, Output, CachedInput, CacheWrite, HourWrite int64
}

// clamped corrects impossible counts, because providers report them.
func (t Tokens) clamped() Tokens {
	t.Input, t.Output = max(t.Input, 0), max(t.Output, 0)
	t.CachedInput = min(max(t.CachedInput, 0), t.Input)
	t.CacheWrite = min(max(t.CacheWrite, 0), t.Input-t.CachedInput)
	t.HourWrite = min(max(t.HourWrite, 0), t.CacheWrite)
	return t
}

// Cost returns the price of tokens, rounded up once.
func (p Price) Cost(u Tokens) credits.Micro {
	var sum tokenCost
	sum.addTokens(u, p)
	return sum.perMillion()
}

func (s *tokenCost) addTokens(u Tokens, p Price) {
	u = u.clamped()
	s.add(u.Input-u.CachedInput-u.CacheWrite, p.Input)
	s.add(u.CachedInput, p.CachedInput)
	s.add(u.CacheWrite-u.HourWrite, p.CacheWrite)
	s.add(u.HourWrite, p.hourWrite())
	s.add(u.Output, p.Output)
}

// Percent returns a percentage of the price, rounded up. Tools keep their price.
func (p Price) Percent(percent int) Price {
	part := func(rate credits.Micro) credits.Micro {
		n := credits.Micro(percent)
		return rate/100*n + (rate%100*n+99)/100
	}
	p.Input, p.Output, p.CachedInput, p.CacheWrite = part(p.Input), part(p.Output), part(p.CachedInput), part(p.CacheWrite)
	return p
}

// hourWrite returns the rate of input that the provider caches for an hour. Anthropic, the only
// provider with this choice, charges twice the rate of other input.
func (p Price) hourWrite() credits.Micro {
	return max(2*min(p.Input, credits.Max/2), p.CacheWrite)
}

// HighestHourInput is HighestInput for requests that may write to the cache for an hour.
func (p Price) HighestHourInput() credits.Micro { return max(p.HighestInput(), p.hourWrite()) }

// HighestInput returns the highest rate of an input token. Reservations use it, because it isn't
// known yet which tokens the provider has cached.
func (p Price) HighestInput() credits.Micro {
	return max(p.Input, p.CachedInput, p.CacheWrite)
}

// tokenCost is a sum of tokens × price in 128 bits, which ten products can't overflow: each is
// below 2⁶³ × 2⁶⁰.
type tokenCost struct{ hi, lo uint64 }

func (s *tokenCost) add(tokens int64, price credits.Micro) {
	price = min(max(price, 0), credits.Max)
	hi, lo := bits.Mul64(uint64(tokens), uint64(price))
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, lo, 0)
	s.hi += hi + carry
}

func (s tokenCost) perMillion() credits.Micro {
	lo, carry := bits.Add64(s.lo, perMillion-1, 0)
	hi := s.hi + carry
	if hi >= perMillion {
		return credits.Max
	}
	q, _ := bits.Div64(hi, lo, perMillion)
	return credits.Micro(min(q, uint64(credits.Max)))
}

// Units are tokens and the units of media.
type Units struct {
	Tokens
	Images       int64
	Characters   int64 // of speech
	Milliseconds int64 // of audio or video
	Searches     int64 // of documents by a rerank model
	ToolCalls    ToolCalls
}

// SpeechTokensPerSecond applies where speech is priced by token: providers don't report them.
const SpeechTokensPerSecond = 25

// Cost returns the price of units by the kind of model, rounded up once. If images have a price,
// their output tokens are free and their input tokens are charged in addition.
func (m *Model) Cost(u Units) credits.Micro {
	p, u := m.Price, u.clamped()
	var sum tokenCost
	switch {
	case m.Kind == Image && p.PerImage > 0:
		sum.add(u.Images*perMillion, p.PerImage)
		sum.add(u.Input-u.CachedInput, p.Input)
		sum.add(u.CachedInput, p.CachedInput)
	case m.Kind == Video, m.Kind == Transcription && p.PerSecond > 0:
		sum.add(u.Milliseconds*(perMillion/1000), p.PerSecond)
	case m.Kind == Speech && p.PerCharacter > 0:
		sum.add(u.Characters*perMillion, p.PerCharacter)
	case m.Kind == Speech && p.PerSecond > 0:
		sum.add(u.Milliseconds*(perMillion/1000), p.PerSecond)
	case m.Kind == Speech:
		sum.add(u.Input, p.Input)
		sum.add(max(u.Output, u.Milliseconds*SpeechTokensPerSecond/1000), p.Output)
	case m.Kind == Rerank && p.PerSearch > 0:
		sum.add(u.Searches*perMillion, p.PerSearch)
	default:
		sum.addTokens(u.Tokens, p)
	}
	for i, calls := range u.ToolCalls {
		sum.add(calls*perMillion, p.Tools[i].PerCall)
	}
	return sum.perMillion()
}

// maxUnits keeps counts small enough to be multiplied.
const maxUnits = 1 << 40

func (u Units) clamped() Units {
	u.Tokens = u.Tokens.clamped()
	for _, n := range []*int64{&u.Images, &u.Characters, &u.Milliseconds, &u.Searches} {
		*n = min(max(*n, 0), maxUnits)
	}
	for i, n := range u.ToolCalls {
		u.ToolCalls[i] = min(max(n, 0), maxUnits)
	}
	return u
}

// TypicalCost returns the cost of a typical request, to compare models of a kind.
func (m *Model) TypicalCost() credits.Micro {
	switch m.Kind {
	case Image:
		return m.Cost(Units{Tokens: Tokens{Input: 50, Output: 1_000}, Images: 1})
	case Video:
		return m.Cost(Units{Milliseconds: 8_000})
	case Speech:
		return m.Cost(Units{Tokens: Tokens{Input: 250}, Characters: 1_000, Milliseconds: 65_000})
	case Transcription:
		return m.Cost(Units{Tokens: Tokens{Input: 600, Output: 200}, Milliseconds: 60_000})
	case Rerank:
		return m.Cost(Units{Tokens: Tokens{Input: 10_000}, Searches: 1})
	}
	return m.Price.Input + m.Price.Output
}
