package config

import (
	"flag"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table in docs/configuration.md")

const (
	docFile          = "../../docs/configuration.md"
	providersDocFile = "../../docs/providers.md"
)

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
		variables := []string{s.env()}
		if s.alias != "" {
			variables = append(variables, s.alias)
		}
		if s.isSecret() {
			variables = append(variables, s.env()+fileSuffix)
		}
		option := "none"
		if s.hasFlag() {
			option = "`--" + s.flag() + "`"
		}
		b.WriteString("| `" + s.name + "` | `" + strings.Join(variables, "`, `") + "` | " + option + " | " + preset + " | " + meaning + " |\n")
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
	environ := []string{"TURNPIKE_MASTER_KEY=" + testMasterKey, "OPENAI_API_KEY=k", "GROQ_API_KEY=k", "AZURE_OPENAI_KEY=k"}
	for _, file := range []string{docFile, providersDocFile} {
		doc, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
		if len(examples) == 0 {
			t.Errorf("no examples found in %s", file)
		}
		for _, example := range examples {
			l, err := load(t, example[1], environ, nil)
			if err == nil {
				err = l.Validate()
			}
			if err != nil {
				t.Errorf("%s: %v in\n%s", file, err, example[1])
			}
		}
	}
}

// Every key of the file's lists is explained.
func TestDocsListEveryKeyOfAProvider(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(providersDocFile)
	if err != nil {
		t.Fatal(err)
	}
	keys := append(recordKeys(reflect.TypeFor[Provider]()), recordKeys(reflect.TypeFor[ProviderModel]())...)
	keys = append(append(keys, recordKeys(reflect.TypeFor[ModelPrice]())...), capabilityNames...)
	for _, key := range keys {
		if !strings.Contains(string(doc), "`"+key+"`") {
			t.Errorf("%s lacks `%s`", providersDocFile, key)
		}
	}
}
