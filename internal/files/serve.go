package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/fault"
)

const (
	// storageTimeout limits how long a request waits for the file's row and for
	// the bucket's response that the file exists.
	storageTimeout = 4 * time.Second
	// bucketLink is how long the bucket's URL can be used to start a download.
	bucketLink = 15 * time.Minute
)

// Serve responds to a request for a signed URL. It needs no other credentials.
// If it returns an error, it hasn't written anything.
func (s *Store) Serve(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	// The URL is the secret, so any page that has it may read the file.
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "Content-Disposition, Content-Range, ETag, X-Request-Id")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		return fault.New(fault.MethodNotAllowed, "Use GET or HEAD to read a file.")
	}
	l, left, err := s.check(r)
	if err != nil {
		return err
	}
	return s.send(w, r, l, left)
}

// Send sends a file to an authorized client. If it returns an error, it hasn't
// written anything.
func (s *Store) Send(w http.ResponseWriter, r *http.Request, t accounts.Tenant, f File, name string) error {
	return s.send(w, r, link{Tenant: t, sha256: f.SHA256, name: name}, bucketLink)
}

// send sends a link's file. The response may be cached for left.
func (s *Store) send(w http.ResponseWriter, r *http.Request, l link, left time.Duration) error {
	h := w.Header()
	f, err := s.stat(r.Context(), l)
	if errors.Is(err, ErrGone) {
		return fault.New(fault.NotFound, "The file was deleted or has expired.").Because(err)
	}
	if err != nil {
		return err
	}
	shown := disposition(f.ContentType, l.name)
	if s.fromBucket && s.bucket != nil && r.Method == http.MethodGet {
		there, err := s.bucket.signedURL(r.Context(), objectKey(l.Tenant, l.sha256), f, shown, min(left, bucketLink))
		if err != nil {
			return fault.New(fault.StorageUnavailable, "The file cannot be read at the moment. Retry shortly.").Because(err)
		}
		h.Set("Cache-Control", "no-store")
		http.Redirect(w, r, there, http.StatusFound)
		return nil
	}
	h.Set("Content-Type", f.ContentType)
	h.Set("Content-Disposition", shown)
	h.Set("ETag", `"`+f.SHA256+`"`)
	h.Set("Cache-Control", fmt.Sprintf("private, max-age=%d, immutable", int64(left.Seconds())))
	// Browsers must not execute generated content.
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	c := &content{ctx: r.Context(), store: s, key: objectKey(l.Tenant, l.sha256), size: f.Bytes}
	http.ServeContent(w, r, "", time.Time{}, c)
	if err := c.Close(); err != nil && r.Context().Err() == nil {
		slog.Warn("failed to send a file; the client got a part of it", "sha256", f.SHA256, "error", err)
	}
	return nil
}

// stat returns the file's metadata, and fails if its bytes are missing.
func (s *Store) stat(ctx context.Context, l link) (File, error) {
	ctx, cancel := context.WithTimeout(ctx, storageTimeout)
	defer cancel()
	f, err := s.find(ctx, l.Tenant, l.sha256)
	if err != nil {
		return f, err
	}
	there, err := s.has(ctx, objectKey(l.Tenant, l.sha256), f.Bytes)
	if err == nil && !there {
		err = s.storage.reachable(ctx)
	}
	if err != nil {
		return f, fault.New(fault.StorageUnavailable, "The file cannot be read at the moment. Retry shortly.").Because(err)
	}
	if !there {
		return f, ErrGone
	}
	return f, nil
}

// disposition returns inline for media that browsers can show, else attachment.
func disposition(contentType, name string) string {
	kind := "attachment"
	for _, shown := range []string{"image/", "audio/", "video/"} {
		if strings.HasPrefix(contentType, shown) {
			kind = "inline"
		}
	}
	if whole := mime.FormatMediaType(kind, map[string]string{"filename": name}); whole != "" {
		return whole
	}
	return kind
}

// content is an io.ReadSeeker that opens the object on the first read after a
// seek.
type content struct {
	ctx   context.Context
	store *Store
	key   string
	size  int64
	at    int64
	open  io.ReadCloser
	err   error
}

func (c *content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning")
	}
	if offset != c.at && c.open != nil {
		_ = c.open.Close()
		c.open = nil
	}
	c.at = offset
	return offset, nil
}

func (c *content) Read(p []byte) (int, error) {
	if c.at >= c.size {
		return 0, io.EOF
	}
	if c.open == nil {
		r, err := c.store.storage.open(c.ctx, c.key, c.at)
		if err != nil {
			c.err = err
			return 0, err
		}
		c.open = r
	}
	n, err := c.open.Read(p)
	c.at += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// Close returns the first read error.
func (c *content) Close() error {
	if c.open != nil {
		_ = c.open.Close()
	}
	return c.err
}
