package catalog

import (
	"strings"

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
