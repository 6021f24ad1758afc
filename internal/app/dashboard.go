package app

import (
	"net/http"
	"net/url"

	"turnpike/internal/api"
	"turnpike/internal/dashboard"
)

// faces leads a request to the pages or to the interface.
type faces struct {
	pages http.Handler
	api   *api.Server
}

func (f faces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if dashboard.Serves(r.URL.Path) {
		f.pages.ServeHTTP(w, r)
		return
	}
	f.api.ServeHTTP(w, r)
}

// facts are what the pages show of the settings.
func (a *App) facts() dashboard.Facts {
	f := dashboard.Facts{Version: a.version, RetryAfter: a.cfg.Webhooks.RetrySchedule, LogRetentionDays: a.cfg.Audit.RetentionDays, MailFrom: a.cfg.Mail.From}
	if u, err := url.Parse(string(a.cfg.SMTP.URL)); err == nil {
		f.MailServer = u.Host // without the password
	}
	return f
}
