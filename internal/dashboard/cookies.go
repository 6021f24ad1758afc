package dashboard

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The cookies. Over HTTPS their names begin with __Host-, so that no other host
// and no plain connection can set them.
const (
	sessionCookie = "turnpike"
	halfCookie    = "turnpike-half" // the first factor was right
	oidcCookie    = "turnpike-oidc" // on the way to the sign-in provider and back
	flashCookie   = "turnpike-flash"
	deviceCookie  = "turnpike-device" // somebody has signed in with this browser
	typedCookie   = "turnpike-form"   // a form that waits for a proof of who somebody is
	lastCookie    = "turnpike-last"   // workspace and environment
)

func (v *visit) cookieName(name string) string {
	if v.secure() {
		return "__Host-" + name
	}
	return name
}

func (v *visit) cookie(name string) string {
	c, err := v.r.Cookie(v.cookieName(name))
	if err != nil {
		return ""
	}
	return c.Value
}

// setCookie lasts for a time; 0 is as long as the browser runs. An empty value
// removes it.
func (v *visit) setCookie(name, value string, lasting time.Duration) {
	c := &http.Cookie{Name: v.cookieName(name), Value: value, Path: "/", HttpOnly: true, Secure: v.secure(), SameSite: http.SameSiteLaxMode,
		MaxAge: int(lasting.Seconds())}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(v.w, c)
}

// flash is what one page leaves for the next to say, once.
type flash struct {
	Notice string `json:"n,omitzero"`
	Secret string `json:"s,omitzero"` // of what was just made: shown this once
	Of     string `json:"o,omitzero"` // the id that the secret belongs to
	Until  int64  `json:"u,omitzero"` // whatever the browser does with the cookie
}

// flashLasts is how long the browser may take to come to the next page.
const flashLasts = time.Minute

// setFlash seals it: a secret is in it perhaps, and nobody else may put words
// on a page.
func (v *visit) setFlash(f flash) {
	f.Until = v.now().Add(flashLasts).Unix()
	text, _ := json.Marshal(f) // texts and a number: cannot fail
	v.setCookie(flashCookie, v.s.Ring.Seal(text, v.flashPlace()), flashLasts)
}

func (v *visit) flashPlace() string {
	if v.session == nil {
		return "flash"
	}
	return "flash " + v.session.ID
}

// takeFlash reads what was left, and removes it.
func (v *visit) takeFlash() *flash {
	sealed := v.cookie(flashCookie)
	if sealed == "" {
		return nil
	}
	v.setCookie(flashCookie, "", 0)
	text, err := v.s.Ring.Open(sealed, v.flashPlace())
	if err != nil {
		return nil // of another session, or not ours
	}
	var f flash
	if json.Unmarshal(text, &f) != nil || v.now().Unix() > f.Until {
		return nil
	}
	return &f
}

// typed is a form that was sent too long after the last proof. Its page shows it
// filled in, once.
type typed struct {
	Fields url.Values `json:"f"`
	Until  int64      `json:"u"` // as for the flash
}

const (
	// typedLasts is how long somebody may take for the proof.
	typedLasts = 10 * time.Minute
	// maxTyped is how much of a form the cookie remembers.
	maxTyped = 2 << 10
)

// notKept are parts of the names of fields that are not remembered: secrets, and
// the role of a member, whose form is one of many on its page.
var notKept = []string{"password", "current", "code", "token", "secret", "csrf", "response", "new_role"}

func isKept(name string) bool {
	name = strings.ToLower(name)
	return !slices.ContainsFunc(notKept, func(part string) bool { return strings.Contains(name, part) })
}

// keepTyped seals the form that was sent for the page that it stood on, and for
// this session. What does not fit has to be typed again.
func (v *visit) keepTyped() {
	form := typed{Fields: url.Values{}, Until: v.now().Add(typedLasts).Unix()}
	for name, values := range v.r.PostForm {
		if isKept(name) {
			form.Fields[name] = values
		}
	}
	text, _ := json.Marshal(form) // texts and a number: cannot fail
	if len(form.Fields) > 0 && len(text) <= maxTyped {
		v.setCookie(typedCookie, v.s.Ring.Seal(text, v.typedPlace(v.formPage())), typedLasts)
		return
	}
	v.forgetTyped() // or an older form would be shown as this one
}

// forgetTyped is for when a form was let in: nothing waits any more.
func (v *visit) forgetTyped() {
	if v.cookie(typedCookie) != "" {
		v.setCookie(typedCookie, "", 0)
	}
}

func (v *visit) typedPlace(page string) string { return "form " + v.session.ID + " " + page }

// formPage is the path of the page that the form stood on. One that was refused
// stood where it was sent to, which leads to its page.
func (v *visit) formPage() string {
	page, _, _ := strings.Cut(refererPath(v.r), "?")
	if known(v.s.mux, http.MethodGet, page) {
		return page
	}
	return pageAbove(v.s.mux, page)
}

// takeTyped fills in what was typed on this page, if it waited for a proof, and
// removes it. It does not open on another page, or in another session.
func (v *visit) takeTyped() {
	sealed := v.cookie(typedCookie)
	if sealed == "" || v.session == nil {
		return
	}
	text, err := v.s.Ring.Open(sealed, v.typedPlace(v.r.URL.Path))
	if err != nil {
		return
	}
	v.setCookie(typedCookie, "", 0)
	var form typed
	if json.Unmarshal(text, &form) != nil || v.now().Unix() > form.Until {
		return
	}
	v.typed = form.Fields
	if v.flash == nil {
		v.flash = &flash{Notice: "Nothing was changed yet. Send the form again."}
	}
}

// shownSecret is the secret of something that was just made.
func (v *visit) shownSecret(id string) string {
	if v.flash == nil || v.flash.Of != id {
		return ""
	}
	return v.flash.Secret
}
