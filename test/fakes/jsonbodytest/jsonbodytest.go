// Package jsonbodytest checks that readers of forwarded bodies register the fields that they read.
package jsonbodytest

import (
	"slices"
	"testing"

	"turnpike/internal/jsonbody"
)

// WantRegistered fails if a body is decoded into fields of T that aren't among
// the names: a provider could get another spelling of such a field.
func WantRegistered[T any](t *testing.T, names jsonbody.Names) {
	t.Helper()
	for _, path := range missing(jsonbody.NamesOf[T](), names, "") {
		t.Errorf("%T reads %s, which isn't registered. Add it to internal/providers/names.go.", *new(T), path)
	}
}

func missing(read, registered jsonbody.Names, at string) (paths []string) {
	for name, inside := range read {
		nested, known := registered[name]
		if !known {
			paths = append(paths, at+name)
			continue
		}
		paths = append(paths, missing(inside, nested, at+name+".")...)
	}
	slices.Sort(paths)
	return paths
}
