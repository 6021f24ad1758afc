package config

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table in docs/configuration.md")

const docFile = "../../docs/configuration.md"

// docTable is what the tags say, as Markdown.
func docTable() string {
	var b strings.Builder
	b.WriteString("| Setting | Environment | Flag | Default | Meaning |\n|---|---|---|---|---|\n")
	c := Default()
	for _, s := range c.settings() {
		preset := "none"
		if s.preset != "" {
			preset = "`" + s.preset + "`"
		}
		meaning := s.help
		if s.min != "" {
			meaning += " From " + s.min + " to " + s.max + "."
		}
		b.WriteString("| `" + s.name + "` | `" + s.env() + "` | `--" + s.flag() + "` | " + preset + " | " + meaning + " |\n")
	}
	return b.String()
}

func TestDocsListEverySetting(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- settings: made by go test ./internal/config -update -->\n", "<!-- end of settings -->\n"
	doc, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has lost the comments around its table", docFile)
	}
	if table == docTable() {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date; run: go test ./internal/config -update", docFile)
	}
	if err := os.WriteFile(docFile, []byte(before+begin+docTable()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestExamplesInDocsWork(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	if len(examples) == 0 {
		t.Fatal("no examples found")
	}
	for _, example := range examples {
		l, err := load(t, example[1], []string{"TURNPIKE_MASTER_KEY=" + testMasterKey}, nil)
		if err == nil {
			err = l.Validate()
		}
		if err != nil {
			t.Errorf("%v in\n%s", err, example[1])
		}
	}
}
