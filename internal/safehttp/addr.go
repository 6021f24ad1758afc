package safehttp

import (
	"fmt"
	"net/netip"

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

// describe names the range of a refused address in errors.
func describe(addr netip.Addr) string {
	switch {
	case addr.IsLoopback():
		return "a loopback address"
	case addr.IsPrivate():
		return "private"
	case addr.IsLinkLocalUnicast():
		return "link-local"
	case addr.IsMulticast():
		return "a multicast address"
	case addr.IsUnspecified():
		return "the unspecified address"
	}
	return "reserved"
}
