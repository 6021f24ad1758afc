package statements

// small are the tables that don't grow with use. They have rows for nodes, people, and what people configure.
var small = []string{
	"nodes", "limit_nodes", "meta", "schema_migrations", "definitions", "operators", "admin_credentials", "log_sinks", "log_archive_days",
	"acme_accounts", "acme_certificates", "acme_challenges",
	"workspaces", "users", "members", "identities", "passkeys", "totp", "recovery_codes", "invitations", "one_time_links",
	"endpoints", "tool_servers", "workspace_routes", "federation_rules", "notification_settings",
}

const (
	filter  = "Filters without an index scan at most 10,000 rows (db.Find), which is all rows here."
	scrape  = "A scrape of the metrics counts what is queued, not what has ended, and never with the writer of SQLite."
	rollups = "It reads rollups: buckets times groups."
	keys    = "limits.keys bounds the keys of a workspace."
	perNode = "There is one row per node."
	perRun  = "The rows of a run are bounded by its steps and tool calls."
	perJob  = "The rows of a job are bounded by its tasks."
)

// Exceptions are functions whose statements may read more, and why.
type Exceptions map[string]string

// Dashboard are the exceptions that the tests of the dashboard need.
var Dashboard = Exceptions{
	"agents.Service.List":             filter,
	"audit.FindActions":               filter,
	"audit.List":                      filter,
	"events.List":                     filter,
	"webhooks.Service.ListDeliveries": filter,

	"agents.Service.collectStored":     scrape,
	"background.Service.collectStored": scrape,
	"batches.Service.Collect":          scrape,
	"mail.Outbox.collectStored":        scrape,
	"media.Service.collectStored":      scrape,
	"webhooks.Service.collectStored":   scrape,

	"spend.ReadUsage":        rollups,
	"spend.TopUsage":         rollups,
	"spend.UsageQuery.Bound": "It skips over at most 10,000 entries of an index to find whether a sum would read more.",

	"access.Keys.Descendants":    keys,
	"access.Keys.EndingSoon":     keys,
	"access.Keys.Search":         keys,
	"access.Keys.checkKeyLimit":  keys,
	"access.Keys.lockChildren":   keys,
	"spend.budgetOwner.limits":   "It reads the newest 5,000 keys or projects.",
	"spend.budgetOwner.monthly":  "It reads the newest 5,000 keys or projects.",
	"accounts.checkProjectLimit": "accounts.MaxProjects bounds the active projects of a workspace.",

	"agents.judgments":     perRun,
	"agents.openCheck":     perRun,
	"files.Store.Drop":     perJob,
	"media.Service.Delete": perJob,

	"archive.query.nextFile":     "The archive has a file per workspace and day.",
	"audit.Unsent":               "Only entries that are inserted or changed late are pending, and log sinks send them within seconds.",
	"contentlog.PurgeUsers":      "It reads the users that were deleted within the last day.",
	"spend.RefusedUsers":         "It reads the newest 2,000 alerts.",
	"dashboard.readRecentErrors": "It reads the newest 1,000 entries of the log.",
	"limits.store.leave":         "Once, when a node stops.",
	"limits.store.processLease":  perNode,
	"people.clearSecondFactor":   "It changes the sessions of one person.",
	"webhooks.Service.dueAt":     "Each delivery has an event, but the rows here don't.",
}

// API are the exceptions that only the tests of the API need.
var API = Exceptions{
	"apifiles.Store.List":    filter,
	"agents.PendingApproval": perRun,
	"backup.write":           "A backup reads all tables, not with the writer.",
	"spend.ReadUserUsage":    rollups,
}

// Sometimes are the exceptions that tests need only if two requests race.
var Sometimes = Exceptions{
	"agents.checkReplacedApproval": perRun,
}
