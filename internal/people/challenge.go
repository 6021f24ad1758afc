package people

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// challengeLifetime is how long a browser may take to respond.
const challengeLifetime = 10 * time.Minute

// challengeFor is the purpose of a challenge. userID is empty if the person isn't known yet.
type challengeFor struct{ kind, userID string }

// storeChallenge stores what a response will be checked against, and returns the token that the response
// must contain.
func (p *People) storeChallenge(ctx context.Context, tx *db.Tx, f challengeFor, state any) (token string, err error) {
	text, err := json.Marshal(state)
	if err != nil {
		return "", fmt.Errorf("%s challenge: %w", f.kind, err)
	}
	token = newToken()
	hash := hashToken(token)
	_, err = tx.Exec(ctx, "INSERT INTO ceremonies (token_hash, kind, user_id, state, expires_at) VALUES ($1, $2, $3, $4, $5)",
		hash, f.kind, db.OrNull(f.userID), p.ring.Seal(text, f.kind+" "+hash), p.now().Add(challengeLifetime).UnixMicro())
	return token, err
}

// consumeChallenge deletes a challenge and returns its state. It commits immediately, because a challenge
// may be used only once, successful or not.
func (p *People) consumeChallenge(ctx context.Context, token string, f challengeFor, state any) error {
	hash := hashToken(token)
	sealed, err := inTx(ctx, p.db, func(tx *db.Tx) (sealed string, err error) {
		err = tx.QueryRow(ctx, `DELETE FROM ceremonies WHERE token_hash = $1 AND kind = $2 AND coalesce(user_id, '') = $3 AND expires_at > $4 RETURNING state`,
			hash, f.kind, f.userID, p.now().UnixMicro()).Scan(&sealed)
		return sealed, err
	})
	if err != nil {
		return ifNotFound(err, fault.New(fault.Authentication, "This took too long or was already completed. Start again."))
	}
	text, err := p.ring.Open(sealed, f.kind+" "+hash)
	if err != nil {
		return fmt.Errorf("%s challenge: %w", f.kind, err)
	}
	return json.Unmarshal(text, state)
}
