package app

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/config"
	"turnpike/internal/contentlog"
	"turnpike/internal/db"
	"turnpike/internal/endusers"
	"turnpike/internal/events"
	"turnpike/internal/leaks"
	"turnpike/internal/limits"
	"turnpike/internal/logsinks"
	"turnpike/internal/mail"
	"turnpike/internal/retention"
	"turnpike/internal/spend"
	"turnpike/internal/webhooks"
)

// buildRetention lists the data to purge, and when.
func (i *instance) buildRetention(context.Context) error {
	minutesKept := func() time.Time { return i.now().Add(-spend.MinutesKept) }
	usersKept := func() time.Time { return i.now().Add(-spend.UsersKept) }
	i.keeper = &retention.Keeper{DB: i.store.DB, Before: i.rotatePartitions, Purges: append(i.hooks.Purges(), []retention.Purge{
		{Name: "expired token hashes", Run: i.tokens.PurgeHashes},
		{Name: "scoped tokens", Run: i.tokens.Purge},
		{Name: "retired secrets", Run: i.keys.PurgeSecrets},
		{Name: "idle users", Run: olderThan(i.now, endusers.Purge)},
		{Name: "idempotency keys", Run: i.idempotency.Purge},
		{Name: "requests", Run: i.purgeRequests},
		{Name: "log sinks", Run: olderThan(i.now, logsinks.Purge)},
		{Name: "admin actions", Run: olderThan(i.archiveWindow, audit.PurgeActions)},
		{Name: "refused keys", Run: olderThan(i.archiveWindow, audit.PurgeRefused)},
		{Name: "throttled requests", Run: olderThan(i.archiveWindow, audit.PurgeThrottled)},
		{Name: "leak reports", Run: olderThan(i.archiveWindow, leaks.Purge)},
		{Name: "usage per minute", Run: olderThan(minutesKept, spend.PurgeUsage)},
		{Name: "usage of users", Run: olderThan(usersKept, spend.PurgeUserUsage)},
		{Name: "costs of users", Run: olderThan(i.now, spend.PurgeUserMonths)},
		{Name: "balances of past windows", Run: olderThan(i.now, spend.PurgeBalances)},
		{Name: "budget alerts", Run: olderThan(i.now, spend.PurgeAlerts)},
		{Name: "shares of limits", Run: olderThan(i.now, limits.Purge)},
		{Name: "expiring counts", Run: olderThan(i.now, accounts.PurgeCounts)},
		{Name: "mails", Run: olderThan(i.hooks.RowsBefore, mail.Purge)},
		{Name: "commit marks", Run: olderThan(i.now, db.PurgeMarks)},
		{Name: "sessions and links", Run: i.people.Purge},
		{Name: "content", Run: i.contents.Purge},
		{Name: "content without log entries", Run: olderThan(i.archiveWindow, contentlog.PurgeUnlogged)},
		{Name: "content of deleted users", Run: olderThan(i.now, contentlog.PurgeUsers)},
		{Name: "shortened retentions", Run: i.conversations.ShortenRetention},
		{Name: "stored responses", Run: i.conversations.Purge},
		{Name: "conversations", Run: i.conversations.PurgeConversations},
		{Name: "media jobs", Run: i.media.Purge},
		{Name: "agent runs", Run: i.agents.Purge},
		{Name: "batches", Run: i.batches.Purge},
		{Name: "uploaded files", Run: i.apiFiles.Purge},
		{Name: "tool approvals", Run: i.toolServers.PurgeApprovals},
		{Name: "tool authorizations", Run: i.toolServers.PurgeAuthorizations},
		{Name: "files", Run: i.files.Purge},
	}...)}
	return nil
}

type purgeFunc = func(ctx context.Context, tx *db.Tx, limit int64) (int64, error)

// olderThan purges rows from before the time that start returns.
func olderThan(start func() time.Time, purge func(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error)) purgeFunc {
	return func(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
		return purge(ctx, tx, start(), limit)
	}
}

// logWindow returns the start of the request log's retention in the database.
func (i *instance) logWindow() time.Time { return i.now().AddDate(0, 0, -i.cfg.Audit.RetentionDays) }

// archiveWindow returns the start of the request log's retention in the database and the archive. Records about
// the same time are kept for as long.
func (i *instance) archiveWindow() time.Time {
	days := i.cfg.Audit.KeptDays()
	if days == 0 {
		return time.Unix(0, 0)
	}
	return i.now().AddDate(0, 0, -days)
}

// purgeRequests purges the request log, unless the archive does. Entries that log sinks haven't sent stay.
func (i *instance) purgeRequests(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	if i.archive != nil {
		return 0, nil
	}
	before, err := audit.Unsent(ctx, tx, i.logWindow())
	if err != nil {
		return 0, err
	}
	return audit.Purge(ctx, tx, before, limit)
}

// dropRequests drops the partitions of the request log whose entries are past their retention. With an archive,
// only those that it has emptied.
func (i *instance) dropRequests(ctx context.Context) error {
	before, err := audit.Unsent(ctx, i.store.DB, i.logWindow())
	if err != nil {
		return err
	}
	if i.archive != nil {
		return audit.Requests.DropEmpty(ctx, i.store.DB, before)
	}
	return audit.Requests.Drop(ctx, i.store.DB, before)
}

// mostDays limits the partitions of the request log by days. Every statement that can't tell the partition from its
// parameters plans and locks all of them.
const mostDays = 35

// requestPartitions returns the request log with partitions by days, which the archive drops one by one, or by
// months.
func requestPartitions(c config.Audit) db.Partitioned {
	p := audit.Requests
	if c.Archive.To != "" && c.RetentionDays <= mostDays {
		p.Span = db.Day
	}
	return p
}

func (i *instance) rotatePartitions(ctx context.Context) error {
	d := i.store.DB
	err := preparePartitions(ctx, d, i.now(), partitionedTables(i.cfg.Audit))
	before, failed := i.hooks.DropBefore(ctx) // the zero time drops nothing
	err = errors.Join(err, failed)
	for _, p := range []db.Partitioned{webhooks.Attempts, webhooks.Deliveries, events.Table} {
		err = errors.Join(err, p.Drop(ctx, d, before))
	}
	return errors.Join(err, i.dropRequests(ctx), i.deleteClaimedFirstRun(ctx))
}

// partitionedTables are the tables with partitions. Those of the request log are as configured.
func partitionedTables(c config.Audit) []db.Partitioned {
	return []db.Partitioned{requestPartitions(c), events.Table, webhooks.Deliveries, webhooks.Attempts}
}

func preparePartitions(ctx context.Context, d *db.DB, now time.Time, tables []db.Partitioned) (err error) {
	for _, p := range tables {
		err = errors.Join(err, p.Prepare(ctx, d, now))
	}
	return err
}
