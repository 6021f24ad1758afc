package people

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"
	"github.com/pquerna/otp/totp"

	"turnpike/internal/db"
	"turnpike/internal/fault"
)

const (
	totpPeriod    = 30
	digits        = 6
	recoveryCodes = 10
	// recoveryAlphabet leaves out similar characters. 10 characters are 50 bits: enough, because guessing is
	// limited and the hashes have a pepper.
	recoveryAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	recoveryLength   = 10
)

// Enrollment is the secret for an authenticator app. It is shown until the first code is entered.
type Enrollment struct {
	Secret string // to type
	URL    string // otpauth://, to draw as a QR code
}

// SecondFactor is the state of a person's authenticator app.
type SecondFactor struct {
	Enabled           bool
	EnabledAt         *time.Time
	RecoveryCodesLeft int64
}

// GetSecondFactor returns the state of a person's app.
func (p *People) GetSecondFactor(ctx context.Context, q db.Querier, userID string) (*SecondFactor, error) {
	f := new(SecondFactor)
	err := db.Scan(q.QueryRow(ctx, `SELECT enabled_at, (SELECT count(*) FROM recovery_codes WHERE user_id = $1 AND used_at IS NULL)
		FROM totp WHERE user_id = $1`, userID), &f.EnabledAt, &f.RecoveryCodesLeft)
	f.Enabled = f.EnabledAt != nil
	return f, ifNotFound(err, nil)
}

func (p *People) hasTOTP(ctx context.Context, q db.Querier, userID string) (bool, error) {
	f, err := p.GetSecondFactor(ctx, q, userID)
	return err == nil && f.Enabled, err
}

func totpLocation(userID string) string { return "totp " + userID }

// StartTOTP creates a secret for an app, which EnableTOTP activates. Starting again replaces it. issuer is
// the name of this service in the app.
func (p *People) StartTOTP(ctx context.Context, tx *db.Tx, s *Session, issuer string) (*Enrollment, error) {
	person, err := p.lockConfirmed(ctx, tx, s)
	if err != nil {
		return nil, err
	}
	if err := p.requireNoTOTP(ctx, tx, s.UserID); err != nil {
		return nil, err
	}
	key, err := totp.Generate(totp.GenerateOpts{Issuer: issuer, AccountName: person.Email, Period: totpPeriod, Digits: otp.DigitsSix})
	if err != nil {
		return nil, fmt.Errorf("create TOTP secret: %w", err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO totp (user_id, secret, last_step, created_at) VALUES ($1, $2, 0, $3)
		ON CONFLICT (user_id) DO UPDATE SET secret = excluded.secret, last_step = 0, created_at = excluded.created_at`,
		s.UserID, p.ring.Seal([]byte(key.Secret()), totpLocation(s.UserID)), p.now().UnixMicro())
	return &Enrollment{Secret: key.Secret(), URL: key.URL()}, err
}

// PendingTOTP returns the enrollment of StartTOTP until it is enabled.
func (p *People) PendingTOTP(ctx context.Context, q db.Querier, s *Session, issuer string) (*Enrollment, error) {
	if err := p.RequireConfirmed(s); err != nil {
		return nil, err
	}
	person, err := p.Get(ctx, q, s.UserID)
	if err != nil {
		return nil, err
	}
	var sealed string
	err = q.QueryRow(ctx, "SELECT secret FROM totp WHERE user_id = $1 AND enabled_at IS NULL", s.UserID).Scan(&sealed)
	if err != nil {
		return nil, ifNotFound(err, errNoEnrollment())
	}
	secret, err := p.ring.Open(sealed, totpLocation(s.UserID))
	if err != nil {
		return nil, fmt.Errorf("TOTP secret: %w", err)
	}
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(string(secret))
	if err != nil {
		return nil, fmt.Errorf("TOTP secret: %w", err)
	}
	key, err := totp.Generate(totp.GenerateOpts{Issuer: issuer, AccountName: person.Email, Period: totpPeriod, Digits: otp.DigitsSix, Secret: raw})
	if err != nil {
		return nil, fmt.Errorf("format TOTP secret: %w", err)
	}
	return &Enrollment{Secret: key.Secret(), URL: key.URL()}, nil
}

func errNoEnrollment() error {
	return fault.New(fault.InvalidState, "No authenticator app is being set up. Start again.")
}

func (p *People) requireNoTOTP(ctx context.Context, q db.Querier, userID string) error {
	on, err := p.hasTOTP(ctx, q, userID)
	if err == nil && on {
		err = fault.New(fault.InvalidState, "An authenticator app is already set up. Remove it first.")
	}
	return err
}

// EnableTOTP completes the enrollment with a first code and returns the recovery codes, which are shown
// only once. It ends other sessions.
func (p *People) EnableTOTP(ctx context.Context, tx *db.Tx, s *Session, code string, from Browser) (recovery []string, err error) {
	if _, err := p.lockConfirmed(ctx, tx, s); err != nil {
		return nil, err
	}
	if err := p.requireNoTOTP(ctx, tx, s.UserID); err != nil {
		return nil, err
	}
	if err := p.consumeTOTPCode(ctx, tx, s.UserID, code); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "UPDATE totp SET enabled_at = $2 WHERE user_id = $1", s.UserID, p.now().UnixMicro()); err != nil {
		return nil, err
	}
	if _, err := deleteSessions(ctx, tx, s.UserID, s.ID); err != nil {
		return nil, err
	}
	if recovery, err = p.renewRecoveryCodes(ctx, tx, s.UserID); err != nil {
		return nil, err
	}
	if err := p.recordSecondFactor(ctx, tx, s); err != nil {
		return nil, err
	}
	return recovery, p.log(ctx, tx, from.actor(s.UserID), personAction{s.UserID, "totp.enabled", nil})
}

// DisableTOTP removes the app and the recovery codes.
func (p *People) DisableTOTP(ctx context.Context, tx *db.Tx, s *Session, from Browser) error {
	if _, err := p.lockConfirmed(ctx, tx, s); err != nil {
		return err
	}
	return p.removeTOTP(ctx, tx, s.Caller(from), s.UserID)
}

func (p *People) removeTOTP(ctx context.Context, tx *db.Tx, by Caller, userID string) error {
	on, err := p.hasTOTP(ctx, tx, userID)
	if err != nil {
		return err
	}
	if err := deleteTOTP(ctx, tx, userID); err != nil || !on {
		return err
	}
	if err := clearSecondFactor(ctx, tx, userID); err != nil {
		return err
	}
	return p.log(ctx, tx, by.actor, personAction{userID, "totp.disabled", nil})
}

func deleteTOTP(ctx context.Context, tx *db.Tx, userID string) error {
	if _, err := tx.Exec(ctx, "DELETE FROM recovery_codes WHERE user_id = $1", userID); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "DELETE FROM totp WHERE user_id = $1", userID)
	return err
}

// RenewRecoveryCodes replaces the recovery codes, used and unused.
func (p *People) RenewRecoveryCodes(ctx context.Context, tx *db.Tx, s *Session, from Browser) ([]string, error) {
	if _, err := p.lockConfirmed(ctx, tx, s); err != nil {
		return nil, err
	}
	on, err := p.hasTOTP(ctx, tx, s.UserID)
	if err != nil {
		return nil, err
	}
	if !on {
		return nil, fault.New(fault.InvalidState, "Recovery codes need an authenticator app. Set one up first.")
	}
	codes, err := p.renewRecoveryCodes(ctx, tx, s.UserID)
	if err != nil {
		return nil, err
	}
	return codes, p.log(ctx, tx, from.actor(s.UserID), personAction{s.UserID, "recovery_codes.renewed", nil})
}

func (p *People) renewRecoveryCodes(ctx context.Context, tx *db.Tx, userID string) ([]string, error) {
	if _, err := tx.Exec(ctx, "DELETE FROM recovery_codes WHERE user_id = $1", userID); err != nil {
		return nil, err
	}
	codes := make([]string, recoveryCodes)
	for i := range codes {
		code := newRecoveryCode()
		if _, err := tx.Exec(ctx, "INSERT INTO recovery_codes (user_id, hash) VALUES ($1, $2)", userID, p.recoveryHash(code)); err != nil {
			return nil, err
		}
		codes[i] = code[:recoveryLength/2] + "-" + code[recoveryLength/2:]
	}
	return codes, nil
}

func newRecoveryCode() string {
	raw := make([]byte, recoveryLength)
	rand.Read(raw)
	for i, b := range raw {
		raw[i] = recoveryAlphabet[int(b)%len(recoveryAlphabet)] // 32 divides 256, so all are equally likely
	}
	return string(raw)
}

func (p *People) recoveryHash(code string) string {
	h := p.ring.Hash("recovery code " + code)
	return hex.EncodeToString(h[:])
}

// normalizeCode removes spaces and dashes and replaces letters that look like digits.
var normalizeCode = strings.NewReplacer(" ", "", "-", "", "o", "0", "i", "1", "l", "1")

func errInvalidCode() error {
	return fault.Param(fault.Authentication, "code", "The code is wrong or was already used. Wait for the next one.")
}

// consumeCode checks a code of the app or a recovery code, which works only once. The person must be locked.
func (p *People) consumeCode(ctx context.Context, tx *db.Tx, userID, code string) (Method, error) {
	on, err := p.hasTOTP(ctx, tx, userID)
	if err != nil {
		return "", err
	}
	if !on {
		return "", errInvalidCode()
	}
	code = normalizeCode.Replace(strings.ToLower(code))
	if len(code) == digits {
		return ByTOTP, p.consumeTOTPCode(ctx, tx, userID, code)
	}
	n, err := tx.Exec(ctx, "UPDATE recovery_codes SET used_at = $3 WHERE user_id = $1 AND hash = $2 AND used_at IS NULL",
		userID, p.recoveryHash(code), p.now().UnixMicro())
	if err == nil && n == 0 {
		err = errInvalidCode()
	}
	return ByRecoveryCode, err
}

// consumeTOTPCode accepts the current code and, because clocks differ, the previous and the next one. A code
// must be later than the last one used.
func (p *People) consumeTOTPCode(ctx context.Context, tx *db.Tx, userID, code string) error {
	var sealed string
	var last int64
	err := tx.QueryRow(ctx, "SELECT secret, last_step FROM totp WHERE user_id = $1", userID).Scan(&sealed, &last)
	if err != nil {
		return ifNotFound(err, errNoEnrollment())
	}
	secret, err := p.ring.Open(sealed, totpLocation(userID))
	if err != nil {
		return fmt.Errorf("TOTP secret: %w", err)
	}
	now := p.now().Unix() / totpPeriod
	for step := max(now-1, last+1); step <= now+1; step++ {
		right, err := hotp.ValidateCustom(normalizeCode.Replace(code), uint64(step), string(secret), hotp.ValidateOpts{Digits: otp.DigitsSix})
		if err != nil {
			return errInvalidCode() // it has another length
		}
		if right {
			_, err := tx.Exec(ctx, "UPDATE totp SET last_step = $2 WHERE user_id = $1", userID, step)
			return err
		}
	}
	return errInvalidCode()
}
