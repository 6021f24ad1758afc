package receivers_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "copy the receivers into the documentation")

const page = "../../docs/guides/verify-webhooks.md"

// block matches a receiver on the page: its file name and its code fence.
var block = regexp.MustCompile("(?s)(<!-- (testdata/[a-z./]+) -->\n```[a-z]+ title=\"[a-z.]+\"\n)(.*?)(```\n)")

// TestGuideShowsTestedReceivers checks that the guide shows the tested code. go test
// ./test/receivers -update rewrites the page.
func TestGuideShowsTestedReceivers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	fresh := block.ReplaceAllStringFunc(string(text), func(old string) string {
		part := block.FindStringSubmatch(old)
		source, err := os.ReadFile(part[2])
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), "```") {
			t.Fatalf("%s would end its own block", part[2])
		}
		found[part[2]] = true
		if part[3] != string(source) && !*update {
			t.Errorf("%s differs from the page; run go test ./test/receivers -update", part[2])
		}
		return part[1] + string(source) + part[4]
	})
	for _, want := range []string{"testdata/go/receiver.go", "testdata/receiver.mts", "testdata/receiver.py", "testdata/receiver.rb"} {
		if !found[want] {
			t.Errorf("the page doesn't show %s", want)
		}
	}
	if *update && fresh != string(text) {
		if err := os.WriteFile(page, []byte(fresh), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
