package safehttp

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"turnpike/internal/fault"
)

// maxURL is the service contract's limit, in bytes.
const maxURL = 2048

// CheckURL checks a URL as far as possible without DNS, and parses it. Its error is
// a *fault.Error about param, without the URL, which may contain a password.
func (g *Guard) CheckURL(param, raw string) (*url.URL, error) {
	if err := checkText(param, raw); err != nil {
		return nil, err
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fault.Invalid(param, "%s must be an absolute URL such as https://example.com/path.", param)
	}
	if err := g.checkTarget(param, u); err != nil {
		return nil, err
	}
	return u, nil
}

// checkText checks the characters of a URL, which parsers treat differently.
func checkText(param, raw string) error {
	_, authority, _ := strings.Cut(raw, "//")
	if end := strings.IndexAny(authority, "/?"); end >= 0 {
		authority = authority[:end]
	}
	switch {
	case len(raw) > maxURL:
		return fault.Invalid(param, "%s must have at most %d bytes.", param, maxURL)
	case !utf8.ValidString(raw) || strings.ContainsFunc(raw, isInvisible):
		return fault.Invalid(param, "%s must not have spaces, control or invisible characters. Percent-encode them.", param)
	case strings.Contains(raw, `\`):
		return fault.Invalid(param, "%s must not have a backslash. Use / or %%5C.", param)
	case strings.Contains(raw, "#"):
		return fault.Invalid(param, "%s must not have a fragment. Remove # and everything after it.", param)
	case strings.Contains(authority, "@"):
		return fault.Invalid(param, "%s must not have a user name or password.", param)
	case strings.Contains(authority, "%"):
		return fault.Invalid(param, "%s must have a host without %%. Percent-encoding and IPv6 zones are not allowed there.", param)
	}
	return nil
}

func isInvisible(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) }

// checkTarget checks where a parsed URL leads. The client repeats it for every
// request, because a stored URL may be older than the policy.
func (g *Guard) checkTarget(param string, u *url.URL) error {
	switch {
	case u.Scheme != "https" && !(u.Scheme == "http" && g.allowHTTP):
		return fault.Invalid(param, "%s must begin with %s.", param, g.schemes())
	case u.Host == "":
		return fault.Invalid(param, "%s must be an absolute URL such as https://example.com/path.", param)
	case u.User != nil:
		return fault.Invalid(param, "%s must not have a user name or password.", param)
	}
	host := u.Host
	if at := strings.LastIndexByte(host, ':'); at > strings.LastIndexByte(host, ']') {
		if !validPort(host[at+1:]) {
			return fault.Invalid(param, "%s must have a port from 1 to 65535, or none.", param)
		}
		host = host[:at]
	}
	return g.checkHost(param, host)
}

func (g *Guard) schemes() string {
	if g.allowHTTP {
		return "https:// or http://"
	}
	return "https://"
}

// validPort rejects leading zeros: other programs may read 0443 as another number.
func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && s == strconv.FormatUint(n, 10)
}

// checkHost checks a host without its port: a name or an address, in brackets if it is IPv6.
func (g *Guard) checkHost(param, host string) error {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		addr, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		if err != nil || !addr.Is6() || addr.Zone() != "" || !strings.HasSuffix(host, "]") {
			return fault.Invalid(param, "%s must have an IPv6 address without a zone in the brackets, such as [2606:4700::1111].", param)
		}
		return g.checkLiteral(param, addr)
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is4() {
		return g.checkLiteral(param, addr)
	}
	return g.checkName(param, host)
}

func (g *Guard) checkLiteral(param string, addr netip.Addr) error {
	if err := g.CheckAddr(addr); err != nil {
		return fault.Invalid(param, "%s must lead to a public address: %v.", param, err).Because(err)
	}
	return nil
}

// checkName checks a DNS name by RFC 1123. It must not end in a number: resolvers
// read 127.1, 0x7f.1 and 2130706433 as addresses.
func (g *Guard) checkName(param, name string) error {
	if strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return fault.Invalid(param, "%s must have a host in ASCII. Write an international name in punycode, such as xn--….", param)
	}
	if strings.HasSuffix(name, ".") {
		return fault.Invalid(param, "%s must have a host without a dot at its end.", param)
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if !validLabel(label) {
			return fault.Invalid(param, "%s must have a host name such as example.com: parts of 1 to 63 letters, digits and inner hyphens, with a dot between them.", param)
		}
	}
	// 255 octets in DNS, without the first length byte and the root's.
	if len(name) > 253 {
		return fault.Invalid(param, "%s must have a host name of at most 253 characters.", param)
	}
	last := strings.ToLower(labels[len(labels)-1])
	if isNumeric(last) {
		return fault.Invalid(param, "%s must have a host name that does not end in a number, or an IPv4 address as four decimal numbers, such as 1.1.1.1.", param)
	}
	if last == "localhost" && !g.allowsLoopback() {
		return fault.Invalid(param, "%s must lead to a public address. localhost is this server itself.", param)
	}
	return nil
}

func validLabel(label string) bool {
	if len(label) < 1 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(label, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-')
	})
}

// isNumeric is the URL standard's "ends in a number" for a lower-case label.
func isNumeric(label string) bool {
	digits := "0123456789"
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		label, digits = hex, "0123456789abcdef"
	}
	return strings.Trim(label, digits) == ""
}

func (g *Guard) allowsLoopback() bool {
	return g.CheckAddr(netip.AddrFrom4([4]byte{127, 0, 0, 1})) == nil || g.CheckAddr(netip.IPv6Loopback()) == nil
}
