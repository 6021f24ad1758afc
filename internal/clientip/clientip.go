// Package clientip finds whose request it is behind proxies.
package clientip

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Of is the address of the caller. Behind proxies that the operator
// trusts, it is the last address in X-Forwarded-For that is not one of them:
// what stands further left was written by the client and proves nothing.
func Of(r *http.Request, trusted []netip.Prefix) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.IPv4Unspecified()
	}
	ip := peer.Addr().Unmap().WithZone("")
	if !contains(trusted, ip) {
		return ip
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		addr, ok := parseHop(hop)
		if !ok {
			return ip
		}
		ip = addr
		if !contains(trusted, ip) {
			return ip
		}
	}
	return ip
}

// Forgotten is the address of what seems to be a proxy of the operator's that is
// not among those they trust: it is of this machine or network and passes on whom
// it speaks for.
func Forgotten(r *http.Request, trusted []netip.Prefix) (netip.Addr, bool) {
	if r.Header.Get("X-Forwarded-For") == "" {
		return netip.Addr{}, false
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, false
	}
	ip := peer.Addr().Unmap().WithZone("")
	return ip, (ip.IsPrivate() || ip.IsLoopback()) && !contains(trusted, ip)
}

// parseHop reads an address as proxies write it: bare, with a port, in brackets.
func parseHop(s string) (netip.Addr, bool) {
	s = strings.TrimSpace(s)
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	addr, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return addr.Unmap().WithZone(""), err == nil
}

func contains(list []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(list, func(n netip.Prefix) bool { return n.Contains(ip) })
}
