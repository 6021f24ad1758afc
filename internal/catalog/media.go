package catalog

import "turnpike/internal/credits"

// Units are what media are charged by, beside tokens.
type Units struct {
	Tokens
	Images       int64
	Characters   int64 // read aloud
	Milliseconds int64 // of sound or video
}

// soundTokens is how many tokens a second of speech is where it is sold by
// them, which no provider counts in its answer.
const soundTokens = 25

// Cost is the price of a call, by what its kind of model is charged for,
// rounded up once. Where pictures have a price their tokens have none; what
// was read to make them is charged on top.
func (m *Model) Cost(u Units) credits.Micro {
	p, u := m.Price, u.plausible()
	var sum product
	switch {
	case m.Kind == Image && p.PerImage > 0:
		sum.add(u.Images*perMillion, p.PerImage)
		sum.add(u.Input-u.CachedInput, p.Input)
		sum.add(u.CachedInput, p.CachedInput)
	case m.Kind == Video:
		sum.add(u.Milliseconds*(perMillion/1000), p.PerSecond)
	case m.Kind == Speech && p.PerCharacter > 0:
		sum.add(u.Characters*perMillion, p.PerCharacter)
	case m.Kind == Speech && p.PerSecond > 0:
		sum.add(u.Milliseconds*(perMillion/1000), p.PerSecond)
	case m.Kind == Speech:
		sum.add(u.Input, p.Input)
		sum.add(max(u.Output, u.Milliseconds*soundTokens/1000), p.Output)
	default:
		return p.Cost(u.Tokens)
	}
	return sum.perMillion()
}

// mostUnits keeps counts of media within what can be multiplied.
const mostUnits = 1 << 40

func (u Units) plausible() Units {
	u.Tokens = u.Tokens.plausible()
	for _, n := range []*int64{&u.Images, &u.Characters, &u.Milliseconds} {
		*n = min(max(*n, 0), mostUnits)
	}
	return u
}

// Typical is what an ordinary request costs, to compare models of a kind.
func (m *Model) Typical() credits.Micro {
	switch m.Kind {
	case Image:
		return m.Cost(Units{Tokens: Tokens{Input: 50, Output: 1_000}, Images: 1})
	case Video:
		return m.Cost(Units{Milliseconds: 8_000})
	case Speech:
		return m.Cost(Units{Tokens: Tokens{Input: 250}, Characters: 1_000, Milliseconds: 65_000})
	}
	return m.Price.Input + m.Price.Output
}
