package dashboard

import (
	"html/template"
	"math"
	"strconv"
	"strings"

	"turnpike/internal/credits"
	"turnpike/internal/web"
)

// smallestDollars is the smallest amount that is shown as a number, with the decimals of a small amount.
const (
	smallestDollars = 0.0001
	fewDecimals     = 2
	manyDecimals    = 4
)

// dollars returns what credits are worth, or an empty string if the operator hasn't set their value.
// Amounts below a dollar that aren't whole cents have more decimals.
func (req *request) dollars(amount credits.Micro) string { return req.dollarsWith(amount, fewDecimals) }

func (req *request) dollarsWith(amount credits.Micro, decimals int) string {
	worth := req.s.Gateway.CreditUSD()
	if worth == nil {
		return ""
	}
	rate, _ := worth.Float64() // pages show few of its digits
	value, sign := amount.Float()*rate, ""
	if value < 0 {
		value, sign = -value, "-"
	}
	if value > 0 && value < smallestDollars {
		return "<" + sign + "$" + strconv.FormatFloat(smallestDollars, 'f', manyDecimals, 64)
	}
	if cents := value * 100; value < 1 && math.Abs(cents-math.Round(cents)) > smallestDollars {
		decimals = manyDecimals
	}
	return sign + "$" + web.GroupThousands(strconv.FormatFloat(value, 'f', decimals, 64))
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

// DollarColumn is Dollars for columns, whose decimal points are below each other. Of zero only the
// space is left.
func (s *shell) DollarColumn(amount any) template.HTML {
	shown := s.showDollars(manyDecimals, []any{amount})
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
