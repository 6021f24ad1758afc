package people

import (
	"cmp"
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

// RelyingParty identifies this server to authenticators. Passkeys are bound to its ID and lost if it changes.
type RelyingParty struct {
	ID     string // the host name, without a port
	Origin string // scheme, host and port
	Name   string // the display name
}

// Challenge is a request to the browser's authenticator.
type Challenge struct {
	Options json.RawMessage `json:"options"` // for navigator.credentials.create or get
	Token   string          `json:"token"`   // must be returned with the response
}

// Passkey is a registered passkey.
type Passkey struct {
	ID         string
	UserID     string
	Name       string
	CreatedAt  time.Time
	LastUsedAt *time.Time

	credential webauthn.Credential
}

func (rp RelyingParty) webAuthn() (*webauthn.WebAuthn, error) {
	w, err := webauthn.New(&webauthn.Config{
		RPID: rp.ID, RPDisplayName: rp.Name, RPOrigins: []string{rp.Origin},
		AttestationPreference: protocol.PreferNoAttestation,
		// The key is discoverable, so that no email address is needed, and the authenticator verifies the
		// person, so that it counts as two factors.
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

// passkeyUser implements webauthn.User.
type passkeyUser struct {
	person   *Person
	passkeys []*Passkey
}

func (h passkeyUser) WebAuthnID() []byte   { return []byte(h.person.ID) }
func (h passkeyUser) WebAuthnName() string { return h.person.Email }
func (h passkeyUser) WebAuthnDisplayName() string {
	return cmp.Or(h.person.Name, h.person.Email)
}

func (h passkeyUser) WebAuthnCredentials() []webauthn.Credential {
	out := make([]webauthn.Credential, len(h.passkeys))
	for i, k := range h.passkeys {
		out[i] = k.credential
	}
	return out
}

func (p *People) lockPasskeyUser(ctx context.Context, tx *db.Tx, userID string) (passkeyUser, error) {
	person, err := p.lock(ctx, tx, userID)
	if err != nil {
		return passkeyUser{}, err
	}
	keys, err := p.Passkeys(ctx, tx, userID)
	return passkeyUser{person, keys}, err
}

func passkeyLocation(id, userID string) string { return "passkey " + id + " " + userID }

// Passkeys returns a person's passkeys, oldest first.
func (p *People) Passkeys(ctx context.Context, q db.Querier, userID string) ([]*Passkey, error) {
	rows, err := q.Query(ctx, "SELECT id, user_id, name, credential, created_at, last_used_at FROM passkeys WHERE user_id = $1 ORDER BY id", userID)
	return db.All(rows, err, func(r db.Row) (*Passkey, error) {
		var k Passkey
		var sealed string
		if err := db.Scan(r, &k.ID, &k.UserID, &k.Name, &sealed, &k.CreatedAt, &k.LastUsedAt); err != nil {
			return nil, err
		}
		text, err := p.ring.Open(sealed, passkeyLocation(k.ID, k.UserID))
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
	return p.ring.Seal(text, passkeyLocation(k.ID, k.UserID)), nil
}

// StartPasskey starts the registration of a passkey.
func (p *People) StartPasskey(ctx context.Context, tx *db.Tx, s *Session, rp RelyingParty) (*Challenge, error) {
	if err := p.RequireConfirmed(s); err != nil {
		return nil, err
	}
	w, err := rp.webAuthn()
	if err != nil {
		return nil, err
	}
	h, err := p.lockPasskeyUser(ctx, tx, s.UserID)
	if err != nil {
		return nil, err
	}
	if len(h.passkeys) >= maxPasskeys {
		return nil, fault.New(fault.LimitReached, "You already have %d passkeys, which is the limit. Remove one first.", maxPasskeys)
	}
	known := webauthn.Credentials(h.WebAuthnCredentials()).CredentialDescriptors()
	options, state, err := w.BeginRegistration(h, webauthn.WithExclusions(known))
	if err != nil {
		return nil, fmt.Errorf("start passkey registration: %w", err)
	}
	return p.newChallenge(ctx, tx, challengeFor{kindPasskeyNew, s.UserID}, options, state)
}

func (p *People) newChallenge(ctx context.Context, tx *db.Tx, f challengeFor, options any, state *webauthn.SessionData) (*Challenge, error) {
	text, err := json.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("passkey options: %w", err)
	}
	token, err := p.storeChallenge(ctx, tx, f, state)
	return &Challenge{Options: text, Token: token}, err
}

// PasskeyResponse is the authenticator's response to a Challenge.
type PasskeyResponse struct {
	Token    string // of the Challenge
	Response []byte // the credential, as JSON
	Name     string // for a new passkey
}

// FinishPasskey stores a new passkey.
func (p *People) FinishPasskey(ctx context.Context, s *Session, rp RelyingParty, r PasskeyResponse, from Browser) (*Passkey, error) {
	if err := p.RequireConfirmed(s); err != nil {
		return nil, err
	}
	if err := accounts.CheckName("name", r.Name); err != nil {
		return nil, err
	}
	w, err := rp.webAuthn()
	if err != nil {
		return nil, err
	}
	var state webauthn.SessionData
	if err := p.consumeChallenge(ctx, r.Token, challengeFor{kindPasskeyNew, s.UserID}, &state); err != nil {
		return nil, err
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes(r.Response)
	if err != nil {
		return nil, errInvalidPasskey(err)
	}
	return inTx(ctx, p.db, func(tx *db.Tx) (*Passkey, error) {
		if _, err := p.lockSessionPerson(ctx, tx, s); err != nil {
			return nil, err
		}
		h, err := p.lockPasskeyUser(ctx, tx, s.UserID)
		if err != nil {
			return nil, err
		}
		credential, err := w.CreateCredential(h, state, parsed)
		if err != nil {
			return nil, errInvalidPasskey(err)
		}
		k := &Passkey{ID: ids.New(PasskeyID), UserID: s.UserID, Name: r.Name, CreatedAt: p.now(), credential: *credential}
		if err := p.insertPasskey(ctx, tx, k); err != nil {
			return nil, err
		}
		if err := p.recordSecondFactor(ctx, tx, s); err != nil {
			return nil, err
		}
		return k, p.log(ctx, tx, from.actor(s.UserID), personAction{s.UserID, "passkey.added", map[string]any{"passkey": k.ID, "name": k.Name}})
	})
}

func (p *People) insertPasskey(ctx context.Context, tx *db.Tx, k *Passkey) error {
	sealed, err := p.sealPasskey(k)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO passkeys (id, user_id, credential_id, name, credential, created_at) VALUES ($1, $2, $3, $4, $5, $6)",
		k.ID, k.UserID, base64.RawURLEncoding.EncodeToString(k.credential.ID), k.Name, sealed, k.CreatedAt.UnixMicro())
	if errors.Is(err, db.ErrExists) {
		return fault.New(fault.Conflict, "This passkey is already registered.")
	}
	return err
}

// errInvalidPasskey hides the cause from the client.
func errInvalidPasskey(cause error) error {
	return fault.New(fault.Authentication, "The passkey was rejected. Retry, or sign in another way.").Because(cause)
}

// assertion returns the challenge of an existing passkey: of the person who confirms, or of
// anyone who signs in if userID is empty.
func assertion(userID string) challengeFor {
	if userID == "" {
		return challengeFor{kind: kindPasskeyLogin}
	}
	return challengeFor{kindPasskeyConfirm, userID}
}

// StartPasskeyAssertion starts a confirmation by a person, or a sign-in if userID is empty.
func (p *People) StartPasskeyAssertion(ctx context.Context, tx *db.Tx, rp RelyingParty, userID string) (*Challenge, error) {
	w, err := rp.webAuthn()
	if err != nil {
		return nil, err
	}
	options, state, err := w.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return nil, fmt.Errorf("start passkey assertion: %w", err)
	}
	return p.newChallenge(ctx, tx, assertion(userID), options, state)
}

// FinishPasskeyLogin signs in the owner of the passkey. replaced is as for Login.
func (p *People) FinishPasskeyLogin(ctx context.Context, rp RelyingParty, r PasskeyResponse, replaced string, from Browser) (*SignIn, error) {
	return verifyPasskey(ctx, p, passkeyAssertion{rp, r, assertion(""), from}, func(tx *db.Tx, person *Person) (*SignIn, error) {
		return p.continueSignIn(ctx, tx, person, signInParams{method: ByPasskey, provenAt: p.now(), replaced: replaced, from: from})
	})
}

// FinishPasskeyConfirm is Confirm with a passkey. It returns the session's new token.
func (p *People) FinishPasskeyConfirm(ctx context.Context, s *Session, rp RelyingParty, r PasskeyResponse, from Browser) (token string, err error) {
	return verifyPasskey(ctx, p, passkeyAssertion{rp, r, assertion(s.UserID), from}, func(tx *db.Tx, person *Person) (string, error) {
		if person.ID != s.UserID {
			return "", errInvalidPasskey(errors.New("passkey of another person"))
		}
		if err := p.recordSecondFactor(ctx, tx, s); err != nil {
			return "", err
		}
		return p.renewToken(ctx, tx, s, p.now())
	})
}

var errClonedPasskey = errors.New("signature counter decreased: the passkey may be cloned")

// passkeyAssertion is a response to a challenge for an existing passkey.
type passkeyAssertion struct {
	rp        RelyingParty
	response  PasskeyResponse
	challenge challengeFor
	from      Browser
}

// verifyPasskey verifies an assertion and returns the result of then for the locked person. It verifies
// inside the transaction, because it compares the passkey's counter.
func verifyPasskey[T any](ctx context.Context, p *People, a passkeyAssertion, then func(tx *db.Tx, person *Person) (T, error)) (none T, err error) {
	w, err := a.rp.webAuthn()
	if err != nil {
		return none, err
	}
	var state webauthn.SessionData
	if err := p.consumeChallenge(ctx, a.response.Token, a.challenge, &state); err != nil {
		return none, err
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(a.response.Response)
	if err != nil {
		return none, errInvalidPasskey(err)
	}
	var h passkeyUser
	out, err := inTx(ctx, p.db, func(tx *db.Tx) (T, error) {
		var readErr error // a database error must not look like an invalid passkey
		used, err := w.ValidateDiscoverableLogin(func(_, handle []byte) (webauthn.User, error) {
			h, readErr = p.lockPasskeyUser(ctx, tx, string(handle))
			return h, readErr
		}, state, parsed)
		if readErr != nil && !fault.Is(readErr, fault.NotFound) {
			return none, readErr
		}
		if err != nil {
			return none, errInvalidPasskey(err)
		}
		if used.Authenticator.CloneWarning {
			return none, errInvalidPasskey(errClonedPasskey)
		}
		if err := p.updatePasskey(ctx, tx, h, used); err != nil {
			return none, err
		}
		return then(tx, h.person)
	})
	if errors.Is(err, errClonedPasskey) {
		err = errors.Join(err, p.db.Write(ctx, func(tx *db.Tx) error {
			return p.log(ctx, tx, a.from.actor("anonymous"), personAction{h.person.ID, "passkey.refused", map[string]any{"reason": errClonedPasskey.Error()}})
		}))
	}
	return out, err
}

func (p *People) updatePasskey(ctx context.Context, tx *db.Tx, h passkeyUser, used *webauthn.Credential) error {
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
	return errInvalidPasskey(errors.New("unknown passkey"))
}

// RenamePasskey renames one of the caller's passkeys.
func (p *People) RenamePasskey(ctx context.Context, tx *db.Tx, by Caller, id, name string) error {
	if err := accounts.CheckName("name", name); err != nil {
		return err
	}
	n, err := tx.Exec(ctx, "UPDATE passkeys SET name = $3 WHERE id = $1 AND user_id = $2", id, by.userID, name)
	if err != nil {
		return err
	}
	if n == 0 {
		return fault.NoSuch("passkey", id)
	}
	return p.log(ctx, tx, by.actor, personAction{by.userID, "passkey.renamed", map[string]any{"passkey": id, "name": name}})
}

// DeletePasskey deletes a passkey, unless it is the person's only credential.
func (p *People) DeletePasskey(ctx context.Context, tx *db.Tx, s *Session, id string, from Browser) error {
	person, err := p.lockConfirmed(ctx, tx, s)
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
	ok, err := p.CanSignIn(ctx, tx, person)
	if err != nil {
		return err
	}
	if !ok {
		return fault.New(fault.InvalidState, "This passkey is your only way to sign in. Set a password first.")
	}
	if err := clearSecondFactor(ctx, tx, s.UserID); err != nil {
		return err
	}
	return p.log(ctx, tx, from.actor(s.UserID), personAction{s.UserID, "passkey.deleted", map[string]any{"passkey": id}})
}
