package contentlog

import (
	"fmt"
	"mime"
	"strings"

	"github.com/go-json-experiment/json"
)

// Draft collects the content of a request in progress. A nil Draft collects nothing.
type Draft struct {
	days     int64
	request  []byte
	response Part
	stream   *transcript // nil if the response isn't a stream
}

// NewDraft returns a draft of content that is kept for some days.
func NewDraft(days int64) *Draft { return &Draft{days: days} }

// SetRequest sets the body that the client sent. It must not be changed.
func (d *Draft) SetRequest(body []byte) {
	if d != nil {
		d.request = body
	}
}

// FormFile is a file in a form.
type FormFile struct {
	Name        string
	ContentType string
	Size        int
}

// SetForm sets the fields and files of a form. The log has only the names and sizes of files.
func (d *Draft) SetForm(values map[string][]string, files []FormFile) {
	if d == nil {
		return
	}
	body := map[string][]string{}
	for name, list := range values {
		body[name] = append(body[name], list...)
	}
	for _, f := range files {
		body[f.Name] = append(body[f.Name], placeholder(f.ContentType, f.Size))
	}
	d.request, _ = json.Marshal(body, json.Deterministic(true), lenient) // it has only strings
}

// SetResponse sets the body of a response that isn't a stream.
func (d *Draft) SetResponse(contentType string, body []byte) {
	if d != nil && d.stream == nil {
		d.response = newPart(contentType, body)
	}
}

// SetBinary sets a response by its size alone.
func (d *Draft) SetBinary(contentType string, size int64) {
	if d != nil {
		d.response = Part{Body: placeholder(contentType, int(size)), ContentType: contentType, Size: size}
	}
}

// AddEvent adds an event of a streamed response.
func (d *Draft) AddEvent(name string, data []byte) {
	if d == nil {
		return
	}
	if d.stream == nil {
		d.stream = &transcript{}
	}
	d.stream.add(name, data)
}

func (d *Draft) content() *Content {
	c := &Content{Request: newPart("application/json", d.request), Response: d.response}
	if d.stream != nil {
		c.Response = d.stream.part()
	}
	return c
}

// newPart removes secrets and binary data from a body.
func newPart(contentType string, body []byte) Part {
	p := Part{ContentType: contentType, Size: int64(len(body))}
	switch kind, _, _ := mime.ParseMediaType(contentType); {
	case strings.HasSuffix(kind, "json"):
		p.Body, p.Truncated = cleanJSON(body)
	case strings.HasPrefix(kind, "text/"):
		p.Body, p.Truncated = cleanText(body)
	default:
		p.Body = placeholder(contentType, len(body))
	}
	return p
}

// placeholder stands for binary data.
func placeholder(contentType string, size int) string {
	return fmt.Sprintf("[%s, %d bytes]", contentType, size)
}
