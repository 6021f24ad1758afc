package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"sync"
)

// Asset is an embedded file that browsers download, compressed if they accept gzip.
type Asset struct {
	contentType string
	body        []byte
	compressed  func() []byte // computed by the first request for it
}

// NewAsset returns an asset. The caller must not change body afterwards.
func NewAsset(contentType string, body []byte) *Asset {
	return &Asset{contentType: contentType, body: body, compressed: sync.OnceValue(func() []byte { return compress(body) })}
}

func compress(body []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // a valid level
	_, _ = w.Write(body)                                    // into memory: cannot fail
	_ = w.Close()
	return out.Bytes()
}

// Body returns the uncompressed content.
func (a *Asset) Body() []byte { return a.body }

// Version identifies the content. Clients may cache a URL that contains it forever.
func (a *Asset) Version() string {
	sum := sha256.Sum256(a.body)
	return hex.EncodeToString(sum[:4])
}

var acceptsGzip = regexp.MustCompile(`(?i)(^|[, ])gzip *(,|$|; *q=(1|0\.\d*[1-9]))`)

// Negotiate returns the content type and the encoding of the body that the
// request accepts, and sets the headers that describe it.
func (a *Asset) Negotiate(r *http.Request, header http.Header) (contentType string, body []byte) {
	header.Set("Vary", "Accept-Encoding")
	if acceptsGzip.MatchString(r.Header.Get("Accept-Encoding")) {
		header.Set("Content-Encoding", "gzip")
		return a.contentType, a.compressed()
	}
	return a.contentType, a.body
}
