package wire

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
)

// Lenient decodes JSON of providers, which may have duplicate names and invalid UTF-8.
var Lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// MaxMedia limits a response with files; ten images in base64 have less.
const MaxMedia = 128 << 20

// ReadJSON decodes and closes a body of at most limit bytes while it arrives, so
// that a large response is never in memory twice.
func ReadJSON(resp *http.Response, limit int64, into any, secrets ...string) error {
	defer resp.Body.Close()
	err := json.UnmarshalRead(budgetOf(resp.Body).ChargeJSON(resp.Body, limit), into, Lenient)
	if err == nil {
		return nil
	}
	if known := knownFailure(err); known != nil {
		return known
	}
	text := fmt.Sprintf("cannot decode the response (%s): %v", resp.Header.Get("Content-Type"), err)
	return ProtocolFailure("%s", Loggable(text, secrets...))
}

// Base64 is a file inside JSON.
type Base64 []byte

// UnmarshalJSONFrom decodes the file.
func (b *Base64) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	var text string
	if err := json.UnmarshalDecode(d, &text); err != nil {
		return err
	}
	file, err := DecodeBase64(text)
	*b = file
	return err
}

// DecodeBase64 decodes a file. Some servers send a data URL, and some omit the padding.
func DecodeBase64(text string) ([]byte, error) {
	if strings.HasPrefix(text, "data:") {
		_, text, _ = strings.Cut(text, ",")
	}
	file, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return nil, errors.New("a file isn't valid base64")
	}
	return file, nil
}

// NewImage detects the media type by the first bytes, because a provider's own isn't always right.
func NewImage(file []byte, revisedPrompt string) (providers.Image, error) {
	kind := http.DetectContentType(file)
	if !slices.Contains([]string{"image/png", "image/jpeg", "image/webp"}, kind) {
		return providers.Image{}, ProtocolFailure("%d bytes of %s instead of an image", len(file), kind)
	}
	return providers.Image{ContentType: kind, Data: file, RevisedPrompt: revisedPrompt}, nil
}

// Form is a multipart/form-data body.
type Form struct {
	buffer bytes.Buffer
	writer *multipart.Writer
}

// NewForm returns an empty form.
func NewForm() *Form {
	f := new(Form)
	f.writer = multipart.NewWriter(&f.buffer)
	return f
}

// Field adds a text field.
func (f *Form) Field(name, value string) {
	_ = f.writer.WriteField(name, value) // a buffer doesn't fail
}

// File adds a file with its own name, or fallback if it has none.
func (f *Form) File(field, fallback string, file *providers.Upload) {
	part, _ := f.writer.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {multipart.FileContentDisposition(field, cmp.Or(file.Name, fallback))},
		"Content-Type":        {fileType(file)},
	})
	_, _ = part.Write(file.Data)
}

// Close ends the form and returns the body and its content type.
func (f *Form) Close() (body []byte, contentType string) {
	_ = f.writer.Close()
	return f.buffer.Bytes(), f.writer.FormDataContentType()
}

// fileType returns the type that a file came with, or detects it if that isn't a
// valid header value.
func fileType(file *providers.Upload) string {
	if kind, params, err := mime.ParseMediaType(file.ContentType); err == nil {
		if clean := mime.FormatMediaType(kind, params); clean != "" {
			return clean
		}
	}
	return http.DetectContentType(file.Data)
}

// FileOptions say how ReadFile recognizes a file.
type FileOptions struct {
	Type    string // if the response has no media type
	Raw     bool   // the file may begin with any byte
	Secrets []string
	// Explain returns the failure that a text in place of the file describes, or
	// nil. It may be nil.
	Explain func(status int, text []byte) error
}

// ReadFile returns the body of a response as a file that is still arriving.
// Text instead of the file is a failure with any status.
func ReadFile(resp *http.Response, o FileOptions) (*providers.Content, error) {
	header := resp.Header.Get("Content-Type")
	kind, _, _ := mime.ParseMediaType(header)
	family, _, _ := strings.Cut(kind, "/")
	first := make([]byte, 512)
	n, err := io.ReadAtLeast(resp.Body, first, 1)
	first = first[:n]
	body := startedBody{io.MultiReader(strings.NewReader(string(first)), resp.Body), resp.Body}
	isText := family == "text" || strings.HasSuffix(kind, "json") || strings.HasSuffix(kind, "xml")
	switch {
	case err == io.EOF:
		err = ProtocolFailure("an empty response (%s) instead of a file", Loggable(header, o.Secrets...))
	case err == nil && (isText || !o.Raw && (first[0] == '{' || first[0] == '<')):
		err = o.textFailure(resp, body)
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	if family == "audio" || family == "video" || family == "image" {
		o.Type = header
	}
	return &providers.Content{ContentType: o.Type, Size: resp.ContentLength, Body: body}, nil
}

func (o *FileOptions) textFailure(resp *http.Response, body io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
	if err != nil {
		return err
	}
	if o.Explain != nil {
		if err := o.Explain(resp.StatusCode, text); err != nil {
			return err
		}
	}
	return ProtocolFailure("text (%s) instead of a file", Loggable(resp.Header.Get("Content-Type"), o.Secrets...))
}

// startedBody is a body whose first bytes were already read.
type startedBody struct {
	io.Reader
	io.Closer
}
