package dashboard

import (
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"turnpike/internal/credits"
	"turnpike/internal/web"
)

// Decimals of amounts: of whole cents, of parts of a cent, and of what a single request costs.
const (
	fewDecimals  = 2
	manyDecimals = 4
	mostDecimals = 6
)

// dollars returns what credits are worth, or an empty string if the operator hasn't set their value.
// Amounts below a dollar that aren't whole cents have more decimals.
func (req *request) dollars(amount credits.Micro) string {
	rate := req.dollarRate()
	if rate == 0 {
		return ""
	}
	value := math.Abs(amount.Float() * rate)
	cents := value * 100
	switch {
	case value > 0 && value < 0.001:
		text := fixedDollars(amount.Float()*rate, mostDecimals)
		if strings.HasPrefix(text, "<") {
			return text
		}
		return strings.TrimRight(text, "0")
	case value < 1 && math.Abs(cents-math.Round(cents)) > 0.0001:
		return fixedDollars(amount.Float()*rate, manyDecimals)
	}
	return fixedDollars(amount.Float()*rate, fewDecimals)
}

// dollarRate returns what a credit is worth in dollars, or 0 if the operator hasn't set it.
func (req *request) dollarRate() float64 {
	worth := req.s.Gateway.CreditUSD()
	if worth == nil {
		return 0
	}
	rate, _ := worth.Float64() // pages show few of its digits
	return rate
}

// fixedDollars formats a value for a column whose decimal points are below each other. What would round to zero is
// less than the smallest amount.
func fixedDollars(value float64, decimals int) string {
	sign := ""
	if value < 0 {
		value, sign = -value, "-"
	}
	if smallest := math.Pow10(-decimals); value > 0 && value < smallest/2 {
		return "<" + sign + "$" + strconv.FormatFloat(smallest, 'f', decimals, 64)
	}
	return sign + "$" + web.GroupThousands(strconv.FormatFloat(value, 'f', decimals, 64))
}

// spendColumn formats amounts for a column: in dollars, or in credits if their value isn't known. From one on, the
// largest has two decimals, and so have the others.
func (req *request) spendColumn(amounts []credits.Micro) []string {
	rate := req.dollarRate()
	show := fixedDollars
	if rate == 0 {
		rate, show = 1, func(value float64, decimals int) string {
			return strings.Replace(fixedDollars(value, decimals), "$", "", 1)
		}
	}
	decimals := manyDecimals
	if len(amounts) > 0 && slices.Max(amounts).Float()*rate >= 1 {
		decimals = fewDecimals
	}
	return web.Map(amounts, func(a credits.Micro) string { return show(a.Float()*rate, decimals) })
}

// inDollars returns amounts in parentheses, for the end of a sentence: ($1.20 of $5.00).
func (req *request) inDollars(amounts ...credits.Micro) string {
	list := web.Map(amounts, req.dollars)
	if list[0] == "" {
		return ""
	}
	return " (" + strings.Join(list, " of ") + ")"
}

// Dollars returns amounts of credits in dollars, to be shown next to them: one, or one of another. It is empty for a
// single zero, and if the value of a credit isn't known.
func (s *shell) Dollars(amounts ...any) template.HTML {
	var list []string
	for _, v := range amounts {
		if amount, ok := indirect(v).(credits.Micro); ok {
			list = append(list, s.req.dollars(amount))
		}
	}
	if len(list) == 0 || list[0] == "" || len(list) == 1 && indirect(amounts[0]) == credits.Micro(0) {
		return ""
	}
	return dollarsElement(strings.Join(list, " of "))
}

// HasDollars reports whether the value of a credit is known.
func (s *shell) HasDollars() bool { return s.req.dollarRate() != 0 }

// DollarColumn is Dollars for columns of sums, whose decimal points are below each other. Of zero only
// the space is left.
func (s *shell) DollarColumn(amount any) template.HTML { return s.dollarColumn(amount, manyDecimals) }

// SmallDollarColumn is DollarColumn for single requests, which cost parts of a cent.
func (s *shell) SmallDollarColumn(amount any) template.HTML {
	return s.dollarColumn(amount, mostDecimals)
}

func (s *shell) dollarColumn(v any, decimals int) template.HTML {
	amount, ok := indirect(v).(credits.Micro)
	switch {
	case !ok || !s.HasDollars():
		return ""
	case amount == 0:
		return dollarsElement("")
	}
	return dollarsElement(fixedDollars(amount.Float()*s.req.dollarRate(), decimals))
}

// priceDecimals is how many decimals the prices of a page have at most, in credits and in dollars.
type priceDecimals struct{ credits, dollars int }

// priceText returns a price in credits, and in dollars with as few decimals as possible, or an empty string if their
// value isn't known.
func (req *request) priceText(amount credits.Micro) (inCredits, inDollars string) {
	rate := req.dollarRate()
	if rate == 0 {
		return showCredits(amount), ""
	}
	inDollars = strings.TrimRight(fixedDollars(amount.Float()*rate, manyDecimals), "0")
	return showCredits(amount), inDollars + strings.Repeat("0", max(0, fewDecimals-decimalsOf(inDollars)))
}

func decimalsOf(number string) int {
	_, fraction, _ := strings.Cut(number, ".")
	return len(fraction)
}

// priceDecimals returns the decimals of a column with some prices.
func (req *request) priceDecimals(prices []credits.Micro) (d priceDecimals) {
	for _, p := range prices {
		inCredits, inDollars := req.priceText(p)
		d.credits, d.dollars = max(d.credits, decimalsOf(inCredits)), max(d.dollars, decimalsOf(inDollars))
	}
	return d
}

// Price shows a price in a column whose decimal points are below each other. Trailing zeros are invisible.
func (s *shell) Price(amount credits.Micro, d priceDecimals) template.HTML {
	if amount == 0 {
		return none
	}
	inCredits, inDollars := s.req.priceText(amount)
	text := padDecimals(inCredits, d.credits)
	if inDollars != "" {
		text += ` <span class="usd">` + padDecimals(inDollars, d.dollars) + `</span>`
	}
	return template.HTML(text) //nolint:gosec // escaped
}

// padDecimals adds invisible zeros up to a number of decimals.
func padDecimals(number string, decimals int) string {
	zeros := strings.Repeat("0", max(0, decimals-decimalsOf(number)))
	if zeros != "" && !strings.Contains(number, ".") {
		zeros = "." + zeros
	}
	if zeros != "" {
		zeros = `<span class="pad">` + zeros + `</span>`
	}
	return template.HTMLEscapeString(number) + zeros
}

func dollarsElement(text string) template.HTML {
	return template.HTML(` <span class="usd">` + template.HTMLEscapeString(text) + `</span>`) //nolint:gosec // escaped
}
