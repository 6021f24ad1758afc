package leaks_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"turnpike/internal/keyring"
	"turnpike/internal/leaks"
)

const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// secretOf makes a value of the right shape, by its description and not by the
// code that makes real ones.
func secretOf(prefix string, seed uint64) string {
	random := rand.New(rand.NewPCG(seed, seed))
	s := prefix
	for range 32 {
		s += string(digits[random.IntN(62)])
	}
	sum, check := crc32.ChecksumIEEE([]byte(s)), ""
	for range 6 {
		check = string(digits[sum%62]) + check
		sum /= 62
	}
	return s + check
}

func TestFindIgnoresLookalikes(t *testing.T) {
	t.Parallel()
	live, test, scoped := secretOf(string(keyring.LiveKey), 1), secretOf(string(keyring.TestKey), 2), secretOf(string(keyring.ScopedToken), 3)
	changed := []byte(live)
	changed[20] ^= 1
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"each kind":          {"a=" + live + "\nb: \"" + test + "\" " + scoped, []string{live, test, scoped}},
		"alone":              {live, []string{live}},
		"glued to words":     {"http_tp_" + live + "abc" + test + "_x", []string{live, test}},
		"one after another":  {live + live, []string{live, live}},
		"after a prefix":     {"tp_live_" + live + " tp_tp_" + test, []string{live, test}},
		"a letter wrong":     {string(changed), nil},
		"cut":                {live[:len(live)-1], nil},
		"another kind's sum": {strings.Replace(live, "live", "test", 1), nil},
		"upper case":         {strings.ToUpper(live), nil},
		"none":               {"tp_ tp_live_ tp_scoped_" + strings.Repeat("a", 38), nil},
		"nothing":            {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := leaks.Find([]byte(c.text)); !slices.Equal(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

type place struct {
	line   int64
	secret string
}

func places(t *testing.T, r io.Reader, room int) []place {
	t.Helper()
	var got []place
	if err := leaks.Read(r, make([]byte, room), func(line int64, secret string) { got = append(got, place{line, secret}) }); err != nil {
		t.Fatal(err)
	}
	return got
}

// A key may lie across the end of any piece that is read.
func TestReadFindsKeysAcrossBufferBoundaries(t *testing.T) {
	t.Parallel()
	live, scoped := secretOf(string(keyring.LiveKey), 1), secretOf(string(keyring.ScopedToken), 3)
	for before := range 130 {
		text := strings.Repeat("\nx", before) + live + "\n\n" + scoped + strings.Repeat("\n", before)
		want := []place{{int64(before) + 1, live}, {int64(before) + 3, scoped}}
		for _, room := range []int{64, 100, 1 << 10} {
			if got := places(t, strings.NewReader(text), room); !slices.Equal(got, want) {
				t.Fatalf("with %d lines before it and room for %d: %v, want %v", before, room, got, want)
			}
		}
		if got := places(t, iotest.OneByteReader(strings.NewReader(text)), 64); !slices.Equal(got, want) {
			t.Fatalf("byte by byte: %v, want %v", got, want)
		}
	}
}

func TestReadReturnsTheReadError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if err := leaks.Read(iotest.ErrReader(broken), make([]byte, 64), nil); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}

func FuzzFind(f *testing.F) {
	live := secretOf(string(keyring.LiveKey), 1)
	f.Add([]byte("tp_live_"+live+"tp_"), uint8(3))
	f.Add([]byte("tp_scoped_"+live[:20]), uint8(200))
	f.Fuzz(func(t *testing.T, text []byte, extra uint8) {
		found := leaks.Find(text)
		for _, secret := range found {
			if _, ok := keyring.ParseSecret(secret); !ok || !bytes.Contains(text, []byte(secret)) {
				t.Fatalf("%q was found in %q", secret, text)
			}
		}
		var read []string
		err := leaks.Read(bytes.NewReader(text), make([]byte, 64+int(extra)), func(line int64, secret string) { read = append(read, secret) })
		if err != nil || !slices.Equal(read, found) {
			t.Fatalf("Read found %q (%v), Find %q", read, err, found)
		}
		// What is there is found, whatever stands around it.
		if with := leaks.Find(slices.Concat(text, []byte(live), text)); !slices.Contains(with, live) {
			t.Fatalf("the key was not found between %q", text)
		}
	})
}

func BenchmarkFind(b *testing.B) {
	line := "func (s *Service) attempt(ctx context.Context, http_client *http.Client) error { return s.stop_here(ctx, \"that text\") }\n"
	text := []byte(strings.Repeat(line, 1<<13))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if found := leaks.Find(text); len(found) > 0 {
			b.Fatal(fmt.Sprint(found))
		}
	}
}
