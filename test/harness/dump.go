package harness

import (
	"bytes"
	"slices"
	"testing"

	"turnpike/internal/db"
)

// DumpDatabase returns every value of every table as text.
func (s *Server) DumpDatabase(t testing.TB) []byte {
	t.Helper()
	tables := "SELECT name FROM sqlite_master WHERE type = 'table'"
	if s.DB.Engine() == "postgres" {
		tables = "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema()"
	}
	rows, err := s.DB.Query(t.Context(), tables)
	names, err := db.All(rows, err, func(r db.Row) (name string, err error) {
		err = r.Scan(&name)
		return name, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.DumpTables(t, names)
}

// DumpTables returns every value of the tables as text, without the given columns.
func (s *Server) DumpTables(t testing.TB, names []string, without ...string) []byte {
	t.Helper()
	var dump bytes.Buffer
	for _, name := range names {
		columns := "SELECT name FROM pragma_table_info('" + name + "')"
		if s.DB.Engine() == "postgres" {
			columns = "SELECT column_name::text FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = '" + name + "'"
		}
		rows, err := s.DB.Query(t.Context(), columns)
		err = db.Each(rows, err, func(r db.Row) error {
			var column string
			if err := r.Scan(&column); err != nil || slices.Contains(without, column) {
				return err
			}
			values, err := s.DB.Query(t.Context(), "SELECT CAST("+column+" AS TEXT) FROM "+name)
			return db.Each(values, err, func(r db.Row) error {
				var v *string
				if err := r.Scan(&v); err != nil {
					return err
				}
				dump.WriteString(db.Text(v) + "\n")
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return dump.Bytes()
}
