// Package scan finds leaked secrets in files, Git repositories and CI logs: for
// turnpike scan, and on a schedule for the server.
package scan

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"slices"
	"sync"

	"turnpike/internal/keyring"
	"turnpike/internal/leaks"
)

const (
	// BufferSize fits the CPU cache.
	BufferSize  = 256 << 10
	sniffLength = 8000 // in which git also looks for a NUL
	largeBinary = 1 << 20
	namePath    = "(name of a file)"
)

// Finding is a secret that was found, and where.
type Finding struct {
	Path   string `json:"path"`
	Line   int64  `json:"line"`
	Commit string `json:"commit,omitempty"`
	Hint   string `json:"key"`
	Secret string `json:"-"`
	object string
}

// Reader collects the secrets in contents. Its methods may be called concurrently.
type Reader struct {
	Binary bool // scan large binary files, too

	mu      sync.Mutex
	found   []Finding
	seen    map[Finding]bool
	skipped int64
	buffers sync.Pool
}

// Found returns the findings in order.
func (r *Reader) Found() []Finding {
	slices.SortFunc(r.found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Commit, b.Commit), cmp.Compare(a.Secret, b.Secret))
	})
	return r.found
}

// Skipped returns the number of large binary files that were skipped.
func (r *Reader) Skipped() int64 { return r.skipped }

// take returns the findings since the last call.
func (r *Reader) take() []Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.found
	r.found, r.seen = nil, nil
	return found
}

// Content scans a file or object, unless it is large and binary.
func (r *Reader) Content(from io.Reader, size int64, at Finding) error {
	if size > largeBinary && !r.Binary {
		head := make([]byte, sniffLength)
		n, err := io.ReadFull(from, head)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if bytes.IndexByte(head[:n], 0) >= 0 {
			r.mu.Lock()
			r.skipped++
			r.mu.Unlock()
			return nil
		}
		from = io.MultiReader(bytes.NewReader(head[:n]), from)
	}
	buf, _ := r.buffers.Get().(*[BufferSize]byte)
	if buf == nil {
		buf = new([BufferSize]byte)
	}
	defer r.buffers.Put(buf)
	return leaks.Read(from, buf[:], func(line int64, secret string) { r.add(at, line, secret) })
}

// content is Content for one of several objects in a stream.
func (r *Reader) content(stream io.Reader, size int64, at Finding) error {
	object := io.LimitReader(stream, size)
	if err := r.Content(object, size, at); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, object)
	return err
}

// name scans the path of a file.
func (r *Reader) name(at Finding) {
	for _, secret := range leaks.Find([]byte(at.Path)) {
		r.add(Finding{Path: namePath, Commit: at.Commit}, 0, secret)
	}
}

// add adds a finding. Commits that contain the same version of a file are one finding.
func (r *Reader) add(at Finding, line int64, secret string) {
	at.Line, at.Secret, at.Hint = line, secret, keyring.SecretHint(secret)
	at.Path = keyring.Mask(at.Path)
	key := at
	if at.object != "" {
		key.Commit = ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[key] {
		return
	}
	if r.seen == nil {
		r.seen = map[Finding]bool{}
	}
	r.seen[key] = true
	r.found = append(r.found, at)
}
