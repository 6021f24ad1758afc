package dashboard_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

// localhost returns the server under a host name, which passkeys need.
func localhost(s *harness.Server) *harness.Server {
	named := *s
	named.URL = strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	return &named
}

// authenticator simulates the device of a passkey.
type authenticator struct {
	id     []byte
	key    *ecdsa.PrivateKey
	handle string // the person it was created for
	count  uint32
	origin string
}

func newAuthenticator(t testing.TB, b *browser) *authenticator {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id := make([]byte, 16)
	rand.Read(id)
	return &authenticator{id: id, key: key, handle: b.person.ID, count: 1, origin: b.s.URL}
}

// begin requests a challenge, as the script does.
func (b *browser) begin(t testing.TB, path string) (challenge, token string) {
	t.Helper()
	a := b.post(t, path, nil).is(t, http.StatusOK)
	var begun struct {
		Options struct {
			PublicKey struct {
				Challenge string
				RPID      string `json:"rpId"`
				RP        struct{ ID string }
			}
		}
		Token string
	}
	if err := json.Unmarshal([]byte(a.body), &begun); err != nil || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s answers %s: %v", path, a.body, err)
	}
	if party := begun.Options.PublicKey.RPID + begun.Options.PublicKey.RP.ID; party != "localhost" || begun.Token == "" {
		t.Fatalf("%s answers %s", path, a.body)
	}
	return begun.Options.PublicKey.Challenge, begun.Token
}

func (a *authenticator) clientData(kind, challenge string) []byte {
	text, _ := json.Marshal(map[string]any{"type": kind, "challenge": challenge, "origin": a.origin, "crossOrigin": false}) // cannot fail
	return text
}

// data returns the authenticator data: relying party, flags and counter.
func (a *authenticator) data(flags byte) []byte {
	party := sha256.Sum256([]byte("localhost"))
	return binary.BigEndian.AppendUint32(append(party[:], flags), a.count)
}

func (a *authenticator) form(token string, response map[string]string) url.Values {
	text, _ := json.Marshal(map[string]any{"id": b64(a.id), "rawId": b64(a.id), "type": "public-key", "response": response}) // cannot fail
	return url.Values{"token": {token}, "response": {string(text)}}
}

// create responds to a registration challenge.
func (a *authenticator) create(t testing.TB, challenge, token string) url.Values {
	t.Helper()
	point, err := a.key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	// In CBOR: a map of kty, alg, crv, x and y inside one of fmt, attStmt and authData.
	cose := slices.Concat([]byte{0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 32}, point[1:33], []byte{0x22, 0x58, 32}, point[33:])
	data := slices.Concat(a.data(0x45), make([]byte, 16), binary.BigEndian.AppendUint16(nil, uint16(len(a.id))), a.id, cose)
	attestation := slices.Concat([]byte("\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x59"), binary.BigEndian.AppendUint16(nil, uint16(len(data))), data)
	return a.form(token, map[string]string{"clientDataJSON": b64(a.clientData("webauthn.create", challenge)), "attestationObject": b64(attestation)})
}

// get responds to a sign-in challenge.
func (a *authenticator) get(t testing.TB, challenge, token string) url.Values {
	t.Helper()
	a.count++
	client, data := a.clientData("webauthn.get", challenge), a.data(0x05)
	clientHash := sha256.Sum256(client)
	signed := sha256.Sum256(append(slices.Clone(data), clientHash[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, a.key, signed[:])
	if err != nil {
		t.Fatal(err)
	}
	return a.form(token, map[string]string{"clientDataJSON": b64(client), "authenticatorData": b64(data), "signature": b64(signature), "userHandle": b64([]byte(a.handle))})
}

func TestPasskeySignsInOnceAndConfirms(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w, named := s.Workspace(t, "acme"), localhost(s)
		b, eve := member(t, named, w, accounts.Viewer), member(t, named, w, accounts.Owner)
		device := newAuthenticator(t, b)
		challenge, token := b.begin(t, "/dashboard/account/passkeys/start")
		made := device.create(t, challenge, token)
		made.Set("passkey_name", "<i>laptop</i>")
		b.post(t, "/dashboard/account/passkeys", made).redirectsTo(t, "/dashboard/account#passkeys")
		page := b.get(t, "/dashboard/account").shows(t, "Passkey added", "&lt;i&gt;laptop").hides(t, "<i>laptop")
		id := page.find(t, `passkeys/(pk_\w+)/delete`)
		b.post(t, "/dashboard/account/passkeys", made).rejects(t, http.StatusUnauthorized, "already completed")

		// It signs in without a second factor.
		b.setUpApp(t)
		stranger := newBrowser(t, named)
		stranger.get(t, "/dashboard/login").shows(t, `data-needs-script hidden`, `data-passkey="/dashboard/login/passkey/start"`)
		challenge, token = stranger.begin(t, "/dashboard/login/passkey/start")
		answered := device.get(t, challenge, token)
		stranger.post(t, "/dashboard/login/passkey?next=/dashboard/account", answered).redirectsTo(t, "/dashboard/account")
		stranger.get(t, "/dashboard/account").shows(t, b.person.Email, "by passkey")
		newBrowser(t, named).post(t, "/dashboard/login/passkey", answered).rejects(t, http.StatusUnauthorized, "already completed")

		// It confirms and renews the token.
		s.Clock.Turn(31 * time.Minute)
		before := stranger.token(t)
		stranger.get(t, "/dashboard/confirm").shows(t, `data-passkey="/dashboard/confirm/passkey/start"`)
		challenge, token = stranger.begin(t, "/dashboard/confirm/passkey/start")
		eve.post(t, "/dashboard/confirm/passkey", device.get(t, challenge, token)).rejects(t, http.StatusUnauthorized, "already completed")
		challenge, token = stranger.begin(t, "/dashboard/confirm/passkey/start")
		stranger.post(t, "/dashboard/confirm/passkey?next=/dashboard/account", device.get(t, challenge, token)).redirectsTo(t, "/dashboard/account")
		if stranger.token(t) == before {
			t.Error("confirming keeps the token")
		}
		b = stranger

		// A response for another site is rejected.
		device.origin = "https://evil.example"
		challenge, token = newBrowser(t, named).begin(t, "/dashboard/login/passkey/start")
		newBrowser(t, named).post(t, "/dashboard/login/passkey", device.get(t, challenge, token)).rejects(t, http.StatusUnauthorized, "The passkey was rejected")
		device.origin = named.URL

		// Its owner can rename and remove it.
		eve.post(t, "/dashboard/confirm", url.Values{"password": {password}}).redirectsTo(t, "/dashboard/")
		eve.post(t, "/dashboard/account/passkeys/"+id+"/rename", url.Values{"new_name": {"mine"}}).is(t, http.StatusNotFound)
		eve.post(t, "/dashboard/account/passkeys/"+id+"/delete", nil).is(t, http.StatusNotFound)
		b.post(t, "/dashboard/account/passkeys/"+id+"/rename", url.Values{"new_name": {"desk"}}).redirectsTo(t, "/dashboard/account#passkeys")
		b.get(t, "/dashboard/account").shows(t, "desk").hides(t, "&lt;i&gt;laptop")
		b.post(t, "/dashboard/account/passkeys/"+id+"/delete", nil).redirectsTo(t, "/dashboard/account#passkeys")
		b.get(t, "/dashboard/account").hides(t, id)
		challenge, token = newBrowser(t, named).begin(t, "/dashboard/login/passkey/start")
		newBrowser(t, named).post(t, "/dashboard/login/passkey", device.get(t, challenge, token)).rejects(t, http.StatusUnauthorized, "The passkey was rejected")
	})
}

// A program on another port of this machine could forward what the authenticator
// signs there.
func TestPasskeysOfAnotherPortAreRejected(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		named := localhost(s)
		b := member(t, named, s.Workspace(t, "acme"), accounts.Owner)
		device := newAuthenticator(t, b)
		challenge, token := b.begin(t, "/dashboard/account/passkeys/start")
		made := device.create(t, challenge, token)
		made.Set("passkey_name", "laptop")
		b.post(t, "/dashboard/account/passkeys", made).redirectsTo(t, "/dashboard/account#passkeys")

		phisher := newBrowser(t, named)
		challenge, token = phisher.begin(t, "/dashboard/login/passkey/start")
		device.origin, phisher.host = "http://localhost:9", "localhost:9"
		phisher.post(t, "/dashboard/login/passkey", device.get(t, challenge, token)).rejects(t, http.StatusConflict, "public_url")
		phisher.post(t, "/dashboard/login/passkey/start", nil).rejects(t, http.StatusConflict, "public_url")
		phisher.get(t, "/dashboard/login").hides(t, "passkey")
		phisher.host = ""
		phisher.post(t, "/dashboard/login/passkey", device.get(t, challenge, token)).rejects(t, http.StatusUnauthorized, "passkey")
	})
}

func TestPasskeysNeedAHostName(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := newBrowser(t, s)
		b.get(t, "/dashboard/login").shows(t, "Sign in").hides(t, "passkey")
		b.post(t, "/dashboard/login/passkey/start", nil).rejects(t, http.StatusConflict, "Passkeys need a host name")
	})
}
