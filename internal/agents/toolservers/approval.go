package toolservers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/notifications"
	"turnpike/internal/visibility"
)

// ApprovalStatus is the state of an approval. Only a call that turns an approved one into a used one is
// executed, so a decision is used at most once:
//
//	pending ─▶ approved ─▶ used
//	  │  │        │
//	  │  └────────┴─▶ expired
//	  └─▶ denied
type ApprovalStatus string

// The states of an approval.
const (
	Pending  ApprovalStatus = "pending"
	Approved ApprovalStatus = "approved"
	Denied   ApprovalStatus = "denied"
	Used     ApprovalStatus = "used"
	Expired  ApprovalStatus = "expired"
)

const (
	// approvedFor is how long an approved call can be made.
	approvedFor = 10 * time.Minute
	// maxPending limits the calls of a key that wait for a decision.
	maxPending = 100
	maxReason  = 2000 // characters
	// approvalPoll is how often a waiting call looks for a decision, in addition to signals.
	approvalPoll = time.Second
	// announceEvery is after how many polls a waiting call is announced again.
	announceEvery = 10
)

// Approval is the permission of a person to make one call: a key, a tool and exact arguments.
type Approval struct {
	ID string
	accounts.Tenant
	Project       string
	KeyID         string
	KeyHint       string
	ServerID      string
	Tool          string // its listed name
	Arguments     string
	Hash          string // of the arguments
	RequestID     string // of the call that asked for it
	CreatedAt     time.Time
	ExpiresAt     time.Time
	DecidedAt     *time.Time
	DecidedBy     string
	Reason        string
	UsedRequestID string   // of the call that was made
	Edited        string   // the arguments that a person set; empty if they are the client's
	Response      string   // the answer that the client gets instead of the tool's result
	ApprovedBy    []string // who has approved a call that needs two approvers

	status ApprovalStatus // as stored
}

// Status returns the state at a time.
func (a *Approval) Status(now time.Time) ApprovalStatus {
	if (a.status == Pending || a.status == Approved) && !now.Before(a.ExpiresAt) {
		return Expired
	}
	return a.status
}

// UnapprovedError is the error of a call that no one has approved.
type UnapprovedError struct {
	Status ApprovalStatus
	reason string
}

func (e *UnapprovedError) Error() string {
	if e.Status == Expired {
		return "No one approved the call in time. It was not made."
	}
	text := "A person denied this call."
	if e.reason != "" {
		text += " The reason: " + e.reason
	}
	return text
}

// ApprovalRequest is a call that needs an approval.
type ApprovalRequest struct {
	Call
	Project string
	KeyID   string
	KeyHint string
}

// hashArguments returns the hash of arguments. Their order and white space don't count.
func hashArguments(arguments json.RawMessage) (string, error) {
	canonical := jsontext.Value(arguments).Clone()
	if err := canonical.Format(jsontext.ReorderRawObjects(true)); err != nil {
		return "", fault.Invalid("arguments", "arguments must be a JSON object without duplicate names.")
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

// Await returns the approval when a person has approved the call, and uses it up. announce is called when the
// call starts to wait, and from time to time until it ends. If ctx ends first, the approval stays open for the
// same call.
func (m *Service) Await(ctx context.Context, r ApprovalRequest, announce func(*Approval)) (*Approval, error) {
	for {
		a, err := m.claim(ctx, r)
		if err != nil || a.status == Used {
			return a, err
		}
		if err := m.waitForDecision(ctx, a, announce); err != nil {
			return nil, err
		}
	}
}

// claim uses an approved approval of the same call, or returns the pending one, which it creates if needed.
func (m *Service) claim(ctx context.Context, r ApprovalRequest) (a *Approval, err error) {
	hash, err := hashArguments(r.Arguments)
	if err != nil {
		return nil, err
	}
	same := []any{r.KeyID, r.Server.ID, r.Name(), hash}
	for a == nil && err == nil { // again if another call has just requested the same approval
		a, err = m.claimOnce(ctx, r, same)
	}
	return a, db.Wrap(err, "claim approval")
}

func (m *Service) claimOnce(ctx context.Context, r ApprovalRequest, same []any) (a *Approval, err error) {
	err = m.DB.Write(ctx, func(tx *db.Tx) error {
		now := m.Now()
		if _, err := tx.Exec(ctx, `UPDATE tool_approvals SET status = 'expired' WHERE key_id = $1 AND server_id = $2 AND tool = $3 AND arguments_hash = $4
			AND status IN ('pending', 'approved') AND expires_at <= $5`, append(same, now.UnixMicro())...); err != nil {
			return err
		}
		a, err = m.scanApproval(tx.QueryRow(ctx, "SELECT "+approvalColumns+` FROM tool_approvals WHERE key_id = $1 AND server_id = $2 AND tool = $3 AND arguments_hash = $4
			AND status IN ('pending', 'approved')`+tx.Lock("tool_approvals"), same...))
		switch {
		case errors.Is(err, db.ErrNotFound):
			a, err = m.request(ctx, tx, r)
			return err
		case err != nil || a.status == Pending:
			return err
		}
		a.status, a.UsedRequestID = Used, r.RequestID
		_, err = tx.Exec(ctx, "UPDATE tool_approvals SET status = $2, used_request_id = $3 WHERE id = $1", a.ID, string(Used), r.RequestID)
		return err
	})
	return a, err
}

// request stores a pending approval. It returns nil if there is one already.
func (m *Service) request(ctx context.Context, tx *db.Tx, r ApprovalRequest) (*Approval, error) {
	hash, err := hashArguments(r.Arguments)
	if err != nil {
		return nil, err
	}
	// Otherwise the call would wait in vain.
	rules := r.Server.RulesOf(r.Target.Tool.Name)
	if err := rules.CheckSatisfiable(ctx, tx, RulesParam, tools.Approvers{Tenant: r.Server.Tenant, KeyID: r.KeyID, PeopleOnly: true, Now: m.Now()}); err != nil {
		return nil, err
	}
	now := m.Now()
	n, err := db.Value[int](tx.QueryRow(ctx, "SELECT count(*) FROM tool_approvals WHERE workspace_id = $1 AND environment = $2 AND status = 'pending' AND key_id = $3 AND expires_at > $4",
		r.Server.WorkspaceID, r.Server.Environment, r.KeyID, now.UnixMicro()))
	if err != nil {
		return nil, err
	}
	if n >= maxPending {
		return nil, fault.New(fault.LimitReached, "%d calls of this key wait for an approval, which is the limit. Decide about some of them in the dashboard.", n)
	}
	a := &Approval{ID: ids.New(ids.Approval), Tenant: r.Server.Tenant, Project: r.Project, KeyID: r.KeyID, KeyHint: r.KeyHint, ServerID: r.Server.ID, Tool: r.Name(),
		Arguments: string(r.Arguments), Hash: hash, RequestID: r.RequestID, CreatedAt: now, ExpiresAt: now.Add(time.Duration(r.Server.ApprovalSeconds) * time.Second), status: Pending}
	stored, err := tx.Exec(ctx, db.Insert("tool_approvals", approvalColumns)+" ON CONFLICT DO NOTHING", a.ID, a.WorkspaceID, a.Environment, db.OrNull(a.Project), a.KeyID, a.KeyHint, a.ServerID, a.Tool,
		m.Ring.Seal([]byte(a.Arguments), a.location()), a.Hash, string(a.status), a.RequestID, now.UnixMicro(), a.ExpiresAt.UnixMicro(), nil, nil, nil, nil, nil, nil, nil)
	if err != nil || stored == 0 {
		return nil, err
	}
	if m.Notifications == nil {
		return a, nil
	}
	return a, m.Notifications.RequestApproval(ctx, tx, notifications.Approval{Tenant: a.Tenant, ID: a.ID, By: "MCP server " + r.Server.Label, RequestedAt: now, ExpiresAt: a.ExpiresAt,
		Page: "approvals", Calls: []notifications.ApprovalCall{{ID: a.ID, Tool: a.Tool, Arguments: a.Arguments, Roles: rules.Roles}}})
}

// PendingApproval reports whether an approval waits for a decision.
func (m *Service) PendingApproval(ctx context.Context, tx *db.Tx, id string) (bool, error) {
	return db.Value[bool](tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM tool_approvals WHERE id = $1 AND status = 'pending' AND expires_at > $2)", id, m.Now().UnixMicro()))
}

// location binds the sealed arguments to their workspace and approval.
func (a *Approval) location() string { return "tool approval " + a.Tenant.Path() + " " + a.ID }

const approvalColumns = `id, workspace_id, environment, project, key_id, key_hint, server_id, tool, arguments, arguments_hash, status, request_id,
	created_at, expires_at, decided_at, decided_by, reason, used_request_id, edited_arguments, response, approved_by`

func (m *Service) scanApproval(r db.Row) (*Approval, error) {
	var a Approval
	var sealed, edited, response string
	if err := db.Scan(r, &a.ID, &a.WorkspaceID, &a.Environment, &a.Project, &a.KeyID, &a.KeyHint, &a.ServerID, &a.Tool, &sealed, &a.Hash, &a.status, &a.RequestID,
		&a.CreatedAt, &a.ExpiresAt, &a.DecidedAt, &a.DecidedBy, &a.Reason, &a.UsedRequestID, &edited, &response, &a.ApprovedBy); err != nil {
		return nil, err
	}
	for _, open := range []struct {
		sealed string
		into   *string
	}{{sealed, &a.Arguments}, {edited, &a.Edited}, {response, &a.Response}} {
		if open.sealed == "" {
			continue
		}
		plain, err := m.Ring.Open(open.sealed, a.location())
		if err != nil {
			return nil, fmt.Errorf("arguments of %s: %w", a.ID, err)
		}
		*open.into = string(plain)
	}
	return &a, nil
}

// waitForDecision returns nil when the approval may be used, or someone else has used it.
func (m *Service) waitForDecision(ctx context.Context, a *Approval, announce func(*Approval)) error {
	woken, stop := m.waiters.Watch(a.ID)
	defer stop()
	poll := time.NewTicker(approvalPoll)
	defer poll.Stop()
	for n := 0; ; n++ {
		if n%announceEvery == 0 {
			announce(a)
		}
		current, err := m.scanApproval(m.DB.QueryRow(ctx, "SELECT "+approvalColumns+" FROM tool_approvals WHERE id = $1", a.ID))
		if err != nil {
			return db.Wrap(err, "read approval")
		}
		switch status := current.Status(m.Now()); status {
		case Approved, Used:
			return nil
		case Denied, Expired:
			return &UnapprovedError{Status: status, reason: current.Reason}
		}
		select {
		case <-woken:
		case <-poll.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Decision is a person's decision about a call.
type Decision struct {
	ApprovalID string
	Approve    bool
	Reason     string
	// Hash is the hash of the arguments that the person saw.
	Hash string
	// Edited are other arguments for an approved call, and Response is an answer instead of the call. At most one is set.
	Edited   string
	Response string
}

const maxAnswer = 256 << 10 // bytes of other arguments and of a response

// checkDecision checks other arguments and a response. The arguments must fit the tool's parameters.
func (m *Service) checkDecision(ctx context.Context, tx *db.Tx, a *Approval, d *Decision) error {
	switch {
	case d.Edited == "" && d.Response == "":
		return nil
	case !d.Approve || d.Edited != "" && d.Response != "":
		return fault.Invalid("decision", "Approve, deny, change the arguments or answer: one of them.")
	case len(d.Edited) > maxAnswer || len(d.Response) > maxAnswer:
		return fault.Invalid("arguments", "The arguments or the answer must have at most %d bytes.", maxAnswer)
	case d.Response != "":
		return nil
	}
	compact := jsontext.Value(d.Edited)
	if err := compact.Compact(); err != nil || compact.Kind() != jsontext.KindBeginObject {
		return fault.Invalid("arguments", "arguments must be a JSON object.")
	}
	d.Edited = string(compact)
	s, err := m.Get(ctx, tx, visibility.Filter{Tenant: a.Tenant}, a.ServerID)
	if err != nil {
		return err
	}
	known, _, err := m.Known(ctx, s)
	if err != nil {
		return err
	}
	for _, t := range known {
		if t.Name() != a.Tool {
			continue
		}
		schema, err := json.Marshal(t.Tool.InputSchema)
		if err != nil {
			return err
		}
		if err := tools.CheckArguments(tools.Tool{Name: a.Tool, Parameters: schema}, json.RawMessage(d.Edited)); err != nil {
			return fault.Invalid("arguments", "The arguments were not accepted: %s.", err)
		}
		return nil
	}
	return fault.New(fault.InvalidState, "The tool %s no longer exists. Deny the call.", a.Tool)
}

// sealText encrypts a text of an approval; NULL for an empty one.
func (m *Service) sealText(a *Approval, text string) any {
	if text == "" {
		return nil
	}
	return m.Ring.Seal([]byte(text), a.location())
}

// Decide approves or denies a call. An approved call can be made once, within ten minutes. Repeating a
// decision changes nothing. It returns the approval after the decision.
func (m *Service) Decide(ctx context.Context, tx *db.Tx, by tools.Decider, d Decision) (*Approval, error) {
	if utf8.RuneCountInString(d.Reason) > maxReason {
		return nil, fault.Invalid("reason", "reason must have at most %d characters.", maxReason)
	}
	search := db.Search{Table: "tool_approvals", Columns: approvalColumns, Where: by.Principal.Visibility().Rows(), Lock: tx.Lock("tool_approvals")}
	a, err := db.FindOne(ctx, tx, search, d.ApprovalID, m.scanApproval)
	if err != nil {
		return nil, db.OrNoSuch(err, "approval", d.ApprovalID)
	}
	now := m.Now()
	status, verb := Denied, "denied"
	if d.Approve {
		status, verb = Approved, "approved"
	}
	if err := m.checkDecision(ctx, tx, a, &d); err != nil {
		return nil, err
	}
	same := d.Edited == a.Edited && d.Response == a.Response
	switch current := a.Status(now); {
	case d.Hash != a.Hash:
		return nil, fault.Param(fault.InvalidState, "arguments_hash", "The arguments of the call are not those that you saw. Reload the page.")
	case same && (current == status || current == Used && d.Approve || current == Pending && d.Approve && slices.Contains(a.ApprovedBy, by.Actor.Name)):
		return a, nil // repeated
	case current != Pending:
		return nil, fault.New(fault.InvalidState, "The call does not wait for a decision. Its approval is %s.", current)
	}
	s, err := m.Get(ctx, tx, visibility.Filter{Tenant: a.Tenant}, a.ServerID)
	if err != nil {
		return nil, err
	}
	rules := s.rulesOfListed(a.Tool)
	vote := tools.Vote{KeyID: a.KeyID, ApprovedBy: a.ApprovedBy, Approve: d.Approve, Simple: d.Edited == "" && d.Response == ""}
	if err := rules.AllowDecision(ctx, tx, by, vote); err != nil {
		return nil, err
	}
	if err := m.storeDecision(ctx, tx, a, decided{d, status, by.Actor.Name, rules.Approvers}); err != nil {
		return nil, fmt.Errorf("decide approval: %w", err)
	}
	return a, by.Actor.Log(ctx, tx, audit.Action{Tenant: a.Tenant, Project: a.Project, Action: "tool_call." + verb, Target: a.ID},
		map[string]any{"tool": a.Tool, "key_id": a.KeyID, "arguments_hash": a.Hash, "edited": d.Edited != "", "responded": d.Response != "", "pending": a.status == Pending}, now)
}

// decided is a decision that the rules allow.
type decided struct {
	Decision
	status    ApprovalStatus
	by        string
	approvers int64 // how many must approve
}

// storeDecision changes the approval, or records the first of two approvals.
func (m *Service) storeDecision(ctx context.Context, tx *db.Tx, a *Approval, d decided) error {
	now := m.Now()
	if d.status == Approved && d.approvers > 1 {
		if a.ApprovedBy = append(a.ApprovedBy, d.by); int64(len(a.ApprovedBy)) < d.approvers {
			_, err := tx.Exec(ctx, "UPDATE tool_approvals SET approved_by = $2 WHERE id = $1", a.ID, db.JSON(a.ApprovedBy))
			return err
		}
	}
	if a.status = d.status; d.status == Approved {
		a.ExpiresAt = now.Add(approvedFor)
	}
	tx.Signal(signalApproval, a.ID)
	_, err := tx.Exec(ctx, `UPDATE tool_approvals SET status = $2, expires_at = $3, decided_at = $4, decided_by = $5, reason = $6, edited_arguments = $7, response = $8, approved_by = $9
		WHERE id = $1`, a.ID, string(a.status), a.ExpiresAt.UnixMicro(), now.UnixMicro(), d.by, db.OrNull(db.Storable(d.Reason)), m.sealText(a, d.Edited), m.sealText(a, d.Response), db.NullList(a.ApprovedBy))
	return err
}

// Approvals returns a page of approvals, newest first. The status may be empty for all.
func (m *Service) Approvals(ctx context.Context, q db.Querier, vis visibility.Filter, status ApprovalStatus, page db.Page) (*db.Found[*Approval], error) {
	search := db.Search{Table: "tool_approvals", Columns: approvalColumns, Where: vis.Rows()}
	if status != "" {
		search.Where.Add("status =", string(status))
	}
	if status == Pending {
		search.Where.Add("expires_at >", m.Now().UnixMicro())
	}
	return db.Find(ctx, q, search, page, db.Record[*Approval]{Scan: m.scanApproval, ID: func(a *Approval) string { return a.ID }})
}

// approvalsKept is how long approvals are stored.
const approvalsKept = 30 * 24 * time.Hour

// PurgeApprovals deletes a batch of old approvals.
func (m *Service) PurgeApprovals(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	return tx.Exec(ctx, "DELETE FROM tool_approvals WHERE id IN (SELECT id FROM tool_approvals WHERE id < $1 ORDER BY id LIMIT $2)",
		ids.Floor(ids.Approval, m.Now().Add(-approvalsKept)), limit)
}

// expireApprovals ends the open approvals of a server that has changed, so that no one's decision applies to
// something else.
func expireApprovals(ctx context.Context, tx *db.Tx, serverID string) error {
	_, err := tx.Exec(ctx, "UPDATE tool_approvals SET status = 'expired' WHERE server_id = $1 AND status IN ('pending', 'approved')", serverID)
	return db.Wrap(err, "expire approvals")
}

// signalApproval wakes the calls that wait for a decision. The payload is the approval's ID.
const signalApproval = "tool.approval"
