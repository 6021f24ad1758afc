package app

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

const metricsDoc = "../../docs/reference/metrics.md"

// TestDocsListEveryMetric compares the tables in docs/reference/metrics.md with the names in the source.
func TestDocsListEveryMetric(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(metricsDoc)
	if err != nil {
		t.Fatal(err)
	}
	name := `((?:turnpike_[a-z]+_|gen_ai\.(?:client|server)\.)[a-z_.]+)`
	var got, want []string
	for _, m := range regexp.MustCompile("(?m)^\\| `"+name+"` ").FindAllStringSubmatch(string(doc), -1) {
		got = append(got, m[1])
	}
	inSource := regexp.MustCompile(`"` + name + `"`)
	err = fs.WalkDir(os.DirFS(".."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile("../" + path)
		for _, m := range inSource.FindAllSubmatch(source, -1) {
			want = append(want, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s has these metrics:\n%v\nand the code these:\n%v", metricsDoc, got, want)
	}
}

func TestDocsListTheLabelsOfMetrics(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(metricsDoc)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := newTelemetry(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	descriptions := make(chan *prometheus.Desc, 100)
	calls.Describe(descriptions)
	close(descriptions)
	for d := range descriptions {
		m := regexp.MustCompile(`fqName: "(.*?)".*variableLabels: \{(.*?)\}`).FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("unexpected form of %s", d)
		}
		labels := "`" + strings.ReplaceAll(m[2], ",", "`, `") + "`"
		row := regexp.MustCompile("(?m)^\\| `" + m[1] + "` \\| [a-z]+ \\| " + labels + " \\|")
		if !row.Match(doc) {
			t.Errorf("%s lacks the labels %s of %s", metricsDoc, labels, m[1])
		}
	}
}
