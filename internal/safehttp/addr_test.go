package safehttp

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// The first and last address of every refused range, and its name in Explain.
var refusedRanges = []struct{ first, last, kind string }{
	{"0.0.0.0", "0.0.0.0", "unspecified"},
	{"0.0.0.1", "0.255.255.255", "reserved"},
	{"10.0.0.0", "10.255.255.255", "private"},
	{"100.64.0.0", "100.127.255.255", ""},
	{"127.0.0.0", "127.255.255.255", "loopback"},
	{"168.63.129.16", "168.63.129.16", ""},
	{"169.254.0.0", "169.254.255.255", "link-local"},
	{"169.254.169.254", "169.254.169.254", ""},
	{"172.16.0.0", "172.31.255.255", "private"},
	{"192.0.0.0", "192.0.0.255", "reserved"},
	{"192.0.2.0", "192.0.2.255", ""},
	{"192.88.99.0", "192.88.99.255", "reserved"},
	{"192.168.0.0", "192.168.255.255", "private"},
	{"198.18.0.0", "198.19.255.255", ""},
	{"198.51.100.0", "198.51.100.255", ""},
	{"203.0.113.0", "203.0.113.255", ""},
	{"224.0.0.0", "239.255.255.255", "multicast"},
	{"240.0.0.0", "255.255.255.254", "reserved"},
	{"255.255.255.255", "255.255.255.255", ""},

	{"::", "::", "unspecified"},
	{"::1", "::1", "loopback"},
	{"::2", "::ffff:ffff", ""}, // IPv4-compatible
	{"::8.8.8.8", "::10.0.0.1", ""},
	{"::ffff:0.0.0.0", "::ffff:255.255.255.255", ""},
	{"::ffff:8.8.8.8", "::ffff:10.0.0.5", ""},
	{"::ffff:0:10.0.0.5", "::ffff:0:8.8.8.8", "reserved"}, // SIIT
	{"64:ff9b::", "64:ff9b::ffff:ffff", ""},
	{"64:ff9b::8.8.8.8", "64:ff9b::10.0.0.5", ""},
	{"64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", ""},
	{"100::", "100::ffff:ffff:ffff:ffff", "reserved"}, // discard
	{"2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", ""},
	{"2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", ""},
	{"2001:10::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved"},
	{"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", ""},
	{"2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""},
	{"3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", ""},
	{"4000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved"}, // unassigned
	{"fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "private"},
	{"fd00:ec2::254", "fd00:ec2::254", ""},
	{"fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "link-local"},
	{"fe80::1%eth0", "fe80::1%1", "link-local"},
	{"fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved"}, // site-local
	{"ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "multicast"},
}

func TestSpecialAddressesAreRefused(t *testing.T) {
	t.Parallel()
	g := New(Policy{})
	for _, r := range refusedRanges {
		for _, text := range []string{r.first, r.last} {
			addr := netip.MustParseAddr(text)
			err := g.CheckAddr(addr)
			var refused *AddrError
			if !errors.As(err, &refused) || refused.Addr != addr {
				t.Errorf("CheckAddr(%s) = %v, want it refused", text, err)
				continue
			}
			if !strings.Contains(err.Error(), r.kind) || !strings.Contains(err.Error(), addr.String()) {
				t.Errorf("CheckAddr(%s) says %q, want its address and %q in it", text, err, r.kind)
			}
		}
	}
	if err := g.CheckAddr(netip.Addr{}); err == nil {
		t.Error("the zero address is not refused")
	}
}

// Addresses next to the refused ranges belong to public servers.
func TestPublicAddressesAreAllowed(t *testing.T) {
	t.Parallel()
	g := New(Policy{})
	for _, text := range []string{
		"1.0.0.0", "1.1.1.1", "8.8.8.8",
		"9.255.255.255", "11.0.0.0",
		"100.63.255.255", "100.128.0.0",
		"126.255.255.255", "128.0.0.0",
		"168.63.129.15", "168.63.129.17",
		"169.253.255.255", "169.255.0.0",
		"172.15.255.255", "172.32.0.0",
		"191.255.255.255", "192.0.1.0", "192.0.1.255", "192.0.3.0",
		"192.88.98.255", "192.88.100.0",
		"192.167.255.255", "192.169.0.0",
		"198.17.255.255", "198.20.0.0",
		"198.51.99.255", "198.51.101.0",
		"203.0.112.255", "203.0.114.0",
		"223.255.255.255",
		"2000::1", "2001:200::", "2001:4860:4860::8888", "2001:db7:ffff::1", "2001:db9::",
		"2003::", "2606:4700:4700::1111", "3ffe:ffff::1", "3fff:1000::",
	} {
		if err := g.CheckAddr(netip.MustParseAddr(text)); err != nil {
			t.Errorf("CheckAddr(%s) = %v, want it allowed", text, err)
		}
	}
}

func TestOperatorCanAllowAnyRefusedAddress(t *testing.T) {
	t.Parallel()
	for _, r := range refusedRanges {
		addr := netip.MustParseAddr(r.first)
		allow := []netip.Prefix{netip.PrefixFrom(addr.WithZone(""), addr.BitLen())}
		if strings.HasPrefix(r.first, "64:ff9b::") {
			allow = append(allow, netip.MustParsePrefix("0.0.0.0/8"))
		}
		if err := New(Policy{AllowCIDRs: allow}).CheckAddr(addr); err != nil {
			t.Errorf("with %v allowed, CheckAddr(%s) = %v", allow, addr, err)
		}
	}
}

func TestAllowedRangesOpenNothingElse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		allow, addr string
		want        bool
	}{
		{"10.0.0.0/24", "10.0.0.5", true},
		{"10.0.0.0/24", "10.0.1.0", false},
		{"10.0.0.7/24", "10.0.0.5", true}, // an address with a mask is accepted as a network
		{"10.0.0.0/24", "127.0.0.1", false},
		{"10.0.0.0/24", "8.8.8.8", true},
		{"0.0.0.0/0", "127.0.0.1", true},
		{"0.0.0.0/0", "::1", false},
		{"::/0", "fd00:ec2::254", true},
		{"::/0", "127.0.0.1", false},
		{"fe80::/10", "fe80::1%eth0", true},
		// mapped forms mean the embedded address
		{"10.0.0.0/24", "::ffff:10.0.0.5", true},
		{"10.0.0.0/24", "::ffff:10.0.1.0", false},
		{"10.0.0.0/24", "::ffff:8.8.8.8", false},
		{"::ffff:10.0.0.0/120", "::ffff:10.0.0.5", true},
		{"::ffff:10.0.0.0/120", "10.0.0.5", true},
		{"::ffff:10.0.0.0/120", "10.0.1.0", false},
		{"::ffff:0:0/96", "::ffff:8.8.8.8", true},
		{"::ffff:0:0/96", "::ffff:10.0.0.5", false},
		{"::ffff:0:0/96", "10.0.0.5", false},
		{"::/0", "::ffff:10.0.0.5", false},
		// a gateway doesn't bypass the rules for the embedded address
		{"64:ff9b::/96", "64:ff9b::8.8.8.8", true},
		{"64:ff9b::/96", "64:ff9b::127.0.0.1", false},
		{"64:ff9b::/96", "64:ff9b::169.254.169.254", false},
		{"10.0.0.0/24", "64:ff9b::10.0.0.5", false},
	} {
		g := New(Policy{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix(c.allow)}})
		if err := g.CheckAddr(netip.MustParseAddr(c.addr)); (err == nil) != c.want {
			t.Errorf("with %s allowed, CheckAddr(%s) = %v, want allowed: %t", c.allow, c.addr, err, c.want)
		}
	}
}
