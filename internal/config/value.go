package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written 1048576 or 1MiB.
type Size int64

// sizeUnits from the largest, so that printing finds the shortest form.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// String gives the largest unit that divides the size.
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

// Decimal is an exact decimal number as it was written; empty means not given.
type Decimal string

var decimalForm = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})?$`)

// Rat is its value, nil when it was not given.
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

// setText reads a value as it stands in the environment, in a flag or in a
// default. Lists are comma-separated there.
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
	case *[]string, *[]netip.Prefix, *[]time.Duration:
		return true
	}
	return false
}

// setScalar never fails for a secret, so its errors may quote the text.
func setScalar(target any, text string) error {
	switch v := target.(type) {
	case *string:
		*v = text
	case *Secret:
		*v = Secret(text)
	case *Address:
		*v = Address(text)
	case *SecretURL:
		*v = SecretURL(text)
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
		if !decimalForm.MatchString(text) {
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
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration; expected a number with a unit, such as 30s, 5m or 1h30m", text)
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
	case *[]netip.Prefix:
		var prefixes []netip.Prefix
		var faults []string
		for _, item := range items {
			p, err := parsePrefix(item)
			if err != nil {
				faults = append(faults, err.Error())
				continue
			}
			prefixes = append(prefixes, p)
		}
		if len(faults) > 0 {
			return errors.New(strings.Join(faults, "; "))
		}
		*v = prefixes
	case *[]time.Duration:
		durations := make([]time.Duration, len(items))
		for i, item := range items {
			if err := setScalar(&durations[i], item); err != nil {
				return err
			}
		}
		*v = durations
	}
	return nil
}

// parsePrefix reads a CIDR range, or an address as the range of itself. IPv4
// written as IPv6 becomes IPv4, because a prefix matches only its own family.
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

// plain gives a value as a string, number, bool or list of strings, with
// secrets masked.
func plain(target any) any {
	switch v := target.(type) {
	case *string:
		return *v
	case *Decimal:
		return string(*v)
	case *bool:
		return *v
	case *int:
		return *v
	case *[]string:
		return append([]string{}, *v...)
	case *[]netip.Prefix:
		items := make([]string, 0, len(*v))
		for _, p := range *v {
			items = append(items, p.String())
		}
		return items
	case *[]time.Duration:
		items := make([]string, 0, len(*v))
		for _, d := range *v {
			items = append(items, shortest(d))
		}
		return items
	case *slog.Level:
		return strings.ToLower(v.String())
	case fmt.Stringer: // *Secret, *SecretURL, *Size, *time.Duration
		return v.String()
	}
	panic(fmt.Sprintf("config: no notation for a %T", target))
}

// shortest writes 1m for what Go writes as 1m0s.
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

// notation is plain as one string, the inverse of setText but for the masking.
func notation(target any) string {
	switch v := plain(target).(type) {
	case []string:
		return strings.Join(v, ",")
	default:
		return fmt.Sprint(v)
	}
}

// number gives what min and max compare; false for what has no order.
func number(target any) (int64, bool) {
	switch v := target.(type) {
	case *int:
		return int64(*v), true
	case *Size:
		return int64(*v), true
	case *time.Duration:
		return int64(*v), true
	case *Decimal:
		if r := v.Rat(); r != nil { // in billionths, which its form keeps whole and in range
			return r.Mul(r, big.NewRat(1_000_000_000, 1)).Num().Int64(), true
		}
	}
	return 0, false
}
