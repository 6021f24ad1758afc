package dashboard

import (
	"slices"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/people"
)

// SignInCallback is the path that the sign-in provider redirects to.
const SignInCallback = "/dashboard/login/oidc/callback"

// oidcLifetime is how long the person may take at the provider.
const oidcLifetime = 10 * time.Minute

// maxNext is the longest path that the cookie remembers.
const maxNext = 1000

// oidcTrip is what the cookie remembers while the person is at the provider.
type oidcTrip struct {
	Cookie  string // of people.StartOIDC
	Next    string // path
	Form    string // the saved form that a confirmation performs
	Purpose people.OIDCPurpose
}

// providerName returns the provider's display name, or an empty string without one.
func (req *request) providerName() string {
	if in := req.s.SignIn(); in != nil {
		return in.Name
	}
	return ""
}

type providerData struct {
	Name    string
	Address string
}

// sendToProvider sends the browser to another site by a page that refreshes itself.
// Browsers check each redirect after a form against form-action in the policy, and
// providers redirect to hosts that aren't known here.
func (req *request) sendToProvider(title, name, address string) *view {
	req.W.Header().Set("Refresh", "0; url="+address)
	return &view{template: "provider", title: title, data: providerData{name, address}}
}

// startOIDC sends the browser to the sign-in provider.
func startOIDC(req *request) (*view, error) {
	in := req.s.SignIn()
	if in == nil {
		return nil, fault.New(fault.NotFound, "This server has no sign-in provider.")
	}
	if req.origin() != req.s.public {
		// The provider redirects there, without this cookie.
		return nil, fault.New(fault.InvalidState, "Signing in with a provider only works at %s. Open the dashboard there.", req.s.public)
	}
	if err := req.limitAnonymous(); err != nil {
		return nil, err
	}
	address, trip, err := req.beginOIDC(in)
	if err != nil {
		return nil, err
	}
	req.setSealed(oidcCookie, oidcCookie, trip, oidcLifetime)
	return req.sendToProvider("Sign in with "+in.Name, in.Name, address), nil
}

// beginOIDC starts a sign-in, a link or a confirmation. A person who is signed in links an
// account, unless the form is that of the sign-in page, which may have been open before.
func (req *request) beginOIDC(in *SignInProvider) (address string, trip oidcTrip, err error) {
	trip = oidcTrip{Next: dashboardPath(req.query("next")), Form: req.query("form"), Purpose: people.OIDCSignIn}
	if len(trip.Next)+len(trip.Form) > maxNext {
		trip.Next, trip.Form = Home, ""
	}
	switch confirms := req.query("confirm") != ""; {
	case confirms && req.session == nil:
		return "", trip, errSignIn
	case confirms:
		trip.Purpose = people.OIDCConfirm
	case req.session != nil && req.query("sign_in") == "":
		trip.Purpose = people.OIDCLink
	}
	address, trip.Cookie, err = req.s.People.StartOIDC(req.Context(), in.Provider, trip.Purpose, req.session)
	return address, trip, err
}

// finishOIDC handles the provider's redirect. It is a GET that signs in: the state in
// the URL and the cookie must match, and work once.
func finishOIDC(req *request) (*view, error) {
	trip := oidcTrip{Next: Home}
	req.openSealed(oidcCookie, oidcCookie, &trip)
	req.setCookie(oidcCookie, "", 0)
	c := people.OIDCCallback{Cookie: trip.Cookie, State: req.query("state"), Code: req.query("code"), Replaced: req.cookie(sessionCookie)}
	confirms, formPage := false, handler(loginPage)
	if req.session != nil {
		formPage = accountPage // where the account is linked
		if confirms = trip.Purpose == people.OIDCConfirm; confirms {
			formPage = func(req *request) (*view, error) { return req.confirmView(trip.Next, trip.Form) }
		}
		if trip.Purpose == people.OIDCLink {
			c.LinkTo = req.session
		}
	}
	if err := req.completeAtProvider(confirms, c, trip); err != nil {
		req.rejectForm(Route{formPage: formPage}, err)
	}
	return nil, nil
}

func (req *request) completeAtProvider(confirms bool, c people.OIDCCallback, trip oidcTrip) error {
	provided := req.s.SignIn()
	if provided == nil {
		return fault.New(fault.NotFound, "This server has no sign-in provider.")
	}
	name, provider := provided.Name, provided.Provider
	if c.Code == "" { // the provider's own error is not shown
		return fault.New(fault.Authentication, "The sign-in at %s was canceled or rejected. Try again, or sign in another way.", name)
	}
	if confirms {
		token, err := req.s.People.FinishOIDCConfirm(req.Context(), provider, req.session, c)
		if err != nil {
			return err
		}
		_, err = req.afterConfirm(token, trip.Form, trip.Next)
		return err
	}
	in, err := req.s.People.FinishOIDC(req.Context(), provider, c, req.browser())
	if err != nil {
		return err
	}
	var message flash
	if c.LinkTo != nil && in.Linked {
		message.Notice = "Your account at " + name + " is linked. You can now sign in with it."
	}
	_, err = req.finishSignIn(in, trip.Next, message)
	return err
}

// linkedHere reports whether one of a person's accounts is at the provider.
func (req *request) linkedHere(identities []people.Identity) bool {
	in := req.s.SignIn()
	return in != nil && slices.ContainsFunc(identities, func(i people.Identity) bool { return i.Issuer == in.Provider.Issuer() })
}
