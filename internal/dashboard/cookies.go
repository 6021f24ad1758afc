package dashboard

import (
	"encoding/json"
	"net/http"
	"time"
)

// Cookies. Over HTTPS their names start with __Host-, so that no other host and no
// plain connection can set them.
const (
	sessionCookie = "turnpike"
	partialCookie = "turnpike-half" // after the first of two factors
	oidcCookie    = "turnpike-oidc" // during sign-in at the provider
	flashCookie   = "turnpike-flash"
	deviceCookie  = "turnpike-device" // someone has signed in with this browser
	formCookie    = "turnpike-form"   // a form whose sender has to confirm or sign in first
	lastCookie    = "turnpike-last"   // workspace and environment
	themeCookie   = "turnpike-theme"  // light or dark
	startCookie   = "turnpike-start"  // a hidden checklist
)

func (req *request) cookieName(name string) string {
	if req.secure() {
		return "__Host-" + name
	}
	return name
}

func (req *request) cookie(name string) string {
	c, err := req.R.Cookie(req.cookieName(name))
	if err != nil {
		return ""
	}
	return c.Value
}

// setCookie sets a cookie for a time; 0 means for the browser session. An empty value
// deletes it.
func (req *request) setCookie(name, value string, lifetime time.Duration) {
	c := &http.Cookie{Name: req.cookieName(name), Value: value, Path: "/", HttpOnly: true, Secure: req.secure(), SameSite: http.SameSiteLaxMode,
		MaxAge: int(lifetime.Seconds())}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(req.W, c)
}

// sealedCookie is the content of an encrypted cookie.
type sealedCookie struct {
	Value any   `json:"v"`
	Until int64 `json:"u"` // even if the browser keeps the cookie longer
}

func (req *request) setSealed(name, context string, value any, lifetime time.Duration) {
	text, _ := json.Marshal(sealedCookie{value, req.now().Add(lifetime).Unix()}) // strings and a number: cannot fail
	req.setCookie(name, req.s.Ring.Seal(text, context), lifetime)
}

// openSealed reads a cookie into value. It reports false if the cookie is missing,
// expired, forged or for another context.
func (req *request) openSealed(name, context string, value any) bool {
	text, err := req.s.Ring.Open(req.cookie(name), context)
	c := sealedCookie{Value: value}
	return err == nil && json.Unmarshal(text, &c) == nil && req.now().Unix() <= c.Until
}

// flash is a message for the next page, which shows it once. It is encrypted: it may
// contain a secret, and no one else may put text on a page.
type flash struct {
	Notice string `json:"n,omitzero"`
	Note   string `json:"t,omitzero"` // that nothing has changed
	Secret string `json:"s,omitzero"` // that was just created, shown once
	Of     string `json:"o,omitzero"` // the ID that the secret belongs to
}

// flashLifetime is how long the browser may take to open the next page.
const flashLifetime = time.Minute

func (req *request) flashContext() string {
	if req.session == nil {
		return "flash"
	}
	return "flash " + req.session.ID
}

// takeFlash reads the flash and deletes it.
func (req *request) takeFlash() {
	if req.cookie(flashCookie) == "" {
		return
	}
	req.setCookie(flashCookie, "", 0)
	if f := (flash{}); req.openSealed(flashCookie, req.flashContext(), &f) {
		req.flash = f
	}
}

// shownSecret returns the secret of something that was just created.
func (req *request) shownSecret(id string) string {
	if req.flash.Of != id {
		return ""
	}
	return req.flash.Secret
}
