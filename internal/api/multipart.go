package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/budget"
	"turnpike/internal/contentlog"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/web"
)

type form struct {
	values map[string][]string
	fields []providers.FormField // the same as values, in order and with their full names
	files  map[string][]providers.Upload
}

const (
	maxParts     = 100
	maxFormValue = 1 << 20
)

func (c *Call) isForm() bool {
	kind, _, err := mime.ParseMediaType(c.R.Header.Get("Content-Type"))
	return err == nil && kind == "multipart/form-data"
}

// readForm reads a form of at most Limits.ModelBody bytes.
func (c *Call) readForm() (*form, error) {
	_, params, err := mime.ParseMediaType(c.R.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		return nil, fault.Param(fault.UnsupportedMediaType, "Content-Type", "The form has no boundary. Send Content-Type: multipart/form-data; boundary=…")
	}
	body, err := c.readBody(c.Limits.ModelBody)
	if err != nil {
		return nil, err
	}
	f := &form{values: map[string][]string{}, files: map[string][]providers.Upload{}}
	parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for n := 0; ; n++ {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			c.setDeployment(f.values)
			c.content.SetForm(f.values, f.fileSizes())
			return f, nil
		}
		if err == nil && n == maxParts {
			return nil, fault.New(fault.InvalidParameter, "The form has more than %d parts.", maxParts)
		}
		if err == nil {
			err = c.addFormPart(f, part)
		}
		if f, ok := fault.As(err); ok {
			return nil, f
		}
		if err != nil {
			return nil, fault.New(fault.InvalidJSON, "The form is incomplete.").Because(err)
		}
	}
}

// addFormPart adds a part, which is a copy.
func (c *Call) addFormPart(f *form, part *multipart.Part) error {
	data, err := c.budget.ReadAll(budget.Source{From: part, Limit: c.Limits.ModelBody})
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(part.FormName(), "[]")
	if name == "" || !web.ValidText(name) {
		return fault.New(fault.InvalidParameter, "A part of the form has no valid name.")
	}
	if part.FileName() == "" {
		// A data: URL may be as long as a file.
		if len(data) > maxFormValue && name != referenceURL || !web.ValidText(string(data)) {
			return fault.Invalid(name, "%s must be a string of at most %d bytes. Send a file with a filename.", name, maxFormValue)
		}
		f.values[name] = append(f.values[name], string(data))
		f.fields = append(f.fields, providers.FormField{Name: part.FormName(), Value: string(data)})
		return nil
	}
	f.files[name] = append(f.files[name], providers.Upload{Name: web.Sanitize(part.FileName(), 256), ContentType: http.DetectContentType(data), Data: data})
	return nil
}

// fileSizes returns the files without their content.
func (f *form) fileSizes() (out []contentlog.FormFile) {
	for name, list := range f.files {
		for _, u := range list {
			out = append(out, contentlog.FormFile{Name: name, ContentType: u.ContentType, Size: len(u.Data)})
		}
	}
	return out
}

func (f *form) onlyFiles(names ...string) error {
	for name := range f.files {
		if !slices.Contains(names, name) {
			return fault.Param(fault.UnknownParameter, web.Sanitize(name, 64), "Unknown file %q. Allowed files: %s.", web.Sanitize(name, 64), strings.Join(names, ", "))
		}
	}
	return nil
}

func (f *form) text(name string) string {
	if list := f.values[name]; len(list) > 0 {
		return list[0]
	}
	return ""
}

// numbers are the values that are numbers or booleans in JSON.
var numbers = map[string]bool{"n": true, "output_compression": true, "partial_images": true, "stream": true}

// asJSON returns the form's values as the equivalent JSON body.
func (f *form) asJSON() ([]byte, error) {
	out := map[string]any{}
	for name, list := range f.values {
		if len(list) > 1 {
			return nil, fault.Invalid(name, "%s can be given only once.", name)
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

// identity returns the same bytes for forms with equal content, whatever their
// boundary.
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
