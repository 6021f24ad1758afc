package api

import (
	"context"

	"turnpike/internal/contentlog"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// contentHeader excludes a request from the content log, if the key or the project allows that.
const contentHeader = "Service-Content-Log"

// contentPaths are the endpoints whose content can be logged.
var contentPaths = map[string]bool{"/v1/chat/completions": true, "/v1/completions": true, responsesPath: true, "/v1/messages": true, "/v1/embeddings": true,
	"/v1/images/generations": true, "/v1/images/edits": true, "/v1/audio/speech": true}

// openContent starts to collect the request's content if its key or its project wants that.
func (c *Call) openContent() error {
	if !contentPaths[c.route.Path] {
		return nil
	}
	header := c.R.Header.Get(contentHeader)
	if header != "" && header != "off" {
		return fault.Param(fault.InvalidParameter, contentHeader, "%s must be off. Leave it out to follow the setting of the key and the project.", contentHeader)
	}
	days, optOut, err := c.contentSettings()
	if err != nil || days == 0 || header != "" && optOut {
		return err
	}
	c.content = contentlog.NewDraft(days)
	return nil
}

// contentSettings returns how long the request's content is kept, and whether the request can leave itself out. A key's own
// setting comes before its project's.
func (c *Call) contentSettings() (days int64, optOut bool, err error) {
	p := c.Principal
	if own := p.ContentDays; own != nil {
		return *own, p.ContentOptOut, nil
	}
	if c.Project == "" || c.newProject {
		return 0, false, nil
	}
	days, optOut, err = c.s.Projects.ContentLog(c.Context(), p.Tenant, c.Project)
	return days, optOut || p.ContentOptOut, err
}

// logContent queues the collected content. It is called before the log entry is settled, so that one commit
// has both.
func (c *Call) logContent() {
	if c.content == nil {
		return
	}
	if c.record != nil {
		c.s.Contents.Save(c.record.Entry(), c.content)
	}
	c.content = nil
}

type contentObject struct {
	Object    string     `json:"object"`
	RequestID string     `json:"request_id"`
	Request   partObject `json:"request"`
	Response  partObject `json:"response"`
	ExpiresAt int64      `json:"expires_at"`
}

type partObject struct {
	ContentType string `json:"content_type"`
	Body        string `json:"body"`
	Size        int64  `json:"size"`
	Truncated   bool   `json:"truncated"`
	Streamed    bool   `json:"streamed"`
}

func newPartObject(p contentlog.Part) partObject {
	return partObject{p.ContentType, p.Body, p.Size, p.Truncated, p.Streamed}
}

// getContent responds with a request's content. The admin log has the read before the client has the content.
func getContent(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	content, err := c.s.Contents.Read(ctx, tx, c.Actor(), c.Principal.Visibility(), c.id())
	return show(content, err, func(content *contentlog.Content) *contentObject {
		return &contentObject{"audit.content", content.RequestID, newPartObject(content.Request), newPartObject(content.Response), content.ExpiresAt.Unix()}
	})
}
