package o200k

import (
	"slices"
	"strings"
	"testing"

	"github.com/dlclark/regexp2/v2"
	"github.com/tiktoken-go/tokenizer/codec"
	"pgregory.net/rapid"
)

// pattern is the encoding's own. The group around it keeps regexp2 from using
// the code that the tokenizer module generated for the bare pattern.
const pattern = `(?:[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)`

var reference = regexp2.MustCompile(pattern, regexp2.None)

func split(text string) (pieces []string) {
	for len(text) > 0 {
		n := nextPiece(text)
		pieces = append(pieces, text[:n])
		text = text[n:]
	}
	return pieces
}

func splitByPattern(t interface{ Fatal(...any) }, text string) (pieces []string) {
	m, err := reference.FindStringMatch(text)
	for ; m != nil && err == nil; m, err = reference.FindNextMatch(m) {
		pieces = append(pieces, m.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	return pieces
}

func tokens(text string) (tokens []string) {
	start := 0
	for end := range Ends(text) {
		tokens = append(tokens, text[start:end])
		start = end
	}
	return tokens
}

// awkward are characters at the boundaries of the pattern's alternatives.
var awkward = rapid.SampledFrom([]string{
	"a", "b", "Z", "Q", "s", "S", "t", "re", "VE", "ll", "d", "'", "ſ", "1", "22", "٣", "Ⅷ", "½",
	" ", "  ", "\t", "\n", "\r", "\r\n", "\u00a0", "\u2028", "\u3000", ".", "!", "/", "//", "_", "-", "é", "É",
	"ǅ", "ʰ", "日", "本", "ש", "\u0301", "\u0903", "😀", "👩‍🚀", "<|", "|>", "{", "\"",
})

func awkwardText() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(awkward, 0, 24).Draw(t, "parts"), "")
	})
}

func TestSplitFollowsThePattern(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(awkwardText(), rapid.String()).Draw(t, "text")
		if got, want := split(text), splitByPattern(t, text); !slices.Equal(got, want) {
			t.Fatalf("pieces of %q:\n got %q\nwant %q", text, got, want)
		}
	})
}

// mergeNaively implements the definition of byte-pair encoding: it joins the
// first pair of lowest rank until none is left.
func mergeNaively(piece string) []string {
	table := load()
	if table.rank(piece) != noRank {
		return []string{piece}
	}
	parts := make([]string, len(piece))
	for i := range parts {
		parts[i] = piece[i : i+1]
	}
	for {
		best, at := noRank, 0
		for i := range len(parts) - 1 {
			if rank := table.rank(parts[i] + parts[i+1]); rank < best {
				best, at = rank, i
			}
		}
		if best == noRank {
			return parts
		}
		parts = slices.Replace(parts, at, at+2, parts[at]+parts[at+1])
	}
}

func TestTokensFollowTheDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(awkwardText(), rapid.StringMatching(`[a-z]{1,120}`), rapid.StringMatching(`(ab|ba|a){1,60}`), rapid.String()).Draw(t, "text")
		var want []string
		for _, piece := range splitByPattern(t, text) {
			want = append(want, mergeNaively(piece)...)
		}
		if got := tokens(text); !slices.Equal(got, want) {
			t.Fatalf("tokens of %q:\n got %q\nwant %q", text, got, want)
		}
	})
}

func TestVocabularyIsTheTokenizerModules(t *testing.T) {
	t.Parallel()
	module := codec.NewO200kBase()
	if n := len(load().starts); n != tokenCount {
		t.Fatalf("%d tokens, want %d", n, tokenCount)
	}
	for rank := range uint(tokenCount) {
		want, err := module.Decode([]uint{rank})
		if err != nil {
			t.Fatal(err)
		}
		if got := load().token(uint32(rank)); got != want || load().rank(want) != uint32(rank) {
			t.Fatalf("token %d is %q with rank %d, want %q", rank, got, load().rank(want), want)
		}
	}
	if _, err := module.Decode([]uint{tokenCount}); err == nil {
		t.Error("the module has more tokens")
	}
}

func TestOrdinaryTextCountsAsTheTokenizerModuleDoes(t *testing.T) {
	t.Parallel()
	module := codec.NewO200kBase()
	for _, text := range []string{
		"The quick brown fox jumps over the lazy dog, doesn't it? It'll cost $1,234.56.",
		"Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
		"func main() {\n\tfmt.Println(\"hello, 世界\")\n}\n",
		"いろはにほへと ちりぬるを 👩‍🚀 naïve café",
		`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`,
	} {
		want, err := module.Count(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Count(text); got != want {
			t.Errorf("Count(%q) = %d, the module counts %d", text, got, want)
		}
	}
}

func TestVeryLongWordIsCountedInParts(t *testing.T) {
	t.Parallel()
	part := strings.Repeat("qx", maxMerge/2)
	if got, want := Count(part+part), 2*Count(part); got != want {
		t.Errorf("two parts count %d, want %d", got, want)
	}
}

// The counts are from OpenAI's tiktoken for o200k_base.
func TestCountsMatchTiktoken(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"":                             0,
		"hello world":                  2,
		"tiktoken is great!":           6,
		"antidisestablishmentarianism": 6,
		"2 + 2 = 4":                    7,
		"お誕生日おめでとう":                    8,
	} {
		if got := Count(text); got != want {
			t.Errorf("Count(%q) = %d, want %d (%q)", text, got, want, tokens(text))
		}
	}
}

func TestTokensJoinToTheText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) // not always UTF-8
		if got := strings.Join(tokens(text), ""); got != text {
			t.Fatalf("tokens of %q join to %q", text, got)
		}
	})
}

func BenchmarkCount(b *testing.B) {
	for name, text := range map[string]string{
		"english": "Say hello in one short sentence, please. Then tell me about the weather of the last few days.",
		"rare":    "Zwölfboxkämpfer Qxzvkjhgf Simulated",
		"chinese": "请用一句话打个招呼，然后告诉我最近几天的天气。",
	} {
		b.Run(name, func(b *testing.B) {
			Count(text)
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				Count(text)
			}
		})
	}
}
