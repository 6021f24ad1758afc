package scan

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/keyring"
	"turnpike/internal/leaks"
	"turnpike/internal/nodes"
)

const (
	checkInterval = time.Minute
	retryInterval = 10 * time.Minute
	// scanTimeout ends a scan that hangs. The next one resumes after its last batch.
	scanTimeout = time.Hour
	// batch is after how many commits the progress is stored.
	batch = 500
	// claimRow makes one node scan at a time, see nodes.Claim.
	claimRow = "leak_scan_claim"
	stateRow = "leak_scan "
)

// Target is a Git repository or a log that the operator configured.
type Target struct {
	Git      string // a path or an https:// URL
	Log      string // a file, a directory or an https:// URL
	Every    time.Duration
	Username string                 // for Token, of a Git repository
	Token    func() (string, error) // is empty without authentication
}

// address returns what is scanned.
func (t Target) address() string { return t.Git + t.Log }

func (t Target) isURL() bool { return strings.Contains(t.address(), "://") }

// Name is what reports and logs call the target. Of a path, it is the last element.
func (t Target) Name() string {
	if t.isURL() {
		return t.address()
	}
	return path.Base(t.address())
}

func (t Target) id() string {
	sum := sha256.Sum256([]byte(t.Git + "\x00" + t.Log))
	return hex.EncodeToString(sum[:8])
}

// State is the progress of a target.
type State struct {
	Tips      []string  `json:"tips,omitempty"` // the commits whose history was scanned
	ScannedAt time.Time `json:"scanned_at"`     // when the last complete scan began
	FailedAt  time.Time `json:"failed_at"`
	Failure   string    `json:"failure,omitempty"` // of the last scan
}

// Scheduler scans the targets. Of all nodes, one scans at a time.
type Scheduler struct {
	DB      *db.DB
	Node    string
	Dir     string // of the copies of repositories
	Now     func() time.Time
	Targets func() []Target
	RootCAs *x509.CertPool // of servers with logs; nil for the system's
	Revoke  func(ctx context.Context, r leaks.Report) (leaks.Outcome, error)
}

// Run scans until ctx ends.
func (s *Scheduler) Run(ctx context.Context) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		if err := s.RunDue(ctx); err != nil && ctx.Err() == nil {
			slog.Log(ctx, db.LogLevel(err), "failed to scan for leaked secrets; retrying", "retry_in", checkInterval.String(), "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// RunDue scans the targets that are due, unless another node scans.
func (s *Scheduler) RunDue(ctx context.Context) error {
	due, err := s.due(ctx)
	if err != nil || len(due) == 0 {
		return err
	}
	claim := &nodes.Claim{DB: s.DB, Row: claimRow, Node: s.Node, Now: s.Now}
	if taken, err := claim.Take(ctx); err != nil || !taken {
		return err
	}
	err = claim.Hold(ctx, func(ctx context.Context) error {
		due, err := s.due(ctx) // another node may have scanned meanwhile
		for _, t := range due {
			err = errors.Join(err, s.scan(ctx, t))
		}
		return err
	})
	return errors.Join(err, claim.End(context.WithoutCancel(ctx), 0))
}

func (s *Scheduler) now() time.Time { return s.DB.At(s.Now()).UTC() }

func (s *Scheduler) due(ctx context.Context) (due []Target, err error) {
	for _, t := range s.Targets() {
		state, err := ReadState(ctx, s.DB, t)
		if err != nil {
			return nil, err
		}
		if s.now().Sub(state.ScannedAt) >= t.Every && s.now().Sub(state.FailedAt) >= min(retryInterval, t.Every) {
			due = append(due, t)
		}
	}
	return due, nil
}

// scan scans a target and stores its progress. A failure of the target isn't an error.
func (s *Scheduler) scan(ctx context.Context, t Target) error {
	state, err := ReadState(ctx, s.DB, t)
	if err != nil {
		return err
	}
	began := s.now()
	limited, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	run := &targetScan{Scheduler: s, target: t, state: state, reader: &Reader{}}
	if t.Git != "" {
		err = run.repository(limited)
	} else {
		err = run.log(limited)
	}
	err = errors.Join(err, run.report(ctx))
	if ctx.Err() != nil { // the server stops, or another node has taken over
		return ctx.Err()
	}
	state.FailedAt, state.Failure = time.Time{}, ""
	if err == nil {
		state.ScannedAt = began
	} else {
		state.FailedAt, state.Failure = s.now(), keyring.Mask(err.Error())
		slog.Warn("failed to scan for leaked secrets; retrying", "target", t.Name(), "retry_in", min(retryInterval, t.Every).String(), "error", state.Failure)
	}
	return s.store(ctx, t, state)
}

// ReadState returns the progress of a target.
func ReadState(ctx context.Context, q db.Querier, t Target) (*State, error) {
	text, err := db.Value[string](q.QueryRow(ctx, "SELECT value FROM meta WHERE name = $1", stateRow+t.id()))
	if errors.Is(err, db.ErrNotFound) {
		return &State{}, nil
	}
	if err != nil {
		return nil, err
	}
	state := new(State)
	return state, json.Unmarshal([]byte(text), state)
}

func (s *Scheduler) store(ctx context.Context, t Target, state *State) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return s.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", stateRow+t.id(), string(text))
		return err
	})
}

// targetScan is one scan of a target.
type targetScan struct {
	*Scheduler
	target Target
	state  *State
	reader *Reader
}

// report handles the secrets that were found, as any report.
func (r *targetScan) report(ctx context.Context) error {
	for _, f := range r.reader.take() {
		report := leaks.Report{Secret: f.Secret, Source: leaks.Server, Location: r.location(f)}
		if r.target.isURL() {
			report.URL = r.target.address()
		}
		outcome, err := r.Revoke(ctx, report)
		if err != nil {
			return err
		}
		if outcome != leaks.Unknown {
			slog.Warn("found a leaked secret", "target", r.target.Name(), "location", report.Location, "secret", f.Hint, "outcome", string(outcome))
		}
	}
	return nil
}

func (r *targetScan) location(f Finding) string {
	at := fmt.Sprintf("%s:%d", f.Path, f.Line)
	if f.Line == 0 {
		at = f.Path
	}
	if f.Commit != "" {
		at += " in commit " + f.Commit
	}
	if !r.target.isURL() {
		at = r.target.Name() + ": " + at
	}
	return at
}
