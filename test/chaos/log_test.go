package chaos

import (
	"bytes"
	"encoding/csv"
	"net/http"
	"strconv"
	"testing"
)

// entry is what the tests need of a log entry.
type entry struct {
	id     string
	status int // 0 when the node died before the end
	usage  string
}

// export reads the whole request log through the interface and sorts the
// entries by the mark of their call.
func export(t *testing.T, url, key string) map[string][]entry {
	t.Helper()
	o := call(url, request{mark: "export", method: "GET", path: "/v1/audit?format=csv&order=asc", key: key})
	if o.status != http.StatusOK || !o.whole {
		t.Fatalf("the log could not be exported: %v\n%.500s", o, o.body)
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
		status, _ := strconv.Atoi(row[column["status"]]) // empty for none
		mark := row[column["user_agent"]]
		byMark[mark] = append(byMark[mark], entry{row[column["request_id"]], status, row[column["usage_source"]]})
	}
	return byMark
}

// complaints collects what is wrong, and shows the first few of many.
type complaints struct {
	t *testing.T
	n int
}

func (c *complaints) add(format string, args ...any) {
	c.t.Helper()
	if c.n++; c.n <= 5 {
		c.t.Errorf(format, args...)
	}
}

func (c *complaints) done() {
	if c.n > 5 {
		c.t.Errorf("and %d more like these", c.n-5)
	}
}

// checkLogged compares what the clients saw with the log: a call that must be
// there is there once, under the id that its answer named; no call is there
// twice.
func checkLogged(t *testing.T, outcomes []*outcome, log map[string][]entry, must func(*outcome) bool) {
	t.Helper()
	wrong := &complaints{t: t}
	defer wrong.done()
	for _, o := range outcomes {
		entries := log[o.mark]
		switch {
		case len(entries) > 1:
			wrong.add("in the log %d times: %v", len(entries), o)
		case len(entries) == 0 && must(o):
			wrong.add("answered, but not in the log: %v", o)
		case len(entries) == 1 && o.id != "" && entries[0].id != o.id:
			wrong.add("in the log as %s: %v", entries[0].id, o)
		}
	}
}

// answered says of a call that a byte of its answer was seen.
func answered(o *outcome) bool { return o.seen > 0 }
