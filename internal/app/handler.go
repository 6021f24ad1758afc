package app

import (
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/api"
	"turnpike/internal/clientip"
	"turnpike/internal/config"
	"turnpike/internal/dashboard"
	"turnpike/internal/people"
	"turnpike/internal/safehttp"
	"turnpike/internal/web"
)

type handler struct {
	pages   http.Handler
	api     *api.Server
	public  *url.URL
	trusted func() []netip.Prefix // proxies
	once    sync.Once             // for the warning
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	trusted := h.trusted()
	if proxy, ok := clientip.UntrustedProxy(r, trusted); ok {
		h.once.Do(func() {
			slog.Warn("requests have X-Forwarded-For but their address is not in trusted_proxies; if it is your proxy, add it, because all of its clients share one address until then",
				"address", proxy)
		})
	}
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	if clientip.IsHTTPS(r, h.public, trusted) {
		header.Set("Strict-Transport-Security", "max-age=31536000")
	}
	defer web.LimitUnreadBody(w, r, web.UnreadBodyTimeout)()
	if dashboard.Serves(r.URL.Path) {
		h.pages.ServeHTTP(w, r)
		return
	}
	h.api.ServeHTTP(w, r)
}

func (i *instance) facts() dashboard.Facts { return i.settings.Load().facts }

func (i *instance) trustedProxies() []netip.Prefix { return i.settings.Load().api.TrustedProxies }

func (i *instance) newFacts(c config.Config) dashboard.Facts {
	f := dashboard.Facts{Version: i.version, RetryAfter: c.Webhooks.RetrySchedule, LogRetentionDays: c.Audit.KeptDays(), MailFrom: c.Mail.From,
		WebhookTimeout: c.Webhooks.Timeout, FileRetention: c.Files.Retention, BodyBytes: int64(c.Limits.BodyBytes), ModelBodyBytes: int64(c.Limits.ModelBodyBytes),
		LiveRequests: c.Limits.LiveRequestsPerMinute, LiveTokens: c.Limits.LiveTokensPerMinute, LiveInFlight: c.Limits.LiveInFlight, TestRequests: c.Limits.TestRequests(), TestFactor: c.Limits.TestFactor,
		TestTools: accounts.ToolMode(c.Agents.TestToolsDefault), ToolRequests: c.Agents.RequestsPerMinute, HostRequests: c.Agents.HostRequestsPerMinute}
	for _, p := range c.Providers {
		f.Providers = append(f.Providers, p.Name)
	}
	if u, err := url.Parse(string(c.SMTP.URL)); err == nil {
		f.MailServer = u.Host // without the password
	}
	return f
}

// signInTimeout is how long a person waits for the sign-in provider.
const signInTimeout = 10 * time.Second

// newSignIn returns the configured OpenID Connect provider, or nil.
func (i *instance) newSignIn(o config.OIDC) *dashboard.SignInProvider {
	if o.Issuer == "" {
		return nil
	}
	return &dashboard.SignInProvider{Name: o.Name, Provider: people.NewProvider(people.ProviderSettings{Issuer: o.Issuer, ClientID: o.ClientID,
		ClientSecret: string(o.ClientSecret), RedirectURL: i.URL() + dashboard.SignInCallback, TrustEmail: o.TrustEmail}, &http.Client{Timeout: signInTimeout, Transport: safehttp.Bounded(nil)})}
}
