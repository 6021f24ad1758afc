// Package accounts holds workspaces, their members and their projects.
package accounts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/visibility"
)

// Tenant is one environment of a workspace. It is declared in visibility
// because the request log also needs it, and accounts imports the request log.
type Tenant = visibility.Tenant

// Environment separates production from the sandbox.
type Environment = visibility.Environment

// The two environments.
const (
	Live = visibility.Live
	Test = visibility.Test
)

// ParseEnvironment reads live or test.
func ParseEnvironment(s string) (Environment, error) {
	switch e := Environment(s); e {
	case Live, Test:
		return e, nil
	}
	return "", fault.Invalid("environment", "environment must be live or test, not %q.", s)
}

const (
	// DefaultRotationGrace is how long an old secret works after a rotation.
	DefaultRotationGrace = 24 * time.Hour
	// MaxRotationGrace is the longest grace period.
	MaxRotationGrace = 7 * 24 * time.Hour

	// DefaultResponseRetention is how long responses of the Responses API are stored.
	DefaultResponseRetention = 7 * 24 * time.Hour
	// MinResponseRetention and MaxResponseRetention limit that, unless storing is turned off.
	MinResponseRetention = time.Hour
	MaxResponseRetention = 30 * 24 * time.Hour

	// DefaultWorkspace is the name of the workspace that the first start creates.
	DefaultWorkspace = "default"

	maxName = 200
)

// SignalWorkspace notifies nodes that a workspace or its projects changed. The payload is its ID.
const SignalWorkspace = "workspace"

// Workspace is a tenant of the server: members, projects and keys with their
// own budgets.
type Workspace struct {
	ID                   string
	Name                 string
	StrictProjects       bool           // unknown projects are rejected instead of created
	DefaultProjectBudget *credits.Micro // of projects created at first use
	RotationGrace        time.Duration
	MonthlyCredits       *credits.Micro // nil for no limit
	Alert                Threshold
	AlertThresholds      AlertThresholds // of budgets; nil for the default
	LeakPolicy           LeakPolicy
	TestTools            ToolMode      // of test runs; empty for the server's default
	RequireSecondFactor  bool          // of members, in the dashboard
	ResponseRetention    time.Duration // how long responses are stored; 0 turns storing off
	Users                UserSettings
	UnbilledLimitPercent int64         // of the credits that a month may cost beyond their charge
	UnbilledStop         *UnbilledStop // nil if that limit was never exceeded, or an operator has reset it
	CreatedAt            time.Time
}

// In returns one environment of the workspace.
func (w *Workspace) In(env Environment) Tenant { return Tenant{WorkspaceID: w.ID, Environment: env} }

// ToolMode is how HTTP and MCP tools and the HTTP checks of agent runs are called.
type ToolMode string

// The modes. Simulated tools send no requests.
const (
	ToolsSimulated ToolMode = "simulated"
	ToolsReal      ToolMode = "real"
)

// ToolModeOf returns how tools are called in an environment. byDefault is for test in workspaces without a setting.
func ToolModeOf(ctx context.Context, q db.Querier, t Tenant, byDefault ToolMode) (ToolMode, error) {
	if t.Environment == Live {
		return ToolsReal, nil
	}
	w, err := GetWorkspace(ctx, q, t.WorkspaceID)
	if err != nil {
		return "", err
	}
	if cmp.Or(w.TestTools, byDefault) == ToolsReal {
		return ToolsReal, nil
	}
	return ToolsSimulated, nil
}

// LeakPolicy says how to treat a key that a workspace sends in a request body,
// such as a prompt.
type LeakPolicy string

// The policies.
const (
	LeaksIgnored  LeakPolicy = "off"
	LeaksReported LeakPolicy = "report" // logged, and members are notified
	LeaksRevoked  LeakPolicy = "revoke" // revoked, like a key that leaked elsewhere
)

// LeakPolicies lists every policy.
var LeakPolicies = []LeakPolicy{LeaksIgnored, LeaksReported, LeaksRevoked}

// Threshold is the amount of remaining monthly credits at which a workspace is alerted.
type Threshold struct {
	Credits *credits.Micro
	Percent int64 // of the monthly credits, if Credits is nil
}

// DefaultAlert is 20% of the monthly credits.
var DefaultAlert = Threshold{Percent: 20}

// Of returns the threshold in credits.
func (t Threshold) Of(monthly credits.Micro) credits.Micro {
	if t.Credits != nil {
		return *t.Credits
	}
	return monthly / 100 * credits.Micro(t.Percent)
}

var workspaceTable = db.Table{Name: "workspaces", Key: 1, Columns: "id, name, strict_projects, default_project_budget, rotation_grace_seconds, monthly_credits, alert_credits, alert_percent, alert_thresholds, leak_policy, test_tools, require_second_factor, response_retention_seconds, user_field, user_budget, user_window, user_requests_per_minute, user_alert_thresholds, unbilled_limit_percent"}

var workspaceColumns = workspaceTable.Columns + ", unbilled_stop, created_at"

func scanWorkspace(r db.Row) (*Workspace, error) {
	var w Workspace
	var grace int64
	var percent, retention *int64
	var stop *string
	err := db.Scan(r, &w.ID, &w.Name, &w.StrictProjects, &w.DefaultProjectBudget, &grace, &w.MonthlyCredits, &w.Alert.Credits, &percent, &w.AlertThresholds,
		&w.LeakPolicy, &w.TestTools, &w.RequireSecondFactor, &retention, &w.Users.FromRequests, &w.Users.Default.Budget, &w.Users.Default.Window, &w.Users.Default.RequestsPerMinute, &w.Users.AlertThresholds, &w.UnbilledLimitPercent, &stop, &w.CreatedAt)
	w.ResponseRetention = DefaultResponseRetention
	if retention != nil {
		w.ResponseRetention = time.Duration(*retention) * time.Second
	}
	if stop != nil && err == nil {
		err = json.Unmarshal([]byte(*stop), &w.UnbilledStop)
	}
	w.RotationGrace = time.Duration(grace) * time.Second
	switch {
	case percent != nil:
		w.Alert.Percent = *percent
	case w.Alert.Credits == nil:
		w.Alert = DefaultAlert
	}
	return &w, err
}

// row returns the values of workspaceTable.
func (w *Workspace) row() []any {
	var percent any
	if w.Alert.Credits == nil {
		percent = w.Alert.Percent
	}
	return []any{w.ID, w.Name, w.StrictProjects, (*int64)(w.DefaultProjectBudget), int64(w.RotationGrace / time.Second), (*int64)(w.MonthlyCredits), (*int64)(w.Alert.Credits), percent, w.AlertThresholds.Stored(),
		string(w.LeakPolicy), db.OrNull(w.TestTools), w.RequireSecondFactor, int64(w.ResponseRetention / time.Second), w.Users.FromRequests, (*int64)(w.Users.Default.Budget), db.OrNull(w.Users.Default.Window), w.Users.Default.RequestsPerMinute, w.Users.AlertThresholds.Stored(), w.UnbilledLimitPercent}
}

// stored returns the error of a statement that stores a workspace.
func (w *Workspace) stored(err error) error {
	if errors.Is(err, db.ErrExists) {
		return fault.Param(fault.Conflict, "name", "A workspace named %q already exists.", w.Name)
	}
	return err
}

// CreateWorkspace stores a new workspace and sets its ID.
func CreateWorkspace(ctx context.Context, tx *db.Tx, w *Workspace, now time.Time) error {
	if err := cmp.Or(CheckName("name", w.Name), w.checkGrace()); err != nil {
		return err
	}
	w.ID = ids.New(ids.Workspace)
	w.CreatedAt, w.Alert, w.LeakPolicy, w.ResponseRetention, w.UnbilledLimitPercent = now, DefaultAlert, LeaksIgnored, DefaultResponseRetention, defaultUnbilledLimit
	_, err := tx.Exec(ctx, "INSERT INTO workspaces (id, name, strict_projects, default_project_budget, rotation_grace_seconds, created_at) VALUES ($1, $2, $3, $4, $5, $6)",
		w.ID, w.Name, w.StrictProjects, (*int64)(w.DefaultProjectBudget), int64(w.RotationGrace/time.Second), now.UnixMicro())
	return w.stored(err)
}

func (w *Workspace) checkGrace() error {
	if w.RotationGrace < 0 || w.RotationGrace > MaxRotationGrace {
		return fault.Invalid("rotation_grace", "The grace period must be from 0 to %s.", MaxRotationGrace)
	}
	return nil
}

// check validates what a change has set.
func (w *Workspace) check(before *Workspace) error {
	if w.Name != before.Name {
		if err := CheckName("name", w.Name); err != nil {
			return err
		}
	}
	if w.TestTools != "" && w.TestTools != ToolsSimulated && w.TestTools != ToolsReal {
		return fault.Invalid("test_tools", "The mode of test tools must be simulated or real, not %q.", w.TestTools)
	}
	if !slices.Contains(LeakPolicies, w.LeakPolicy) {
		return fault.Invalid("leak_policy", "leak_policy must be off, report or revoke, not %q.", w.LeakPolicy)
	}
	if kept := w.ResponseRetention; kept != 0 && (kept < MinResponseRetention || kept > MaxResponseRetention) {
		return fault.Invalid("response_retention", "The retention of responses must be off, or from %.0f to %.0f hours.", MinResponseRetention.Hours(), MaxResponseRetention.Hours())
	}
	if percent := w.UnbilledLimitPercent; percent < 0 || percent > maxUnbilledLimit {
		return fault.Invalid("unbilled_limit_percent", "unbilled_limit_percent must be from 0 to %d.", maxUnbilledLimit)
	}
	return cmp.Or(w.checkGrace(), w.AlertThresholds.Check(), w.Users.Default.Check("default_limits."), w.Users.AlertThresholds.Check())
}

// CountWithoutRevocation returns how many workspaces don't revoke keys in request bodies.
func CountWithoutRevocation(ctx context.Context, q db.Querier) (int64, error) {
	return db.Value[int64](q.QueryRow(ctx, "SELECT count(*) FROM workspaces WHERE leak_policy <> $1", string(LeaksRevoked)))
}

// WorkspaceRules are what follows from a change of a workspace.
var WorkspaceRules Rules[Workspace]

// ChangeWorkspace changes a workspace, and records in the admin log what has changed.
func ChangeWorkspace(ctx context.Context, tx *db.Tx, id string, c Change[Workspace]) (*Workspace, error) {
	before, err := GetWorkspaceLocked(ctx, tx, id)
	if err != nil {
		return nil, db.OrNoSuch(err, "workspace", id)
	}
	w := *before
	if err := c.Apply(&w); err != nil {
		return nil, err
	}
	if err := w.check(before); err != nil {
		return nil, err
	}
	changed, err := workspaceTable.Update(ctx, tx, before.row(), w.row())
	if err != nil || !changed {
		return &w, w.stored(err)
	}
	tx.Signal(SignalWorkspace, id)
	if err := WorkspaceRules.Follow(ctx, tx, Changed[Workspace]{before, &w, c.At}); err != nil {
		return nil, err
	}
	return &w, w.logChange(ctx, tx, before, c)
}

// logChange adds an entry to the admin log for each group of settings that has changed.
func (w *Workspace) logChange(ctx context.Context, tx *db.Tx, before *Workspace, c Change[Workspace]) error {
	for _, group := range []struct {
		action string
		tenant Tenant
		detail func(*Workspace) map[string]any
	}{
		{"workspace.updated", Tenant{WorkspaceID: w.ID}, (*Workspace).settings},
		{"billing.updated", w.In(Live), (*Workspace).billing},
		{"user_settings.updated", w.In(Live), (*Workspace).userSettings},
	} {
		detail := group.detail(w)
		if reflect.DeepEqual(detail, group.detail(before)) {
			continue
		}
		if err := c.By.Log(ctx, tx, audit.Action{Tenant: group.tenant, Action: group.action, Target: w.ID}, detail, c.At); err != nil {
			return err
		}
	}
	return nil
}

// LogCreated records in the admin log that the workspace was created.
func (w *Workspace) LogCreated(ctx context.Context, tx *db.Tx, by audit.Actor) error {
	return by.Log(ctx, tx, audit.Action{Tenant: Tenant{WorkspaceID: w.ID}, Action: "workspace.created", Target: w.ID}, w.settings(), w.CreatedAt)
}

func (w *Workspace) settings() map[string]any {
	return map[string]any{"name": w.Name, "strict_projects": w.StrictProjects, "default_project_budget": w.DefaultProjectBudget,
		"rotation_grace_seconds": int64(w.RotationGrace / time.Second), "leak_policy": w.LeakPolicy, "test_tools": cmp.Or(w.TestTools, "default"),
		"require_second_factor": w.RequireSecondFactor, "response_retention_seconds": int64(w.ResponseRetention / time.Second), "unbilled_limit_percent": w.UnbilledLimitPercent}
}

// HasNewBilling reports whether the billing differs from that before.
func (w *Workspace) HasNewBilling(before *Workspace) bool {
	return !reflect.DeepEqual(w.billing(), before.billing())
}

func (w *Workspace) billing() map[string]any {
	return map[string]any{"monthly_credits": w.MonthlyCredits, "alert_threshold": w.Alert, "alert_thresholds": w.AlertThresholds}
}

func (w *Workspace) userSettings() map[string]any {
	d := w.Users.Default
	return map[string]any{"from_requests": w.Users.FromRequests, "budget": d.Budget, "window": d.Window, "requests_per_minute": d.RequestsPerMinute, "alert_thresholds": w.Users.AlertThresholds}
}

// UnbilledStop is the month in which a workspace has used more than its limit beyond what it was charged. Its
// requests are refused until the month ends.
type UnbilledStop struct {
	Period   string        `json:"period"`
	Limit    credits.Micro `json:"limit"`
	Unbilled credits.Micro `json:"unbilled"` // when it was stopped
}

const (
	defaultUnbilledLimit = 5 // also in the database
	maxUnbilledLimit     = 100
)

// GetWorkspaceLocked returns a workspace and locks it until the transaction ends.
func GetWorkspaceLocked(ctx context.Context, tx *db.Tx, id string) (*Workspace, error) {
	return scanWorkspace(tx.QueryRow(ctx, "SELECT "+workspaceColumns+" FROM workspaces WHERE id = $1"+tx.Lock("workspaces"), id))
}

// GetWorkspace returns a workspace by ID.
func GetWorkspace(ctx context.Context, q db.Querier, id string) (*Workspace, error) {
	w, err := scanWorkspace(q.QueryRow(ctx, "SELECT "+workspaceColumns+" FROM workspaces WHERE id = $1", id))
	return w, db.OrNoSuch(err, "workspace", id)
}

// FindWorkspace returns a workspace by ID or name, or the only one if the argument is empty.
func FindWorkspace(ctx context.Context, q db.Querier, idOrName string) (*Workspace, error) {
	if ids.Valid(ids.Workspace, idOrName) {
		return GetWorkspace(ctx, q, idOrName)
	}
	if idOrName != "" {
		w, err := scanWorkspace(q.QueryRow(ctx, "SELECT "+workspaceColumns+" FROM workspaces WHERE name = $1", idOrName))
		if errors.Is(err, db.ErrNotFound) {
			return nil, fault.New(fault.NotFound, "Unknown workspace %q. To list workspaces, run: turnpike workspaces list", idOrName)
		}
		return w, err
	}
	all, err := ListWorkspaces(ctx, q)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fault.Missing("workspace", "There are no workspaces yet. The first start of turnpike serve creates one, or run: turnpike workspaces create NAME")
	}
	if len(all) != 1 {
		return nil, fault.Missing("workspace", "There are %d workspaces. Choose one: %s", len(all), fewNames(all))
	}
	return all[0], nil
}

// fewNames returns the first names: a server may have thousands of workspaces.
func fewNames(all []*Workspace) string {
	const few = 5
	var names []string
	for _, w := range all[:min(few, len(all))] {
		names = append(names, w.Name)
	}
	text := strings.Join(names, ", ")
	if more := len(all) - few; more > 0 {
		text += fmt.Sprintf(" … and %d more; see: turnpike workspaces list", more)
	}
	return text
}

// ListWorkspaces returns every workspace, oldest first.
func ListWorkspaces(ctx context.Context, q db.Querier) ([]*Workspace, error) {
	return db.List(ctx, q, scanWorkspace, "SELECT "+workspaceColumns+" FROM workspaces ORDER BY id")
}

// CheckName checks a display name.
func CheckName(param, name string) error {
	if strings.TrimSpace(name) == "" {
		return fault.Missing(param, "%s must not be empty.", param)
	}
	if keyring.ContainsSecret(name) {
		return fault.Invalid(param, "%s looks like an API key, which must not be stored.", param)
	}
	if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, isUnsafe) {
		return fault.Invalid(param, "%s must have at most %d bytes, without control characters and characters that change the text direction.", param, maxName)
	}
	return nil
}

// isUnsafe reports whether a character controls a terminal or reorders the text
// around it. U+200E and U+200F do neither, and names in Hebrew or Arabic may
// need them.
func isUnsafe(r rune) bool {
	return unicode.IsControl(r) || '\u202a' <= r && r <= '\u202e' || '\u2066' <= r && r <= '\u2069'
}

// ParseThreshold reads an amount of credits such as 100, or a percentage such as 20%.
func ParseThreshold(s string) (Threshold, error) {
	invalid := fault.Invalid("alert_threshold", "alert_threshold must be an amount of credits such as 100, or a percentage from 0%% to 100%%.")
	if digits, isPercent := strings.CutSuffix(s, "%"); isPercent {
		n, err := strconv.ParseUint(digits, 10, 8)
		if err != nil || n > 100 {
			return Threshold{}, invalid
		}
		return Threshold{Percent: int64(n)}, nil
	}
	amount, err := credits.Parse(s)
	if err != nil || amount < 0 {
		return Threshold{}, invalid
	}
	return Threshold{Credits: &amount}, nil
}

// String formats the threshold for ParseThreshold.
func (t Threshold) String() string {
	if t.Credits != nil {
		return t.Credits.String()
	}
	return strconv.FormatInt(t.Percent, 10) + "%"
}

// MarshalJSON writes an amount as a number and a percentage as a string.
func (t Threshold) MarshalJSON() ([]byte, error) {
	if t.Credits != nil {
		return t.Credits.MarshalJSON()
	}
	return json.Marshal(t.String())
}

const (
	maxMetadata      = 16
	maxMetadataKey   = 64
	maxMetadataValue = 512
)

// CheckMetadata checks the metadata of a job or a run.
func CheckMetadata(m map[string]string) error {
	if len(m) > maxMetadata {
		return fault.Invalid("metadata", "metadata may have at most %d entries.", maxMetadata)
	}
	for k, v := range m {
		if keyring.ContainsSecret(k) || keyring.ContainsSecret(v) {
			return fault.Invalid("metadata", "metadata contains something that looks like an API key, which must not be stored. Remove it.")
		}
		if k == "" || utf8.RuneCountInString(k) > maxMetadataKey || utf8.RuneCountInString(v) > maxMetadataValue {
			return fault.Invalid("metadata", "metadata may have keys of 1 to %d characters, and values of up to %d.", maxMetadataKey, maxMetadataValue)
		}
	}
	return nil
}
