package dashboard

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

// relyingParty is this server as the browser sees it: passkeys are bound to the
// name under which it was opened.
func (v *visit) relyingParty() people.RelyingParty {
	return people.RelyingParty{ID: v.hostName(), Origin: v.origin(), Name: "Turnpike"}
}

// hostName is the host without its port.
func (v *visit) hostName() string {
	name, _, err := net.SplitHostPort(v.r.Host)
	if err != nil {
		name = v.r.Host
	}
	return strings.ToLower(strings.Trim(name, "[]"))
}

// canPasskey reports whether browsers do passkeys here: they want a name, not
// an address of digits.
func (v *visit) canPasskey() bool {
	_, err := netip.ParseAddr(v.hostName())
	return err != nil
}

// challenge begins an exchange with the browser's authenticator. The script
// reads the answer.
func (v *visit) challenge(start func(tx *db.Tx) (*people.Challenge, error)) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	if !v.canPasskey() {
		return nil, fault.New(fault.InvalidState, "passkeys need a host name; open the dashboard by its name")
	}
	var c *people.Challenge
	err := v.write(func(tx *db.Tx) (err error) {
		c, err = start(tx)
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
	return v.challenge(func(tx *db.Tx) (*people.Challenge, error) {
		return v.s.People.StartPasskeyLogin(v.ctx(), tx, v.relyingParty())
	})
}

func passkeyLogin(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	in, err := v.s.People.FinishPasskeyLogin(v.ctx(), v.relyingParty(), v.authenticatorAnswer(), v.cookie(sessionCookie), v.browser())
	if err != nil {
		return nil, err
	}
	v.signedIn(in, v.query("next"))
	return nil, nil
}

func startPasskeyConfirm(v *visit) (*view, error) {
	return v.challenge(func(tx *db.Tx) (*people.Challenge, error) {
		return v.s.People.StartPasskeyConfirm(v.ctx(), tx, v.session, v.relyingParty())
	})
}

func passkeyConfirm(v *visit) (*view, error) {
	token, err := v.s.People.FinishPasskeyConfirm(v.ctx(), v.session, v.relyingParty(), v.authenticatorAnswer(), v.browser())
	if err != nil {
		return nil, err
	}
	v.keepSession(token)
	v.redirect(ownPath(v.query("next")), flash{})
	return nil, nil
}

func startPasskey(v *visit) (*view, error) {
	return v.challenge(func(tx *db.Tx) (*people.Challenge, error) {
		return v.s.People.StartPasskey(v.ctx(), tx, v.session, v.relyingParty())
	})
}

func addPasskey(v *visit) (*view, error) {
	_, err := v.s.People.FinishPasskey(v.ctx(), v.session, v.relyingParty(), v.authenticatorAnswer(), v.form("passkey_name"), v.browser())
	if err != nil {
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
