package people_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

var party = people.RelyingParty{ID: "turnpike.example.com", Origin: "https://turnpike.example.com", Name: "Turnpike"}

// authenticator is the device of a passkey.
type authenticator struct {
	t       *testing.T
	id      []byte
	key     *ecdsa.PrivateKey
	handle  string // the person it was created for
	count   uint32
	origin  string
	rpID    string
	present byte // the flags: 1 for user present, 4 for user verified
}

func newAuthenticator(t *testing.T, handle string) *authenticator {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id := make([]byte, 16)
	rand.Read(id)
	return &authenticator{t: t, id: id, key: key, handle: handle, count: 1, origin: party.Origin, rpID: party.ID, present: 1 | 4}
}

func b64(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }

func (a *authenticator) clientData(kind string, c *people.Challenge) []byte {
	a.t.Helper()
	var options struct {
		PublicKey struct{ Challenge string }
	}
	if err := json.Unmarshal(c.Options, &options); err != nil || options.PublicKey.Challenge == "" {
		a.t.Fatalf("options %s: %v", c.Options, err)
	}
	text, err := json.Marshal(map[string]any{"type": kind, "challenge": options.PublicKey.Challenge, "origin": a.origin, "crossOrigin": false})
	if err != nil {
		a.t.Fatal(err)
	}
	return text
}

func (a *authenticator) authData(flags byte) []byte {
	rp := sha256.Sum256([]byte(a.rpID))
	return binary.BigEndian.AppendUint32(append(rp[:], flags), a.count)
}

// bytesCBOR encodes a CBOR byte string.
func bytesCBOR(raw []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0x59}, uint16(len(raw))), raw...)
}

// named is the response with the name of the new passkey.
func named(name string, r people.PasskeyResponse) people.PasskeyResponse {
	r.Name = name
	return r
}

func (a *authenticator) create(c *people.Challenge) people.PasskeyResponse {
	a.t.Helper()
	point, err := a.key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		a.t.Fatal(err)
	}
	// A map of kty: EC2, alg: ES256, crv: P-256, x, y.
	cose := slices.Concat([]byte{0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 32}, point[1:33], []byte{0x22, 0x58, 32}, point[33:])
	data := slices.Concat(a.authData(a.present|0x40), make([]byte, 16), binary.BigEndian.AppendUint16(nil, uint16(len(a.id))), a.id, cose)
	attestation := slices.Concat([]byte{0xa3, 0x63}, []byte("fmt"), []byte{0x64}, []byte("none"), []byte{0x67}, []byte("attStmt"), []byte{0xa0},
		[]byte{0x68}, []byte("authData"), bytesCBOR(data))
	return a.answer(c, map[string]string{"clientDataJSON": b64(a.clientData("webauthn.create", c)), "attestationObject": b64(attestation)})
}

func (a *authenticator) get(c *people.Challenge) people.PasskeyResponse {
	a.t.Helper()
	a.count++
	client, data := a.clientData("webauthn.get", c), a.authData(a.present)
	clientHash := sha256.Sum256(client)
	signed := sha256.Sum256(append(slices.Clone(data), clientHash[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, a.key, signed[:])
	if err != nil {
		a.t.Fatal(err)
	}
	return a.answer(c, map[string]string{"clientDataJSON": b64(client), "authenticatorData": b64(data), "signature": b64(signature), "userHandle": b64([]byte(a.handle))})
}

func (a *authenticator) answer(c *people.Challenge, response map[string]string) people.PasskeyResponse {
	a.t.Helper()
	text, err := json.Marshal(map[string]any{"id": b64(a.id), "rawId": b64(a.id), "type": "public-key", "response": response})
	if err != nil {
		a.t.Fatal(err)
	}
	return people.PasskeyResponse{Token: c.Token, Response: text}
}

func (w *fixture) startPasskey(s *people.Session) *people.Challenge {
	w.t.Helper()
	var c *people.Challenge
	w.write(func(tx *db.Tx) (err error) {
		c, err = w.StartPasskey(w.t.Context(), tx, s, party)
		return err
	})
	return c
}

func (w *fixture) startPasskeyLogin() *people.Challenge {
	w.t.Helper()
	var c *people.Challenge
	w.write(func(tx *db.Tx) (err error) {
		c, err = w.StartPasskeyAssertion(w.t.Context(), tx, party, "")
		return err
	})
	return c
}

// register adds a passkey to the session's person.
func (w *fixture) register(s *people.Session, name string) (*authenticator, *people.Passkey) {
	w.t.Helper()
	a := newAuthenticator(w.t, s.UserID)
	k, err := w.FinishPasskey(w.t.Context(), s, party, named(name, a.create(w.startPasskey(s))), browser)
	if err != nil {
		w.t.Fatalf("%v: %v", err, errors.Unwrap(err))
	}
	return a, k
}

func TestPasskeySignsInWithoutASecondFactor(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		old := w.login("ada@example.com")
		w.withApp(old.Session)
		a, _ := w.register(old.Session, "Laptop")
		answer := a.get(w.startPasskeyLogin())
		in, err := w.FinishPasskeyLogin(t.Context(), party, answer, old.Token, browser)
		if err != nil {
			t.Fatalf("%v: %v", err, errors.Unwrap(err))
		}
		if !w.alive(in.Token) || w.alive(old.Token) || in.Person.Email != "ada@example.com" || in.Session.Method != people.ByPasskey {
			t.Errorf("signed in as %+v", in)
		}
		_, err = w.FinishPasskeyLogin(t.Context(), party, answer, "", browser)
		want(t, err, fault.Authentication) // a challenge works once
		list, err := w.Passkeys(t.Context(), w.db, in.Person.ID)
		if err != nil || len(list) != 1 || list[0].Name != "Laptop" || list[0].LastUsedAt == nil {
			t.Errorf("%v, %v", list, err)
		}
		if log := w.actions(); !strings.Contains(log, "passkey.added") {
			t.Errorf("the log is %s", log)
		}
	})
}

func TestInvalidPasskeyResponsesAreRejected(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		eve := w.member("eve@example.com", accounts.Viewer)
		in := w.login("ada@example.com")
		genuine, _ := w.register(in.Session, "Laptop")
		for what, change := range map[string]func(a *authenticator){
			"another origin":          func(a *authenticator) { a.origin = "https://turnpike.example.net" },
			"another relying party":   func(a *authenticator) { a.rpID = "example.com" },
			"nobody was verified":     func(a *authenticator) { a.present = 1 },
			"nobody was there":        func(a *authenticator) { a.present = 4 },
			"another key":             func(a *authenticator) { a.key = newAuthenticator(t, "").key },
			"another person":          func(a *authenticator) { a.handle = eve },
			"nobody":                  func(a *authenticator) { a.handle = "usr_nobody" },
			"a passkey we never saw":  func(a *authenticator) { a.id = []byte("0123456789abcdef") },
			"a counter that was used": func(a *authenticator) { a.count-- },
		} {
			a := *genuine
			change(&a)
			_, err := w.FinishPasskeyLogin(t.Context(), party, a.get(w.startPasskeyLogin()), "", browser)
			if !fault.Is(err, fault.Authentication) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if !strings.Contains(w.actions(), "passkey.refused") {
			t.Error("the log does not tell of the copy")
		}
		late := w.startPasskeyLogin()
		w.advance(10 * time.Minute)
		_, err := w.FinishPasskeyLogin(t.Context(), party, genuine.get(late), "", browser)
		want(t, err, fault.Authentication)
		// A challenge works only for its purpose and its person.
		_, err = w.FinishPasskeyLogin(t.Context(), party, genuine.get(w.startPasskey(w.login("ada@example.com").Session)), "", browser)
		want(t, err, fault.Authentication)
		evil := newAuthenticator(t, eve)
		_, err = w.FinishPasskey(t.Context(), w.login("eve@example.com").Session, party, named("Evil", evil.create(w.startPasskey(w.login("ada@example.com").Session))), browser)
		want(t, err, fault.Authentication)
		if _, err := w.FinishPasskeyLogin(t.Context(), party, genuine.get(w.startPasskeyLogin()), "", browser); err != nil {
			t.Errorf("the real one: %v", err)
		}
	})
}

func TestPasskeyConfirmsASession(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		w.member("eve@example.com", accounts.Viewer)
		in, eve := w.login("ada@example.com"), w.login("eve@example.com")
		a, _ := w.register(in.Session, "Laptop")
		ofEve, _ := w.register(eve.Session, "Phone")
		w.advance(31 * time.Minute)
		start := func() (c *people.Challenge) {
			w.write(func(tx *db.Tx) (err error) {
				c, err = w.StartPasskeyAssertion(t.Context(), tx, party, in.Session.UserID)
				return err
			})
			return c
		}
		_, err := w.FinishPasskeyConfirm(t.Context(), in.Session, party, ofEve.get(start()), browser)
		want(t, err, fault.Authentication)
		if err := w.RequireConfirmed(in.Session); err == nil {
			t.Error("another's passkey confirms")
		}
		token, err := w.FinishPasskeyConfirm(t.Context(), in.Session, party, a.get(start()), browser)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.RequireConfirmed(in.Session); err != nil || w.alive(in.Token) || !w.alive(token) {
			t.Errorf("not confirmed: %v", err)
		}
	})
}

func TestPasskeysAreManagedByTheirOwner(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		w.member("eve@example.com", accounts.Viewer)
		in, eve := w.login("ada@example.com"), w.login("eve@example.com")
		a, k := w.register(in.Session, "Laptop")
		again := newAuthenticator(t, eve.Session.UserID)
		again.id = a.id
		_, err := w.FinishPasskey(t.Context(), eve.Session, party, named("Copy", again.create(w.startPasskey(eve.Session))), browser)
		want(t, err, fault.Conflict)
		remove := func(s *people.Session) error {
			return w.try(func(tx *db.Tx) error { return w.DeletePasskey(t.Context(), tx, s, k.ID, browser) })
		}
		rename := func(s *people.Session, name string) error {
			return w.try(func(tx *db.Tx) error { return w.RenamePasskey(t.Context(), tx, s.Caller(browser), k.ID, name) })
		}
		want(t, remove(eve.Session), fault.NotFound)
		want(t, rename(eve.Session, "Mine"), fault.NotFound)
		want(t, rename(in.Session, ""), fault.MissingParameter)
		if err := rename(in.Session, "Desk"); err != nil {
			t.Error(err)
		}
		// The only credential can't be deleted.
		w.write(func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE users SET password_hash = NULL WHERE id = $1", in.Person.ID)
			return err
		})
		want(t, remove(in.Session), fault.InvalidState)
		if _, err := w.ChangePassword(t.Context(), in.Session, "", password, browser); err != nil {
			t.Fatal(err)
		}
		w.advance(31 * time.Minute)
		if err := remove(in.Session); !errors.Is(err, people.ErrConfirmationRequired) {
			t.Errorf("without confirmation: %v", err)
		}
		if err := remove(w.login("ada@example.com").Session); err != nil {
			t.Error(err)
		}
		_, err = w.FinishPasskeyLogin(t.Context(), party, a.get(w.startPasskeyLogin()), "", browser)
		want(t, err, fault.Authentication)
	})
}
