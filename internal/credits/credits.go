// Package credits is the unit of money: whole microcredits in Go, decimals with at most six places
// in JSON, and no floating point.
package credits

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Micro is an amount in millionths of a credit.
type Micro int64

// One credit, and the largest amount (10¹² credits).
const (
	Credit Micro = 1_000_000
	Max    Micro = 1_000_000_000_000 * Credit
)

const places = 6

var errFormat = errors.New("expected a decimal number from 0 to 1000000000000 with at most six decimal places")

// Parse reads a plain decimal number such as 12 or 0.5.
func Parse(s string) (Micro, error) {
	whole, frac, _ := strings.Cut(s, ".")
	if whole == "" || len(whole) > 13 || len(frac) > places || strings.HasSuffix(s, ".") {
		return 0, errFormat
	}
	if len(whole) > 1 && whole[0] == '0' {
		return 0, errFormat
	}
	n, err := strconv.ParseUint(whole+frac+strings.Repeat("0", places-len(frac)), 10, 63)
	if err != nil || Micro(n) > Max {
		return 0, errFormat
	}
	return Micro(n), nil
}

// String formats the amount in credits without trailing zeros.
func (m Micro) String() string {
	sign := ""
	n := int64(m)
	if n < 0 {
		sign, n = "-", -n
	}
	s := sign + strconv.FormatInt(n/int64(Credit), 10)
	if frac := n % int64(Credit); frac != 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%06d", frac), "0")
	}
	return s
}

// Float returns an inexact amount in credits, for metrics.
func (m Micro) Float() float64 { return float64(m) / float64(Credit) }

// MarshalJSON writes a JSON number.
func (m Micro) MarshalJSON() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalJSON reads a JSON number.
func (m *Micro) UnmarshalJSON(b []byte) error {
	v, err := Parse(string(b))
	if err != nil {
		return err
	}
	*m = v
	return nil
}
