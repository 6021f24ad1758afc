// Package safehttp is the HTTP client for URLs that customers give us. It
// reaches the public internet and what the operator allows, nothing else.
package safehttp

import (
	"net"
	"net/netip"

	"code.dny.dev/ssrf"
)

// Policy is what the operator allows beyond the defaults.
type Policy struct {
	// AllowCIDRs are addresses that may be dialled although they are private,
	// loopback or otherwise refused. With 64:ff9b::/96 (NAT64) in it, the IPv4
	// address inside must be allowed too.
	AllowCIDRs []netip.Prefix
	// AllowHTTP accepts plain http:// URLs too.
	AllowHTTP bool
}

// Guard holds a policy and applies it to URLs, addresses and connections.
type Guard struct {
	allow     []netip.Prefix
	allowHTTP bool
	base      *ssrf.Guardian
	resolver  *net.Resolver // nil is the system's; tests have their own
}

// New makes a guard.
func New(p Policy) *Guard {
	g := &Guard{
		allowHTTP: p.AllowHTTP,
		base:      ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(azureHost)),
	}
	for _, prefix := range p.AllowCIDRs {
		g.allow = append(g.allow, unmap(prefix))
	}
	return g
}
