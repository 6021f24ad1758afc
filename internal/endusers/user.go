// Package endusers keeps the accounts of a workspace's own users: their limits, and whether they are blocked.
//
// The workspace names its users. The log, the ledger and usage have only the ID that Turnpike gives them, so
// deleting a user makes all of those pseudonymous.
package endusers

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/contentlog"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/visibility"
)

const (
	// Max limits the users of a workspace.
	Max = 1_000_000
	// idleRetention is how long an unused account without a lifetime budget is kept.
	idleRetention = 400 * 24 * time.Hour
	// seenInterval is how precisely the last use is stored.
	seenInterval = 24 * time.Hour
	maxName      = 128

	// signalUser notifies nodes that a user changed. The payload is the key of its name.
	signalUser = "end_user"
	// SignalID has Turnpike's ID of the user as its payload.
	SignalID = "end_user.id"
)

// User is the account of an end user.
type User struct {
	ID string
	accounts.Tenant
	Name      string              // the workspace's ID for the user
	OfToken   accounts.UserLimits // of the token that was created last
	Override  accounts.UserLimits // set by an admin
	BlockedAt *time.Time
	CreatedAt time.Time
	SeenAt    time.Time
}

// Limits returns the limits that apply: the admin's, or else the token's, or else the workspace's.
func (u *User) Limits(byDefault accounts.UserLimits) accounts.UserLimits {
	l := u.Override.Or(u.OfToken).Or(byDefault)
	l.Window = cmp.Or(l.Window, accounts.WindowMonth)
	return l
}

// CheckName checks the workspace's ID for a user, which a client sent as param.
func CheckName(param, name string) error {
	switch {
	case name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fault.Invalid(param, "%s must be your ID of the user, with 1 to %d bytes and no control characters.", param, maxName)
	case keyring.ContainsSecret(name):
		return fault.Invalid(param, "%s contains something that looks like an API key, which must not be stored. Use another ID.", param)
	}
	return nil
}

const columns = `id, workspace_id, environment, name, budget, budget_window, requests_per_minute, override_budget, override_window, override_requests_per_minute,
	blocked_at, created_at, seen_at`

var scan = db.Scanner(func(u *User) []any {
	return []any{&u.ID, &u.WorkspaceID, &u.Environment, &u.Name, &u.OfToken.Budget, &u.OfToken.Window, &u.OfToken.RequestsPerMinute,
		&u.Override.Budget, &u.Override.Window, &u.Override.RequestsPerMinute, &u.BlockedAt, &u.CreatedAt, &u.SeenAt}
})

// find returns a user by the workspace's ID for it.
func find(ctx context.Context, q db.Querier, t accounts.Tenant, name, lock string) (*User, error) {
	return scan(q.QueryRow(ctx, "SELECT "+columns+" FROM end_users WHERE workspace_id = $1 AND environment = $2 AND name = $3"+lock, t.WorkspaceID, t.Environment, name))
}

const byID = "SELECT " + columns + " FROM end_users WHERE workspace_id = $1 AND environment = $2 AND id = $3"

// Get returns a user by Turnpike's ID.
func Get(ctx context.Context, q db.Querier, t accounts.Tenant, id string) (*User, error) {
	u, err := scan(q.QueryRow(ctx, byID, t.WorkspaceID, t.Environment, id))
	return u, db.OrNoSuch(err, "user", id)
}

// GetLocked is Get, and locks the user until the transaction ends.
func GetLocked(ctx context.Context, tx *db.Tx, t accounts.Tenant, id string) (*User, error) {
	u, err := scan(tx.QueryRow(ctx, byID+tx.Lock("end_users"), t.WorkspaceID, t.Environment, id))
	return u, db.OrNoSuch(err, "user", id)
}

// Use is the use of a user's account by a request, or by a new token with limits.
type Use struct {
	accounts.Tenant
	Name   string
	Limits accounts.UserLimits // of the token
	At     time.Time
}

// Ensure returns the user of a name, and creates it if needed. Limits of a token that aren't set keep their
// value.
func Ensure(ctx context.Context, tx *db.Tx, use Use) (*User, error) {
	u, err := find(ctx, tx, use.Tenant, use.Name, tx.Lock("end_users"))
	if errors.Is(err, db.ErrNotFound) {
		u, err = create(ctx, tx, use)
		if !errors.Is(err, db.ErrExists) {
			return u, err
		}
		u, err = find(ctx, tx, use.Tenant, use.Name, tx.Lock("end_users"))
	}
	if err != nil {
		return nil, err
	}
	if err := u.touch(ctx, tx, use.At); err != nil {
		return nil, err
	}
	changed := use.Limits.Or(u.OfToken)
	if changed.Equal(u.OfToken) {
		return u, nil
	}
	before := u.row()
	u.OfToken = changed
	return u, u.save(ctx, tx, before)
}

// touch stores that the user was seen, once a day. Nodes that cache the user need not know.
func (u *User) touch(ctx context.Context, tx *db.Tx, now time.Time) error {
	if now.Sub(u.SeenAt) < seenInterval {
		return nil
	}
	u.SeenAt = now
	_, err := tx.Exec(ctx, "UPDATE end_users SET seen_at = $2 WHERE id = $1 AND seen_at < $2", u.ID, now.UnixMicro())
	return err
}

func create(ctx context.Context, tx *db.Tx, use Use) (*User, error) {
	t, limits, now := use.Tenant, use.Limits, use.At.UnixMicro()
	u := &User{ID: ids.New(ids.EndUser), Tenant: t, Name: use.Name, OfToken: limits, CreatedAt: use.At, SeenAt: use.At}
	n, err := tx.Exec(ctx, db.Insert("end_users", columns)+" ON CONFLICT DO NOTHING", u.ID, t.WorkspaceID, t.Environment, use.Name,
		(*int64)(limits.Budget), db.OrNull(limits.Window), limits.RequestsPerMinute, nil, nil, nil, nil, now, now)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, db.ErrExists
	}
	total, err := db.Value[int64](tx.QueryRow(ctx, `INSERT INTO end_user_counts (workspace_id, users) VALUES ($1, 1)
		ON CONFLICT (workspace_id) DO UPDATE SET users = end_user_counts.users + 1 RETURNING users`, t.WorkspaceID))
	if err == nil && total > Max {
		err = fault.New(fault.LimitReached, "This workspace has %d users, which is the limit. Delete users that you no longer need with DELETE /v1/users/{id}.", Max)
	}
	return u, err
}

var table = db.Table{Name: "end_users", Key: 1, Columns: "id, budget, budget_window, requests_per_minute, override_budget, override_window, override_requests_per_minute, blocked_at"}

// row returns the values of table.
func (u *User) row() []any {
	return []any{u.ID, (*int64)(u.OfToken.Budget), db.OrNull(u.OfToken.Window), u.OfToken.RequestsPerMinute,
		(*int64)(u.Override.Budget), db.OrNull(u.Override.Window), u.Override.RequestsPerMinute, db.Micros(u.BlockedAt)}
}

// save stores what differs from the row before.
func (u *User) save(ctx context.Context, tx *db.Tx, before []any) error {
	_, err := table.Update(ctx, tx, before, u.row())
	u.signal(tx)
	return err
}

// signal makes every node read the user again.
func (u *User) signal(tx *db.Tx) {
	tx.Signal(signalUser, cacheKey(u.Tenant, u.Name))
	tx.Signal(SignalID, u.ID)
}

// Rules are what follows from an admin's change of a user.
var Rules accounts.Rules[User]

// UserChange is an admin's change of a user.
type UserChange struct {
	accounts.Tenant
	ID string
	accounts.Change[User]
}

// Change changes a user and records that in the admin log.
func Change(ctx context.Context, tx *db.Tx, c UserChange) (*User, error) {
	before, err := GetLocked(ctx, tx, c.Tenant, c.ID)
	if err != nil {
		return nil, err
	}
	u := *before
	if err := c.Apply(&u); err != nil {
		return nil, err
	}
	if err := u.Override.Check(""); err != nil {
		return nil, err
	}
	if err := u.save(ctx, tx, before.row()); err != nil {
		return nil, err
	}
	if err := Rules.Follow(ctx, tx, accounts.Changed[User]{Before: before, After: &u, At: c.At}); err != nil {
		return nil, err
	}
	return &u, u.log(ctx, tx, c.By, "user.updated", c.At)
}

func (u *User) log(ctx context.Context, tx *db.Tx, by audit.Actor, action string, now time.Time) error {
	return by.Log(ctx, tx, audit.Action{Tenant: u.Tenant, Action: action, Target: u.ID}, map[string]any{"budget": u.Override.Budget, "window": u.Override.Window,
		"requests_per_minute": u.Override.RequestsPerMinute, "blocked": u.BlockedAt != nil}, now)
}

// Block blocks or unblocks the user.
func (u *User) Block(blocked bool, now time.Time) {
	switch {
	case !blocked:
		u.BlockedAt = nil
	case u.BlockedAt == nil:
		u.BlockedAt = &now
	}
}

// Lock locks a user until the transaction ends. A missing one has no effect.
func Lock(ctx context.Context, tx *db.Tx, id string) error {
	_, err := scan(tx.QueryRow(ctx, "SELECT "+columns+" FROM end_users WHERE id = $1"+tx.Lock("end_users"), id))
	return db.Wrap(db.IgnoreNotFound(err), "lock user")
}

// Delete deletes a user that GetLocked returned, and the content of its requests. The log and usage keep only its ID.
func Delete(ctx context.Context, tx *db.Tx, by audit.Actor, u *User, now time.Time) error {
	if err := u.remove(ctx, tx); err != nil {
		return err
	}
	if err := contentlog.DeleteUser(ctx, tx, u.ID, now); err != nil {
		return err
	}
	return u.log(ctx, tx, by, "user.deleted", now)
}

func (u *User) remove(ctx context.Context, tx *db.Tx) error {
	if _, err := tx.Exec(ctx, "DELETE FROM end_users WHERE id = $1", u.ID); err != nil {
		return err
	}
	// Lists of the users with the highest cost must not skip many deleted ones.
	if _, err := tx.Exec(ctx, "DELETE FROM usage_user_months WHERE workspace_id = $1 AND environment = $2 AND end_user_id = $3", u.WorkspaceID, string(u.Environment), u.ID); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "UPDATE end_user_counts SET users = users - 1 WHERE workspace_id = $1", u.WorkspaceID)
	u.signal(tx)
	return err
}

// Filter selects users.
type Filter struct {
	Name    string // only the user that the workspace calls that, if set
	Blocked bool   // only those
}

// List returns a page of the users, newest first by default.
func List(ctx context.Context, q db.Querier, t accounts.Tenant, f Filter, page db.Page) ([]*User, bool, error) {
	search := db.Search{Table: "end_users", Columns: columns, Where: visibility.Filter{Tenant: t}.Rows()}
	if f.Name != "" {
		search.Where.Add("name =", f.Name)
	}
	if f.Blocked {
		search.Where.Add("blocked_at >", int64(0))
	}
	found, err := db.Find(ctx, q, search, page, db.Record[*User]{Scan: scan, ID: func(u *User) string { return u.ID }})
	if err != nil {
		return nil, false, err
	}
	return found.Rows, found.More, nil
}

// ByID returns users by Turnpike's IDs. Deleted ones are missing.
func ByID(ctx context.Context, q db.Querier, list []string) (map[string]*User, error) {
	out := make(map[string]*User, len(list))
	query := db.InQuery{SQL: "SELECT " + columns + " FROM end_users WHERE id IN"}
	err := db.ByIDs(ctx, q, query, list, func(r db.Row) error {
		u, err := scan(r)
		if err == nil {
			out[u.ID] = u
		}
		return err
	})
	return out, db.Wrap(err, "read users")
}

// Purge deletes a batch of users that were idle for long and have no lifetime budget, of which no one could
// say later how much is spent.
func Purge(ctx context.Context, tx *db.Tx, now time.Time, limit int64) (int64, error) {
	list, err := db.List(ctx, tx, scan, "SELECT "+columns+` FROM end_users WHERE seen_at < $1 AND
		coalesce(override_window, budget_window, (SELECT user_window FROM workspaces w WHERE w.id = end_users.workspace_id), 'month') <> 'lifetime'
		ORDER BY seen_at LIMIT $2`+tx.Lock("end_users"), now.Add(-idleRetention).UnixMicro(), limit)
	for _, u := range list {
		if err != nil {
			break
		}
		err = u.remove(ctx, tx)
	}
	return int64(len(list)), err
}
