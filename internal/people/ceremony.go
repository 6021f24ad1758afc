package people

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// ceremonyLimit is how long a browser may take to answer.
const ceremonyLimit = 10 * time.Minute

// beginCeremony keeps what the answer will be checked against, and returns the
// token that the answer must come with. userID is empty when nobody is known yet.
func (p *People) beginCeremony(ctx context.Context, tx *db.Tx, kind, userID string, state any) (token string, err error) {
	text, err := json.Marshal(state)
	if err != nil {
		return "", fmt.Errorf("%s ceremony: %w", kind, err)
	}
	token = newToken()
	hash := hashToken(token)
	_, err = tx.Exec(ctx, "INSERT INTO ceremonies (token_hash, kind, user_id, state, expires_at) VALUES ($1, $2, $3, $4, $5)",
		hash, kind, db.OrNull(userID), p.ring.Seal(text, kind+" "+hash), p.now().Add(ceremonyLimit).UnixMicro())
	return token, err
}

// endCeremony takes the state out in a transaction of its own: a challenge is
// answered once, right or wrong.
func (p *People) endCeremony(ctx context.Context, token, kind, userID string, state any) error {
	hash := hashToken(token)
	var sealed string
	err := p.db.Write(ctx, func(tx *db.Tx) error {
		err := tx.QueryRow(ctx, `DELETE FROM ceremonies WHERE token_hash = $1 AND kind = $2 AND coalesce(user_id, '') = $3 AND expires_at > $4 RETURNING state`,
			hash, kind, userID, p.now().UnixMicro()).Scan(&sealed)
		if errors.Is(err, db.ErrNotFound) {
			return fault.New(fault.Authentication, "this took too long or was answered already; try again")
		}
		return err
	})
	if err != nil {
		return err
	}
	text, err := p.ring.Open(sealed, kind+" "+hash)
	if err != nil {
		return fmt.Errorf("%s ceremony: %w", kind, err)
	}
	return json.Unmarshal(text, state)
}
