package catalog

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"turnpike/internal/catalog/table"
	"turnpike/internal/credits"
)

// Terms are the operator's prices: the value of a credit, the markup, and the configured providers.
type Terms struct {
	CreditUSD     *big.Rat // dollars of list price that one credit pays for; nil for 0.001
	MarkupPercent *big.Rat // on list prices; nil for 0
	Table         *Table   // nil for the embedded one
	Suppliers     []Supplier
}

// ListPrice is a price in dollars. Token prices are per million. Unknown prices are nil.
type ListPrice struct {
	Input, Output, CachedInput, CacheWrite *big.Rat
	PerImage, PerSecond, PerCharacter      *big.Rat
	PerSearch                              *big.Rat
}

var defaultCreditUSD = big.NewRat(1, 1000)

type rate struct{ microPerUSD *big.Rat }

func newRate(t Terms) (rate, error) {
	worth, markup := defaultCreditUSD, new(big.Rat)
	if t.CreditUSD != nil {
		worth = t.CreditUSD
	}
	if t.MarkupPercent != nil {
		markup = t.MarkupPercent
	}
	if worth.Sign() <= 0 || markup.Sign() < 0 {
		return rate{}, errors.New("credit_usd must be above 0, and markup_percent 0 or more")
	}
	factor := new(big.Rat).Add(big.NewRat(100, 1), markup)
	factor.Mul(factor, big.NewRat(int64(credits.Credit), 100))
	return rate{factor.Quo(factor, worth)}, nil
}

func (r rate) micro(usd *big.Rat) (credits.Micro, error) {
	if usd == nil {
		return 0, nil
	}
	exact := new(big.Rat).Mul(usd, r.microPerUSD)
	up := new(big.Int).Add(exact.Num(), new(big.Int).Sub(exact.Denom(), big.NewInt(1)))
	up.Div(up, exact.Denom())
	if exact.Sign() < 0 || !up.IsInt64() || credits.Micro(up.Int64()) > credits.Max {
		return 0, fmt.Errorf("US$%s is out of range; want 0 to %v credits", usd.FloatString(6), credits.Max)
	}
	return credits.Micro(up.Int64()), nil
}

// price converts a list price. Without their own prices, cached input and cache writes cost as
// much as input.
func (r rate) price(l ListPrice) (Price, error) {
	if l.CachedInput == nil {
		l.CachedInput = l.Input
	}
	if l.CacheWrite == nil {
		l.CacheWrite = l.Input
	}
	var p Price
	for _, f := range []struct {
		usd  *big.Rat
		into *credits.Micro
	}{
		{l.Input, &p.Input}, {l.Output, &p.Output}, {l.CachedInput, &p.CachedInput}, {l.CacheWrite, &p.CacheWrite},
		{l.PerImage, &p.PerImage}, {l.PerSecond, &p.PerSecond}, {l.PerCharacter, &p.PerCharacter}, {l.PerSearch, &p.PerSearch},
	} {
		var err error
		if *f.into, err = r.micro(f.usd); err != nil {
			return Price{}, err
		}
	}
	return p, nil
}

func listPrice(usd table.USD) (ListPrice, error) {
	var l ListPrice
	for _, f := range []struct {
		text string
		into **big.Rat
	}{
		{usd.Input, &l.Input}, {usd.Output, &l.Output}, {usd.CachedInput, &l.CachedInput}, {usd.CacheWrite, &l.CacheWrite},
		{usd.PerImage, &l.PerImage}, {usd.PerSecond, &l.PerSecond}, {usd.PerCharacter, &l.PerCharacter}, {usd.PerSearch, &l.PerSearch},
	} {
		if f.text == "" {
			continue
		}
		value, ok := new(big.Rat).SetString(f.text)
		if !ok {
			return ListPrice{}, fmt.Errorf("%q is not a number", f.text)
		}
		*f.into = value
	}
	return l, nil
}

func (t Terms) version(from *Table) string {
	asOf := from.AsOf.Format(time.DateOnly)
	var changed strings.Builder
	if from.hash != "" {
		fmt.Fprintf(&changed, "table %s\n", from.hash)
	}
	if t.CreditUSD != nil && t.CreditUSD.Cmp(defaultCreditUSD) != 0 {
		fmt.Fprintf(&changed, "credit_usd %s\n", t.CreditUSD.RatString())
	}
	if t.MarkupPercent != nil && t.MarkupPercent.Sign() != 0 {
		fmt.Fprintf(&changed, "markup_percent %s\n", t.MarkupPercent.RatString())
	}
	var suppliers []string
	for _, s := range t.Suppliers {
		if text := s.priceChanges(); text != "" {
			suppliers = append(suppliers, fmt.Sprintf("supplier %q\n%s", s.Name, text))
		}
	}
	slices.Sort(suppliers) // their order doesn't matter
	changed.WriteString(strings.Join(suppliers, ""))
	if changed.Len() == 0 {
		return asOf
	}
	sum := sha256.Sum256([]byte(changed.String()))
	return fmt.Sprintf("%s+%x", asOf, sum[:4])
}

// String formats a price for the hash.
func (l ListPrice) String() string {
	var b strings.Builder
	for _, usd := range []*big.Rat{l.Input, l.Output, l.CachedInput, l.CacheWrite, l.PerImage, l.PerSecond, l.PerCharacter} {
		if usd != nil {
			b.WriteString(usd.RatString())
		}
		b.WriteByte(';')
	}
	if l.PerSearch != nil { // newer than the others, whose hashes must stay
		b.WriteString(l.PerSearch.RatString())
	}
	return b.String()
}
