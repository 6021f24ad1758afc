package apifiles

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"turnpike/internal/keyring"
)

// TestContentOfASourceThatBreaksIsNotStored: a database connection that is lost while the results of a batch are read, or a
// client that leaves during an upload, must not truncate the file.
func TestContentOfASourceThatBreaksIsNotStored(t *testing.T) {
	t.Parallel()
	ring, err := keyring.New(bytes.Repeat([]byte{1}, keyring.Size))
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range []error{io.ErrUnexpectedEOF, fmt.Errorf("storage unavailable: %w", io.ErrUnexpectedEOF), fmt.Errorf("storage unavailable: %w", io.EOF)} {
		for _, before := range []string{"", "line", "0123456789abcdef"} {
			r := &sealer{store: &Store{ring: ring}, id: "file_1", sum: sha256.New(), plain: make([]byte, 16),
				from: io.MultiReader(strings.NewReader(before), iotest.ErrReader(broken))}
			if _, err := io.Copy(io.Discard, r); !errors.Is(err, broken) {
				t.Errorf("%v after %q: got %v, want the error", broken, before, err)
			}
		}
	}
}
