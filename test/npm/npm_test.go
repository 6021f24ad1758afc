package npm

import (
	"flag"
	"os"
	"regexp"
	"testing"
)

var update = flag.Bool("update", false, "write the versions to docs/reference/clients.md")

const page = "../../docs/reference/clients.md"

// row matches the beginning of a row with a client and its version.
var row = regexp.MustCompile("(?m)^(\\| `([^`]+)`[^|]*\\| )([0-9][^ |]*)( \\|)")

// goClients are the modules of clients in Go, with the file that has their version.
var goClients = map[string][2]string{
	"go-openai":        {"../sdk/goclients/go.mod", "github.com/sashabaranov/go-openai"},
	"openai-go":        {"../../go.mod", "github.com/openai/openai-go/v3"},
	"anthropic-sdk-go": {"../sdk/goclients/go.mod", "github.com/anthropics/anthropic-sdk-go/v2"},
}

func TestClientsPageHasTheTestedVersions(t *testing.T) {
	t.Parallel()
	versions, err := Versions()
	if err != nil {
		t.Fatal(err)
	}
	tested := func(client string) string {
		module, ok := goClients[client]
		if !ok {
			return versions[client]
		}
		text, err := os.ReadFile(module[0])
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(regexp.QuoteMeta(module[1]) + ` v(\S+)`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("%s has no version of %s", module[0], module[1])
		}
		return string(m[1])
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	current := row.ReplaceAllStringFunc(string(text), func(found string) string {
		rows++
		m := row.FindStringSubmatch(found)
		version := tested(m[2])
		if version == "" {
			t.Errorf("the page has %s, which isn't in package.json", m[2])
		}
		return m[1] + version + m[4]
	})
	if rows == 0 {
		t.Error("the page has no versions")
	}
	if current == string(text) {
		return
	}
	if !*update {
		t.Fatal("docs/reference/clients.md has other versions than the tests; run make clients-update, or go test ./test/npm -update")
	}
	if err := os.WriteFile(page, []byte(current), 0o644); err != nil {
		t.Fatal(err)
	}
}
