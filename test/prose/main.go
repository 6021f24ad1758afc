// Prose checks the wording of everything people read, with Vale and the rules in
// .vale: docs, Go comments, messages in Go code, dashboard templates, emails and
// openapi.yaml. It fails if a kind of text has more findings per 1,000 words than
// its limit. Long sentences and the passive voice are warnings, which count toward
// no limit.
//
// Usage: prose [-v] VALE, in the root of the repository.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// kind is a kind of text. Its value is the directory of its extracted files.
type kind string

// The kinds and how many findings each may have per 1,000 words.
const (
	comments  kind = "comments"
	messages  kind = "messages"
	templates kind = "templates"
	openAPI   kind = "openapi"
	docs      kind = "docs"
)

var limits = map[kind]float64{comments: 3, messages: 3, templates: 3, openAPI: 3, docs: 3}

// finding is one of Vale's alerts.
type finding struct {
	Check, Message, Match, Severity string
	Line                            int
	path                            string
}

func (f finding) isWarning() bool { return f.Severity == "warning" }

func main() {
	verbose := flag.Bool("v", false, "print every finding and warning, also of kinds within their limit")
	flag.Parse()
	log.SetFlags(0)
	if flag.NArg() != 1 {
		log.Fatal("usage: prose [-v] VALE")
	}
	if err := run(flag.Arg(0), *verbose); err != nil {
		log.Fatal("prose: ", err)
	}
}

func run(vale string, verbose bool) error {
	dir, err := os.MkdirTemp("", "prose")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	words := map[kind]int{}
	if err := extractAll(dir, words); err != nil {
		return err
	}
	found, err := check(vale, dir)
	if err != nil {
		return err
	}
	failed := false
	for _, k := range []kind{comments, messages, templates, openAPI, docs} {
		counts := map[string]int{} // by rule
		findings := 0
		for _, f := range found[k] {
			counts[f.Check]++
			if !f.isWarning() {
				findings++
			}
		}
		rate := 1000 * float64(findings) / float64(words[k])
		fmt.Printf("%-10s %7d words, %4d findings, %5.2f per 1,000 words (limit %g); warnings: %d long sentences, %d passives\n",
			k, words[k], findings, rate, limits[k], counts["Turnpike.Length"], counts["Turnpike.Passive"])
		over := rate > limits[k]
		for _, f := range found[k] {
			if verbose || over && !f.isWarning() {
				fmt.Printf("%s:%d: %s: %s (%s)\n", f.path, f.Line, f.Severity, f.Message, f.Check)
			}
		}
		failed = failed || over
	}
	if failed {
		return errors.New("too many findings")
	}
	return nil
}

// extractAll writes the prose below the working directory to dir/KIND/PATH.md and counts
// its words. Lines keep their numbers.
func extractAll(dir string, words map[kind]int) error {
	write := func(k kind, path string, text string) error {
		words[k] += len(wordPattern.FindAllString(text, -1))
		path = filepath.Join(dir, string(k), path+".md")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, []byte(text), 0o644)
	}
	return filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != "." && (strings.HasPrefix(name, ".") || slices.Contains([]string{"bin", "testdata", "node_modules", "turnpike-data"}, name)) {
				return fs.SkipDir
			}
			return nil
		}
		switch {
		case strings.HasSuffix(name, ".go"):
			c, m, err := fromGo(path)
			if err != nil {
				return err
			}
			if err := write(comments, path, c); err != nil || strings.HasSuffix(name, "_test.go") || !strings.HasPrefix(path, "internal") {
				return err
			}
			return write(messages, path, m)
		case strings.HasSuffix(name, ".html"), strings.HasSuffix(name, ".tmpl"), strings.Contains(path, "mail/templates"):
			return extractFile(path, fromTemplate, func(text string) error { return write(templates, path, text) })
		case name == "openapi.yaml":
			return extractFile(path, fromOpenAPI, func(text string) error { return write(openAPI, path, text) })
		case strings.HasSuffix(name, ".md"):
			return extractFile(path, withoutCode, func(text string) error { return write(docs, path, text) })
		}
		return nil
	})
}

var wordPattern = regexp.MustCompile(`[A-Za-z]['A-Za-z-]+`)

func extractFile(path string, extract func([]byte) (string, error), write func(string) error) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := extract(b)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return write(text)
}

// check runs Vale on the extracted files.
func check(vale, dir string) (map[kind][]finding, error) {
	cmd := exec.Command(vale, "--config", ".vale/vale.ini", "--output", "JSON", "--no-exit", dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var alerts map[string][]finding
	if err := json.Unmarshal(out, &alerts); err != nil {
		return nil, fmt.Errorf("cannot read Vale's output: %w", err)
	}
	found := map[kind][]finding{}
	for file, list := range alerts {
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return nil, err
		}
		k, path, _ := strings.Cut(filepath.ToSlash(rel), "/")
		for _, f := range list {
			f.path = strings.TrimSuffix(path, ".md")
			found[kind(k)] = append(found[kind(k)], f)
		}
	}
	for _, list := range found {
		slices.SortFunc(list, func(a, b finding) int {
			if a.path != b.path {
				return strings.Compare(a.path, b.path)
			}
			return a.Line - b.Line
		})
	}
	return found, nil
}
