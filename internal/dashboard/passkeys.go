package dashboard

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"

	"turnpike/internal/clientip"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

// relyingParty returns the identity that passkeys are bound to. It comes from
// public_url or the listener, never from the client.
func (req *request) relyingParty() (people.RelyingParty, error) {
	origin := req.origin()
	if origin == nil {
		return people.RelyingParty{}, fault.New(fault.InvalidState, "Passkeys do not work at %.100q. Open %s, or set public_url (TURNPIKE_PUBLIC_URL) to the address in your browser.",
			req.R.Host, req.s.public)
	}
	if !req.canPasskey() {
		return people.RelyingParty{}, fault.New(fault.InvalidState, "Passkeys need a host name. Open the dashboard by its name, not its IP address.")
	}
	return people.RelyingParty{ID: req.hostName(), Origin: clientip.Origin(origin), Name: "Turnpike"}, nil
}

// hostName returns the dashboard's host without its port.
func (req *request) hostName() string {
	host := req.s.public
	if origin := req.origin(); origin != nil {
		host = origin
	}
	return strings.ToLower(host.Hostname())
}

// canPasskey reports whether passkeys work here. Browsers require a host name, not an
// IP address.
func (req *request) canPasskey() bool {
	_, err := netip.ParseAddr(req.hostName())
	return err != nil && req.origin() != nil
}

// challenge sends the challenge for the browser's authenticator to the script.
func (req *request) challenge(start func(tx *db.Tx) (*people.Challenge, error)) (*view, error) {
	c, err := writeValue(req, start)
	if err != nil {
		return nil, err
	}
	body, _ := json.Marshal(c) // strings and JSON: cannot fail
	req.W.Header().Set("Content-Type", "application/json")
	req.WriteHeader(http.StatusOK)
	_, _ = req.W.Write(body) // the browser may have disconnected
	return nil, nil
}

// authenticatorAnswer returns what the script has put into the form.
func (req *request) authenticatorAnswer() people.PasskeyResponse {
	return people.PasskeyResponse{Token: req.form("token"), Response: []byte(req.R.PostFormValue("response")), Name: req.form("passkey_name")}
}

func startPasskeyLogin(req *request, rp people.RelyingParty) (*view, error) {
	if err := req.limitAnonymous(); err != nil {
		return nil, err
	}
	return req.challenge(func(tx *db.Tx) (*people.Challenge, error) {
		return req.s.People.StartPasskeyAssertion(req.Context(), tx, rp, "")
	})
}

func passkeyLogin(req *request, rp people.RelyingParty) (*view, error) {
	in, err := req.s.People.FinishPasskeyLogin(req.Context(), rp, req.authenticatorAnswer(), req.cookie(sessionCookie), req.browser())
	if err != nil {
		return nil, err
	}
	return req.finishSignIn(in, req.query("next"), flash{})
}

func startPasskeyConfirm(req *request, rp people.RelyingParty) (*view, error) {
	return req.challenge(func(tx *db.Tx) (*people.Challenge, error) {
		return req.s.People.StartPasskeyAssertion(req.Context(), tx, rp, req.session.UserID)
	})
}

func passkeyConfirm(req *request, rp people.RelyingParty) (*view, error) {
	token, err := req.s.People.FinishPasskeyConfirm(req.Context(), req.session, rp, req.authenticatorAnswer(), req.browser())
	if err != nil {
		return nil, err
	}
	return req.afterConfirm(token, req.query("form"), req.query("next"))
}

func startPasskey(req *request, rp people.RelyingParty) (*view, error) {
	return req.challenge(func(tx *db.Tx) (*people.Challenge, error) {
		return req.s.People.StartPasskey(req.Context(), tx, req.session, rp)
	})
}

func addPasskey(req *request, rp people.RelyingParty) (*view, error) {
	if _, err := req.s.People.FinishPasskey(req.Context(), req.session, rp, req.authenticatorAnswer(), req.browser()); err != nil {
		return nil, err
	}
	return req.redirect("/dashboard/account#passkeys", flash{Notice: "Passkey added. You can now sign in with it."})
}

func renamePasskey(req *request) (*view, error) {
	return req.save("/dashboard/account#passkeys", "Passkey renamed.", func(tx *db.Tx) error {
		return req.s.People.RenamePasskey(req.Context(), tx, req.session.Caller(req.browser()), req.id(), req.form("new_name"))
	})
}

func deletePasskey(req *request) (*view, error) {
	return req.save("/dashboard/account#passkeys", "Passkey removed. Remove it from your device, too.", func(tx *db.Tx) error {
		return req.s.People.DeletePasskey(req.Context(), tx, req.session, req.id(), req.browser())
	})
}
