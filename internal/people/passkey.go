package people

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

const (
	maxPasskeys = 20

	kindPasskeyNew     = "passkey_new"
	kindPasskeyLogin   = "passkey_login"
	kindPasskeyConfirm = "passkey_confirm"
)

// RelyingParty is who asks for a passkey. Passkeys are bound to the ID: with
// another one they are lost.
type RelyingParty struct {
	ID     string // the host name, without a port
	Origin string // as the browser shows it: scheme, host, port
	Name   string // for people
}

// Challenge is the first half of an exchange with the browser.
type Challenge struct {
	Options json.RawMessage // for navigator.credentials.create or get
	Token   string          // the answer must come with it
}

// Passkey is one that a person has registered.
type Passkey struct {
	ID         string
	UserID     string
	Name       string
	CreatedAt  time.Time
	LastUsedAt *time.Time

	credential webauthn.Credential
}

func (rp RelyingParty) open() (*webauthn.WebAuthn, error) {
	w, err := webauthn.New(&webauthn.Config{
		RPID: rp.ID, RPDisplayName: rp.Name, RPOrigins: []string{rp.Origin},
		AttestationPreference: protocol.PreferNoAttestation,
		// The authenticator keeps the key, so that no e-mail need be typed, and
		// checks the person, so that it stands for two factors.
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementRequired, RequireResidentKey: protocol.ResidentKeyRequired(),
			UserVerification: protocol.VerificationRequired,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("passkeys: %w", err)
	}
	return w, nil
}

// holder is a person as the webauthn package wants to see one.
type holder struct {
	person   *Person
	passkeys []*Passkey
}

func (h holder) WebAuthnID() []byte   { return []byte(h.person.ID) }
func (h holder) WebAuthnName() string { return h.person.Email }
func (h holder) WebAuthnDisplayName() string {
	if h.person.Name == "" {
		return h.person.Email
	}
	return h.person.Name
}

func (h holder) WebAuthnCredentials() []webauthn.Credential {
	out := make([]webauthn.Credential, len(h.passkeys))
	for i, k := range h.passkeys {
		out[i] = k.credential
	}
	return out
}

// hold locks a person and reads their passkeys.
func (p *People) hold(ctx context.Context, tx *db.Tx, userID string) (holder, error) {
	person, err := p.lock(ctx, tx, userID)
	if err != nil {
		return holder{}, err
	}
	keys, err := p.Passkeys(ctx, tx, userID)
	return holder{person, keys}, err
}

func passkeyPlace(id, userID string) string { return "passkey " + id + " " + userID }

// Passkeys lists a person's passkeys, oldest first.
func (p *People) Passkeys(ctx context.Context, q db.Querier, userID string) ([]*Passkey, error) {
	rows, err := q.Query(ctx, "SELECT id, user_id, name, credential, created_at, last_used_at FROM passkeys WHERE user_id = $1 ORDER BY id", userID)
	return db.All(rows, err, func(r db.Row) (*Passkey, error) {
		var k Passkey
		var sealed string
		var created int64
		var used *int64
		if err := r.Scan(&k.ID, &k.UserID, &k.Name, &sealed, &created, &used); err != nil {
			return nil, err
		}
		k.CreatedAt, k.LastUsedAt = time.UnixMicro(created), db.Time(used)
		text, err := p.ring.Open(sealed, passkeyPlace(k.ID, k.UserID))
		if err != nil {
			return nil, fmt.Errorf("passkey: %w", err)
		}
		return &k, json.Unmarshal(text, &k.credential)
	})
}

func (p *People) sealPasskey(k *Passkey) (string, error) {
	text, err := json.Marshal(k.credential)
	if err != nil {
		return "", fmt.Errorf("passkey: %w", err)
	}
	return p.ring.Seal(text, passkeyPlace(k.ID, k.UserID)), nil
}

// StartPasskey begins the registration of a passkey.
func (p *People) StartPasskey(ctx context.Context, tx *db.Tx, s *Session, rp RelyingParty) (*Challenge, error) {
	if err := p.RequireConfirmed(s); err != nil {
		return nil, err
	}
	w, err := rp.open()
	if err != nil {
		return nil, err
	}
	h, err := p.hold(ctx, tx, s.UserID)
	if err != nil {
		return nil, err
	}
	if len(h.passkeys) >= maxPasskeys {
		return nil, fault.New(fault.LimitReached, "you have %d passkeys already; remove one first", maxPasskeys)
	}
	known := webauthn.Credentials(h.WebAuthnCredentials()).CredentialDescriptors()
	options, state, err := w.BeginRegistration(h, webauthn.WithExclusions(known))
	if err != nil {
		return nil, fmt.Errorf("begin passkey: %w", err)
	}
	return p.challenge(ctx, tx, kindPasskeyNew, s.UserID, options, state)
}

func (p *People) challenge(ctx context.Context, tx *db.Tx, kind, userID string, options any, state *webauthn.SessionData) (*Challenge, error) {
	text, err := json.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("passkey options: %w", err)
	}
	token, err := p.beginCeremony(ctx, tx, kind, userID, state)
	return &Challenge{Options: text, Token: token}, err
}

// Answer is what the browser's authenticator said to a Challenge.
type Answer struct {
	Token    string // of the Challenge
	Response []byte // the credential, as JSON
}

// FinishPasskey stores the passkey that the browser made.
func (p *People) FinishPasskey(ctx context.Context, s *Session, rp RelyingParty, a Answer, name string, from Browser) (*Passkey, error) {
	if err := p.RequireConfirmed(s); err != nil {
		return nil, err
	}
	if err := accounts.CheckName("name", name); err != nil {
		return nil, err
	}
	w, err := rp.open()
	if err != nil {
		return nil, err
	}
	var state webauthn.SessionData
	if err := p.endCeremony(ctx, a.Token, kindPasskeyNew, s.UserID, &state); err != nil {
		return nil, err
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes(a.Response)
	if err != nil {
		return nil, errWrongPasskey(err)
	}
	k := &Passkey{ID: ids.New(PasskeyID), UserID: s.UserID, Name: name, CreatedAt: p.now()}
	err = p.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := p.lockHere(ctx, tx, s); err != nil {
			return err
		}
		h, err := p.hold(ctx, tx, s.UserID)
		if err != nil {
			return err
		}
		made, err := w.CreateCredential(h, state, parsed)
		if err != nil {
			return errWrongPasskey(err)
		}
		k.credential = *made
		if err := p.insertPasskey(ctx, tx, k); err != nil {
			return err
		}
		if err := p.noteSecondFactor(ctx, tx, s); err != nil {
			return err
		}
		return p.log(ctx, tx, from.actor(s.UserID), s.UserID, "passkey.added", map[string]any{"passkey": k.ID, "name": name})
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

func (p *People) insertPasskey(ctx context.Context, tx *db.Tx, k *Passkey) error {
	sealed, err := p.sealPasskey(k)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO passkeys (id, user_id, credential_id, name, credential, created_at) VALUES ($1, $2, $3, $4, $5, $6)",
		k.ID, k.UserID, base64.RawURLEncoding.EncodeToString(k.credential.ID), k.Name, sealed, k.CreatedAt.UnixMicro())
	if errors.Is(err, db.ErrExists) {
		return fault.New(fault.Conflict, "this passkey is registered already")
	}
	return err
}

// errWrongPasskey keeps the reason for the log.
func errWrongPasskey(cause error) error {
	return fault.New(fault.Authentication, "the passkey was not accepted; try again, or sign in another way").Because(cause)
}

// StartPasskeyLogin begins a sign-in with a passkey. Nobody is known yet.
func (p *People) StartPasskeyLogin(ctx context.Context, tx *db.Tx, rp RelyingParty) (*Challenge, error) {
	w, err := rp.open()
	if err != nil {
		return nil, err
	}
	options, state, err := w.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return nil, fmt.Errorf("begin passkey login: %w", err)
	}
	return p.challenge(ctx, tx, kindPasskeyLogin, "", options, state)
}

// FinishPasskeyLogin signs in whoever the passkey belongs to. replaced is as for
// Login.
func (p *People) FinishPasskeyLogin(ctx context.Context, rp RelyingParty, a Answer, replaced string, from Browser) (*SignIn, error) {
	var out *SignIn
	err := p.assert(ctx, rp, a, kindPasskeyLogin, "", from, func(tx *db.Tx, person *Person) (err error) {
		out, err = p.enter(ctx, tx, person, entry{method: ByPasskey, proven: p.now(), replaced: replaced, from: from})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// StartPasskeyConfirm is StartPasskeyLogin for Confirm.
func (p *People) StartPasskeyConfirm(ctx context.Context, tx *db.Tx, s *Session, rp RelyingParty) (*Challenge, error) {
	w, err := rp.open()
	if err != nil {
		return nil, err
	}
	options, state, err := w.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return nil, fmt.Errorf("begin passkey confirmation: %w", err)
	}
	return p.challenge(ctx, tx, kindPasskeyConfirm, s.UserID, options, state)
}

// FinishPasskeyConfirm is Confirm with a passkey. It returns the session's new token.
func (p *People) FinishPasskeyConfirm(ctx context.Context, s *Session, rp RelyingParty, a Answer, from Browser) (token string, err error) {
	err = p.assert(ctx, rp, a, kindPasskeyConfirm, s.UserID, from, func(tx *db.Tx, person *Person) (err error) {
		if person.ID != s.UserID {
			return errWrongPasskey(errors.New("it is another person's"))
		}
		if err := p.noteSecondFactor(ctx, tx, s); err != nil {
			return err
		}
		token, err = p.renewToken(ctx, tx, s, p.now())
		return err
	})
	if err != nil {
		return "", err
	}
	return token, nil
}

var errCloned = errors.New("its counter went back, so there may be a copy")

// assert checks the answer to a challenge and runs then for the person, who is
// locked. The check is inside the transaction, so that the passkey's counter is
// the one that is compared.
func (p *People) assert(ctx context.Context, rp RelyingParty, a Answer, kind, userID string, from Browser, then func(tx *db.Tx, person *Person) error) error {
	w, err := rp.open()
	if err != nil {
		return err
	}
	var state webauthn.SessionData
	if err := p.endCeremony(ctx, a.Token, kind, userID, &state); err != nil {
		return err
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(a.Response)
	if err != nil {
		return errWrongPasskey(err)
	}
	var h holder
	err = p.db.Write(ctx, func(tx *db.Tx) error {
		var unread error // the store's, which must not look like a wrong passkey
		used, err := w.ValidateDiscoverableLogin(func(_, handle []byte) (webauthn.User, error) {
			h, unread = p.hold(ctx, tx, string(handle))
			return h, unread
		}, state, parsed)
		if unread != nil && !fault.Is(unread, fault.NotFound) {
			return unread
		}
		if err != nil {
			return errWrongPasskey(err)
		}
		if used.Authenticator.CloneWarning {
			return errWrongPasskey(errCloned)
		}
		if err := p.passkeyUsed(ctx, tx, h, used); err != nil {
			return err
		}
		return then(tx, h.person)
	})
	if errors.Is(err, errCloned) {
		logged := p.db.Write(ctx, func(tx *db.Tx) error {
			return p.log(ctx, tx, from.actor("anonymous"), h.person.ID, "passkey.refused", map[string]any{"reason": errCloned.Error()})
		})
		return errors.Join(err, logged)
	}
	return err
}

func (p *People) passkeyUsed(ctx context.Context, tx *db.Tx, h holder, used *webauthn.Credential) error {
	for _, k := range h.passkeys {
		if string(k.credential.ID) != string(used.ID) {
			continue
		}
		k.credential = *used
		sealed, err := p.sealPasskey(k)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE passkeys SET credential = $2, last_used_at = $3 WHERE id = $1", k.ID, sealed, p.now().UnixMicro())
		return err
	}
	return errWrongPasskey(errors.New("it is not registered"))
}

// RenamePasskey changes what a person calls a passkey.
func (p *People) RenamePasskey(ctx context.Context, tx *db.Tx, s *Session, id, name string, from Browser) error {
	if err := accounts.CheckName("name", name); err != nil {
		return err
	}
	n, err := tx.Exec(ctx, "UPDATE passkeys SET name = $3 WHERE id = $1 AND user_id = $2", id, s.UserID, name)
	if err != nil {
		return err
	}
	if n == 0 {
		return fault.NoSuch("passkey", id)
	}
	return p.log(ctx, tx, from.actor(s.UserID), s.UserID, "passkey.renamed", map[string]any{"passkey": id, "name": name})
}

// DeletePasskey removes a passkey, unless it is the only way to sign in.
func (p *People) DeletePasskey(ctx context.Context, tx *db.Tx, s *Session, id string, from Browser) error {
	if err := p.RequireConfirmed(s); err != nil {
		return err
	}
	person, err := p.lockHere(ctx, tx, s)
	if err != nil {
		return err
	}
	n, err := tx.Exec(ctx, "DELETE FROM passkeys WHERE id = $1 AND user_id = $2", id, s.UserID)
	if err != nil {
		return err
	}
	if n == 0 {
		return fault.NoSuch("passkey", id)
	}
	ways, err := p.CanSignIn(ctx, tx, person)
	if err != nil {
		return err
	}
	if !ways {
		return fault.New(fault.InvalidState, "this passkey is your only way to sign in; set a password first")
	}
	if err := forgetSecondFactor(ctx, tx, s.UserID); err != nil {
		return err
	}
	return p.log(ctx, tx, from.actor(s.UserID), s.UserID, "passkey.deleted", map[string]any{"passkey": id})
}
