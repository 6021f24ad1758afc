package events

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Events are kept longer than signed URLs are valid. So a stored body contains
// references to files, which become URLs when it is delivered or shown.

const refScheme = "file:"

// FileRef returns the reference that replaces a file's URL in a stored event; its
// url_expires_at is 0.
func FileRef(sha256, name string) string { return refScheme + sha256 + "/" + name }

func parseRef(s string) (sha256, name string, ok bool) {
	ref, ok := strings.CutPrefix(s, refScheme)
	if !ok {
		return "", "", false
	}
	return strings.Cut(ref, "/")
}

// HasFiles reports whether events of the type contain files.
func (t Type) HasFiles() bool {
	return t == ImageBatchCompleted || t == VideoRenderCompleted || t == VoiceRenderCompleted || t == VoiceTranscriptCompleted
}

// Link replaces the references in a body by URLs. It reads only the fields that
// hold URLs, so text of a customer is never taken for a reference. The same URLs
// produce the same bytes.
func Link(t Type, body []byte, mint func(sha256, name string) (url string, expiresAt int64)) ([]byte, error) {
	if !t.HasFiles() || !bytes.Contains(body, []byte(`"`+refScheme)) {
		return body, nil
	}
	l := linker{mint: mint}
	var data Payload
	var links func()
	switch t {
	case ImageBatchCompleted:
		d := new(ImageBatch)
		data, links = d, func() {
			for _, r := range d.Results {
				for i := range r.Images {
					l.link(&r.Images[i].URL, &r.Images[i].URLExpiresAt)
				}
			}
		}
	case VideoRenderCompleted:
		d := new(VideoRender)
		data, links = d, func() { l.linkOptional(d.URL, &d.URLExpiresAt) }
	case VoiceRenderCompleted:
		d := new(VoiceRender)
		data, links = d, func() { l.linkOptional(d.URL, &d.URLExpiresAt) }
	case VoiceTranscriptCompleted:
		d := new(VoiceTranscription)
		data, links = d, func() { l.linkOptional(d.URL, &d.URLExpiresAt) }
	}
	shape := envelope{Data: data}
	if err := json.Unmarshal(body, &shape); err != nil {
		return nil, fmt.Errorf("read event body: %w", err)
	}
	if links(); !l.found {
		return body, nil
	}
	linked, err := json.Marshal(shape, jsontext.EscapeForHTML(false), json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("event body: %w", err)
	}
	return linked, nil
}

// linker replaces references by URLs.
type linker struct {
	mint  func(sha256, name string) (url string, expiresAt int64)
	found bool
}

// linkOptional is link for a job that may have no file.
func (l *linker) linkOptional(url *string, expiresAt **int64) {
	if url == nil {
		return
	}
	if *expiresAt == nil {
		*expiresAt = new(int64)
	}
	l.link(url, *expiresAt)
}

func (l *linker) link(url *string, expiresAt *int64) {
	if sha256, name, ok := parseRef(*url); ok {
		*url, *expiresAt = l.mint(sha256, name)
		l.found = true
	}
}
