package sentences_test

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"pgregory.net/rapid"

	"turnpike/internal/media/sentences"
)

func TestTextIsSplitWhereAReaderPauses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text  string
		limit int
		want  []string
	}{
		"nothing":                     {"", 10, nil},
		"white space":                 {" \n\t \u2029 ", 10, nil},
		"it fits":                     {"  One. Two. ", 20, []string{"One. Two."}},
		"sentences":                   {"One is here. Two is there! Is three? Yes…", 15, []string{"One is here.", "Two is there!", "Is three? Yes…"}},
		"joined as far as they fit":   {"A b c. D e f. G h i.", 13, []string{"A b c. D e f.", "G h i."}},
		"closing quotes":              {`He said "Go away." Then he left.`, 20, []string{`He said "Go away."`, "Then he left."}},
		"a question inside":           {`"Is it you?" she asked. Nobody answered her.`, 30, []string{`"Is it you?" she asked.`, "Nobody answered her."}},
		"a title":                     {"I saw Dr. Smith. He was fine.", 18, []string{"I saw Dr. Smith.", "He was fine."}},
		"letters":                     {"Pets, e.g. Cats, purr. Dogs do not.", 25, []string{"Pets, e.g. Cats, purr.", "Dogs do not."}},
		"initials":                    {"By J. R. R. Tolkien. It is long.", 22, []string{"By J. R. R. Tolkien.", "It is long."}},
		"I ends one":                  {"So do I. They do not.", 14, []string{"So do I.", "They do not."}},
		"a decimal":                   {"Pi is 3.14 or so. E is 2.72 or so.", 18, []string{"Pi is 3.14 or so.", "E is 2.72 or so."}},
		"a number":                    {"See No. 5 there. No. It is gone.", 20, []string{"See No. 5 there. No.", "It is gone."}},
		"small letters go on":         {"Apples etc. are sold here. Pears too.", 27, []string{"Apples etc. are sold here.", "Pears too."}},
		"paragraphs":                  {"A heading\n\nThe text begins", 20, []string{"A heading", "The text begins"}},
		"windows paragraphs":          {"A heading\r\n\r\nThe text begins", 20, []string{"A heading", "The text begins"}},
		"a line's end is weaker":      {"one two\nthree. Four five", 15, []string{"one two\nthree.", "Four five"}},
		"clauses":                     {"when it rains, it pours; so we stay", 16, []string{"when it rains,", "it pours;", "so we stay"}},
		"words":                       {"one two three four five", 9, []string{"one two", "three", "four five"}},
		"a word":                      {"abcdefghij kl", 4, []string{"abcd", "efgh", "ij", "kl"}},
		"a head joins what is before": {"Yes. One, two three four five.", 12, []string{"Yes. One,", "two three", "four five."}},
		"Chinese":                     {"今天天气很好。我们去公园吧！你来吗？", 8, []string{"今天天气很好。", "我们去公园吧！", "你来吗？"}},
		"Chinese clauses":             {"今天天气很好，我们去公园吧", 8, []string{"今天天气很好，", "我们去公园吧"}},
		"Japanese quotes":             {"「行こう。」と彼は言った。はい。", 13, []string{"「行こう。」と彼は言った。", "はい。"}},
		"Arabic":                      {"هل أنت هنا؟ نعم أنا هنا.", 14, []string{"هل أنت هنا؟", "نعم أنا هنا."}},
		"Hebrew":                      {"שלום לכולם. מה שלומכם?", 13, []string{"שלום לכולם.", "מה שלומכם?"}},
		"Urdu":                        {"یہ پہلا ہے۔ یہ دوسرا ہے۔", 14, []string{"یہ پہلا ہے۔", "یہ دوسرا ہے۔"}},
		"Hindi":                       {"यह पहला है। यह दूसरा है।", 13, []string{"यह पहला है।", "यह दूसरा है।"}},
		"families stay together":      {"👨‍👩‍👧‍👦👨‍👩‍👧‍👦", 10, []string{"👨‍👩‍👧‍👦", "👨‍👩‍👧‍👦"}},
		"flags stay whole":            {"🇩🇪🇫🇷🇯🇵", 3, []string{"🇩🇪", "🇫🇷", "🇯🇵"}},
		"skin tones stay":             {"👍🏽👍🏽", 3, []string{"👍🏽", "👍🏽"}},
		"marks stay":                  {"e\u0301e\u0301e\u0301", 3, []string{"e\u0301", "e\u0301", "e\u0301"}},
		"more marks than fit":         {"e\u0301\u0302\u0303", 2, []string{"e\u0301", "\u0302\u0303"}},
		"a lowest max":                {"ab", 0, []string{"a", "b"}},
	} {
		got := sentences.Split(c.text, c.limit)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// check holds for every text.
func check(t interface{ Errorf(string, ...any) }, text string, limit int) {
	pieces := sentences.Split(text, limit)
	cuts := clusterStarts(text)
	at, last := 0, -1
	for i, piece := range pieces {
		if n := utf8.RuneCountInString(piece); n > limit || n == 0 {
			t.Errorf("piece %d: got %d characters, want 1 to %d", i, n, limit)
		}
		for !strings.HasPrefix(text[at:], piece) {
			c, size := utf8.DecodeRuneInString(text[at:])
			if !unicode.IsSpace(c) {
				t.Errorf("%q is lost before piece %d of %q", c, i, text)
				return
			}
			at += size
		}
		end := at + len(piece)
		if !cuts[at] && !longCluster(text, cuts, at, limit) || !cuts[end] && !longCluster(text, cuts, end, limit) {
			t.Errorf("piece %d of %q, %q, cuts through a character", i, text, piece)
		}
		// A word is cut only if it has no other place.
		if w := wordAround(text, cuts, at); at == last && cuts[at] && utf8.RuneCountInString(w) <= limit && !strings.ContainsAny(w, "。！？｡，、；：､—") {
			t.Errorf("the word %q of %q was cut", w, text)
		}
		last = end
		at = end
	}
	if strings.TrimSpace(text[at:]) != "" {
		t.Errorf("%q is lost at the end of %q", text[at:], text)
	}
	for i := 1; i < len(pieces); i++ {
		if pieces[i-1] == "" || pieces[i] == "" {
			t.Errorf("piece %d of %q is empty", i, text)
		}
	}
}

// wordAround returns the text around an offset between white space. A space with
// a mark doesn't count: it is visible.
func wordAround(text string, cuts map[int]bool, at int) string {
	start, end := 0, len(text)
	for i, c := range text {
		if after := i + utf8.RuneLen(c); unicode.IsSpace(c) && cuts[i] && (cuts[after] || c == '\r') {
			if i < at {
				start = after
			} else {
				end = i
				break
			}
		}
	}
	return text[start:end]
}

func clusterStarts(text string) map[int]bool {
	starts := map[int]bool{0: true, len(text): true}
	at, state := 0, -1
	for rest := text; rest != ""; {
		var cluster string
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		at += len(cluster)
		starts[at] = true
	}
	return starts
}

// longCluster reports whether a cut is inside a character of more than limit
// code points.
func longCluster(text string, cuts map[int]bool, at, limit int) bool {
	from, to := at, at
	for !cuts[from] {
		from--
	}
	for !cuts[to] {
		to++
	}
	return utf8.RuneCountInString(text[from:to]) > limit
}

var alphabet = []rune("abcABC.!?…,;: \n\r\t\"'()”“。！，、—ًا؟۔।é\u0301\u200d\ufe0f👨👩👍🏽🇩🇪\u0600각ᄀ\u2029가क्ष\u0e33")

func TestNoTextIsLostAndNoClusterIsSplit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.StringOf(rapid.SampledFrom(alphabet)), rapid.String()).Draw(t, "text")
		check(t, text, rapid.IntRange(1, 20).Draw(t, "limit"))
	})
}

func FuzzSplit(f *testing.F) {
	f.Add("One. Two, three! «Quatre.» 五。👨‍👩‍👧‍👦 e\u0301", 5)
	f.Add("\xff\xfe. \xe2\x80", 2)
	f.Add("\r\n\r\n. a.b. e.g. Dr. x", 3)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		if limit < 1 || len(text) > 10_000 {
			t.Skip()
		}
		check(t, text, limit)
	})
}

// awkward texts have no places to split, or nothing else.
var awkward = map[string]string{
	"one word": "a", "spaces": " ", "stops": ".", "stops and spaces": ". ", "quotes": `"`, "ideographs": "語", "full stops": "。", "flags": "🇩🇪", "marks": "\u0301",
	"sentences": "The quick brown fox jumps. ", "newlines": "\n", "dashes": "—",
}

func BenchmarkSplitMillion(b *testing.B) {
	for _, name := range []string{"one word", "ideographs", "flags", "sentences"} {
		unit := awkward[name]
		text := strings.Repeat(unit, 1_000_000/utf8.RuneCountInString(unit))
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				sentences.Split(text, 4000)
			}
		})
	}
}
