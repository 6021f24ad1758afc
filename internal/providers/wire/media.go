package wire

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
)

// MaxMedia bounds an answer with files in it: ten pictures in base64 have less.
const MaxMedia = 128 << 20

// ReadJSON reads and closes a body of at most limit bytes while it comes in,
// so that a large answer is never in memory twice. What others made is not
// ours to refuse over a doubled name or a broken character.
func ReadJSON(resp *http.Response, limit int64, into any, secrets ...string) error {
	defer resp.Body.Close()
	err := json.UnmarshalRead(&limited{resp.Body, limit, limit}, into,
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var known *providers.Failure
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.As(err, &known):
		return known
	}
	text := fmt.Sprintf("the answer (%s) cannot be read: %v", resp.Header.Get("Content-Type"), err)
	return &providers.Failure{Kind: providers.KindProtocol, Err: errors.New(Loggable(text, secrets...))}
}

// Base64 is a file inside JSON.
type Base64 []byte

// UnmarshalJSONFrom decodes the file from where the decoder holds it. Some
// servers send a data URL, and some leave the padding out.
func (b *Base64) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	value, err := d.ReadValue()
	if err != nil {
		return err
	}
	*b = nil
	switch value.Kind() {
	case 'n':
		return nil
	case '"':
	default:
		return errors.New("a file must be a string of base64")
	}
	text := []byte(value[1 : len(value)-1])
	if bytes.IndexByte(text, '\\') >= 0 {
		if text, err = jsontext.AppendUnquote(nil, value); err != nil {
			return err
		}
	}
	if bytes.HasPrefix(text, []byte("data:")) {
		_, text, _ = bytes.Cut(text, []byte(","))
	}
	text = bytes.TrimRight(text, "=")
	file := make([]byte, base64.RawStdEncoding.DecodedLen(len(text)))
	n, err := base64.RawStdEncoding.Decode(file, text)
	if err != nil {
		return errors.New("a file is no base64") // the error quotes a byte's place only, which says no more
	}
	*b = file[:n]
	return nil
}

// imageTypes are the pictures that an answer may have.
var imageTypes = []string{"image/png", "image/jpeg", "image/webp"}

// NewPicture finds out what a file is by its first bytes: what its maker says
// of it is not always true.
func NewPicture(file []byte, revisedPrompt string) (providers.Picture, error) {
	kind := http.DetectContentType(file)
	if !slices.Contains(imageTypes, kind) {
		return providers.Picture{}, &providers.Failure{Kind: providers.KindProtocol, Err: fmt.Errorf("%d bytes that are no picture but %s", len(file), kind)}
	}
	return providers.Picture{ContentType: kind, Data: file, RevisedPrompt: revisedPrompt}, nil
}
