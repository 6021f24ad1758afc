package access

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

// maxGenerations limits how many keys one request is charged to.
const maxGenerations = 4

// Ancestor is a key that created another one, directly or through other keys.
// Its bounds apply to its descendants, even after it is revoked.
type Ancestor struct {
	KeyID         string
	MonthlyBudget *credits.Micro
	Raise         *accounts.Raise
	Limits        []accounts.Limit
	RateLimit     *int64
	Project       string
	AllowedIPs    []netip.Prefix
	AllowedTools  []string
}

// setParent makes the key a child of the principal's key. It locks the parent, so that revoking all
// descendants can't miss the new key.
func (m *Keys) setParent(ctx context.Context, tx *db.Tx, parent *Principal, k *Key) error {
	if parent == nil || parent.KeyID == "" {
		return nil
	}
	if len(parent.Ancestors)+2 > maxGenerations {
		return fault.New(fault.LimitReached, "Keys can be created by keys over at most %d generations, and this key is of the last one. Create the key with one of an earlier generation or in the dashboard.", maxGenerations)
	}
	revoked, err := db.Value[*int64](tx.QueryRow(ctx, "SELECT revoked_at FROM keys WHERE id = $1"+tx.Lock("keys"), parent.KeyID))
	if err != nil {
		return err
	}
	if revoked != nil {
		return errUnauthenticated()
	}
	k.ParentID = parent.KeyID
	return nil
}

// ancestorsOf returns the ancestors of a key, its parent first.
func ancestorsOf(ctx context.Context, q db.Querier, k *Key) ([]*Key, error) {
	return db.List(ctx, q, func(r db.Row) (*Key, error) {
		var ancestor Key
		return &ancestor, scanKeyColumns(r, &ancestor)
	}, `WITH RECURSIVE line (id, distance) AS (
			SELECT id, 1 FROM keys WHERE id = $1
			UNION ALL
			SELECT keys.parent_key_id, line.distance + 1 FROM line JOIN keys ON keys.id = line.id WHERE keys.parent_key_id IS NOT NULL)
		SELECT `+keyColumns+" FROM line JOIN keys k ON k.id = line.id ORDER BY line.distance", k.ParentID)
}

// ResponsibleFor returns who is behind a member or a key: the member who created the first key of its line, or that key
// if no member did. So all keys of a member, and all keys that they create, are one.
func ResponsibleFor(ctx context.Context, q db.Querier, id string) (string, error) {
	line, err := ancestorsOf(ctx, q, &Key{ParentID: id})
	if err != nil {
		return "", fmt.Errorf("read the line of a key: %w", err)
	}
	if len(line) == 0 {
		return id, nil
	}
	first := line[len(line)-1]
	return responsible(first.ID, first.CreatedBy), nil
}

func responsible(firstKey, createdBy string) string {
	if strings.HasPrefix(createdBy, ids.User) {
		return createdBy
	}
	return firstKey
}

// maxResponsible limits how many keys ResponsibleForScope reads.
const maxResponsible = 1000

// ResponsibleForScope returns who is behind the active keys of a workspace with a scope, and whether it read all
// of its keys.
func ResponsibleForScope(ctx context.Context, q db.Querier, t accounts.Tenant, scope Scope, now time.Time) (found []string, all bool, err error) {
	type keyLine struct {
		scopes           []string
		first, createdBy string
	}
	lines, err := db.List(ctx, q, func(r db.Row) (l keyLine, err error) { return l, db.Scan(r, &l.scopes, &l.first, &l.createdBy) },
		`WITH RECURSIVE line (id, first, parent) AS (
			SELECT id, id, parent_key_id FROM (SELECT id, parent_key_id FROM keys
				WHERE workspace_id = $1 AND environment = $2 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $3) LIMIT $4) active
			UNION ALL
			SELECT line.id, keys.id, keys.parent_key_id FROM line JOIN keys ON keys.id = line.parent)
		SELECT k.scopes, first.id, first.created_by FROM line JOIN keys k ON k.id = line.id JOIN keys first ON first.id = line.first WHERE line.parent IS NULL`,
		t.WorkspaceID, t.Environment, now.UnixMicro(), int64(maxResponsible))
	if err != nil {
		return nil, false, fmt.Errorf("read who is behind keys: %w", err)
	}
	for _, l := range lines {
		if _, grant, err := ParseScopes(l.scopes); err == nil && grant.Allows(scope) {
			found = append(found, responsible(l.first, l.createdBy))
		}
	}
	return found, len(lines) < maxResponsible, nil
}

// inherit restricts the principal to what its ancestors allow. It returns when the key or the first of
// them expires.
func (p *Principal) inherit(ancestors []*Key) (ends *time.Time, err error) {
	times := []*time.Time{p.ExpiresAt}
	for _, a := range ancestors {
		_, grant, err := ParseScopes(a.Scopes)
		if err != nil {
			return nil, err
		}
		p.Grant &= grant
		if p.Project == "" {
			p.Project = a.Project
		}
		times = append(times, a.ExpiresAt)
		p.limitModels(LimitOfAncestor, a.Allowed)
		p.Ancestors = append(p.Ancestors, Ancestor{KeyID: a.ID, MonthlyBudget: a.MonthlyBudget, Raise: a.Raise, Limits: a.Limits, RateLimit: a.RateLimit, Project: a.Project, AllowedIPs: a.AllowedIPs, AllowedTools: a.AllowedTools})
	}
	if first := earliest(times...); !first.IsZero() {
		ends = &first
	}
	return ends, nil
}

// dependsOn reports whether a change of the key changes the principal.
func (p *Principal) dependsOn(keyID string) bool {
	return p.KeyID == keyID || slices.ContainsFunc(p.Ancestors, func(a Ancestor) bool { return a.KeyID == keyID })
}

// RevokeWithDescendants revokes a key and every key that it created, directly
// or through other keys. It returns the descendants that it revoked.
func (m *Keys) RevokeWithDescendants(ctx context.Context, tx *db.Tx, by Caller, k *Key) (revoked []*Key, err error) {
	if err := m.Revoke(ctx, tx, by, k); err != nil {
		return nil, err
	}
	// Each generation is locked before its children are read, because creating a key locks its parent.
	for generation := []string{k.ID}; len(generation) > 0; {
		children, err := m.lockChildren(ctx, tx, generation)
		if err != nil {
			return nil, err
		}
		generation = nil
		for _, child := range children {
			generation = append(generation, child.ID)
			if child.RevokedAt != nil {
				continue
			}
			if err := m.revoke(ctx, tx, by, child, map[string]any{"key_hint": child.Hint(), "ancestor": k.ID}); err != nil {
				return nil, err
			}
			revoked = append(revoked, child)
		}
	}
	return revoked, nil
}

// lockChildren locks and returns the children of locked parents.
func (m *Keys) lockChildren(ctx context.Context, tx *db.Tx, parents []string) (children []*Key, err error) {
	for _, parent := range parents {
		if _, err := db.List(ctx, tx, db.Value[string], "SELECT id FROM keys WHERE parent_key_id = $1 ORDER BY id"+tx.Lock("keys"), parent); err != nil {
			return nil, err
		}
		// A second statement, because secrets may have changed while waiting for the locks.
		list, err := db.List(ctx, tx, scanKey, keySelect+" WHERE k.parent_key_id = $2 ORDER BY k.id", m.now().UnixMicro(), parent)
		if err != nil {
			return nil, err
		}
		children = append(children, list...)
	}
	return children, nil
}

// Descendants returns the keys that a key created, directly or through other keys, oldest first, and
// whether there are more than the limit.
func (m *Keys) Descendants(ctx context.Context, q db.Querier, keyID string, limit int) (list []*Key, more bool, err error) {
	list, err = db.List(ctx, q, scanKey, `WITH RECURSIVE line (id) AS (
			SELECT id FROM keys WHERE parent_key_id = $2
			UNION ALL
			SELECT keys.id FROM line JOIN keys ON keys.parent_key_id = line.id) `+
		keySelect+" JOIN line ON line.id = k.id ORDER BY k.id LIMIT $3", m.now().UnixMicro(), keyID, int64(limit+1))
	list, more = db.Cut(db.Page{Limit: limit}, list)
	return list, more, err
}
