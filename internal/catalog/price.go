package catalog

import (
	"math/bits"

	"turnpike/internal/credits"
)

// perMillion is the unit of token prices: they are quoted for so many.
const perMillion = 1_000_000

// Price is what a model costs: a million tokens of each sort, and for media
// one image, one second, one character.
type Price struct {
	Input       credits.Micro
	Output      credits.Micro
	CachedInput credits.Micro // input that the provider read from its cache
	CacheWrite  credits.Micro // input that it wrote there

	PerImage     credits.Micro
	PerSecond    credits.Micro
	PerCharacter credits.Micro
}

// Tokens is what a call used. Cached and written input are part of the input.
type Tokens struct {
	Input, Output, CachedInput, CacheWrite int64
}

// plausible makes counts that cannot be into ones that can: a provider's
// figures are input like any other.
func (t Tokens) plausible() Tokens {
	t.Input, t.Output = max(t.Input, 0), max(t.Output, 0)
	t.CachedInput = min(max(t.CachedInput, 0), t.Input)
	t.CacheWrite = min(max(t.CacheWrite, 0), t.Input-t.CachedInput)
	return t
}

// Cost is the price of a call's tokens, rounded up once.
func (p Price) Cost(u Tokens) credits.Micro {
	u = u.plausible()
	var sum product
	sum.add(u.Input-u.CachedInput-u.CacheWrite, p.Input)
	sum.add(u.CachedInput, p.CachedInput)
	sum.add(u.CacheWrite, p.CacheWrite)
	sum.add(u.Output, p.Output)
	return sum.perMillion()
}

// Dearest is the highest rate a token of input can have: what a reservation
// counts with before it is known which tokens the provider has in its cache.
func (p Price) Dearest() credits.Micro {
	return max(p.Input, p.CachedInput, p.CacheWrite)
}

// product is a sum of tokens × price in 128 bits, which no four can overflow:
// each is below 2⁶³ × 2⁶⁰.
type product struct{ hi, lo uint64 }

func (s *product) add(tokens int64, price credits.Micro) {
	price = min(max(price, 0), credits.Max)
	hi, lo := bits.Mul64(uint64(tokens), uint64(price))
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, lo, 0)
	s.hi += hi + carry
}

// perMillion divides, rounds up, and stops at the largest amount there is.
func (s product) perMillion() credits.Micro {
	lo, carry := bits.Add64(s.lo, perMillion-1, 0)
	hi := s.hi + carry
	if hi >= perMillion {
		return credits.Max
	}
	q, _ := bits.Div64(hi, lo, perMillion)
	return credits.Micro(min(q, uint64(credits.Max)))
}
