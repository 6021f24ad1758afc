package nodes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnpike/internal/db"
)

// Feature is a behavior whose guarantee needs every node. A program lists it in
// features once it can handle other nodes that use it. It uses the feature itself
// only when Active returns true.
//
//	supported ──────────▶ active
//	   (all nodes report it)
//
// The last node that reports a feature activates it for good. Programs that lack
// an active feature can't join.
type Feature string

// features lists the features that this program supports.
var features []Feature

// featureRow is the prefix of the rows of active features in the meta table.
const featureRow = "feature:"

// Active reports whether all nodes support the feature, and all that will join.
// Once it is true, it stays true.
func Active(ctx context.Context, q db.Querier, f Feature) (bool, error) {
	active, err := db.Value[bool](q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM meta WHERE name = $1)", featureRow+string(f)))
	return active, db.Wrap(err, "read feature")
}

// checkVersion fails if the program can't work with the other nodes. The
// transaction must have locked the schema.
func (n *Node) checkVersion(ctx context.Context, tx *db.Tx) error {
	if err := db.CheckProgram(ctx, tx); err != nil {
		return err
	}
	names, err := db.List(ctx, tx, db.Value[string], "SELECT name FROM meta WHERE name LIKE '"+featureRow+"%' ORDER BY name")
	if err != nil {
		return err
	}
	var missing []string
	for _, name := range names {
		if f := strings.TrimPrefix(name, featureRow); !slices.Contains(n.features, Feature(f)) {
			missing = append(missing, f)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the nodes of this database use features that this program lacks (%s); use the newer program", strings.Join(missing, ", "))
	}
	return nil
}

// activateIn activates the features that all nodes support. The transaction must
// have locked the schema, so that no other node can join meanwhile.
func (n *Node) activateIn(ctx context.Context, tx *db.Tx) error {
	if len(n.features) == 0 {
		return nil
	}
	query := "SELECT features FROM nodes"
	if n.exclusive() {
		query += " WHERE id = '" + n.ID + "'" // others are left from a crash
	}
	members, err := db.List(ctx, tx, db.Value[string], query)
	if err != nil {
		return err
	}
	for _, f := range n.features {
		if slices.ContainsFunc(members, func(m string) bool { return !slices.Contains(strings.Fields(m), string(f)) }) {
			continue
		}
		_, err := tx.Exec(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING", featureRow+string(f), n.db.Now().UTC().Format(time.RFC3339))
		if err != nil {
			return err
		}
	}
	return nil
}

// activateFeatures activates the features that all nodes support by now. A long
// migration must not delay the next heartbeat.
func (n *Node) activateFeatures(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	for _, f := range n.features {
		if active, err := Active(ctx, n.db, f); err != nil {
			return err
		} else if active {
			continue
		}
		err := n.db.Write(ctx, func(tx *db.Tx) error {
			if err := tx.LockSchema(ctx); err != nil {
				return err
			}
			return n.activateIn(ctx, tx)
		})
		return db.Wrap(err, "activate features")
	}
	return nil
}

func joinFeatures(list []Feature) string {
	names := make([]string, len(list))
	for i, f := range list {
		names[i] = string(f)
	}
	return strings.Join(names, " ")
}

// Outdated lists the running nodes whose program has a lower schema version.
func Outdated(ctx context.Context, q db.Querier, version int, now time.Time) ([]string, error) {
	ids, err := db.List(ctx, q, db.Value[string], "SELECT id FROM nodes WHERE schema_version < $1 AND seen_at > $2 ORDER BY id", int64(version), now.Add(-staleAfter).UnixMicro())
	return ids, db.Wrap(err, "list outdated nodes")
}

// AllowMigration returns a check for db.MigrateIf: a contract migration waits
// until no running node uses what it removes. It evicts such nodes if they have no
// recent heartbeat, because they couldn't join again.
func AllowMigration(d *db.DB) func(context.Context, *db.Tx, db.Migration) error {
	return func(ctx context.Context, tx *db.Tx, m db.Migration) error {
		if m.OldestProgram == 0 || d.Engine() == "sqlite" { // one server, which is starting
			return nil
		}
		running, err := Outdated(ctx, tx, m.OldestProgram, d.Now())
		if err != nil {
			return err
		}
		if len(running) > 0 {
			return fmt.Errorf("migration %04d_%s removes what nodes with a schema version below %d use, and such nodes are running (%s); "+
				"upgrade them to an earlier version with schema version %d or later, or stop them and wait a minute",
				m.Version, m.Name, m.OldestProgram, strings.Join(running, ", "), m.OldestProgram)
		}
		_, err = tx.Exec(ctx, "DELETE FROM nodes WHERE schema_version < $1", int64(m.OldestProgram))
		return err
	}
}
