package dashboard

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"

	"turnpike/internal/fault"
	"turnpike/internal/web"
)

//go:embed static
var staticFiles embed.FS

type staticAsset struct {
	*web.Asset
	url string
}

// staticAssets are the files that pages load. The style sheet and the script are joined
// from files per area, in the order of their names.
var staticAssets = func() map[string]staticAsset {
	font := newAsset("inter.woff2", "font/woff2", joined("static/fonts/inter-latin.woff2"))
	style := bytes.Replace(joined("static/styles/*.css"), []byte(`"inter.woff2"`), []byte(`"`+font.url+`"`), 1)
	return map[string]staticAsset{
		"inter.woff2": font,
		"icon.svg":    newAsset("icon.svg", "image/svg+xml", joined("static/icon.svg")),
		"style.css":   newAsset("style.css", "text/css; charset=utf-8", style),
		"app.js":      newAsset("app.js", "text/javascript; charset=utf-8", joined("static/scripts/*.js")),

		"playground.js": newAsset("playground.js", "text/javascript; charset=utf-8", joined("static/playground/*.js")),
	}
}()

func newAsset(name, contentType string, body []byte) staticAsset {
	file := web.NewAsset(contentType, body)
	return staticAsset{file, "/dashboard/static/" + name + "?v=" + file.Version()}
}

func joined(pattern string) []byte {
	names, err := fs.Glob(staticFiles, pattern)
	if err != nil || len(names) == 0 {
		panic("no embedded file matches " + pattern)
	}
	var out bytes.Buffer
	for _, name := range names {
		body, err := staticFiles.ReadFile(name)
		if err != nil {
			panic(err) // it is embedded
		}
		out.Write(body)
	}
	return out.Bytes()
}

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

// icons are the drawings of Lucide's icons, by name. They are decoration: the text beside
// an icon, or the label of its button, says what it means.
var icons = func() map[string]template.HTML {
	names, err := fs.Glob(staticFiles, "static/icons/*.svg")
	if err != nil {
		panic(err)
	}
	out := make(map[string]template.HTML, len(names))
	for _, name := range names {
		svg, err := staticFiles.ReadFile(name)
		if err != nil {
			panic(err) // it is embedded
		}
		shapes := strings.Join(iconShape.FindAllString(string(svg), -1), "")
		out[strings.TrimSuffix(path.Base(name), ".svg")] = template.HTML(`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true">` + shapes + `</svg>`) //nolint:gosec // our own file
	}
	return out
}()

var iconShape = regexp.MustCompile(`<(path|circle|rect|line|polyline|polygon|ellipse) [^>]*/>`)

func showIcon(name string) (template.HTML, error) {
	shapes, found := icons[name]
	if !found {
		return "", fmt.Errorf("there is no icon %q", name)
	}
	return shapes, nil
}
