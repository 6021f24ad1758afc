package dashboard

import (
	"embed"
	"net/http"

	"turnpike/internal/assets"
	"turnpike/internal/fault"
)

//go:embed static
var staticFiles embed.FS

type staticAsset struct {
	*assets.File
	url string
}

var staticAssets = func() map[string]staticAsset {
	out := map[string]staticAsset{}
	for name, contentType := range map[string]string{"style.css": "text/css; charset=utf-8", "app.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		body, err := staticFiles.ReadFile("static/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		file := assets.New(contentType, body)
		out[name] = staticAsset{file, "/dashboard/static/" + name + "?v=" + file.Version()}
	}
	return out
}()

// staticURL names a file by its content, so that it may be kept for good.
func staticURL(name string) string { return staticAssets[name].url }

func staticFile(v *visit) (*view, error) {
	a, found := staticAssets[v.r.PathValue("file")]
	if !found {
		return nil, fault.New(fault.NotFound, "there is no such file")
	}
	h := v.w.Header()
	contentType, body := a.For(v.r, h)
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	v.WriteHeader(http.StatusOK)
	_, _ = v.w.Write(body) // a browser that left is no fault of ours
	return nil, nil
}
