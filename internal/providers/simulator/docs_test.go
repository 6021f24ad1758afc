package simulator

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestDocsNameEveryErrorAndMagicInput(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/reference/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	docs := string(text)
	for status, code := range errorCodes {
		if row := fmt.Sprintf("| %d | `%s`", status, code); !strings.Contains(docs, row) {
			t.Errorf("the docs lack %q", row)
		}
	}
	for _, name := range []string{"error", "delay", "chunk_delay", "length", "text", "tool", "finish", "refusal", "cut", "script", "tool_result", "fail", "flag"} {
		if !strings.Contains(docs, "| `[[sim:"+name) {
			t.Errorf("the docs lack [[sim:%s]]", name)
		}
	}
	for _, step := range []string{"tool:NAME", "tool:NAME{…}", "unknown:NAME", "broken:NAME", "text:…", "answer", "invalid", "refusal", "error:503"} {
		if !strings.Contains(docs, "| `"+step+"` |") {
			t.Errorf("the docs lack the step %s", step)
		}
	}
	for code := range failures {
		if !strings.Contains(docs, "| `"+string(code)+"` |") {
			t.Errorf("the docs lack the failure %s", code)
		}
	}
}
