package dashboard

import (
	"encoding/base64"
	"slices"
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
	if v.origin() != v.s.public {
		// The provider leads back there, where this cookie is not known.
		return nil, fault.New(fault.InvalidState, "this way to sign in works at %s only; open the dashboard there", v.s.public)
	}
	if err := v.greetStranger(); err != nil {
		return nil, err
	}
	address, cookie, err := v.beginOIDC()
	if err != nil {
		return nil, err
	}
	v.setCookie(oidcCookie, cookie, oidcLasts)
	v.w.Header().Set("Refresh", "0; url="+address)
	return &view{template: "provider", title: "Sign in with " + v.s.SignIn.Name, data: providerData{v.s.SignIn.Name, address}}, nil
}

// What somebody goes to the provider for marks the cookie, or the form that
// begins it.
const (
	toConfirm = "confirm" // that it is them
	toLink    = "link"    // their account there
	toSignIn  = "sign_in" // also as somebody else than is signed in here
)

// beginOIDC begins a sign-in, a link or a confirmation. The cookie also says
// where to go afterwards. Whoever is signed in links, unless the form is the
// sign-in's: it may stand in a browser that has a session meanwhile.
func (v *visit) beginOIDC() (address, cookie string, err error) {
	next := "." + packed(ownPath(v.query("next")))
	switch confirms := v.query(toConfirm) != ""; {
	case confirms && v.session == nil:
		return "", "", errSignIn
	case confirms:
		address, cookie, err = v.s.People.StartOIDCConfirm(v.ctx(), v.s.SignIn.Provider, v.session)
		return address, cookie + next + "." + toConfirm, err
	case v.session != nil && v.query(toSignIn) == "":
		address, cookie, err = v.s.People.StartOIDCLink(v.ctx(), v.s.SignIn.Provider, v.session)
		return address, cookie + next + "." + toLink, err
	}
	address, cookie, err = v.s.People.StartOIDC(v.ctx(), v.s.SignIn.Provider)
	return address, cookie + next, err
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
	cookie, rest, _ := strings.Cut(v.cookie(oidcCookie), ".")
	place, errand, _ := strings.Cut(rest, ".")
	v.setCookie(oidcCookie, "", 0)
	a := people.OIDCAnswer{Cookie: cookie, State: v.query("state"), Code: v.query("code"), Replaced: v.cookie(sessionCookie)}
	next := unpacked(place)
	if errand == toConfirm && v.session != nil {
		if err := v.confirmAtProvider(a, next); err != nil {
			v.refused(route{back: func(v *visit) (*view, error) { return v.confirmView(next) }}, err)
		}
		return nil, nil
	}
	finish := v.signInAtProvider
	if errand == toLink && v.session != nil {
		finish = v.linkAtProvider
	}
	if err := finish(a, next); err != nil {
		back := loginPage
		if v.session != nil { // where the account is linked
			back = accountPage
		}
		v.refused(route{back: back}, err)
	}
	return nil, nil
}

// checkAnswer refuses what is no answer to anything that we have asked.
func (v *visit) checkAnswer(a people.OIDCAnswer) error {
	if err := v.requirePrivate(); err != nil {
		return err
	}
	if v.s.SignIn == nil {
		return fault.New(fault.NotFound, "there is no sign-in provider here")
	}
	if a.Code == "" { // the provider says why in its own words, which we do not repeat
		return fault.New(fault.Authentication, "the sign-in at %s was cancelled or refused; try again, or sign in another way", v.s.SignIn.Name)
	}
	return nil
}

func (v *visit) signInAtProvider(a people.OIDCAnswer, next string) error {
	if err := v.checkAnswer(a); err != nil {
		return err
	}
	in, err := v.s.People.FinishOIDC(v.ctx(), v.s.SignIn.Provider, a, v.browser())
	if err != nil {
		return err
	}
	v.signedIn(in, next)
	return nil
}

func (v *visit) linkAtProvider(a people.OIDCAnswer, next string) error {
	if err := v.checkAnswer(a); err != nil {
		return err
	}
	in, err := v.s.People.FinishOIDCLink(v.ctx(), v.s.SignIn.Provider, v.session, a, v.browser())
	if err != nil {
		return err
	}
	said := flash{}
	if in.Linked {
		said.Notice = "Your account at " + v.s.SignIn.Name + " is linked. You can sign in with it from now on."
	}
	v.signedInWith(in, next, said)
	return nil
}

func (v *visit) confirmAtProvider(a people.OIDCAnswer, next string) error {
	if err := v.checkAnswer(a); err != nil {
		return err
	}
	token, err := v.s.People.FinishOIDCConfirm(v.ctx(), v.s.SignIn.Provider, v.session, a)
	if err != nil {
		return err
	}
	v.keepSession(token)
	v.redirect(next, flash{})
	return nil
}

// linkedHere reports whether one of a person's accounts is at the provider.
func (v *visit) linkedHere(identities []people.Identity) bool {
	return v.s.SignIn != nil && slices.ContainsFunc(identities, func(i people.Identity) bool { return i.Issuer == v.s.SignIn.Provider.Issuer() })
}
