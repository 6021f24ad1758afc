package catalog

import "turnpike/internal/credits"

// Units are tokens and the units of media.
type Units struct {
	Tokens
	Images       int64
	Characters   int64 // of speech
	Milliseconds int64 // of audio or video
}

// speechTokensPerSecond applies where speech is priced by token: providers don't report them.
const speechTokensPerSecond = 25

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
	case m.Kind == Video:
		sum.add(u.Milliseconds*(perMillion/1000), p.PerSecond)
	case m.Kind == Speech && p.PerCharacter > 0:
		sum.add(u.Characters*perMillion, p.PerCharacter)
	case m.Kind == Speech && p.PerSecond > 0:
		sum.add(u.Milliseconds*(perMillion/1000), p.PerSecond)
	case m.Kind == Speech:
		sum.add(u.Input, p.Input)
		sum.add(max(u.Output, u.Milliseconds*speechTokensPerSecond/1000), p.Output)
	default:
		return p.Cost(u.Tokens)
	}
	return sum.perMillion()
}

// maxUnits keeps counts small enough to be multiplied.
const maxUnits = 1 << 40

func (u Units) clamped() Units {
	u.Tokens = u.Tokens.clamped()
	for _, n := range []*int64{&u.Images, &u.Characters, &u.Milliseconds} {
		*n = min(max(*n, 0), maxUnits)
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
	}
	return m.Price.Input + m.Price.Output
}
