package safehttp

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// names returns the addresses of a name. None means that the name doesn't
// exist.
type names func(name string) []netip.Addr

// fixed returns the same addresses for every name.
func fixed(addrs ...string) names {
	var all []netip.Addr
	for _, a := range addrs {
		all = append(all, netip.MustParseAddr(a))
	}
	return func(string) []netip.Addr { return all }
}

// resolver is a real resolver that queries a small DNS server on loopback. With
// nil names the server never responds.
func resolver(t *testing.T, n names) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		query := make([]byte, 512)
		for {
			size, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			if n != nil {
				conn.WriteTo(reply(query[:size], n), from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

const (
	typeA    = 1
	typeAAAA = 28
)

// reply returns the response to a query (RFC 1035, section 4) with one
// question.
func reply(query []byte, n names) []byte {
	const header = 12
	var labels []string
	at := header
	for query[at] != 0 {
		size := int(query[at])
		labels = append(labels, string(query[at+1:at+1+size]))
		at += 1 + size
	}
	kind := binary.BigEndian.Uint16(query[at+1:])
	question := query[header : at+5]

	addrs := n(strings.Join(labels, "."))
	flags := uint16(0x8180) // a response, recursion desired and available
	if addrs == nil {
		flags |= 3 // no such name
	}
	var answers []byte
	var count uint16
	for _, addr := range addrs {
		if addr.Is4() != (kind == typeA) || addr.Is6() != (kind == typeAAAA) {
			continue
		}
		count++
		answers = append(answers, 0xc0, header) // a pointer to the question's name
		answers = binary.BigEndian.AppendUint16(answers, kind)
		answers = append(answers, 0, 1, 0, 0, 0, 0) // class IN, TTL zero
		answers = binary.BigEndian.AppendUint16(answers, uint16(len(addr.AsSlice())))
		answers = append(answers, addr.AsSlice()...)
	}

	out := append([]byte{}, query[:2]...)
	for _, v := range []uint16{flags, 1, count, 0, 0} {
		out = binary.BigEndian.AppendUint16(out, v)
	}
	return append(append(out, question...), answers...)
}
