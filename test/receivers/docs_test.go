package receivers_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the receivers' sources into the documentation")

const page = "../../docs/receiving-webhooks.md"

// block is a source in the page: its file's name, and the fence that holds it.
var block = regexp.MustCompile("(?s)(<!-- (testdata/[a-z./]+) -->\n```[a-z]+\n)(.*?)(```\n)")

// TestDocumentationShowsTheReceiversThatAreTested: what a reader copies is what
// was tried. After a change, go test ./test/receivers -update mends the page.
func TestDocumentationShowsTheReceiversThatAreTested(t *testing.T) {
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
			t.Errorf("the page does not show %s as it is; go test ./test/receivers -update mends it", part[2])
		}
		return part[1] + string(source) + part[4]
	})
	for _, want := range []string{"testdata/go/receiver.go", "testdata/receiver.mts", "testdata/receiver.py", "testdata/receiver.rb"} {
		if !found[want] {
			t.Errorf("the page does not show %s", want)
		}
	}
	if *update && fresh != string(text) {
		if err := os.WriteFile(page, []byte(fresh), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
