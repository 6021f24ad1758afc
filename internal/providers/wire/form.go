package wire

import (
	"bytes"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"

	"turnpike/internal/providers"
)

// Form is a multipart/form-data body. Its files are sent from where they are:
// there is no second copy of them.
type Form struct {
	writer *multipart.Writer
	pieces [][]byte
}

// NewForm makes an empty form.
func NewForm() *Form {
	f := new(Form)
	f.writer = multipart.NewWriter((*pieces)(&f.pieces))
	return f
}

// Field adds a field with a text.
func (f *Form) Field(name, value string) {
	_ = f.writer.WriteField(name, value) // pieces do not fail
}

// File adds a file under the name and type that its owner gave it. fallback is
// the name of one that has none.
func (f *Form) File(field, fallback string, file *providers.Upload) {
	name := file.Name
	if name == "" {
		name = fallback
	}
	_, _ = f.writer.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {multipart.FileContentDisposition(field, name)},
		"Content-Type":        {fileType(file)},
	})
	f.pieces = append(f.pieces, file.Data)
}

// Close ends the form. It returns the body and its type.
func (f *Form) Close() (body [][]byte, contentType string) {
	_ = f.writer.Close()
	return f.pieces, f.writer.FormDataContentType()
}

// fileType is the type that a file came with. One that cannot be a header's
// value is looked for in the file itself.
func fileType(file *providers.Upload) string {
	if kind, params, err := mime.ParseMediaType(file.ContentType); err == nil {
		if clean := mime.FormatMediaType(kind, params); clean != "" {
			return clean
		}
	}
	return http.DetectContentType(file.Data)
}

// pieces keeps what is written.
type pieces [][]byte

func (p *pieces) Write(b []byte) (int, error) {
	*p = append(*p, bytes.Clone(b))
	return len(b), nil
}
