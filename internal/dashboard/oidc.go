package dashboard

import (
	"encoding/base64"
	"strings"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/people"
)

// SignInCallback is the page to which the sign-in provider leads back, behind
// the public URL.
const SignInCallback = "/dashboard/login/oidc/callback"

// oidcLasts is how long somebody may take at the provider.
const oidcLasts = 10 * time.Minute

// maxNext is how much of an address the cookie remembers.
const maxNext = 1000

// providerName is what the button says, or empty without a provider.
func (v *visit) providerName() string {
	if v.s.SignIn == nil {
		return ""
	}
	return v.s.SignIn.Name
}

type providerData struct {
	Name    string
	Address string
}

// startOIDC leads to the provider by a page that goes on by itself. A redirect
// would not do: a browser checks each hop that follows a form against the
// policy's form-action, and providers lead on to hosts that nobody knows here.
func startOIDC(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	if v.s.SignIn == nil {
		return nil, fault.New(fault.NotFound, "there is no sign-in provider here")
	}
	if public := v.s.public.Scheme + "://" + v.s.public.Host; v.origin() != public {
		// The provider leads back there, where this cookie is not known.
		return nil, fault.New(fault.InvalidState, "this way to sign in works at %s only; open the dashboard there", public)
	}
	if err := v.greetStranger(); err != nil {
		return nil, err
	}
	address, cookie, err := v.s.People.StartOIDC(v.ctx(), v.s.SignIn.Provider)
	if err != nil {
		return nil, err
	}
	v.setCookie(oidcCookie, cookie+"."+packed(ownPath(v.query("next"))), oidcLasts)
	v.w.Header().Set("Refresh", "0; url="+address)
	return &view{template: "provider", title: "Sign in with " + v.s.SignIn.Name, data: providerData{v.s.SignIn.Name, address}}, nil
}

// packed is a path as a cookie can hold it.
func packed(next string) string {
	if len(next) > maxNext {
		next = Home
	}
	return base64.RawURLEncoding.EncodeToString([]byte(next))
}

func unpacked(s string) string {
	next, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return Home
	}
	return ownPath(string(next))
}

// finishOIDC is where the provider leads back to. It is a GET that signs in: the
// state in the address and the cookie must belong together, and work once.
func finishOIDC(v *visit) (*view, error) {
	in, next, err := v.oidcAnswer()
	if err != nil {
		v.refused(route{back: loginPage}, err)
		return nil, nil
	}
	v.signedIn(in, next)
	return nil, nil
}

func (v *visit) oidcAnswer() (in *people.SignIn, next string, err error) {
	if err := v.requirePrivate(); err != nil {
		return nil, "", err
	}
	if v.s.SignIn == nil {
		return nil, "", fault.New(fault.NotFound, "there is no sign-in provider here")
	}
	cookie, rest, _ := strings.Cut(v.cookie(oidcCookie), ".")
	v.setCookie(oidcCookie, "", 0)
	if v.query("code") == "" { // the provider says why in its own words, which we do not repeat
		return nil, "", fault.New(fault.Authentication, "the sign-in at %s was cancelled or refused; try again, or sign in another way", v.s.SignIn.Name)
	}
	in, err = v.s.People.FinishOIDC(v.ctx(), v.s.SignIn.Provider,
		people.OIDCAnswer{Cookie: cookie, State: v.query("state"), Code: v.query("code"), Replaced: v.cookie(sessionCookie)}, v.browser())
	return in, unpacked(rest), err
}
