package contentlog

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// lenient is for JSON of clients and providers.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// slack is how much more is read than stored, so that a secret at the limit is masked as a whole.
const slack = 8 << 10

// cleanJSON removes secrets and binary data from JSON, and cuts it at maxBody.
func cleanJSON(body []byte) (text string, truncated bool) {
	var out bytes.Buffer
	c := cleaner{
		from: jsontext.NewDecoder(bytes.NewReader(body), lenient),
		to:   jsontext.NewEncoder(&out, lenient),
	}
	for c.to.OutputOffset() <= maxBody {
		err := c.next()
		if err == io.EOF {
			return cut(strings.TrimSuffix(out.String(), "\n"))
		}
		if err != nil { // the client got an error about it
			return cleanText(body)
		}
	}
	text, _ = cut(out.String())
	return text, true
}

// cleaner copies JSON token by token, so that secrets are found however they are escaped.
type cleaner struct {
	from *jsontext.Decoder
	to   *jsontext.Encoder
	// name is the member whose value comes next. headers is the depth of an object with headers, or 0.
	name    string
	headers int
}

func (c *cleaner) next() error {
	kind := c.from.PeekKind()
	isName := false
	if at, n := c.from.StackIndex(c.from.StackDepth()); at == jsontext.KindBeginObject {
		isName = n%2 == 0
	}
	if kind == jsontext.KindBeginArray && c.name == "embedding" {
		return c.replaceNumbers()
	}
	token, err := c.from.ReadToken()
	if err != nil {
		return err
	}
	switch {
	case kind == jsontext.KindBeginObject && strings.EqualFold(c.name, "headers") && c.headers == 0:
		c.headers = c.from.StackDepth()
	case kind == jsontext.KindEndObject && c.from.StackDepth() < c.headers:
		c.headers = 0
	}
	if kind != jsontext.KindString {
		if c.from.StackDepth() == 0 || kind != jsontext.KindBeginArray { // elements of an array have its name
			c.name = ""
		}
		return c.to.WriteToken(token)
	}
	text := token.String()
	if isName {
		c.name = text
		return c.to.WriteToken(jsontext.String(mask(text)))
	}
	switch {
	case c.isSecret():
		text = masked
	case c.name == "b64_json" && encoded.MatchString(text):
		text = decodedSize(text)
	default:
		text = mask(withoutBinary(text))
	}
	return c.to.WriteToken(jsontext.String(text))
}

// isSecret reports whether the next value is secret because of its name.
func (c *cleaner) isSecret() bool {
	if at, _ := c.from.StackIndex(c.from.StackDepth()); at == jsontext.KindBeginArray && c.headers == 0 {
		return false
	}
	return c.headers > 0 || secretNames[strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(c.name))]
}

// replaceNumbers replaces an array of numbers by their count.
func (c *cleaner) replaceNumbers() error {
	c.name = ""
	value, err := c.from.ReadValue()
	if err != nil {
		return err
	}
	return c.to.WriteToken(jsontext.String(fmt.Sprintf("[%d numbers]", bytes.Count(value, []byte(","))+1)))
}

// cleanText is cleanJSON for plain text.
func cleanText(body []byte) (string, bool) {
	return cut(mask(withoutBinary(strings.ToValidUTF8(string(body[:min(len(body), maxBody+slack)]), "\uFFFD"))))
}

func cut(s string) (string, bool) {
	if len(s) <= maxBody {
		return s, false
	}
	at := maxBody
	for at > 0 && !utf8.RuneStart(s[at]) {
		at--
	}
	return s[:at], true
}

// minBinary is the length from which a text without spaces can be binary data. Hashes and IDs are shorter.
const minBinary = 512

var (
	dataURL = regexp.MustCompile(`data:([A-Za-z0-9.+/-]+)(?:;[A-Za-z0-9=.+-]+)*;base64,([A-Za-z0-9+/=_-]*)`)
	encoded = regexp.MustCompile(`^[A-Za-z0-9+/_-]+={0,2}$`)
)

// withoutBinary replaces base64 by its size.
func withoutBinary(s string) string {
	if strings.Contains(s, ";base64,") {
		s = dataURL.ReplaceAllStringFunc(s, func(url string) string {
			m := dataURL.FindStringSubmatch(url)
			return placeholder(m[1], base64.StdEncoding.DecodedLen(len(m[2])))
		})
	}
	if len(s) >= minBinary && encoded.MatchString(s) {
		return decodedSize(s)
	}
	return s
}

// decodedSize returns the placeholder of base64.
func decodedSize(s string) string {
	return placeholder("binary", base64.RawStdEncoding.DecodedLen(len(strings.TrimRight(s, "="))))
}
