package safehttp

import (
	"fmt"
	"net/netip"

	"code.dny.dev/ssrf"
)

// azureHost answers every virtual machine on Azure with its configuration. It
// is a public address, so no list of special ranges has it.
var azureHost = netip.MustParsePrefix("168.63.129.16/32")

// Refused is the error for an address that may not be dialled.
type Refused struct{ Addr netip.Addr }

func (r *Refused) Error() string {
	if !r.Addr.IsValid() {
		return "the address is not valid and not allowed"
	}
	return fmt.Sprintf("the address %s is %s and not allowed", r.Addr, describe(r.Addr))
}

// CheckAddr tells whether an address may be dialled. The error is a *Refused.
func (g *Guard) CheckAddr(addr netip.Addr) error {
	if !addr.IsValid() {
		return &Refused{addr}
	}
	bare := addr.WithZone("") // a prefix contains no address with a zone
	var ok bool
	switch {
	case bare.Is4In6():
		inner := bare.Unmap()
		ok = g.allows(inner) || g.allows(bare) && g.CheckAddr(inner) == nil
	case ssrf.IPv6NAT64Prefix.Contains(bare):
		// Who allows a NAT64 gateway does not mean to allow 127.0.0.1 through it.
		ok = g.allows(bare) && g.CheckAddr(embedded(bare)) == nil
	default:
		ok = g.allows(bare) || g.base.SafeAddr(bare) == nil
	}
	if !ok {
		return &Refused{addr}
	}
	return nil
}

func (g *Guard) allows(addr netip.Addr) bool {
	for _, prefix := range g.allow {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// unmap turns ::ffff:10.0.0.0/104 into 10.0.0.0/8, as the dialler does with
// such addresses. ::ffff:0:0/96 stays: it allows a way of writing them, not
// all of them.
func unmap(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() > 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// embedded is the IPv4 address in the last four bytes.
func embedded(addr netip.Addr) netip.Addr {
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// kinds gives the refused ranges their names, for people; the first that
// contains an address names it. What is refused is not decided here.
var kinds = []struct {
	prefix netip.Prefix
	name   string
}{
	{azureHost, "a cloud metadata address"},
	{netip.MustParsePrefix("169.254.169.254/32"), "a cloud metadata address"},
	{netip.MustParsePrefix("fd00:ec2::254/128"), "a cloud metadata address"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fec0::/10"), "private"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a carrier-grade NAT address"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
	{netip.MustParsePrefix("255.255.255.255/32"), "the broadcast address"},
	{netip.MustParsePrefix("0.0.0.0/32"), "the unspecified address"},
	{netip.MustParsePrefix("::/128"), "the unspecified address"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation only"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation only"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation only"},
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation only"},
	{netip.MustParsePrefix("3fff::/20"), "for documentation only"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks only"},
	{netip.MustParsePrefix("2001:2::/48"), "for benchmarks only"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "an IPv4 address in IPv6 form"},
	{netip.MustParsePrefix("::/96"), "an IPv4 address in IPv6 form"},
	{ssrf.IPv6NAT64Prefix, "a NAT64 address"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "a NAT64 address"},
	{netip.MustParsePrefix("2002::/16"), "a 6to4 address"},
	{netip.MustParsePrefix("2001::/32"), "a Teredo address"},
}

func describe(addr netip.Addr) string {
	bare := addr.WithZone("")
	for _, kind := range kinds {
		if kind.prefix.Contains(bare) {
			return kind.name
		}
	}
	return "reserved"
}
