package tools

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"
)

// cut shortens a text to at most n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// clean makes what strangers sent fit to be stored: both databases take valid
// UTF-8 without NUL.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// brief is at most n bytes of what a stranger said, without secrets.
func brief(s string, headers map[string]string, n int) string {
	text, whole := hideWithin(clean(s), headers, n)
	if whole {
		return text
	}
	return text + "…"
}

// shown is a text as the model sees it: without secrets, bounded, and with a
// word about what is missing.
func shown(s string, headers map[string]string, limit int) string {
	text, whole := hideWithin(clean(s), headers, limit)
	if whole {
		return text
	}
	return text + fmt.Sprintf("…\n[cut: the answer is longer than %d KiB]", limit>>10)
}

// readable turns an answer's body into text, or says that it is none.
func readable(contentType string, body []byte, headers map[string]string) (text string, ok bool) {
	if contentType == "" {
		contentType = http.DetectContentType(body)
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		media = "application/octet-stream"
	}
	whole := body
	if len(body) == readBytes { // there may be more, and a character in two
		for len(whole) > readBytes-utf8.UTFMax && !utf8.RuneStart(whole[len(whole)-1]) {
			whole = whole[:len(whole)-1]
		}
		whole = whole[:len(whole)-1]
	}
	texty := strings.HasPrefix(media, "text/") || media == "application/json" || strings.HasSuffix(media, "+json")
	if bytes.IndexByte(body, 0) >= 0 || !texty && !utf8.Valid(whole) {
		return fmt.Sprintf("the answer is %s, which is not text and cannot be shown", brief(media, headers, 100)), false
	}
	limit := maxOutput
	if media == "text/html" || media == "application/xhtml+xml" {
		limit = maxPage
	}
	return shown(string(body), headers, limit), true
}

// statusText is a status as people know it: 404 Not Found.
func statusText(code int) string {
	if name := http.StatusText(code); name != "" {
		return fmt.Sprintf("%d %s", code, name)
	}
	return fmt.Sprint(code)
}
