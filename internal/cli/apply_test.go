package cli

import (
	"encoding/json"
	"testing"
)

// TestSpendingIsNoChange covers a limit whose budget is partly spent: applying the same
// file again must change nothing.
func TestSpendingIsNoChange(t *testing.T) {
	t.Parallel()
	var before, after stateObject
	for text, o := range map[string]*stateObject{
		`{"limits":[{"id":"lim_1","budget":4,"window":"day","models":null,"spent":0}],"metadata":{"spent":"a"}}`:      &before,
		`{"limits":[{"id":"lim_1","budget":4,"window":"day","models":null,"spent":0.1494}],"metadata":{"spent":"b"}}`: &after,
	} {
		if err := json.Unmarshal([]byte(text), o); err != nil {
			t.Fatal(err)
		}
	}
	if !sameJSON(before["limits"], after["limits"]) {
		t.Errorf("spending changed %s to %s", before["limits"], after["limits"])
	}
	if declared := json.RawMessage(`[{"id":"lim_1","budget":4,"window":"day"}]`); !sameJSON(before["limits"], declared) {
		t.Errorf("%s is not the same as %s", before["limits"], declared)
	}
	if sameJSON(before["metadata"], after["metadata"]) {
		t.Error("a change of metadata was missed")
	}
}
