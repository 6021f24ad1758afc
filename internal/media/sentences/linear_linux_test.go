package sentences_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"turnpike/internal/media/sentences"
	"turnpike/test/fakes/cputime"
)

func TestTimeGrowsLinearlyWithTheText(t *testing.T) {
	t.Parallel()
	for _, unit := range awkward {
		part := strings.Repeat(unit, 50_000/utf8.RuneCountInString(unit))
		cputime.WantLinear(t, part, 10, func(text string) { sentences.Split(text, 4000) })
	}
}
