package dashboard

import (
	"encoding/json"
	"net/http"
	"time"
)

// The cookies. Over HTTPS their names begin with __Host-, so that no other host
// and no plain connection can set them.
const (
	sessionCookie = "turnpike"
	halfCookie    = "turnpike-half" // the first factor was right
	oidcCookie    = "turnpike-oidc" // on the way to the sign-in provider and back
	flashCookie   = "turnpike-flash"
	lastCookie    = "turnpike-last" // workspace and environment
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

// shownSecret is the secret of something that was just made.
func (v *visit) shownSecret(id string) string {
	if v.flash == nil || v.flash.Of != id {
		return ""
	}
	return v.flash.Secret
}
