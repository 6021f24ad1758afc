package chaos

import (
	"bytes"
	"encoding/csv"
	"net/http"
	"strconv"
	"testing"
)

// entry is a log entry.
type entry struct {
	id     string
	status int // 0 if the node died before the end
	usage  string
}

// export reads the whole request log from the API, grouped by mark.
func export(t *testing.T, url, key string) map[string][]entry {
	t.Helper()
	o := call(url, request{mark: "export", method: "GET", path: "/v1/audit?format=csv&order=asc", key: key})
	if o.status != http.StatusOK || !o.whole {
		t.Fatalf("failed to export the log: %v\n%.500s", o, o.body)
	}
	rows, err := csv.NewReader(bytes.NewReader(o.body)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	for _, name := range []string{"request_id", "status", "usage_source", "user_agent"} {
		if _, ok := column[name]; !ok {
			t.Fatalf("the export has no column %s", name)
		}
	}
	byMark := map[string][]entry{}
	for _, row := range rows[1:] {
		status, _ := strconv.Atoi(row[column["status"]]) // empty if the node died
		mark := row[column["user_agent"]]
		byMark[mark] = append(byMark[mark], entry{row[column["request_id"]], status, row[column["usage_source"]]})
	}
	return byMark
}

// failures collects errors and shows the first few.
type failures struct {
	t *testing.T
	n int
}

func (c *failures) add(format string, args ...any) {
	c.t.Helper()
	if c.n++; c.n <= 5 {
		c.t.Errorf(format, args...)
	}
}

func (c *failures) done() {
	if c.n > 5 {
		c.t.Errorf("and %d more like these", c.n-5)
	}
}

// checkLogged compares the outcomes with the log. A required request is there once,
// with the ID from its response. No request is there twice.
func checkLogged(t *testing.T, outcomes []*outcome, log map[string][]entry, must func(*outcome) bool) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	for _, o := range outcomes {
		entries := log[o.mark]
		switch {
		case len(entries) > 1:
			wrong.add("got %d log entries, want 1: %v", len(entries), o)
		case len(entries) == 0 && must(o):
			wrong.add("got a response, but no log entry: %v", o)
		case len(entries) == 1 && o.id != "" && entries[0].id != o.id:
			wrong.add("got ID %s in the log, want the one of %v", entries[0].id, o)
		}
	}
}

// answered reports whether a byte of the response arrived.
func answered(o *outcome) bool { return o.seen > 0 }
