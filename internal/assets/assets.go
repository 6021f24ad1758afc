// Package assets is files that are part of the program and are sent to
// browsers, zipped to those that take it.
package assets

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"sync"
)

// File is one of them.
type File struct {
	contentType string
	body        []byte
	zipped      func() []byte // made when somebody asks for it first
}

// New makes a file of what must not change any more.
func New(contentType string, body []byte) *File {
	return &File{contentType: contentType, body: body, zipped: sync.OnceValue(func() []byte { return zip(body) })}
}

func zip(body []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // a level there is
	_, _ = w.Write(body)                                    // into memory: cannot fail
	_ = w.Close()
	return out.Bytes()
}

// Body is the file as it is.
func (f *File) Body() []byte { return f.body }

// Version names the content: an address that has it may be kept for good.
func (f *File) Version() string {
	sum := sha256.Sum256(f.body)
	return hex.EncodeToString(sum[:4])
}

var acceptsGzip = regexp.MustCompile(`(?i)(^|[, ])gzip *(,|$|; *q=(1|0\.\d*[1-9]))`)

// For is the file's type and the form of it that a request takes; the header
// of the answer is told which that is.
func (f *File) For(r *http.Request, answer http.Header) (contentType string, body []byte) {
	answer.Set("Vary", "Accept-Encoding")
	if acceptsGzip.MatchString(r.Header.Get("Accept-Encoding")) {
		answer.Set("Content-Encoding", "gzip")
		return f.contentType, f.zipped()
	}
	return f.contentType, f.body
}
