package dashboard

import (
	"embed"
	"net/http"

	"turnpike/internal/fault"
	"turnpike/internal/web"
)

//go:embed static
var staticFiles embed.FS

type staticAsset struct {
	*web.Asset
	url string
}

var staticAssets = func() map[string]staticAsset {
	out := map[string]staticAsset{}
	for name, contentType := range map[string]string{"style.css": "text/css; charset=utf-8", "app.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		body, err := staticFiles.ReadFile("static/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		file := web.NewAsset(contentType, body)
		out[name] = staticAsset{file, "/dashboard/static/" + name + "?v=" + file.Version()}
	}
	return out
}()

// staticURL returns a URL with the version of the file, which may be cached forever.
func staticURL(name string) string { return staticAssets[name].url }

func staticFile(req *request) (*view, error) {
	a, found := staticAssets[req.R.PathValue("file")]
	if !found {
		return nil, fault.New(fault.NotFound, "This file does not exist.")
	}
	h := req.W.Header()
	contentType, body := a.Negotiate(req.R, h)
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	req.WriteHeader(http.StatusOK)
	_, _ = req.W.Write(body) // the browser may have disconnected
	return nil, nil
}
