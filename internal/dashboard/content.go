package dashboard

import (
	"encoding/json"
	"time"

	"turnpike/internal/contentlog"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// contentSection is the logged content of a request.
type contentSection struct {
	Until time.Time // when it expires; zero if none is stored
	Parts []contentPart
}

type contentPart struct {
	Title string
	contentlog.Part
	Text string // the body for people
}

// contentPage is requestPage with the content. The admin log has the read before the page is shown.
func contentPage(req *request) (*view, error) {
	shown, err := requestPage(req)
	if err != nil {
		return nil, err
	}
	content, err := req.readContent(req.id())
	if err != nil {
		return nil, err
	}
	shown.live = false // each refresh would be another read
	section := shown.data.(*requestData).Content
	for _, p := range []contentPart{{Title: "Request body", Part: content.Request}, {Title: "Response body", Part: content.Response}} {
		if p.Text = p.Body; !p.Truncated {
			p.Text = showJSON(p.Body)
		}
		p.Text = escapeInvisible(p.Text)
		section.Parts = append(section.Parts, p)
	}
	d := shown.data.(*requestData)
	if body := playable(content); body != nil && d.Curl != "" {
		d.Curl, d.Sent = curlCommand(d.Row.Entry, req.s.PublicURL, string(body)), true
	}
	return shown, nil
}

// readContent returns the content of a request and records that the person read it.
func (req *request) readContent(id string) (*contentlog.Content, error) {
	return writeValue(req, func(tx *db.Tx) (*contentlog.Content, error) {
		return req.s.Contents.Read(req.Context(), tx, req.actor(), req.principal.Visibility(), id)
	})
}

// playableBody returns the body of a logged request for the playground, or nil if the person can't read it or it isn't
// stored as a whole.
func (req *request) playableBody(id string) ([]byte, error) {
	content, err := req.readContent(id)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return playable(content), nil
}

// playable returns the body of a request that can be sent again, or nil.
func playable(content *contentlog.Content) []byte {
	body := []byte(content.Request.Body)
	if content.Request.Truncated || !json.Valid(body) {
		return nil
	}
	return body
}
