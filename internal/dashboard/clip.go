package dashboard

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// clipped is a text that may be cut off.
type clipped struct {
	Text string
	Cut  int // characters that are left out
}

// clip keeps the first characters of a text.
func clip(s string, most int) clipped {
	if len(s) <= most {
		return clipped{Text: s}
	}
	n := 0
	for i := range s {
		if n == most {
			return clipped{Text: s[:i], Cut: utf8.RuneCountInString(s[i:])}
		}
		n++
	}
	return clipped{Text: s}
}

// exactly shows a text of which every character counts: those that cannot be
// seen, or that turn the direction of others around, are written as JSON
// writes them.
func exactly(s string) string {
	hidden := func(r rune) bool {
		return r != '\n' && r != '\t' && r != ' ' && (unicode.Is(unicode.C, r) || unicode.Is(unicode.Z, r))
	}
	if strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		switch {
		case !hidden(r):
			out.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xD800+(r>>10), 0xDC00+(r&0x3FF))
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}
