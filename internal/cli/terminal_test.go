package cli

import (
	"bytes"
	"testing"
	"time"
)

func TestMomentsAreReadInEveryFormThatTheHelpNames(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", 2*3600)
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"":                          {},
		"now":                       now,
		"2h":                        now.Add(-2 * time.Hour),
		"1h30m":                     now.Add(-90 * time.Minute),
		"7d":                        now.AddDate(0, 0, -7),
		"1.5d":                      now.Add(-36 * time.Hour),
		"2w":                        now.AddDate(0, 0, -14),
		"1760000000":                time.Unix(1_760_000_000, 0),
		"2026-03-01":                time.Date(2026, 3, 1, 0, 0, 0, 0, zone),
		"2026-03-01 08:30":          time.Date(2026, 3, 1, 8, 30, 0, 0, zone),
		"2026-03-01T08:30:15":       time.Date(2026, 3, 1, 8, 30, 15, 0, zone),
		"2026-03-01T08:30:15Z":      time.Date(2026, 3, 1, 8, 30, 15, 0, time.UTC),
		"2026-03-01T08:30:15+05:30": time.Date(2026, 3, 1, 3, 0, 15, 0, time.UTC),
	} {
		if got, err := parseMoment(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	// A bare small number could be anything, so it is nothing.
	for _, text := range []string{"yesterday", "2", "-2h", "-1d", "NaNd", "Infw", "1e300d", "2026-13-01", "d", " "} {
		if got, err := parseMoment(text, now); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

func TestWhatStrangersSentCannotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain\n\ttext, größer ✓": "plain\n\ttext, größer ✓",
		"\x1b[2J\x07gone\r":       "\uFFFD[2J\uFFFDgone\uFFFD",
		"\u009b2J \u202eabc":      "\uFFFD2J \uFFFDabc",
		"\xff\xfe":                "\uFFFD\uFFFD",
	} {
		if got := visible(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

func TestNoCellOfATableSteersTheTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	e := &env{out: &out}
	name := "\u009b31mRED\u202eoff\x1b[2J\nkey_2\tactive"
	if err := e.table("ID\tNAME\tNUMBER", [][]any{{"key_1", name, 3}}); err != nil {
		t.Fatal(err)
	}
	want := "ID     NAME                          NUMBER\n" +
		"key_1  \uFFFD31mRED\uFFFDoff\uFFFD[2J key_2 active  3\n"
	if out.String() != want {
		t.Errorf("got\n%q, want\n%q", out.String(), want)
	}
}

func TestSpansAndNumbersReadWell(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 45 * time.Second: "45s", 200 * time.Second: "3m20s", 125 * time.Minute: "2h05m", 76 * time.Hour: "3d4h",
	} {
		if got := span(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 12345678: "12,345,678", -1234: "-1,234", -123: "-123"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
