// Package toolservers holds the MCP servers that a workspace registers. MCP clients call their tools
// through Turnpike's own MCP endpoint, under one key.
package toolservers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/oauth2"

	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/notifications"
	"turnpike/internal/safehttp"
	"turnpike/internal/visibility"
	"turnpike/internal/watch"
)

const (
	maxServers     = 100 // per workspace and environment
	maxDescription = 500 // bytes
	maxPrices      = 128

	// DefaultApprovalSeconds and MaxApprovalSeconds limit how long a call waits for an approval.
	DefaultApprovalSeconds = 3600
	MaxApprovalSeconds     = 86_400
)

// OwnLabel is the label of Turnpike's own tools, which no registered server may have.
const OwnLabel = "turnpike"

// Server is an MCP server that a workspace registered.
type Server struct {
	ID string
	accounts.Tenant
	Project         string
	Label           string
	Description     string
	URL             string
	Approval        tools.Approval
	Rules           tools.ApprovalRules            // of tools without their own
	ToolRules       map[string]tools.ApprovalRules // by the tool's own name
	AllowedTools    []string                       // nil offers all
	Prices          map[string]credits.Micro       // by the tool's own name; others are free
	TimeoutSeconds  int64
	ApprovalSeconds int64
	ListedAt        *time.Time // when its tools were last read, or an attempt failed
	Problem         string     // of that attempt
	CreatedAt       time.Time
	CreatedBy       string
	Connection      ConnectionState
	ConnectedAt     *time.Time
	ConnectedBy     string

	headers string          // sealed
	issuer  string          // of the connection that is being made
	listed  json.RawMessage // its tools, when they were last read
}

// HasHeaders reports whether requests to the server have secret headers.
func (s *Server) HasHeaders() bool { return s.headers != "" }

// Price returns the price of a call of a tool.
func (s *Server) Price(tool string) credits.Micro { return s.Prices[tool] }

// Offers reports whether the workspace offers the server's tool.
func (s *Server) Offers(tool string) bool {
	return s.AllowedTools == nil || slices.Contains(s.AllowedTools, tool)
}

// Tools returns the server's own description of the tools that it offers, when it was last read.
func (s *Server) Tools() ([]*mcp.Tool, error) {
	if len(s.listed) == 0 {
		return nil, nil
	}
	var list []*mcp.Tool
	if err := json.Unmarshal(s.listed, &list); err != nil {
		return nil, fmt.Errorf("tools of %s: %w", s.ID, err)
	}
	return slices.DeleteFunc(list, func(t *mcp.Tool) bool { return !s.Offers(t.Name) }), nil
}

func (s *Server) spec() tools.Spec {
	return tools.Spec{Type: tools.MCP, ServerLabel: s.Label, ServerURL: s.URL, AllowedTools: s.AllowedTools, Approval: s.Approval, TimeoutSeconds: int(s.TimeoutSeconds)}
}

// Options configure the service.
type Options struct {
	DB    *db.DB
	Ring  *keyring.Ring
	Guard *safehttp.Guard
	// Notifications tells people about approvals. It may be nil.
	Notifications *notifications.Service
	Version       string
	Now           func() time.Time
	// Requests limits the requests to servers, and TestTools is the mode of test keys in workspaces
	// without a setting. Both can change while the server runs.
	Requests  func() *tools.RequestLimits
	TestTools func() accounts.ToolMode
}

// Service manages tool servers and calls their tools.
type Service struct {
	Options
	executor *tools.Executor
	waiters  *watch.Watchers // calls on this node that wait for a decision
	tokens   oauthTokens
}

// New creates the service.
func New(o Options) *Service {
	m := &Service{Options: o, executor: tools.NewExecutor(o.Guard, o.Version), waiters: watch.New(),
		tokens: oauthTokens{client: o.Guard.Client(safehttp.ClientOptions{}), now: o.Now, by: map[[2]string]*oauth2.Token{}}}
	o.DB.OnSignal(signalApproval, m.waiters.Wake)
	o.DB.OnSignal(signalConnection, m.waiters.Wake)
	return m
}

const columns = `id, workspace_id, environment, project, label, description, url, headers, require_approval, allowed_tools, prices,
	timeout_seconds, approval_timeout_seconds, tools, listed_at, problem, created_at, created_by, connection_state, connected_at, connected_by, approval_rules, tool_rules`

var scan = db.Scanner(func(s *Server) []any {
	return []any{&s.ID, &s.WorkspaceID, &s.Environment, &s.Project, &s.Label, &s.Description, &s.URL, &s.headers, &s.Approval, &s.AllowedTools, &s.Prices,
		&s.TimeoutSeconds, &s.ApprovalSeconds, &s.listed, &s.ListedAt, &s.Problem, &s.CreatedAt, &s.CreatedBy, &s.Connection, &s.ConnectedAt, &s.ConnectedBy, &s.Rules, &s.ToolRules}
})

var record = db.Record[*Server]{Scan: scan, ID: func(s *Server) string { return s.ID }}

// location binds the sealed headers to their workspace and server.
func (s *Server) location() string { return "tool server " + s.Tenant.Path() + " " + s.ID }

// Create registers a server.
func (m *Service) Create(ctx context.Context, tx *db.Tx, by audit.Actor, s *Server, c Credentials) error {
	s.TimeoutSeconds = cmp.Or(s.TimeoutSeconds, tools.DefaultTimeout)
	s.ApprovalSeconds = cmp.Or(s.ApprovalSeconds, DefaultApprovalSeconds)
	c, err := m.check(s, c)
	if err := errors.Join(err, s.CheckRules(ctx, tx, &Server{}, m.Now())); err != nil {
		return err
	}
	if err := accounts.LockWorkspace(ctx, tx, s.WorkspaceID); err != nil { // makes the count exact
		return err
	}
	n, err := db.Value[int](tx.QueryRow(ctx, "SELECT count(*) FROM tool_servers WHERE workspace_id = $1 AND environment = $2", s.WorkspaceID, s.Environment))
	if err != nil {
		return fmt.Errorf("count tool servers: %w", err)
	}
	if n >= maxServers {
		return fault.New(fault.LimitReached, "A workspace can have at most %d tool servers per environment. Delete one first.", maxServers)
	}
	if err := checkLabelFree(ctx, tx, s); err != nil {
		return err
	}
	s.ID, s.CreatedAt, s.CreatedBy, s.Connection = ids.New(ids.ToolServer), m.Now(), by.Name, c.OAuth.connection()
	if err := m.seal(s, c); err != nil {
		return err
	}
	if _, err = tx.Exec(ctx, db.Insert("tool_servers", columns), s.row()...); err != nil {
		return fmt.Errorf("store tool server: %w", err)
	}
	return m.log(ctx, tx, by, s, "tool_server.created")
}

// checkLabelFree reports a label that another server has, also one that the caller can't see.
func checkLabelFree(ctx context.Context, tx *db.Tx, s *Server) error {
	other, err := db.Value[string](tx.QueryRow(ctx, "SELECT id FROM tool_servers WHERE workspace_id = $1 AND environment = $2 AND label = $3", s.WorkspaceID, s.Environment, s.Label))
	switch {
	case errors.Is(err, db.ErrNotFound) || err == nil && other == s.ID:
		return nil
	case err != nil:
		return fmt.Errorf("look up label: %w", err)
	}
	return fault.Invalid("label", "Another tool server has the label %q. Choose a different one.", s.Label)
}

// row returns the values of columns.
func (s *Server) row() []any {
	var allowed any
	if s.AllowedTools != nil {
		allowed = db.JSON(s.AllowedTools)
	}
	return []any{s.ID, s.WorkspaceID, s.Environment, db.OrNull(s.Project), s.Label, s.Description, s.URL, db.OrNull(s.headers), db.JSON(s.Approval), allowed, db.JSON(s.Prices),
		s.TimeoutSeconds, s.ApprovalSeconds, db.OrNull(string(s.listed)), db.Micros(s.ListedAt), db.OrNull(s.Problem), s.CreatedAt.UnixMicro(), s.CreatedBy,
		db.OrNull(s.Connection), db.Micros(s.ConnectedAt), db.OrNull(s.ConnectedBy), s.storedRules(), s.storedToolRules()}
}

func (m *Service) log(ctx context.Context, tx *db.Tx, by audit.Actor, s *Server, action string) error {
	detail := map[string]any{"label": s.Label, "url": s.URL, "require_approval": s.Approval, "approval_rules": s.Rules, "tool_rules": s.ToolRules, "allowed_tools": s.AllowedTools, "prices": s.Prices}
	if s.issuer != "" {
		detail["issuer"] = s.issuer
	}
	return by.Log(ctx, tx, audit.Action{Tenant: s.Tenant, Project: s.Project, Action: action, Target: s.ID}, detail, m.Now())
}

// validLabel leaves out double underscores, which separate the label from the tool in a tool's name.
var validLabel = regexp.MustCompile(`^[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*$`)

const maxLabel = 32

// Check returns the errors of all fields of a server that isn't stored yet.
func (m *Service) Check(ctx context.Context, tx *db.Tx, s *Server, c Credentials) error {
	_, err := m.check(s, c)
	return errors.Join(err, s.CheckRules(ctx, tx, &Server{}, m.Now()))
}

// check validates a server and its credentials, and returns them with normalized headers.
func (m *Service) check(s *Server, c Credentials) (_ Credentials, err error) {
	spec := s.spec()
	c.Headers, err = m.executor.CheckServer(&spec, c.Headers)
	return c, errors.Join(s.checkLabel(), err, c.OAuth.check(m.Guard, c.Headers), s.checkDescription(), s.checkTimes(), s.checkPrices(), s.checkSecrets())
}

func (s *Server) checkLabel() error {
	switch {
	case s.Label == "":
		return fault.Missing("label", "label is required. Names of tools begin with it, as in label__tool.")
	case len(s.Label) > maxLabel || !validLabel.MatchString(s.Label):
		return fault.Invalid("label", "label must have 1 to %d letters, digits, hyphens and single underscores between them.", maxLabel)
	case s.Label == OwnLabel:
		return fault.Invalid("label", "The label %s is reserved for Turnpike's own tools.", OwnLabel)
	}
	return nil
}

func (s *Server) checkDescription() error {
	if len(s.Description) > maxDescription || !utf8.ValidString(s.Description) || strings.ContainsRune(s.Description, 0) {
		return fault.Invalid("description", "description must be text of at most %d bytes.", maxDescription)
	}
	return nil
}

func (s *Server) checkTimes() (err error) {
	if s.TimeoutSeconds < 1 || s.TimeoutSeconds > tools.MaxTimeout {
		err = fault.Invalid("timeout_seconds", "timeout_seconds must be from 1 to %d.", tools.MaxTimeout)
	}
	if s.ApprovalSeconds < 1 || s.ApprovalSeconds > MaxApprovalSeconds {
		err = errors.Join(err, fault.Invalid("approval_timeout_seconds", "approval_timeout_seconds must be from 1 to %d.", MaxApprovalSeconds))
	}
	return err
}

func (s *Server) checkPrices() error {
	if len(s.Prices) > maxPrices {
		return fault.Invalid("tool_settings", "tool_settings must have at most %d tools.", maxPrices)
	}
	for name, price := range s.Prices {
		if price < 0 {
			return fault.Invalid("tool_settings", "The price_per_call of %q must be at least 0.", name)
		}
	}
	return nil
}

// checkSecrets rejects API keys where they would be shown.
func (s *Server) checkSecrets() error {
	for param, text := range map[string]string{"url": s.URL, "description": s.Description} {
		if keyring.ContainsSecret(text) {
			return fault.Invalid(param, "%s contains something that looks like an API key, which would be shown. Send secrets in headers.", param)
		}
	}
	return nil
}

// Get returns a visible server.
func (m *Service) Get(ctx context.Context, q db.Querier, vis visibility.Filter, id string) (*Server, error) {
	return m.get(ctx, q, vis, id, "")
}

// GetLocked is Get, and locks the server.
func (m *Service) GetLocked(ctx context.Context, tx *db.Tx, vis visibility.Filter, id string) (*Server, error) {
	return m.get(ctx, tx, vis, id, tx.Lock("tool_servers"))
}

func (m *Service) get(ctx context.Context, q db.Querier, vis visibility.Filter, id, lock string) (*Server, error) {
	s, err := db.FindOne(ctx, q, db.Search{Table: "tool_servers", Columns: columns, Where: vis.Rows(), Lock: lock}, id, scan)
	return s, db.OrNoSuch(err, "tool server", id)
}

// Labeled returns the visible server with a label.
func (m *Service) Labeled(ctx context.Context, q db.Querier, vis visibility.Filter, label string) (*Server, error) {
	search := db.Search{Table: "tool_servers", Columns: columns, Where: vis.Rows()}
	search.Where.Add("label =", label)
	found, err := db.Find(ctx, q, search, db.Page{Limit: 1}, record)
	if err != nil {
		return nil, err
	}
	if len(found.Rows) == 0 {
		return nil, fault.New(fault.NotFound, "No tool server has the label %q.", label)
	}
	return found.Rows[0], nil
}

// List returns a page of the visible servers.
func (m *Service) List(ctx context.Context, q db.Querier, vis visibility.Filter, page db.Page) (*db.Found[*Server], error) {
	return db.Find(ctx, q, db.Search{Table: "tool_servers", Columns: columns, Where: vis.Rows()}, page, record)
}

// Change is what to change in a server.
type Change struct {
	Apply func(*Server)
	// Headers and OAuth replace what the server has if SetHeaders or SetOAuth is true.
	SetHeaders, SetOAuth bool
	Credentials
}

// ServerChange is someone's change of a server that they can see. Decide gets the server as it is under its lock.
type ServerChange struct {
	By         tools.Decider
	Visibility visibility.Filter
	ID         string
	Decide     func(*Server) (Change, error)
}

// Change changes a server.
func (m *Service) Change(ctx context.Context, tx *db.Tx, c ServerChange) (*Server, error) {
	s, err := m.GetLocked(ctx, tx, c.Visibility, c.ID)
	if err != nil {
		return nil, err
	}
	change, err := c.Decide(s)
	if err != nil {
		return nil, err
	}
	return s, m.update(ctx, tx, c.By, s, change)
}

// update stores a change of a locked server. Secret headers are never sent to another host than the one that they were
// given for, so a change of the host must set them. Only someone who satisfies the approval rules can loosen them.
func (m *Service) update(ctx context.Context, tx *db.Tx, by tools.Decider, s *Server, c Change) error {
	before := *s
	given, err := m.credentials(s)
	if err != nil {
		return err
	}
	c.Apply(s)
	if moved := origin(s.URL) != origin(before.URL); moved && (len(given.Headers) > 0 && !c.SetHeaders || given.OAuth != nil && !c.SetOAuth) {
		return fault.Missing("headers", "The server has headers or oauth, which must not be sent to a new host unnoticed. Set them again or remove them in the same change.")
	}
	if c.SetHeaders {
		given.Headers = c.Headers
	}
	if c.SetOAuth {
		given.OAuth = c.OAuth
	}
	given, err = m.check(s, given)
	if err := errors.Join(err, s.CheckRules(ctx, tx, &before, m.Now())); err != nil {
		return err
	}
	if err := before.policy().CheckReplacement(by, s.policy()); err != nil {
		return err
	}
	if s.Label != before.Label {
		if err := checkLabelFree(ctx, tx, s); err != nil {
			return err
		}
	}
	if c.SetHeaders || c.SetOAuth {
		if err := m.seal(s, given); err != nil {
			return err
		}
	}
	if s.URL != before.URL || s.Label != before.Label {
		if err := expireApprovals(ctx, tx, s.ID); err != nil {
			return err
		}
	}
	if s.URL != before.URL || c.SetOAuth {
		// A token is for one server and one client.
		if err := m.resetConnection(ctx, tx, s, given.OAuth.connection()); err != nil {
			return err
		}
	}
	if s.URL != before.URL || s.headers != before.headers || !slices.Equal(s.AllowedTools, before.AllowedTools) {
		s.listed, s.ListedAt, s.Problem = nil, nil, ""
	}
	// The columns after allowed_tools follow by position.
	row := s.row()
	_, err = tx.Exec(ctx, `UPDATE tool_servers SET label = $2, description = $3, url = $4, headers = $5, require_approval = $6, allowed_tools = $7, prices = $8,
		timeout_seconds = $9, approval_timeout_seconds = $10, tools = $11, listed_at = $12, problem = $13, approval_rules = $14, tool_rules = $15 WHERE id = $1`,
		slices.Concat([]any{s.ID}, row[4:16], []any{s.storedRules(), s.storedToolRules()})...)
	if err != nil {
		return fmt.Errorf("store tool server: %w", err)
	}
	return m.log(ctx, tx, by.Actor, s, "tool_server.updated")
}

// origin returns the scheme, host and port of a URL that was checked.
func origin(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + strings.ToLower(u.Host)
}

// Delete deletes a server with its headers.
func (m *Service) Delete(ctx context.Context, tx *db.Tx, by audit.Actor, s *Server) error {
	if _, err := tx.Exec(ctx, "DELETE FROM tool_servers WHERE id = $1", s.ID); err != nil {
		return fmt.Errorf("delete tool server: %w", err)
	}
	if err := expireApprovals(ctx, tx, s.ID); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM tool_authorizations WHERE server_id = $1", s.ID); err != nil {
		return fmt.Errorf("delete authorizations: %w", err)
	}
	return m.log(ctx, tx, by, s, "tool_server.deleted")
}
