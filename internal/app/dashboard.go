package app

import (
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/api"
	"turnpike/internal/clientip"
	"turnpike/internal/dashboard"
	"turnpike/internal/people"
	"turnpike/internal/safehttp"
)

// faces leads a request to the pages or to the interface.
type faces struct {
	pages  http.Handler
	api    *api.Server
	public *url.URL
	once   sync.Once // for the warning
}

func (f *faces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if proxy, ok := clientip.Forgotten(r, f.api.TrustedProxies); ok {
		f.once.Do(func() {
			slog.Warn("requests come with X-Forwarded-For from an address that is not among trusted_proxies; if that is your proxy, add it: until then everybody behind it has its address",
				"address", proxy)
		})
	}
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if clientip.IsHTTPS(r, f.public, f.api.TrustedProxies) {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	defer limitUnreadBody(w, r, unreadBodyTimeout)()
	if dashboard.Serves(r.URL.Path) {
		f.pages.ServeHTTP(w, r)
		return
	}
	f.api.ServeHTTP(w, r)
}

// facts are what the pages show of the settings.
func (a *instance) facts() dashboard.Facts {
	c := a.cfg
	f := dashboard.Facts{Version: a.version, RetryAfter: c.Webhooks.RetrySchedule, LogRetentionDays: c.Audit.RetentionDays, MailFrom: c.Mail.From,
		WebhookTimeout: c.Webhooks.Timeout, FileRetention: c.Files.Retention, BodyBytes: int64(c.Limits.BodyBytes), ModelBodyBytes: int64(c.Limits.ModelBodyBytes),
		LiveRequests: c.Limits.LiveRequestsPerMinute, LiveTokens: c.Limits.LiveTokensPerMinute, LiveInFlight: c.Limits.LiveInFlight, TestRequests: c.Limits.TestRequests(), TestFactor: c.Limits.TestFactor,
		TestTools: accounts.ToolMode(c.Agents.TestToolsDefault), ToolRequests: c.Agents.RequestsPerMinute, HostRequests: c.Agents.HostRequestsPerMinute}
	for _, p := range c.Providers {
		f.Providers = append(f.Providers, p.Name)
	}
	if u, err := url.Parse(string(a.cfg.SMTP.URL)); err == nil {
		f.MailServer = u.Host // without the password
	}
	return f
}

// signInTimeout is how long the sign-in provider may take for an answer, while
// somebody looks at an empty page.
const signInTimeout = 10 * time.Second

// signIn is the operator's provider of OpenID Connect, or nil.
func (a *instance) signIn() *dashboard.SignInProvider {
	o := a.cfg.OIDC
	if o.Issuer == "" {
		return nil
	}
	return &dashboard.SignInProvider{Name: o.Name, Provider: people.NewProvider(people.ProviderSettings{Issuer: o.Issuer, ClientID: o.ClientID,
		ClientSecret: string(o.ClientSecret), RedirectURL: a.URL() + dashboard.SignInCallback}, &http.Client{Timeout: signInTimeout, Transport: safehttp.WithoutUpgrades(nil)})}
}
