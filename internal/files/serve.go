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

	"turnpike/internal/fault"
)

const (
	// storagePatience is how long a request waits for the row and for the
	// bucket's answer that the file is there.
	storagePatience = 4 * time.Second
	// bucketLink is how long the bucket's own URL can be used to begin a
	// download.
	bucketLink = 15 * time.Minute
)

// Serve answers a request for a signed URL, which is all that it asks for. An
// error means that nothing was written yet.
func (s *Store) Serve(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	// The URL is the secret: a page that has it may read what is there.
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "Content-Disposition, Content-Range, ETag, X-Request-Id")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		return fault.New(fault.MethodNotAllowed, "files can be read with GET and HEAD")
	}
	l, left, err := s.check(r)
	if err != nil {
		return err
	}
	return s.send(w, r, l, left)
}

// Send sends a file to somebody who may have it. An error means that nothing
// was written yet.
func (s *Store) Send(w http.ResponseWriter, r *http.Request, o Owner, f File, name string) error {
	return s.send(w, r, link{Owner: o, sha256: f.SHA256, name: name}, bucketLink)
}

// send answers with the file of a link, which is good for a while.
func (s *Store) send(w http.ResponseWriter, r *http.Request, l link, left time.Duration) error {
	h := w.Header()
	f, err := s.look(r.Context(), l)
	if errors.Is(err, ErrGone) {
		return fault.New(fault.NotFound, "the file is gone: it was deleted, or its time is over").Because(err)
	}
	if err != nil {
		return err
	}
	shown := disposition(f.ContentType, l.name)
	if s.fromBucket && s.bucket != nil && r.Method == http.MethodGet {
		there, err := s.bucket.signedURL(r.Context(), l.key(l.sha256), f, shown, min(left, bucketLink))
		if err != nil {
			return fault.New(fault.StorageUnavailable, "the file cannot be read at the moment; try again shortly").Because(err)
		}
		h.Set("Cache-Control", "no-store")
		http.Redirect(w, r, there, http.StatusFound)
		return nil
	}
	h.Set("Content-Type", f.ContentType)
	h.Set("Content-Disposition", shown)
	h.Set("ETag", `"`+f.SHA256+`"`)
	h.Set("Cache-Control", fmt.Sprintf("private, max-age=%d, immutable", int64(left.Seconds())))
	// What a model made is nothing to be run here.
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	c := &content{ctx: r.Context(), store: s, key: l.key(l.sha256), size: f.Bytes}
	http.ServeContent(w, r, "", time.Time{}, c)
	if err := c.Close(); err != nil && r.Context().Err() == nil {
		slog.Warn("a download was cut off", "sha256", f.SHA256, "error", err)
	}
	return nil
}

// Handler is Serve with errors in plain words, for where no edge puts them
// into the form of the interface.
func (s *Store) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.Serve(w, r)
		if err == nil {
			return
		}
		f, ok := fault.As(err)
		if !ok {
			f = fault.New(fault.StorageUnavailable, "the file cannot be read at the moment; try again shortly")
		}
		http.Error(w, string(f.Code)+": "+f.Message, fault.FamilyOf(f.Code).Status)
	})
}

// look finds the file's row, and makes sure that its bytes are there before
// anything is said about them.
func (s *Store) look(ctx context.Context, l link) (File, error) {
	ctx, cancel := context.WithTimeout(ctx, storagePatience)
	defer cancel()
	f, err := s.find(ctx, l.Owner, l.sha256)
	if err != nil {
		return f, err
	}
	there, err := s.has(ctx, l.key(l.sha256), f.Bytes)
	if err == nil && !there {
		err = s.storage.reachable(ctx)
	}
	if err != nil {
		return f, fault.New(fault.StorageUnavailable, "the file cannot be read at the moment; try again shortly").Because(err)
	}
	if !there {
		return f, ErrGone
	}
	return f, nil
}

// disposition shows what a browser can show, and has the rest saved.
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

// content reads a file from wherever it was sought to, and opens it no sooner.
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

// Close returns what went wrong on the way.
func (c *content) Close() error {
	if c.open != nil {
		_ = c.open.Close()
	}
	return c.err
}
