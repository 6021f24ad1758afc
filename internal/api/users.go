package api

import (
	"context"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/endusers"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/jsonbody"
	"turnpike/internal/spend"
)

// userLimitsObject has the limits of an end user. Null means not set.
type userLimitsObject struct {
	Budget            *credits.Micro   `json:"budget"`
	Window            *accounts.Window `json:"window"`
	RequestsPerMinute *int64           `json:"requests_per_minute"`
}

func newUserLimitsObject(l accounts.UserLimits) userLimitsObject {
	return userLimitsObject{l.Budget, orNil(l.Window), l.RequestsPerMinute}
}

func (o *userLimitsObject) limits() accounts.UserLimits {
	l := accounts.UserLimits{Budget: o.Budget, RequestsPerMinute: o.RequestsPerMinute}
	if o.Window != nil {
		l.Window = *o.Window
	}
	return l
}

// userLimitsChange has the limits in a request that changes them. Null removes one.
type userLimitsChange struct {
	Budget            jsonbody.Optional[credits.Micro]   `json:"budget"`
	Window            jsonbody.Optional[accounts.Window] `json:"window"`
	RequestsPerMinute jsonbody.Optional[int64]           `json:"requests_per_minute"`
}

func (in userLimitsChange) apply(l *accounts.UserLimits) {
	setNullable(&l.Budget, in.Budget)
	set(&l.Window, in.Window)
	setNullable(&l.RequestsPerMinute, in.RequestsPerMinute)
}

type userObject struct {
	ID     string `json:"id"`
	Object string `json:"object"`
	User   string `json:"user"` // the workspace's ID
	userLimitsObject
	Spent       credits.Micro        `json:"spent"` // in the current window
	ResetsAt    *int64               `json:"resets_at"`
	Overrides   userLimitsObject     `json:"overrides"`
	Blocked     bool                 `json:"blocked"`
	BlockedAt   *int64               `json:"blocked_at"`
	Environment accounts.Environment `json:"environment"`
	CreatedAt   int64                `json:"created_at"`
	LastSeenAt  int64                `json:"last_seen_at"`
}

// users returns users with their limits and spending.
func (c *Call) users(ctx context.Context, q db.Querier, list ...*endusers.User) ([]*userObject, error) {
	w, err := accounts.GetWorkspace(ctx, q, c.Principal.WorkspaceID)
	if err != nil {
		return nil, err
	}
	now := c.s.Now()
	spent, err := spend.SpentByUsers(ctx, q, list, w.Users.Default, now)
	if err != nil {
		return nil, err
	}
	out := make([]*userObject, len(list))
	for i, u := range list {
		limits := u.Limits(w.Users.Default)
		out[i] = &userObject{ID: u.ID, Object: "user", User: u.Name, userLimitsObject: newUserLimitsObject(limits), Spent: spent[u.ID], Overrides: newUserLimitsObject(u.Override),
			Blocked: u.BlockedAt != nil, BlockedAt: unix(u.BlockedAt), Environment: u.Environment, CreatedAt: u.CreatedAt.Unix(), LastSeenAt: u.SeenAt.Unix()}
		if end := spend.PeriodIn(limits.Window, now).End(); !end.IsZero() {
			out[i].ResetsAt = unix(&end)
		}
	}
	return out, nil
}

func (c *Call) user(ctx context.Context, q db.Querier, u *endusers.User) (any, error) {
	list, err := c.users(ctx, q, u)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// checkUserAccess rejects pinned keys, because users belong to the whole workspace.
func (c *Call) checkUserAccess() error {
	if p := c.Principal.Project; p != "" {
		return fault.New(fault.ProjectNotAllowed, "This key is pinned to project %q, and users belong to the whole workspace. Use a key that is not pinned.", p)
	}
	return nil
}

// userID returns the ID in the path. Pinned keys can't see any user.
func (c *Call) userID() (string, error) {
	if c.Principal.Project != "" {
		return "", fault.NoSuch("user", c.id())
	}
	return c.id(), nil
}

func listUsers(ctx context.Context, c *Call) (any, error) {
	q := c.query(append(pageParams, "user", "blocked", "sort")...)
	page := q.page(ids.EndUser)
	f := endusers.Filter{Name: q.text("user"), Blocked: q.boolean("blocked")}
	bySpend := choice(q, "sort", []string{"created_at", "spent"}) == "spent"
	if bySpend && (page.After != "" || page.Asc || f != endusers.Filter{}) {
		q.fail(fault.Invalid("sort", "sort=spent returns the users who spent most this month. Remove after, order, user and blocked."))
	}
	if q.err != nil {
		return nil, q.err
	}
	if err := c.checkUserAccess(); err != nil {
		return nil, err
	}
	var list []*endusers.User
	var more bool
	var err error
	if bySpend {
		list, err = spend.TopUsers(ctx, c.s.DB, c.Principal.Tenant, c.s.Now(), page.Limit)
	} else {
		list, more, err = endusers.List(ctx, c.s.DB, c.Principal.Tenant, f, page)
	}
	if err != nil {
		return nil, err
	}
	data, err := c.users(ctx, c.s.DB, list...)
	if err != nil {
		return nil, err
	}
	return newList(data, func(u *userObject) string { return u.ID }, more), nil
}

func getUser(ctx context.Context, c *Call) (any, error) {
	id, err := c.userID()
	if err != nil {
		return nil, err
	}
	u, err := endusers.Get(ctx, c.s.DB, c.Principal.Tenant, id)
	if err != nil {
		return nil, err
	}
	return c.user(ctx, c.s.DB, u)
}

type updateUserRequest struct {
	userLimitsChange
	Blocked jsonbody.Optional[bool] `json:"blocked"`
}

func updateUser(ctx context.Context, c *Call, tx *db.Tx, in updateUserRequest) (any, error) {
	id, err := c.userID()
	if err != nil {
		return nil, err
	}
	u, err := endusers.Change(ctx, tx, endusers.UserChange{Tenant: c.Principal.Tenant, ID: id, Change: accounts.Change[endusers.User]{By: c.Actor(), At: c.s.Now(), Apply: func(u *endusers.User) error {
		in.userLimitsChange.apply(&u.Override)
		if in.Blocked.Set {
			u.Block(in.Blocked.Value, c.s.Now())
		}
		return nil
	}}})
	if err != nil {
		return nil, err
	}
	return c.user(ctx, tx, u)
}

func deleteUser(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	id, err := c.userID()
	if err != nil {
		return nil, err
	}
	u, err := endusers.GetLocked(ctx, tx, c.Principal.Tenant, id)
	if err != nil {
		return nil, err
	}
	if err := endusers.Delete(ctx, tx, c.Actor(), u, c.s.Now()); err != nil {
		return nil, err
	}
	return deletedObject{u.ID, "user", true}, nil
}

type userSettingsObject struct {
	Object        string           `json:"object"`
	FromRequests  bool             `json:"from_requests"`
	DefaultLimits userLimitsObject `json:"default_limits"`

	AlertThresholds *accounts.AlertThresholds `json:"alert_thresholds"`
}

func newUserSettingsObject(s accounts.UserSettings) *userSettingsObject {
	return &userSettingsObject{Object: "user_settings", FromRequests: s.FromRequests, DefaultLimits: newUserLimitsObject(s.Default), AlertThresholds: thresholdsOrNull(s.AlertThresholds)}
}

func getUserSettings(ctx context.Context, c *Call) (any, error) {
	if err := c.checkUserAccess(); err != nil {
		return nil, err
	}
	w, err := accounts.GetWorkspace(ctx, c.s.DB, c.Principal.WorkspaceID)
	if err != nil {
		return nil, err
	}
	return newUserSettingsObject(w.Users), nil
}

type updateUserSettingsRequest struct {
	FromRequests  jsonbody.Optional[bool]             `json:"from_requests"`
	DefaultLimits jsonbody.Optional[userLimitsChange] `json:"default_limits"`

	AlertThresholds jsonbody.Optional[accounts.AlertThresholds] `json:"alert_thresholds"`
}

func updateUserSettings(ctx context.Context, c *Call, tx *db.Tx, in updateUserSettingsRequest) (any, error) {
	if err := c.checkUserAccess(); err != nil {
		return nil, err
	}
	if c.Principal.Environment != accounts.Live {
		return nil, fault.New(fault.InvalidState, "The settings of users apply to both environments. Use a live key.")
	}
	w, err := c.changeWorkspace(ctx, tx, func(w *accounts.Workspace) error {
		set(&w.Users.FromRequests, in.FromRequests)
		if in.DefaultLimits.Null {
			w.Users.Default = accounts.UserLimits{}
		}
		in.DefaultLimits.Value.apply(&w.Users.Default)
		set(&w.Users.AlertThresholds, in.AlertThresholds)
		return nil
	})
	return show(w, err, func(w *accounts.Workspace) *userSettingsObject { return newUserSettingsObject(w.Users) })
}
