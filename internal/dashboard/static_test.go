package dashboard

import (
	"net/http"
	"strings"
	"testing"
)

// maxScripts is the size of all scripts together, compressed.
const maxScripts = 60_000

func TestScriptsStaySmall(t *testing.T) {
	t.Parallel()
	files, size := 0, 0
	for name, a := range staticAssets {
		if strings.HasSuffix(name, ".js") {
			_, body := a.Negotiate(&http.Request{Header: http.Header{"Accept-Encoding": {"gzip"}}}, http.Header{})
			files, size = files+1, size+len(body)
		}
	}
	if files < 2 || size > maxScripts {
		t.Errorf("%d scripts have %d bytes compressed, want at most %d", files, size, maxScripts)
	}
}
