package tools

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"turnpike/internal/db"
)

func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return trimTo(s, n) + "…"
}

func trimTo(s string, n int) string {
	n = max(n, 0)
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:min(n, len(s))]
}

// excerpt returns at most n bytes of an untrusted text, redacted.
func excerpt(s string, headers map[string]string, n int) string {
	text, complete := redactPrefix(db.Storable(s), headers, n)
	if complete {
		return text
	}
	return text + "…"
}

// modelText returns a text as the model sees it: redacted, limited, and with a note if it was cut.
func modelText(s string, headers map[string]string, limit int) string {
	text, complete := redactPrefix(db.Storable(s), headers, limit)
	if complete {
		return text
	}
	return text + fmt.Sprintf("…\n[cut: the response is longer than %d KiB]", limit>>10)
}

// readText returns the text of a response body. If it is not text, it returns a
// message about that instead.
func readText(contentType string, body []byte, headers map[string]string) (text string, ok bool) {
	if contentType == "" {
		contentType = http.DetectContentType(body)
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		media = "application/octet-stream"
	}
	whole := body
	if len(body) == readBytes { // the last character may be incomplete
		for len(whole) > readBytes-utf8.UTFMax && !utf8.RuneStart(whole[len(whole)-1]) {
			whole = whole[:len(whole)-1]
		}
		whole = whole[:len(whole)-1]
	}
	isText := strings.HasPrefix(media, "text/") || media == "application/json" || strings.HasSuffix(media, "+json")
	if bytes.IndexByte(body, 0) >= 0 || !isText && !utf8.Valid(whole) {
		return fmt.Sprintf("the response is %s, which is not text and cannot be shown", excerpt(media, headers, 100)), false
	}
	limit := maxOutput
	if media == "text/html" || media == "application/xhtml+xml" {
		limit = maxPage
	}
	return modelText(string(body), headers, limit), true
}

// statusText returns a status such as "404 Not Found".
func statusText(code int) string {
	if name := http.StatusText(code); name != "" {
		return fmt.Sprintf("%d %s", code, name)
	}
	return fmt.Sprint(code)
}
