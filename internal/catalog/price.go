package catalog

import (
	"math/bits"

	"turnpike/internal/credits"
)

// perMillion is the unit of token prices.
const perMillion = 1_000_000

// Price is the price of a model: per million tokens of each kind, per image, per second and per
// character.
type Price struct {
	Input       credits.Micro
	Output      credits.Micro
	CachedInput credits.Micro // input that the provider read from its cache
	CacheWrite  credits.Micro // input that the provider wrote to its cache

	PerImage     credits.Micro
	PerSecond    credits.Micro
	PerCharacter credits.Micro
}

// Tokens are the tokens of a call. CachedInput and CacheWrite are part of Input.
type Tokens struct {
	Input, Output, CachedInput, CacheWrite int64
}

// clamped corrects impossible counts, because providers report them.
func (t Tokens) clamped() Tokens {
	t.Input, t.Output = max(t.Input, 0), max(t.Output, 0)
	t.CachedInput = min(max(t.CachedInput, 0), t.Input)
	t.CacheWrite = min(max(t.CacheWrite, 0), t.Input-t.CachedInput)
	return t
}

// Cost returns the price of tokens, rounded up once.
func (p Price) Cost(u Tokens) credits.Micro {
	u = u.clamped()
	var sum tokenCost
	sum.add(u.Input-u.CachedInput-u.CacheWrite, p.Input)
	sum.add(u.CachedInput, p.CachedInput)
	sum.add(u.CacheWrite, p.CacheWrite)
	sum.add(u.Output, p.Output)
	return sum.perMillion()
}

// HighestInput returns the highest rate of an input token. Reservations use it, because it isn't
// known yet which tokens the provider has cached.
func (p Price) HighestInput() credits.Micro {
	return max(p.Input, p.CachedInput, p.CacheWrite)
}

// tokenCost is a sum of tokens × price in 128 bits, which four products can't overflow: each is
// below 2⁶³ × 2⁶⁰.
type tokenCost struct{ hi, lo uint64 }

func (s *tokenCost) add(tokens int64, price credits.Micro) {
	price = min(max(price, 0), credits.Max)
	hi, lo := bits.Mul64(uint64(tokens), uint64(price))
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, lo, 0)
	s.hi += hi + carry
}

// perMillion divides, rounds up and limits the result to credits.Max.
func (s tokenCost) perMillion() credits.Micro {
	lo, carry := bits.Add64(s.lo, perMillion-1, 0)
	hi := s.hi + carry
	if hi >= perMillion {
		return credits.Max
	}
	q, _ := bits.Div64(hi, lo, perMillion)
	return credits.Micro(min(q, uint64(credits.Max)))
}
