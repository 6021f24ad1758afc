package people

import (
	"context"
	"errors"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
)

// Exposed is a session or a one-time link whose token leaked. It doesn't work anymore.
type Exposed struct {
	What        string  // such as "session"
	Person      *Person // nil for the setup link and invitations
	WorkspaceID string  // of the setup link or the invitation
}

// KnowsToken reports whether the token of a session or a link is stored. It doesn't write or lock.
func (p *People) KnowsToken(ctx context.Context, q db.Querier, token string) (bool, error) {
	return db.Value[bool](q.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM sessions WHERE token_hash = $1)
		OR EXISTS (SELECT 1 FROM one_time_links WHERE token_hash = $1) OR EXISTS (SELECT 1 FROM invitations WHERE token_hash = $1)`, hashToken(token)))
}

// EndExposed ends the session or the link of a leaked token. It returns nil if it doesn't work anymore.
func (p *People) EndExposed(ctx context.Context, tx *db.Tx, by audit.Actor, token string) (*Exposed, error) {
	for _, end := range []func(context.Context, *db.Tx, audit.Actor, string) (*Exposed, error){p.endExposedSession, p.endExposedLink, p.endExposedInvitation} {
		if e, err := end(ctx, tx, by, hashToken(token)); !errors.Is(err, db.ErrNotFound) {
			return e, err
		}
	}
	return nil, nil
}

func (p *People) endExposedSession(ctx context.Context, tx *db.Tx, by audit.Actor, hash string) (*Exposed, error) {
	seen, created := sessionCutoffs(p.now())
	var id, userID string
	err := tx.QueryRow(ctx, "DELETE FROM sessions WHERE token_hash = $1 AND seen_at > $2 AND created_at > $3 RETURNING id, user_id", hash, seen, created).Scan(&id, &userID)
	if err != nil {
		return nil, err
	}
	person, err := p.Get(ctx, tx, userID)
	if err != nil {
		return nil, err
	}
	return &Exposed{What: "session", Person: person}, p.log(ctx, tx, by, personAction{userID, "session.revoked", map[string]any{"session": id}})
}

func (p *People) endExposedLink(ctx context.Context, tx *db.Tx, by audit.Actor, hash string) (*Exposed, error) {
	var kind, userID string
	e := new(Exposed)
	err := db.Scan(tx.QueryRow(ctx, "DELETE FROM one_time_links WHERE token_hash = $1 AND (expires_at IS NULL OR expires_at > $2) RETURNING kind, user_id, workspace_id",
		hash, p.now().UnixMicro()), &kind, &userID, &e.WorkspaceID)
	if err != nil {
		return nil, err
	}
	e.What = kind + " link"
	if userID == "" {
		return e, by.Log(ctx, tx, audit.Action{Tenant: accounts.Tenant{WorkspaceID: e.WorkspaceID}, Action: "setup_link.revoked", Target: e.WorkspaceID}, nil, p.now())
	}
	if e.Person, err = p.Get(ctx, tx, userID); err != nil {
		return nil, err
	}
	return e, p.log(ctx, tx, by, personAction{userID, "password_link.revoked", map[string]any{}})
}

func (p *People) endExposedInvitation(ctx context.Context, tx *db.Tx, by audit.Actor, hash string) (*Exposed, error) {
	i, err := scanInvitation(tx.QueryRow(ctx, "UPDATE invitations SET revoked_at = $1 WHERE "+openInvitation+" AND token_hash = $2 RETURNING "+invitationColumns,
		p.now().UnixMicro(), hash))
	if err != nil {
		return nil, err
	}
	return &Exposed{What: "invitation", WorkspaceID: i.WorkspaceID}, p.logInvitation(ctx, tx, by, i, "invitation.revoked")
}
