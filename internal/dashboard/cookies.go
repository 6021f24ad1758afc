package dashboard

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
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
	formCookie    = "turnpike-form"   // a form whose sender has to confirm first
	lastCookie    = "turnpike-last"   // workspace and environment
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

// flash is a message for the next page, which shows it once.
type flash struct {
	Notice string `json:"n,omitzero"`
	Secret string `json:"s,omitzero"` // that was just created, shown once
	Of     string `json:"o,omitzero"` // the ID that the secret belongs to
	Until  int64  `json:"u,omitzero"` // even if the browser keeps the cookie longer
}

// flashLifetime is how long the browser may take to open the next page.
const flashLifetime = time.Minute

// setFlash encrypts the flash: it may contain a secret, and no one else may put text on
// a page.
func (req *request) setFlash(f flash) {
	f.Until = req.now().Add(flashLifetime).Unix()
	text, _ := json.Marshal(f) // strings and a number: cannot fail
	req.setCookie(flashCookie, req.s.Ring.Seal(text, req.flashContext()), flashLifetime)
}

func (req *request) flashContext() string {
	if req.session == nil {
		return "flash"
	}
	return "flash " + req.session.ID
}

// takeFlash reads the flash and deletes it.
func (req *request) takeFlash() *flash {
	sealed := req.cookie(flashCookie)
	if sealed == "" {
		return nil
	}
	req.setCookie(flashCookie, "", 0)
	text, err := req.s.Ring.Open(sealed, req.flashContext())
	if err != nil {
		return nil // of another session, or forged
	}
	var f flash
	if json.Unmarshal(text, &f) != nil || req.now().Unix() > f.Until {
		return nil
	}
	return &f
}

// savedForm is a form that was sent too long after the last proof of identity. Its page
// shows it filled in, once.
type savedForm struct {
	Fields url.Values `json:"f"`
	Until  int64      `json:"u"`
}

const (
	// savedFormLifetime is how long the person may take to confirm.
	savedFormLifetime = 10 * time.Minute
	// maxSavedForm is the largest form that fits into the cookie.
	maxSavedForm = 2 << 10
)

// unsavedFields are parts of the names of fields that aren't saved: secrets, and the role
// of a member, whose form is one of many on its page.
var unsavedFields = []string{"password", "current", "code", "token", "secret", "csrf", "response", "new_role"}

func isSaved(name string) bool {
	name = strings.ToLower(name)
	return !slices.ContainsFunc(unsavedFields, func(part string) bool { return strings.Contains(name, part) })
}

// saveForm encrypts the form for its page and this session. What doesn't fit has to be
// typed again.
func (req *request) saveForm() {
	form := savedForm{Fields: url.Values{}, Until: req.now().Add(savedFormLifetime).Unix()}
	for name, values := range req.R.PostForm {
		if isSaved(name) {
			form.Fields[name] = values
		}
	}
	text, _ := json.Marshal(form) // strings and a number: cannot fail
	if len(form.Fields) > 0 && len(text) <= maxSavedForm {
		req.setCookie(formCookie, req.s.Ring.Seal(text, req.formContext(req.formPath())), savedFormLifetime)
		return
	}
	req.clearSavedForm() // or the page would show an older form
}

// clearSavedForm deletes the saved form once an action is authorized.
func (req *request) clearSavedForm() {
	if req.cookie(formCookie) != "" {
		req.setCookie(formCookie, "", 0)
	}
}

func (req *request) formContext(page string) string { return "form " + req.session.ID + " " + page }

// formPath returns the path of the page with the form. A rejected form was shown at its
// own path, which redirects to its page.
func (req *request) formPath() string {
	page, _, _ := strings.Cut(refererPath(req.R), "?")
	if hasRoute(req.s.mux, http.MethodGet, page) {
		return page
	}
	return parentPage(req.s.mux, page)
}

// restoreForm fills in the form that was saved for this page and session, and deletes it.
func (req *request) restoreForm() {
	sealed := req.cookie(formCookie)
	if sealed == "" || req.session == nil {
		return
	}
	text, err := req.s.Ring.Open(sealed, req.formContext(req.R.URL.Path))
	if err != nil {
		return
	}
	req.setCookie(formCookie, "", 0)
	var form savedForm
	if json.Unmarshal(text, &form) != nil || req.now().Unix() > form.Until {
		return
	}
	req.restored = form.Fields
	if req.flash == nil {
		req.flash = &flash{Notice: "Nothing has changed yet. Send the form again."}
	}
}

// shownSecret returns the secret of something that was just created.
func (req *request) shownSecret(id string) string {
	if req.flash == nil || req.flash.Of != id {
		return ""
	}
	return req.flash.Secret
}
