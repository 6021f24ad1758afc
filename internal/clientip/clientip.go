// Package clientip finds the client's address behind proxies, and whether it uses HTTPS.
package clientip

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Of returns the client's address. Behind trusted proxies that is the last address in
// X-Forwarded-For that isn't one of them. Clients can set those before it.
func Of(r *http.Request, trusted []netip.Prefix) netip.Addr {
	ip, ok := Peer(r)
	if !ok {
		return netip.IPv4Unspecified()
	}
	if !Contains(trusted, ip) {
		return ip
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		addr, ok := parseHop(hop)
		if !ok {
			return ip
		}
		ip = addr
		if !Contains(trusted, ip) {
			return ip
		}
	}
	return ip
}

// UntrustedProxy returns the address of a proxy that the operator has probably
// forgotten to trust: it is local and sends X-Forwarded-For.
func UntrustedProxy(r *http.Request, trusted []netip.Prefix) (netip.Addr, bool) {
	if r.Header.Get("X-Forwarded-For") == "" {
		return netip.Addr{}, false
	}
	ip, ok := Peer(r)
	return ip, ok && (ip.IsPrivate() || ip.IsLoopback()) && !Contains(trusted, ip)
}

// Peer returns the address at the other end of the connection, which may be a proxy.
func Peer(r *http.Request) (netip.Addr, bool) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return peer.Addr().Unmap().WithZone(""), err == nil
}

// IsHTTPS reports whether the client uses HTTPS: on the connection itself, or to
// a trusted proxy that serves the public URL. The Host header alone proves
// nothing, because every client can send it over plain HTTP.
func IsHTTPS(r *http.Request, public *url.URL, trusted []netip.Prefix) bool {
	if r.TLS != nil {
		return true
	}
	peer, ok := Peer(r)
	return ok && Contains(trusted, peer) && public.Scheme == "https" && SameHost(r.Host, public)
}

// SameHost reports whether a Host header names the host and port of the URL.
func SameHost(host string, u *url.URL) bool {
	return normalHost(host, u.Scheme) == normalHost(u.Host, u.Scheme)
}

// Origin returns the URL's origin as browsers write it.
func Origin(u *url.URL) string { return u.Scheme + "://" + normalHost(u.Host, u.Scheme) }

func normalHost(host, scheme string) string {
	port := ":80"
	if scheme == "https" {
		port = ":443"
	}
	return strings.TrimSuffix(strings.ToLower(host), port)
}

// Network returns the network of one client: an IPv4 address, or a /64 in IPv6.
func Network(ip netip.Addr) netip.Prefix {
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return Mask(ip, 32)
	}
	return Mask(ip, 64)
}

// Mask returns the network of an address with so many bits.
func Mask(ip netip.Addr, bits int) netip.Prefix {
	p, _ := ip.Prefix(bits) // the zero Prefix for the zero Addr
	return p
}

// parseHop parses an address, which may have a port or brackets.
func parseHop(s string) (netip.Addr, bool) {
	s = strings.TrimSpace(s)
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	addr, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return addr.Unmap().WithZone(""), err == nil
}

// Contains reports whether one of the networks contains the address.
func Contains(list []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(list, func(n netip.Prefix) bool { return n.Contains(ip) })
}
