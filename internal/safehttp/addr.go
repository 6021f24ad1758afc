package safehttp

import (
	"fmt"
	"net/netip"
	"strings"

	"code.dny.dev/ssrf"
)

// azureHost serves the configuration of every virtual machine on Azure. It is a
// public address, so no list of special ranges has it.
var azureHost = netip.MustParsePrefix("168.63.129.16/32")

// AddrError is the error for an address that must not be dialed.
type AddrError struct{ Addr netip.Addr }

func (e *AddrError) Error() string {
	if !e.Addr.IsValid() {
		return "the address is not valid and not allowed"
	}
	return fmt.Sprintf("the address %s is %s and not allowed", e.Addr, describe(e.Addr))
}

// CheckAddr returns an *AddrError if the address must not be dialed.
func (g *Guard) CheckAddr(addr netip.Addr) error {
	if !addr.IsValid() {
		return &AddrError{addr}
	}
	bare := addr.WithZone("") // a prefix contains no address with a zone
	var ok bool
	switch {
	case bare.Is4In6():
		inner := bare.Unmap()
		ok = g.allows(inner) || g.allows(bare) && g.CheckAddr(inner) == nil
	case ssrf.IPv6NAT64Prefix.Contains(bare):
		// Allowing a NAT64 gateway does not allow 127.0.0.1 through it.
		ok = g.allows(bare) && g.CheckAddr(embedded(bare)) == nil
	default:
		ok = g.allows(bare) || g.base.SafeAddr(bare) == nil
	}
	if !ok {
		return &AddrError{addr}
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

// unmap turns ::ffff:10.0.0.0/104 into 10.0.0.0/8, as the dialer does with such
// addresses. ::ffff:0:0/96 stays: it allows the notation, not all addresses.
func unmap(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() > 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

func embedded(addr netip.Addr) netip.Addr {
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// descriptions name refused ranges in errors. The first range that contains an
// address counts. They don't decide whether an address is refused.
var descriptions = []struct{ name, prefixes string }{
	{"a cloud metadata address", "168.63.129.16/32 169.254.169.254/32 fd00:ec2::254/128"},
	{"a loopback address", "127.0.0.0/8 ::1/128"},
	{"private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"},
	{"link-local", "169.254.0.0/16 fe80::/10"},
	{"a carrier-grade NAT address", "100.64.0.0/10"},
	{"a multicast address", "224.0.0.0/4 ff00::/8"},
	{"the broadcast address", "255.255.255.255/32"},
	{"the unspecified address", "0.0.0.0/32 ::/128"},
	{"for documentation only", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"},
	{"for benchmarks only", "198.18.0.0/15 2001:2::/48"},
	{"an IPv4 address in IPv6 form", "::ffff:0:0/96 ::/96"},
	{"a NAT64 address", "64:ff9b::/96 64:ff9b:1::/48"},
	{"a 6to4 address", "2002::/16"},
	{"a Teredo address", "2001::/32"},
}

func describe(addr netip.Addr) string {
	bare := addr.WithZone("")
	for _, d := range descriptions {
		for prefix := range strings.FieldsSeq(d.prefixes) {
			if netip.MustParsePrefix(prefix).Contains(bare) {
				return d.name
			}
		}
	}
	return "reserved"
}
