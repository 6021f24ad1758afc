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

// relyingParty is this server as browsers know it. Passkeys are bound to it, so
// it comes from public_url or the listener and not from what a client sends.
func (v *visit) relyingParty() (people.RelyingParty, error) {
	origin := v.origin()
	if origin == nil {
		return people.RelyingParty{}, fault.New(fault.InvalidState, "Passkeys do not work at %.100q. Open %s, or set public_url (TURNPIKE_PUBLIC_URL) to the address in your browser.",
			v.r.Host, v.s.public)
	}
	if !v.canPasskey() {
		return people.RelyingParty{}, fault.New(fault.InvalidState, "passkeys need a host name; open the dashboard by its name")
	}
	return people.RelyingParty{ID: v.hostName(), Origin: clientip.Origin(origin), Name: "Turnpike"}, nil
}

// hostName is the dashboard's host without its port.
func (v *visit) hostName() string {
	host := v.s.public
	if origin := v.origin(); origin != nil {
		host = origin
	}
	return strings.ToLower(host.Hostname())
}

// canPasskey reports whether passkeys work here. Browsers require a host name
// and not an address of digits.
func (v *visit) canPasskey() bool {
	_, err := netip.ParseAddr(v.hostName())
	return err != nil && v.origin() != nil
}

// challenge begins an exchange with the browser's authenticator. The script
// reads the answer.
func (v *visit) challenge(start func(tx *db.Tx, rp people.RelyingParty) (*people.Challenge, error)) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	rp, err := v.relyingParty()
	if err != nil {
		return nil, err
	}
	var c *people.Challenge
	err = v.write(func(tx *db.Tx) (err error) {
		c, err = start(tx, rp)
		return err
	})
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(struct {
		Options json.RawMessage `json:"options"`
		Token   string          `json:"token"`
	}{c.Options, c.Token})
	if err != nil {
		return nil, err
	}
	v.w.Header().Set("Content-Type", "application/json")
	v.WriteHeader(http.StatusOK)
	_, _ = v.w.Write(body) // a browser that left is no fault of ours
	return nil, nil
}

// authenticatorAnswer is what the script put into the form.
func (v *visit) authenticatorAnswer() people.Answer {
	return people.Answer{Token: v.form("token"), Response: []byte(v.r.PostFormValue("response"))}
}

func startPasskeyLogin(v *visit) (*view, error) {
	if err := v.greetStranger(); err != nil {
		return nil, err
	}
	return v.challenge(func(tx *db.Tx, rp people.RelyingParty) (*people.Challenge, error) {
		return v.s.People.StartPasskeyLogin(v.ctx(), tx, rp)
	})
}

func passkeyLogin(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	rp, err := v.relyingParty()
	if err != nil {
		return nil, err
	}
	in, err := v.s.People.FinishPasskeyLogin(v.ctx(), rp, v.authenticatorAnswer(), v.cookie(sessionCookie), v.browser())
	if err != nil {
		return nil, err
	}
	v.signedIn(in, v.query("next"))
	return nil, nil
}

func startPasskeyConfirm(v *visit) (*view, error) {
	return v.challenge(func(tx *db.Tx, rp people.RelyingParty) (*people.Challenge, error) {
		return v.s.People.StartPasskeyConfirm(v.ctx(), tx, v.session, rp)
	})
}

func passkeyConfirm(v *visit) (*view, error) {
	rp, err := v.relyingParty()
	if err != nil {
		return nil, err
	}
	token, err := v.s.People.FinishPasskeyConfirm(v.ctx(), v.session, rp, v.authenticatorAnswer(), v.browser())
	if err != nil {
		return nil, err
	}
	v.keepSession(token)
	v.redirect(ownPath(v.query("next")), flash{})
	return nil, nil
}

func startPasskey(v *visit) (*view, error) {
	return v.challenge(func(tx *db.Tx, rp people.RelyingParty) (*people.Challenge, error) {
		return v.s.People.StartPasskey(v.ctx(), tx, v.session, rp)
	})
}

func addPasskey(v *visit) (*view, error) {
	rp, err := v.relyingParty()
	if err != nil {
		return nil, err
	}
	if _, err := v.s.People.FinishPasskey(v.ctx(), v.session, rp, v.authenticatorAnswer(), v.form("passkey_name"), v.browser()); err != nil {
		return nil, err
	}
	v.redirect("/dashboard/account#passkeys", flash{Notice: "The passkey was added. You can sign in with it from now on."})
	return nil, nil
}

func renamePasskey(v *visit) (*view, error) {
	id, err := v.pathID(people.PasskeyID, "passkey")
	if err != nil {
		return nil, err
	}
	err = v.write(func(tx *db.Tx) error {
		return v.s.People.RenamePasskey(v.ctx(), tx, v.session, id, v.form("new_name"), v.browser())
	})
	if err != nil {
		return nil, err
	}
	v.redirect("/dashboard/account#passkeys", flash{Notice: "The passkey has another name."})
	return nil, nil
}

func deletePasskey(v *visit) (*view, error) {
	id, err := v.pathID(people.PasskeyID, "passkey")
	if err != nil {
		return nil, err
	}
	err = v.write(func(tx *db.Tx) error { return v.s.People.DeletePasskey(v.ctx(), tx, v.session, id, v.browser()) })
	if err != nil {
		return nil, err
	}
	v.redirect("/dashboard/account#passkeys", flash{Notice: "The passkey was removed. Remove it from your device too."})
	return nil, nil
}
