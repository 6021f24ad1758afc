package people

import (
	"context"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// ErrSecondFactor is the answer to somebody who opens a workspace that requires
// a second factor, in a session that has not proved one.
var ErrSecondFactor = fault.New(fault.InsufficientScope, "This workspace requires a second factor. Prove one, or set one up.")

// isSecondFactor reports whether a sign-in by the method proves two factors. A
// passkey checks the person itself, by a finger or a PIN.
func (m Method) isSecondFactor() bool {
	return m == ByTOTP || m == ByRecoveryCode || m == ByPasskey
}

// noteSecondFactor notes that the session's person has just proved a second
// factor.
func (p *People) noteSecondFactor(ctx context.Context, tx *db.Tx, s *Session) error {
	now := time.UnixMicro(p.now().UnixMicro()) // as it will be read
	_, err := tx.Exec(ctx, "UPDATE sessions SET second_factor_at = $2 WHERE id = $1", s.ID, now.UnixMicro())
	tx.OnCommit(func() { s.SecondFactorAt = &now })
	return err
}

// forgetSecondFactor ends the proofs of a person who has no second factor left:
// their sessions must not go on as if they had.
func forgetSecondFactor(ctx context.Context, tx *db.Tx, userID string) error {
	_, err := tx.Exec(ctx, `UPDATE sessions SET second_factor_at = NULL WHERE user_id = $1
		AND NOT EXISTS (SELECT 1 FROM totp WHERE user_id = $1 AND enabled_at IS NOT NULL)
		AND NOT EXISTS (SELECT 1 FROM passkeys WHERE user_id = $1)`, userID)
	return err
}
