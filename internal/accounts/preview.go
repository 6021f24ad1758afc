package accounts

import "strings"

// maxPreview is how many characters of its input a job or a run keeps for lists.
const maxPreview = 140

// Preview returns the beginning of a text in one line.
func Preview(text string) string {
	var out strings.Builder
	length := 0
	for word := range strings.FieldsSeq(strings.ToValidUTF8(text[:min(len(text), maxPreviewBytes)], "")) {
		if length > 0 {
			out.WriteByte(' ')
			length++
		}
		for _, r := range word {
			if length == maxPreview {
				return out.String() + "…"
			}
			if r == 0 { // PostgreSQL rejects NUL
				continue
			}
			out.WriteRune(r)
			length++
		}
	}
	return out.String()
}

// maxPreviewBytes bounds how much of a text is read, which may be mostly white space.
const maxPreviewBytes = 16 << 10
