package db

import (
	"slices"
	"testing"
)

// Of two bounds in one direction SQLite may use the wider one for its index, and scan all rows up to it.
func TestOnlyTheTighterBoundOfIDsRemains(t *testing.T) {
	t.Parallel()
	type bound struct{ operator, id string }
	for _, c := range []struct {
		name   string
		bounds []bound
		sql    string
		args   []any
	}{
		{"lower, tighter", []bound{{">=", "b"}, {">=", "c"}}, "a IN ($1, $2) AND id >= $3", []any{"x", "y", "c"}},
		{"lower, wider", []bound{{">=", "c"}, {">=", "b"}}, "a IN ($1, $2) AND id >= $3", []any{"x", "y", "c"}},
		{"upper, tighter", []bound{{"<", "c"}, {"<", "b"}}, "a IN ($1, $2) AND id < $3", []any{"x", "y", "b"}},
		{"upper, wider", []bound{{"<", "b"}, {"<", "c"}}, "a IN ($1, $2) AND id < $3", []any{"x", "y", "b"}},
		{"equal, then without the ID", []bound{{">=", "b"}, {">", "b"}}, "a IN ($1, $2) AND id > $3", []any{"x", "y", "b"}},
		{"equal, then with the ID", []bound{{"<", "b"}, {"<=", "b"}}, "a IN ($1, $2) AND id < $3", []any{"x", "y", "b"}},
		{"both directions", []bound{{">=", "b"}, {"<", "d"}, {">=", "c"}}, "a IN ($1, $2) AND id < $3 AND id >= $4", []any{"x", "y", "d", "c"}},
	} {
		var w Conditions
		w.AddIn("a", []string{"x", "y"})
		for _, b := range c.bounds {
			w.Bound(b.operator, b.id)
		}
		if sql := w.sql(0); sql != c.sql || !slices.Equal(w.args, c.args) {
			t.Errorf("%s: got %s with %v, want %s with %v", c.name, sql, w.args, c.sql, c.args)
		}
	}
}
