package o200k

import (
	"strings"
	"testing"

	"turnpike/test/fakes/cputime"
)

// The tokenizer module's splitter takes four times as long for twice the text.
func TestTimeGrowsLinearlyWithTheText(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"a", " ", "\r\n  ", "\n ", "!", "日A", "Aa'", "\u0301", "\xff"} {
		part := strings.Repeat(unit, 1<<14/len(unit))
		cputime.WantLinear(t, part, 16, func(text string) { Count(text) })
	}
}
