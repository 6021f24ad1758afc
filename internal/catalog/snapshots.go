package catalog

import (
	"strings"
	"time"

	"turnpike/internal/catalog/table"
)

// find returns a known model, or the model of a snapshot under the snapshot's name, or nil.
func find(id string, known func(id string) *Model) *Model {
	if m := known(id); m != nil {
		return m
	}
	of, found := SnapshotOf(id, func(prefix string) bool { return known(prefix) != nil })
	if !found {
		return nil
	}
	snapshot := *known(of)
	snapshot.ID = id
	return &snapshot
}

// SnapshotOf returns the model that a stamped name is a snapshot of: its longest known prefix
// before a stamp.
func SnapshotOf(id string, known func(prefix string) bool) (of string, found bool) {
	for end := strings.LastIndexByte(id, '-'); end > 0; end = strings.LastIndexByte(id[:end], '-') {
		if table.IsStamp(id[end+1:]) && known(id[:end]) {
			return id[:end], true
		}
	}
	return "", false
}

// outdatedAfter is the age from which a model counts as outdated.
const outdatedAfter = 18 * 30 * 24 * time.Hour

// markOutdated marks the models whose own date or whose last snapshot is much older than the table.
func (c *Catalog) markOutdated() {
	last := map[modelKey]time.Time{}
	for _, m := range c.models {
		of, found := SnapshotOf(m.ID, func(id string) bool { return c.byKey[modelKey{m.Provider, id}] != nil })
		if !found {
			of, found = SnapshotOf(m.ID, func(string) bool { return true })
		}
		if !found {
			continue
		}
		day := table.Day(strings.TrimPrefix(m.ID, of+"-"))
		for _, id := range []string{of, m.ID} {
			if k := (modelKey{m.Provider, id}); day.After(last[k]) {
				last[k] = day
			}
		}
	}
	for _, m := range c.models {
		day := last[modelKey{m.Provider, m.ID}]
		m.Outdated = !day.IsZero() && c.AsOf.Sub(day) > outdatedAfter
	}
}
