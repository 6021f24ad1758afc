package catalog

import (
	"strings"

	"turnpike/internal/catalog/table"
)

// snapshotOf finds what a name with a stamp is a snapshot of: the longest prefix
// that is known and leaves nothing but that.
func snapshotOf(id string, known func(prefix string) *Model) *Model {
	for end := strings.LastIndexByte(id, '-'); end > 0; end = strings.LastIndexByte(id[:end], '-') {
		if !table.IsStamp(id[end+1:]) {
			continue
		}
		if m := known(id[:end]); m != nil {
			snapshot := *m
			snapshot.ID = id
			return &snapshot
		}
	}
	return nil
}
