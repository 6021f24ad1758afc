package db

import (
	"context"
	"fmt"
	"reflect"
	"strings"
)

// Table is the table of a record that people change.
type Table struct {
	Name    string
	Columns string // with commas: the primary key, and then what a change can write
	Key     int    // how many of the columns are the primary key
}

// Update writes the columns that differ between two versions of a row, and reports whether any does. The
// transaction must have read the first version under the row's lock (Tx.Lock). Both have a value for each column.
func (t Table) Update(ctx context.Context, tx *Tx, before, after []any) (changed bool, err error) {
	var set, where []string
	var args []any
	for i, name := range strings.Split(t.Columns, ",") {
		isKey := i < t.Key
		if !isKey && reflect.DeepEqual(before[i], after[i]) {
			continue
		}
		args = append(args, after[i])
		assigned := fmt.Sprintf("%s = $%d", strings.TrimSpace(name), len(args))
		if isKey {
			where = append(where, assigned)
		} else {
			set = append(set, assigned)
		}
	}
	if len(set) == 0 {
		return false, nil
	}
	_, err = tx.Exec(ctx, "UPDATE "+t.Name+" SET "+strings.Join(set, ", ")+" WHERE "+strings.Join(where, " AND "), args...)
	return true, err
}
