package apifiles

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"turnpike/internal/db"
	"turnpike/internal/files"
	"turnpike/internal/keyring"
	"turnpike/internal/visibility"
)

const (
	// partSize is how much content is encrypted as one part. Reading a line decrypts the parts
	// that it is in.
	partSize   = 64 << 10
	sealedSize = partSize + keyring.SealedOverhead
	// contentType is that of the encrypted bytes.
	contentType = "application/octet-stream"
)

// partPlace binds a part to its position in its file.
func partPlace(id string, part int64) string { return fmt.Sprintf("file/%s/%d", id, part) }

// sealer encrypts what it reads.
type sealer struct {
	store *Store
	id    string
	from  io.Reader
	sum   hash.Hash // of the content
	bytes int64
	part  int64
	plain []byte
	ready []byte // encrypted, to be read
	err   error
}

func (r *sealer) Read(p []byte) (int, error) {
	for len(r.ready) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		n, err := fill(r.from, r.plain)
		r.err = err
		if n > 0 && (err == nil || err == io.EOF) {
			r.sum.Write(r.plain[:n])
			r.ready = r.store.ring.SealBytes(r.plain[:n], partPlace(r.id, r.part))
			r.bytes += int64(n)
			r.part++
		}
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

// fill reads until p is full or the source ends. Unlike io.ReadFull, it doesn't confuse the end with a
// source that breaks: a lost connection is io.ErrUnexpectedEOF, too.
func fill(from io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var more int
		more, err = from.Read(p[n:])
		n += more
	}
	return n, err
}

// Content is encrypted content on this node's disk.
type Content struct {
	Bytes int64
	Sum   string // the hash of the content itself

	id      string
	spooled *files.Spooled
}

// Discard deletes the content from this node's disk, unless it was stored.
func (c *Content) Discard() { c.spooled.Discard() }

// Spool encrypts the content of r for the file with an ID. The caller must discard it.
func (s *Store) Spool(id string, r io.Reader) (*Content, error) {
	from := &sealer{store: s, id: id, from: r, sum: sha256.New(), plain: make([]byte, partSize)}
	spooled, err := s.content.Spool(contentType, from)
	if err != nil {
		return nil, err
	}
	return &Content{Bytes: from.bytes, Sum: hex.EncodeToString(from.sum.Sum(nil)), id: id, spooled: spooled}, nil
}

// Keep stores the content, and returns the hash under which it is stored. Then insert the file's
// row, or drop the content.
func (s *Store) Keep(ctx context.Context, t visibility.Tenant, c *Content) (hash string, err error) {
	return c.spooled.SHA256, s.content.Keep(ctx, t, c.id, c.spooled)
}

// DropContent deletes the content of a file that has no row.
func (s *Store) DropContent(ctx context.Context, t visibility.Tenant, id string) error {
	return s.db.Write(ctx, func(tx *db.Tx) error { return s.content.Drop(ctx, tx, t, id) })
}

// Open reads a file's content from an offset. The caller must close it.
func (s *Store) Open(ctx context.Context, f *File, offset int64) (io.ReadCloser, error) {
	if offset < 0 || offset > f.Bytes {
		return nil, fmt.Errorf("file %s: offset %d is outside of its %d bytes", f.ID, offset, f.Bytes)
	}
	part := offset / partSize
	sealed, err := s.content.ReadFrom(ctx, f.Tenant, f.SHA256, part*sealedSize)
	if err != nil {
		return nil, err
	}
	r := &reader{store: s, file: f, from: bufio.NewReaderSize(sealed, sealedSize), close: sealed.Close, part: part}
	if _, err := io.CopyN(io.Discard, r, offset%partSize); err != nil {
		return nil, errors.Join(err, sealed.Close())
	}
	return r, nil
}

// reader decrypts a file. It fails if the content is shorter than the file's row says.
type reader struct {
	store *Store
	file  *File
	from  io.Reader
	close func() error
	part  int64
	plain []byte // decrypted, to be read
}

func (r *reader) Read(p []byte) (int, error) {
	for len(r.plain) == 0 {
		left := r.file.Bytes - r.part*partSize
		if left <= 0 {
			return 0, io.EOF
		}
		sealed := make([]byte, min(left, partSize)+keyring.SealedOverhead)
		if _, err := io.ReadFull(r.from, sealed); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, fmt.Errorf("file %s: %w", r.file.ID, err)
		}
		var err error
		if r.plain, err = r.store.ring.OpenBytes(sealed, partPlace(r.file.ID, r.part)); err != nil {
			return 0, fmt.Errorf("file %s: %w", r.file.ID, err)
		}
		r.part++
	}
	n := copy(p, r.plain)
	r.plain = r.plain[n:]
	return n, nil
}

func (r *reader) Close() error { return r.close() }
