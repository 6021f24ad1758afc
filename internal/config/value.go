package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written 1048576 or 1MiB.
type Size int64

// sizeUnits are sorted from the largest, so that String finds the shortest
// form.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// String uses the largest unit that divides the size.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

func parseSize(text string) (Size, error) {
	digits, factor := text, int64(1)
	for _, u := range sizeUnits {
		if n := len(text) - len(u.name); n > 0 && strings.EqualFold(text[n:], u.name) {
			digits, factor = strings.TrimSpace(text[:n]), u.bytes
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/factor {
		return 0, fmt.Errorf("%q is not a size; expected bytes, or a number with KiB, MiB or GiB, such as 1048576 or 1MiB", text)
	}
	return Size(n * factor), nil
}

// Decimal is an exact decimal number as written; empty means not set.
type Decimal string

var decimalForm = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})?$`)

// Rat returns the value, or nil if it isn't set.
func (d Decimal) Rat() *big.Rat {
	if d == "" {
		return nil
	}
	r, ok := new(big.Rat).SetString(string(d))
	if !ok {
		return nil
	}
	return r
}

// setText parses a value from the environment, a flag or a default. Lists are
// comma-separated.
func setText(target any, text string) error {
	if !isList(target) {
		return setScalar(target, strings.TrimSpace(text))
	}
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return setList(target, items)
}

func isList(target any) bool {
	switch target.(type) {
	case *[]string, *[]int, *[]netip.Prefix, *[]time.Duration:
		return true
	}
	return false
}

// setScalar parses a single value. Its errors may quote text, because it never
// fails for a secret.
func setScalar(target any, text string) error {
	switch v := target.(type) {
	case *string, *Secret, *Address, *SecretURL:
		reflect.ValueOf(v).Elem().SetString(text)
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		*v = b
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		*v = n
	case *Decimal:
		if text != "" && !decimalForm.MatchString(text) {
			return fmt.Errorf("%q is not a decimal number; expected such as 12 or 0.15, with at most nine digits on either side of the point", text)
		}
		*v = Decimal(text)
	case *Size:
		n, err := parseSize(text)
		if err != nil {
			return err
		}
		*v = n
	case *time.Duration:
		d, err := parseDuration(text)
		if err != nil {
			return err
		}
		*v = d
	case *slog.Level:
		level, ok := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}[strings.ToLower(text)]
		if !ok {
			return fmt.Errorf("%q is not a level; expected debug, info, warn or error", text)
		}
		*v = level
	default:
		panic(fmt.Sprintf("config: no notation for a %T", target))
	}
	return nil
}

func setList(target any, items []string) error {
	switch v := target.(type) {
	case *[]string:
		*v = items
	case *[]int:
		return parseList(v, items, func(text string) (n int, err error) {
			err = setScalar(&n, text)
			return n, err
		})
	case *[]netip.Prefix:
		return parseList(v, items, parsePrefix)
	case *[]time.Duration:
		return parseList(v, items, parseDuration)
	}
	return nil
}

// parseList parses all items, and reports all that are wrong.
func parseList[T any](into *[]T, items []string, parse func(string) (T, error)) error {
	var list []T
	var faults []string
	for _, item := range items {
		value, err := parse(item)
		if err != nil {
			faults = append(faults, err.Error())
		}
		list = append(list, value)
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	*into = list
	return nil
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		err = fmt.Errorf("%q is not a duration; expected a number with a unit, such as 30s, 5m or 1h30m", text)
	}
	return d, err
}

// parsePrefix parses a CIDR range or a single address. It unmaps IPv4 in IPv6,
// because a prefix matches only its own family.
func parsePrefix(text string) (netip.Prefix, error) {
	bad := fmt.Errorf("%q is not an address or range; expected such as 10.0.0.7, 10.0.0.0/8 or fd00::/8", text)
	if !strings.Contains(text, "/") {
		ip, err := netip.ParseAddr(text)
		if err != nil || ip.Zone() != "" {
			return netip.Prefix{}, bad
		}
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() && p.Bits() < 96 {
		return netip.Prefix{}, bad
	}
	if p.Addr().Is4In6() {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%q has address bits outside its range; write %s for the range or %s for the one address", text, p.Masked(), p.Addr())
	}
	return p, nil
}

// plain returns a value as a string, number, bool or list of strings, with
// secrets masked.
func plain(target any) any {
	switch v := target.(type) {
	case *string, *bool, *int:
		return reflect.ValueOf(v).Elem().Interface()
	case *Decimal:
		return string(*v)
	case *[]string:
		return append([]string{}, *v...)
	case *[]netip.Prefix:
		return texts(*v, netip.Prefix.String)
	case *[]time.Duration:
		return texts(*v, shortest)
	case *slog.Level:
		return strings.ToLower(v.String())
	case fmt.Stringer: // *Secret, *SecretURL, *Size, *time.Duration
		return v.String()
	}
	panic(fmt.Sprintf("config: no notation for a %T", target))
}

// texts applies text to all values. The result is never nil.
func texts[T any](values []T, text func(T) string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = text(v)
	}
	return out
}

// shortest formats 1m0s as 1m.
func shortest(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// notation returns plain as a string. It is the inverse of setText, except for
// masking.
func notation(target any) string {
	switch v := plain(target).(type) {
	case []string:
		return strings.Join(v, ",")
	default:
		return fmt.Sprint(v)
	}
}

// number returns the value to compare with min and max, or false for types
// without an order.
func number(target any) (int64, bool) {
	switch v := target.(type) {
	case *int, *Size, *time.Duration:
		return reflect.ValueOf(v).Elem().Int(), true
	case *Decimal:
		if r := v.Rat(); r != nil { // in billionths, which are whole and in range
			return r.Mul(r, big.NewRat(1_000_000_000, 1)).Num().Int64(), true
		}
	}
	return 0, false
}
