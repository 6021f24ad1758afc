package logsearch

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"turnpike/internal/ids"
)

var now = time.Date(2026, 11, 18, 14, 30, 0, 0, time.UTC)

type state string

// sample is a filter with a field of each kind.
type sample struct {
	model, key, ip, id string
	state              state
	status, took, cost Range
	period             Period
}

func (s *sample) language() *Language {
	return &Language{
		Fields: append([]Field{
			{Name: "model", Help: "gpt*", Set: Text(&s.model)},
			{Name: "status", Help: "4xx", Set: Status(&s.status)},
			{Name: "key", Help: "Shop", Set: Text(&s.key)},
			{Name: "ip", Help: "192.0.2.1", Set: Text(&s.ip)},
			{Name: "state", Help: "held", Set: OneOf(&s.state, []state{"held", "in_progress"})},
			{Name: "latency", Help: ">2s", Set: Duration(&s.took)},
			{Name: "cost", Help: ">1", Set: Credits(&s.cost)},
			{Name: "id", Help: "req_…", Set: Text(&s.id)},
		}, s.period.Fields(now)...),
		Compared: "latency",
		Word: func(word string) string {
			if ids.Valid(ids.Request, word) {
				return "id"
			}
			if _, err := netip.ParseAddr(word); err == nil {
				return "ip"
			}
			return ""
		},
	}
}

func (r Range) String() string {
	show := func(n *int64) string {
		if n == nil {
			return ""
		}
		return fmt.Sprint(*n)
	}
	return show(r.Min) + "-" + show(r.Max)
}

// String lists the fields that are set.
func (s *sample) String() string {
	var out []string
	add := func(name, value, empty string) {
		if value != empty {
			out = append(out, name+"="+value)
		}
	}
	add("model", s.model, "")
	add("key", s.key, "")
	add("ip", s.ip, "")
	add("id", s.id, "")
	add("state", string(s.state), "")
	add("status", s.status.String(), "-")
	add("took", s.took.String(), "-")
	add("cost", s.cost.String(), "-")
	add("last", s.period.Last.String(), "0s")
	if !s.period.From.IsZero() {
		add("from", s.period.From.Format(timeLayout), "")
	}
	if !s.period.Until.IsZero() {
		add("until", s.period.Until.Format(timeLayout), "")
	}
	return strings.Join(out, " ")
}

func TestSearchSetsFilters(t *testing.T) {
	t.Parallel()
	const id = "req_01h455vb4pex5vsknk084sn02q"
	for text, want := range map[string]string{
		"":                                     "",
		"  \t ":                                "",
		`model:gpt* status:4xx key:"Shop" >2s`: "model=gpt* key=Shop status=400-499 took=2000001-",
		"status:404":                           "status=404-404",
		"status=404":                           "status=404-404",
		"STATUS:5XX":                           "status=500-599",
		"status:failed":                        "status=400-",
		"status:>=500":                         "status=500-",
		"status>=400 status<500":               "status=400-499",
		"latency>1.5s latency:<=3s":            "took=1500001-3000000",
		"<300ms":                               "took=-299999",
		"cost:>0":                              "cost=1-",
		"cost:0":                               "cost=0-0",
		"cost<=0.5":                            "cost=-500000",
		`key:"My \"best\" shop \\ café"`:       `key=My "best" shop \ café`,
		"key:“My shop”":                        "key=My shop",
		`key:a"b`:                              `key=a"b`,
		"key:a:b":                              "key=a:b",
		"state:IN_PROGRESS":                    "state=in_progress",
		"192.0.2.1":                            "ip=192.0.2.1",
		"2001:db8::1":                          "ip=2001:db8::1",
		"abcd::1":                              "ip=abcd::1",
		"ip:2001:db8::1":                       "ip=2001:db8::1",
		id:                                     "id=" + id,
		"model:x " + id:                        "model=x id=" + id,
		"last:15m":                             "last=15m0s",
		"last:2W":                              "last=336h0m0s",
		"from:2026-11-01 until:2026-11-02":     "from=2026-11-01T00:00 until=2026-11-03T00:00",
		"from:2026-11-01T10:00":                "from=2026-11-01T10:00",
		"from:2026-11-01T10:00:00+02:00":       "from=2026-11-01T08:00",
		`from:"2026-11-01 10:00"`:              "from=2026-11-01T10:00",
		"from:14:02":                           "from=2026-11-18T14:02",
	} {
		s := &sample{}
		q := s.language().Parse(text)
		if got := s.String(); got != want || len(q.Mistakes) != 0 {
			t.Errorf("%s: got %s %v, want %s", text, got, q.Mistakes, want)
		}
	}
}

func TestMistakeNamesTheTermAndTheOthersCount(t *testing.T) {
	t.Parallel()
	for text, message := range map[string]string{
		"modle:gpt":          `Unknown field "modle". Known fields: model, status, key, ip, state, latency, cost, id, last, from, until.`,
		"hello":              `Name a field for "hello". Known fields: model, `,
		`"two words"`:        `Name a field for "two words".`,
		":x":                 "Name a field for",
		"model:":             "Enter a value for model, such as gpt*.",
		`model:""`:           "Enter a value for model",
		"model:>x":           "can't be compared",
		`model:"open`:        "Close the quotation marks.",
		`model:"a"b`:         `Put a space between the closing quotation mark and "b".`,
		"status:99":          "Enter a status such as 404, 4xx, >=500 or failed.",
		"status:6xx":         "Enter a status",
		"status:ok":          "Enter a status",
		"state:done":         `Unknown value "done". Known values: held, in_progress.`,
		"latency:2s":         "Compare the duration",
		">2":                 "Enter a duration with a unit",
		">-2s":               "Enter a duration of up to 24h.",
		">100h":              "Enter a duration of up to 24h.",
		"cost:free":          "Enter a number of credits",
		"last:yesterday":     "Enter a range such as 15m",
		"last:0h":            "Enter a range of up to ten years.",
		"last:999999w":       "Enter a range of up to ten years.",
		"from:yesterday":     "Enter a time in UTC such as",
		"from:1900-01-01":    "Enter a time after 1970.",
		"until:2026-11-18T1": "Enter a time in UTC such as",
	} {
		s := &sample{}
		q := s.language().Parse("ip:192.0.2.9 " + text)
		if s.String() != "ip=192.0.2.9" || len(q.Mistakes) != 1 || q.Mistakes[0].Term != text || !strings.Contains(q.Mistakes[0].Message, message) {
			t.Errorf("%s: got %s %v, want %q", text, s, q.Mistakes, message)
		}
	}
	for text, want := range map[string]string{
		"model:a model:b":                   "model=a",
		"status:404 status:5xx":             "status=404-404",
		"latency:>1s latency:>2s":           "took=1000001-",
		"last:1h from:2026-11-01":           "last=1h0m0s",
		"until:2026-11-01 last:1h":          "until=2026-11-02T00:00",
		"from:2026-11-02 until:2026-11-01":  "from=2026-11-02T00:00",
		"until:2026-11-01 from:2026-11-02":  "until=2026-11-02T00:00",
		"from:14:02 until:14:02 status:404": "status=404-404 from=2026-11-18T14:02",
	} {
		s := &sample{}
		if q := s.language().Parse(text); s.String() != want || len(q.Mistakes) != 1 {
			t.Errorf("%s: got %s %v, want %s and a mistake", text, s, q.Mistakes, want)
		}
	}
}

func TestTermsAreReplaced(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text  string
		terms []Term
		want  string
	}{
		{"", []Term{Of("model", "gpt")}, "model:gpt"},
		{"model:a >2s", []Term{Of("model", "My model")}, `model:"My model" >2s`},
		{"model:a >2s <5s nonsense status:x", []Term{Of("latency", ">1s")}, "model:a latency:>1s nonsense status:x"},
		{"model:a >2s", []Term{Of("latency", ""), Of("model", "")}, ""},
		{"status:x model:a", []Term{Of("status", "404"), Of("key", "b")}, "status:404 model:a key:b"},
		{"last:1h ip:x", []Term{Of("last", ""), Of("from", "14:02"), Of("until", "14:03")}, "ip:x from:14:02 until:14:03"},
	} {
		s := &sample{}
		if got := s.language().Parse(c.text).With(c.terms...); got != c.want {
			t.Errorf("%s with %v: got %s, want %s", c.text, c.terms, got, c.want)
		}
	}
	q := (&sample{}).language().Parse("model:a >2s status:x")
	if q.Value("model") != "a" || q.Value("latency") != ">2s" || q.Value("status") != "" || q.Has("status") || !q.Has("latency") {
		t.Errorf("got %+v", q)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{`model:gpt* status:4xx key:"Shop" >2s`, `key:"a \"b`, "from:14:02 until:2026-11-18", "last:1h abcd::1", "key:“x” ”", "cost<=0.5 cost>0", "\xff:\xff \"\\\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := &sample{}
		q := s.language().Parse(text)
		for _, m := range q.Mistakes {
			if m.Term == "" || m.Message == "" || !strings.Contains(printable(text), m.Term) {
				t.Errorf("mistake %+v is not about a term", m)
			}
		}
		again := &sample{}
		if q2 := again.language().Parse(q.String()); q2.String() != q.String() || again.String() != s.String() || len(q2.Mistakes) != len(q.Mistakes) {
			t.Errorf("%q becomes %q: %s, want %s", text, q2, again, s)
		}
		// Terms are read as they are written.
		var written []string
		for _, term := range q.Terms {
			written = append(written, term.String())
		}
		third := &sample{}
		if q3 := third.language().Parse(strings.Join(written, " ")); third.String() != s.String() || len(q3.Mistakes) != 0 {
			t.Errorf("%q written as %q: %s %v, want %s", text, written, third, q3.Mistakes, s)
		}
		for _, term := range q.Terms {
			without := (&sample{}).language().Parse(q.With(Term{Field: term.Field}))
			if without.Has(term.Field) {
				t.Errorf("%q still has %s: %q", text, term.Field, without)
			}
		}
	})
}
