package events

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// An event speaks of files for as long as it is kept, a URL lives for days at
// most. So a stored body refers to files, and its links are minted when it is
// delivered or shown.

const refScheme = "file:"

// FileRef is what stands for a file's url in the data of an event; its
// url_expires_at is 0.
func FileRef(sha256, name string) string { return refScheme + sha256 + "/" + name }

func parseRef(s string) (sha256, name string, ok bool) {
	ref, ok := strings.CutPrefix(s, refScheme)
	if !ok {
		return "", "", false
	}
	return strings.Cut(ref, "/")
}

// HasFiles reports whether events of the type speak of files.
func (t Type) HasFiles() bool {
	return t == ImageBatchCompleted || t == VideoRenderCompleted || t == VoiceRenderCompleted
}

// Link is the body with a link in the place of each reference. Only the fields
// for it are looked at: what a customer wrote is never taken for a reference.
// The same links make the same bytes.
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
	}
	shape := envelope{Data: data}
	if err := json.Unmarshal(body, &shape); err != nil {
		return nil, fmt.Errorf("read the body of an event: %w", err)
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

// linker puts links where references are.
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
