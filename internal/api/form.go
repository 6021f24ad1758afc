package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

// form is the body of a request as multipart/form-data: values, and files.
type form struct {
	values map[string][]string
	files  map[string][]providers.Upload
}

const (
	maxParts     = 100
	maxFormValue = 1 << 20
)

// isForm reports whether a request's body is a form.
func (c *Call) isForm() bool {
	kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	return err == nil && kind == "multipart/form-data"
}

// readForm reads a form of at most as many bytes as a model call may have.
func (c *Call) readForm() (*form, error) {
	_, params, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		return nil, fault.Param(fault.UnsupportedMediaType, "Content-Type", "the form needs a boundary: send Content-Type: multipart/form-data; boundary=…")
	}
	body, err := c.readBody(c.s.Limits.ModelBody)
	if err != nil {
		return nil, err
	}
	if err := c.still(); err != nil {
		return nil, err
	}
	f := &form{values: map[string][]string{}, files: map[string][]providers.Upload{}}
	parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for n := 0; ; n++ {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return f, nil
		}
		if err == nil && n == maxParts {
			return nil, fault.New(fault.InvalidParameter, "the form has more than %d parts", maxParts)
		}
		if err == nil {
			err = f.add(part)
		}
		var told *fault.Error
		if errors.As(err, &told) {
			return nil, told
		}
		if err != nil {
			return nil, fault.New(fault.InvalidJSON, "the form cannot be read to its end").Because(err)
		}
	}
}

func (f *form) add(part *multipart.Part) error {
	data, err := io.ReadAll(part)
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(part.FormName(), "[]")
	if name == "" || !plainText(name) {
		return fault.New(fault.InvalidParameter, "a part of the form has no name")
	}
	if part.FileName() == "" {
		// A picture in a text is as long as one in a file may be.
		if len(data) > maxFormValue && name != referenceURL || !plainText(string(data)) {
			return fault.Invalid(name, "%s must be a text of at most %d bytes; a file needs a filename", name, maxFormValue)
		}
		f.values[name] = append(f.values[name], string(data))
		return nil
	}
	f.files[name] = append(f.files[name], providers.Upload{Name: masked(part.FileName(), 256), ContentType: http.DetectContentType(data), Data: data})
	return nil
}

// onlyFiles refuses files that nobody expects.
func (f *form) onlyFiles(names ...string) error {
	for name := range f.files {
		if !slices.Contains(names, name) {
			return fault.Param(fault.UnknownParameter, masked(name, 64), "there is no file %q here; there are: %s", masked(name, 64), strings.Join(names, ", "))
		}
	}
	return nil
}

// text is a value of the form, or empty.
func (f *form) text(name string) string {
	if list := f.values[name]; len(list) > 0 {
		return list[0]
	}
	return ""
}

// numbers are the form's values that are numbers or truth values in JSON.
var numbers = map[string]bool{"n": true, "output_compression": true, "partial_images": true, "stream": true}

// asJSON is the form's values as the JSON that would say the same.
func (f *form) asJSON() ([]byte, error) {
	out := map[string]any{}
	for name, list := range f.values {
		if len(list) > 1 {
			return nil, fault.Invalid(name, "%s may be given once", name)
		}
		out[name] = list[0]
		if numbers[name] {
			if v := jsontext.Value(list[0]); v.IsValid() {
				out[name] = v
			}
		}
	}
	return json.Marshal(out, json.Deterministic(true))
}

// identity is the same for forms that say the same, whatever their boundary.
func (f *form) identity() ([]byte, error) {
	sums := map[string][]string{}
	for name, list := range f.files {
		for _, file := range list {
			sum := sha256.Sum256(file.Data)
			sums[name] = append(sums[name], hex.EncodeToString(sum[:]))
		}
	}
	return json.Marshal([]any{f.values, sums}, json.Deterministic(true))
}
