package dashboard

import (
	"html/template"
	"math"
	"strconv"
	"strings"

	"turnpike/internal/credits"
	"turnpike/internal/web"
)

// Decimals of amounts: of whole cents, of parts of a cent, and of what a single request costs.
const (
	fewDecimals     = 2
	manyDecimals    = 4
	mostDecimals    = 6
	smallestDollars = 0.000001 // with mostDecimals
)

// dollars returns what credits are worth, or an empty string if the operator hasn't set their value.
// Amounts below a dollar that aren't whole cents have more decimals.
func (req *request) dollars(amount credits.Micro) string { return req.dollarsWith(amount, fewDecimals) }

// dollarsWith is dollars with at least some decimals.
func (req *request) dollarsWith(amount credits.Micro, least int) string {
	worth := req.s.Gateway.CreditUSD()
	if worth == nil {
		return ""
	}
	rate, _ := worth.Float64() // pages show few of its digits
	value, sign := amount.Float()*rate, ""
	if value < 0 {
		value, sign = -value, "-"
	}
	cents, decimals := value*100, least
	switch {
	case value > 0 && value < smallestDollars:
		return "<" + sign + "$" + strconv.FormatFloat(smallestDollars, 'f', mostDecimals, 64)
	case value > 0 && value < 0.001:
		decimals = mostDecimals
	case value < 1 && math.Abs(cents-math.Round(cents)) > 0.0001:
		decimals = max(decimals, manyDecimals)
	}
	text := strconv.FormatFloat(value, 'f', decimals, 64)
	if least == fewDecimals && decimals == mostDecimals {
		text = strings.TrimRight(text, "0")
	}
	return sign + "$" + web.GroupThousands(text)
}

// inDollars returns amounts in parentheses, for the end of a sentence: ($1.20 of $5.00).
func (req *request) inDollars(amounts ...credits.Micro) string {
	list := web.Map(amounts, req.dollars)
	if list[0] == "" {
		return ""
	}
	return " (" + strings.Join(list, " of ") + ")"
}

// Dollars returns amounts of credits in dollars, to be shown next to them: one, or one of another. It is empty if the
// value of a credit isn't known.
func (s *shell) Dollars(amounts ...any) template.HTML { return s.showDollars(fewDecimals, amounts) }

// HasDollars reports whether the value of a credit is known.
func (s *shell) HasDollars() bool { return s.req.s.Gateway.CreditUSD() != nil }

// DollarColumn is Dollars for columns of sums, whose decimal points are below each other. Of zero only
// the space is left.
func (s *shell) DollarColumn(amount any) template.HTML { return s.dollarColumn(amount, manyDecimals) }

// SmallDollarColumn is DollarColumn for single requests, which cost parts of a cent.
func (s *shell) SmallDollarColumn(amount any) template.HTML {
	return s.dollarColumn(amount, mostDecimals)
}

func (s *shell) dollarColumn(amount any, decimals int) template.HTML {
	shown := s.showDollars(decimals, []any{amount})
	if shown != "" && indirect(amount) == credits.Micro(0) {
		return ` <span class="usd"></span>`
	}
	return shown
}

func (s *shell) showDollars(decimals int, amounts []any) template.HTML {
	var list []string
	for _, v := range amounts {
		if amount, ok := indirect(v).(credits.Micro); ok {
			list = append(list, s.req.dollarsWith(amount, decimals))
		}
	}
	text := strings.Join(list, " of ")
	if text == "" || list[0] == "" {
		return ""
	}
	return template.HTML(` <span class="usd">` + template.HTMLEscapeString(text) + `</span>`) //nolint:gosec // escaped
}
