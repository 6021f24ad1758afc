package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"strings"

	"turnpike/internal/fault"
)

//go:embed static
var staticFiles embed.FS

type staticAsset struct {
	contentType  string
	body, zipped []byte
	url          string
}

var assets = func() map[string]*staticAsset {
	out := map[string]*staticAsset{}
	for name, contentType := range map[string]string{"style.css": "text/css; charset=utf-8", "app.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		body, err := staticFiles.ReadFile("static/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		var zipped bytes.Buffer
		w, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression) // a level there is
		_, _ = w.Write(body)                                       // into memory: cannot fail
		_ = w.Close()
		sum := sha256.Sum256(body)
		out[name] = &staticAsset{contentType, body, zipped.Bytes(), "/dashboard/static/" + name + "?v=" + hex.EncodeToString(sum[:4])}
	}
	return out
}()

// staticURL names a file by its content, so that it may be kept for good.
func staticURL(name string) string { return assets[name].url }

func staticFile(v *visit) (*view, error) {
	a := assets[v.r.PathValue("file")]
	if a == nil {
		return nil, fault.New(fault.NotFound, "there is no such file")
	}
	h := v.w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	body := a.body
	if strings.Contains(v.r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = a.zipped
	}
	v.WriteHeader(http.StatusOK)
	_, _ = v.w.Write(body) // a browser that left is no fault of ours
	return nil, nil
}
