// Package freeport finds addresses for servers that a test starts later.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Ports from first on, below those that systems give to clients and to listeners on port 0.
// One of those could be taken before the test's server starts.
const first, count = 10_000, 20_000

// Address returns an address on which nothing listens.
func Address(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(count))
		ln, err := net.Listen("tcp", address)
		if err != nil {
			continue // in use
		}
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
		return address
	}
	t.Fatal("no port is free")
	return ""
}
