package catalog

import (
	"strings"
	"time"

	"turnpike/internal/catalog/table"
)

// snapshotOf is what a name with a stamp is a snapshot of, under that name.
func snapshotOf(id string, known func(prefix string) *Model) *Model {
	of, found := SnapshotOf(id, func(prefix string) bool { return known(prefix) != nil })
	if !found {
		return nil
	}
	snapshot := *known(of)
	snapshot.ID = id
	return &snapshot
}

// SnapshotOf finds the model that a name with a stamp is a snapshot of: the
// longest prefix that is known and leaves nothing but that.
func SnapshotOf(id string, known func(prefix string) bool) (of string, found bool) {
	for end := strings.LastIndexByte(id, '-'); end > 0; end = strings.LastIndexByte(id[:end], '-') {
		if table.IsStamp(id[end+1:]) && known(id[:end]) {
			return id[:end], true
		}
	}
	return "", false
}

// newFor is how long a model of the table is taken for a new one.
const newFor = 18 * 30 * 24 * time.Hour

// markOld marks the models of which the last dated snapshot, or which by their
// own name, are of long before the table.
func (c *Catalog) markOld() {
	last := map[key]time.Time{}
	for _, m := range c.models {
		of, found := SnapshotOf(m.ID, func(id string) bool { return c.byKey[key{m.Provider, id}] != nil })
		if !found {
			of, found = SnapshotOf(m.ID, func(string) bool { return true })
		}
		if !found {
			continue
		}
		day := table.Day(strings.TrimPrefix(m.ID, of+"-"))
		for _, id := range []string{of, m.ID} {
			if k := (key{m.Provider, id}); day.After(last[k]) {
				last[k] = day
			}
		}
	}
	for _, m := range c.models {
		day := last[key{m.Provider, m.ID}]
		m.Old = !day.IsZero() && c.AsOf.Sub(day) > newFor
	}
}
