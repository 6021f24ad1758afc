package events_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"turnpike/internal/events"
)

var update = flag.Bool("update", false, "rewrite the samples in docs/reference/events.md")

const eventsDoc = "../../docs/reference/events.md"

// variable matches what differs between two samples: IDs and hashes.
var variable = regexp.MustCompile(`\b([a-z]+_)[0-9a-hjkmnp-tv-z]{26}\b|\b[0-9a-f]{64}\b`)

func sampleBlock(t *testing.T, typ events.Type) string {
	t.Helper()
	data, err := json.Marshal(events.Sample(typ, time.Unix(1786200000, 0)))
	if err != nil {
		t.Fatal(err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		t.Fatal(err)
	}
	text := variable.ReplaceAllString(indented.String(), "${1}…")
	return "```json\n" + text + "\n```\n"
}

func TestDocsShowASampleOfEveryEvent(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(eventsDoc)
	if err != nil {
		t.Fatal(err)
	}
	text := string(doc)
	for _, typ := range events.Types {
		begin, end := "<!-- sample "+string(typ)+" -->\n", "<!-- end of sample -->\n"
		before, rest, found := strings.Cut(text, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s lacks the comments around the sample of %s", eventsDoc, typ)
		}
		text = before + begin + sampleBlock(t, typ) + end + after
		if !strings.Contains(text, "| [`"+string(typ)+"`](#") {
			t.Errorf("the table in %s lacks %s", eventsDoc, typ)
		}
	}
	if got, want := strings.Count(text, "<!-- sample "), len(events.Types); got != want {
		t.Errorf("%s has %d samples, want %d", eventsDoc, got, want)
	}
	if text == string(doc) {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date; run: go test ./internal/events -update", eventsDoc)
	}
	if err := os.WriteFile(eventsDoc, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
