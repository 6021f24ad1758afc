package spend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
)

const (
	// postInterval is how often a node posts its journal, and so how much displayed
	// spending lags behind on other nodes.
	postInterval = time.Second
	postTimeout  = 5 * time.Second
	// One transaction posts this many commits, and stops after this many bytes, which are about 500
	// end users. SQLite writes nothing else meanwhile.
	maxPosted      = 500
	maxPostedBytes = 128 << 10
	// inDoubtFor is how long the commit of a row may stay in doubt and still be posted
	// with the next ones. Later rows are posted when the node has ended.
	inDoubtFor = 30 * time.Second
)

// journal is what a node has charged and not yet posted. Each commit of the request
// log adds one row with the sums of its entries, instead of updating the balances
// and usage that all nodes share. Post moves them there once per second. Until then
// the leases of the node cover the charges, so no budget depends on when it happens.
// If the node dies, the next one posts its journal before it closes the leases.
type journal struct {
	node  string
	seq   atomic.Int64 // of the last row
	dirty atomic.Bool  // there may be rows

	mu    sync.Mutex // held while rows are posted
	last  int64      // the last posted row
	older int64      // the one at a time
	at    time.Time  // that time, within inDoubtFor
	after int64      // the one inDoubtFor before that time
}

// Journal makes the settler post the charges of a node once per second instead of
// in the transaction that settles them.
func (s *Settler) Journal(node string) *Settler {
	s.journal = &journal{node: node}
	return s
}

// totals are the charges and the usage of a number of entries.
type totals struct {
	*postings
	usage   usageTotals
	refused map[accountPeriod]bool // exhausted budgets that refused a request
}

func newTotals() *totals {
	return &totals{newPostings(), newUsageTotals(), map[accountPeriod]bool{}}
}

// count adds an entry with its charge.
func (t *totals) count(b audit.Settlement, c charge) {
	t.charge(c)
	t.usage.count(b)
	if key, refused := refusedBy(b.Entry); refused {
		t.refused[key] = true
	}
}

func (t *totals) isEmpty() bool {
	return len(t.accounts) == 0 && len(t.ended) == 0 && t.usage.isEmpty() && len(t.refused) == 0
}

// write adds the totals to the ledger and to usage, and publishes the alerts of
// budgets, if wanted. All transactions lock in this order.
func (t *totals) write(ctx context.Context, tx *db.Tx, s *Settler, alerts bool) error {
	after, err := t.postings.writeRead(ctx, tx)
	if err != nil {
		return err
	}
	if err := t.usage.write(ctx, tx); err != nil || !alerts {
		return err
	}
	if err := s.stopUnbilled(ctx, tx, t, after); err != nil {
		return err
	}
	return s.alertAll(ctx, tx, t, after)
}

// journalRow is the stored form of totals.
type journalRow struct {
	Charges []journalCharge `json:"charges,omitempty"`
	Refused []journalCharge `json:"refused,omitempty"`
	Models  []modelUsage    `json:"models,omitempty"`
	Users   []userUsage     `json:"users,omitempty"`
}

type journalCharge struct {
	Level  Level         `json:"level"`
	ID     string        `json:"id"`
	Period Period        `json:"period"`
	Amount credits.Micro `json:"amount,omitempty"`
	Leased credits.Micro `json:"leased,omitempty"` // the part of the amount that the node's lease covers
}

// row returns the stored form. All leases are the node's.
func (t *totals) row() journalRow {
	var row journalRow
	for key, p := range t.accounts {
		row.Charges = append(row.Charges, journalCharge{key.Level, key.ID, key.Period, p.Settled, -p.Leased})
	}
	for key := range t.refused {
		row.Refused = append(row.Refused, journalCharge{Level: key.Level, ID: key.ID, Period: key.Period})
	}
	for key, sums := range t.usage.models {
		row.Models = append(row.Models, modelUsage{key, *sums})
	}
	for key, sums := range t.usage.users {
		row.Users = append(row.Users, userUsage{key, *sums})
	}
	return row
}

// add adds a stored row. The leases of a dead node are closed as a whole, so owner is
// empty for it.
func (t *totals) add(row journalRow, owner string) {
	for _, c := range row.Charges {
		to := t.at(accountPeriod{Account{c.Level, c.ID}, c.Period})
		to.Settled = sum(to.Settled, c.Amount)
		if c.Leased != 0 && owner != "" {
			to.lower(owner, c.Leased)
		}
	}
	for _, r := range row.Refused {
		t.refused[accountPeriod{Account{r.Level, r.ID}, r.Period}] = true
	}
	for _, u := range row.Models {
		t.usage.models.at(u.usageKey).add(u.usageSums)
	}
	for _, u := range row.Users {
		t.usage.users.at(u.userKey).add(u.usageSums)
	}
}

// One row takes half as long as a Bulk with one row.
var insertJournal = db.Insert("spend_journal", "node_id, seq, postings")

// write adds a row in the transaction that settles its entries.
func (j *journal) write(tx *db.Tx, t *totals) error {
	if t.isEmpty() {
		return nil
	}
	body, err := json.Marshal(t.row())
	if err != nil {
		return fmt.Errorf("journal charges: %w", err)
	}
	j.dirty.Store(true) // also if the commit is in doubt
	tx.OnCommit(func() { j.dirty.Store(true) })
	return db.Wrap(tx.Send(nil, insertJournal, j.node, j.seq.Add(1), string(body)), "journal charges")
}

// FlushWith makes Post write the settled entries of the log first that wait to share a
// commit.
func (s *Settler) FlushWith(l *audit.Log) { s.flush = l.Flush }

// Post adds what this node has charged so far to the ledger and to usage.
func (s *Settler) Post(ctx context.Context) error {
	j := s.journal
	if j == nil {
		return nil
	}
	if s.flush != nil {
		s.flush(ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.dirty.Swap(false) {
		of := journalOf{node: j.node, after: j.after, limit: maxPosted, alive: true}
		last, more, err := s.postBatch(ctx, of)
		if isPermanent(err) {
			last, more, err = s.postSingly(ctx, of, err)
		}
		if err != nil {
			j.dirty.Store(true)
			return fmt.Errorf("post charges: %w", err)
		}
		if more {
			j.dirty.Store(true)
		}
		j.last = max(j.last, last)
		if now := time.Now(); now.Sub(j.at) > inDoubtFor {
			j.after, j.older, j.at = j.older, j.last, now
		}
	}
	return nil
}

// Run posts the node's charges until ctx ends.
func (s *Settler) Run(ctx context.Context) {
	db.FlushEvery(ctx, postInterval, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, postTimeout)
		defer cancel()
		if err := s.Post(ctx); err != nil && ctx.Err() == nil {
			slog.Log(ctx, db.LogLevel(err), "failed to post charges, so displayed spending lags; retrying", "retry_in", postInterval, "error", err)
		}
	})
}

// CatchUp is Post for a page or a response that shows spending, including that of requests
// whose client has just got the response. It shows what is posted if that fails.
func (s *Settler) CatchUp(ctx context.Context) {
	if s == nil {
		return
	}
	if err := s.Post(ctx); err != nil && ctx.Err() == nil {
		slog.Log(ctx, db.LogLevel(err), "failed to post charges, so displayed spending lags", "error", err)
	}
}

// journalOf selects rows of a node's journal.
type journalOf struct {
	node  string
	after int64 // skips deleted rows that the database still has to remove
	limit int64
	alive bool
	// chargesOnly leaves out alerts, and leases, which then cover too much.
	chargesOnly bool
}

// isPermanent reports whether an error will come again.
func isPermanent(err error) bool {
	return err != nil && !errors.Is(err, db.ErrUnavailable) && !errors.Is(err, db.ErrRace) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// postBatch is postJournal in a transaction.
func (s *Settler) postBatch(ctx context.Context, of journalOf) (last int64, more bool, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) (err error) {
		last, more, err = s.postJournal(ctx, tx, of)
		return err
	})
	return last, more, err
}

// postSingly posts rows one by one, so that one that can't be posted holds up no others. If a lease doesn't cover a
// charge, or an alert fails, the row is posted without both: what was spent counts. It fails if a row is left.
func (s *Settler) postSingly(ctx context.Context, of journalOf, cause error) (last int64, more bool, err error) {
	rows, err := db.List(ctx, s.db, db.Value[int64], "SELECT seq FROM spend_journal WHERE node_id = $1 AND seq > $2 ORDER BY seq LIMIT $3", of.node, of.after, of.limit)
	if err != nil {
		return 0, false, err
	}
	var failed error
	without := 0
	for _, seq := range rows {
		one := of
		one.after, one.limit = seq-1, 1
		_, _, err := s.postBatch(ctx, one)
		if isPermanent(err) {
			cause, without = err, without+1
			one.chargesOnly = true
			_, _, err = s.postBatch(ctx, one)
		}
		if isPermanent(err) {
			failed = errors.Join(failed, fmt.Errorf("commit %d: %w", seq, err))
			continue
		}
		if err != nil {
			return last, false, err
		}
		last = seq
	}
	slog.Error("failed to post charges; posted them one by one, and some without alerts and leases", "node", of.node, "commits", len(rows), "without", without, "error", cause)
	return last, int64(len(rows)) == of.limit, failed
}

// postJournal posts a batch of rows and deletes them, so that each is posted once. It
// returns the last of them, or 0 without one.
func (s *Settler) postJournal(ctx context.Context, tx *db.Tx, of journalOf) (last int64, more bool, err error) {
	rows, err := tx.Query(ctx, `DELETE FROM spend_journal WHERE node_id = $1 AND seq IN (SELECT seq FROM
		(SELECT seq, sum(octet_length(postings)) OVER (ORDER BY seq) - octet_length(postings) AS before FROM spend_journal WHERE node_id = $1 AND seq > $2 ORDER BY seq LIMIT $3) AS r
		WHERE before < $4) RETURNING seq, postings`,
		of.node, of.after, of.limit, int64(maxPostedBytes))
	owner := ""
	if of.alive && !of.chargesOnly {
		owner = of.node
	}
	t, n, size := newTotals(), 0, 0
	err = db.Each(rows, err, func(r db.Row) error {
		var seq int64
		var body json.RawMessage
		if err := db.Scan(r, &seq, &body); err != nil {
			return err
		}
		last, n, size = max(last, seq), n+1, size+len(body)
		var row journalRow
		if err := json.Unmarshal(body, &row); err != nil {
			return fmt.Errorf("journal of %s: %w", of.node, err)
		}
		t.add(row, owner)
		return nil
	})
	if err != nil || n == 0 {
		return last, false, err
	}
	return last, int64(n) == of.limit || size >= maxPostedBytes, t.write(ctx, tx, s, !of.chargesOnly)
}

// CloseEvicted posts the journals of evicted nodes, and ends the leases of those whose
// open log entries are charged. The charges come out of the leases.
func (s *Settler) CloseEvicted(ctx context.Context) error {
	var evicted []string
	for _, table := range []string{"spend_leases", "spend_journal"} {
		found, err := db.List(ctx, s.db, db.Value[string], evictedOwners(table), jobPrefix, afterJobs)
		if err != nil {
			return fmt.Errorf("close leases: %w", err)
		}
		evicted = append(evicted, found...)
	}
	slices.Sort(evicted)
	var failed error
	for _, node := range slices.Compact(evicted) {
		if err := s.closeEvicted(ctx, node); err != nil {
			failed = errors.Join(failed, fmt.Errorf("close leases of %s: %w", node, err))
		}
	}
	return failed
}

// evictedOwners returns the query for the evicted nodes in a table. It jumps from one owner to the next in the index, because there
// may be a row per end user, and over all jobs, which end their own leases.
func evictedOwners(table string) string {
	return `WITH RECURSIVE owners (id) AS (SELECT min(node_id) FROM ` + table + ` UNION ALL
		SELECT (SELECT min(t.node_id) FROM ` + table + ` t WHERE t.node_id > CASE WHEN o.id >= $1 AND o.id < $2 THEN $2 ELSE o.id END) FROM owners o WHERE o.id IS NOT NULL)
		SELECT id FROM owners WHERE (id < $1 OR id >= $2) AND id NOT IN (SELECT id FROM nodes)`
}

// hasJournal reports whether a node has rows in its journal, including those that
// another transaction is posting.
func hasJournal(ctx context.Context, tx *db.Tx, node string) (bool, error) {
	return db.Value[bool](tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM spend_journal WHERE node_id = $1)", node))
}

func (s *Settler) closeEvicted(ctx context.Context, node string) error {
	of := journalOf{node: node, limit: maxPosted}
	for more, singly := true, false; more; {
		err := s.db.Write(ctx, func(tx *db.Tx) error {
			open, err := audit.HasOpen(ctx, tx, node)
			if err != nil || open {
				more = false
				return err // the next recovery charges them
			}
			if _, _, err = s.postJournal(ctx, tx, of); err != nil {
				return err
			}
			// Another node, or the evicted one, may have posted the same rows meanwhile. Then
			// none were left of this batch, but there can be more.
			if more, err = hasJournal(ctx, tx, node); err != nil || more {
				return err
			}
			return closeLeases(ctx, tx, node)
		})
		if isPermanent(err) && !singly {
			singly = true
			_, _, err = s.postSingly(ctx, of, err)
			more = true
		}
		if err != nil {
			return err
		}
	}
	return nil
}
