package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestParseTime(t *testing.T) {
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
		if got, err := parseTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("parseTime(%q): got %v, %v; want %v", text, got, err, want)
		}
	}
	// A small number is ambiguous.
	for _, text := range []string{"yesterday", "2", "-2h", "-1d", "NaNd", "Infw", "1e300d", "2026-13-01", "d", " "} {
		if got, err := parseTime(text, now); err == nil {
			t.Errorf("parseTime(%q): got %v, want an error", text, got)
		}
	}
}

func TestVisibleReplacesControlCharacters(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain\n\ttext, größer ✓": "plain\n\ttext, größer ✓",
		"\x1b[2J\x07gone\r":       "\uFFFD[2J\uFFFDgone\uFFFD",
		"\u009b2J \u202eabc":      "\uFFFD2J \uFFFDabc",
		"\xff\xfe":                "\uFFFD\uFFFD",
	} {
		if got := visible(text); got != want {
			t.Errorf("visible(%q): got %q, want %q", text, got, want)
		}
	}
}

func TestTableCellsCannotControlTheTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	row := map[string]any{"id": "key_1", "name": "\u009b31mRED\u202eoff\x1b[2J\nkey_2\tactive", "number": 3}
	if err := printObjects(&env{out: &out}, []map[string]any{row}, "ID\tNAME\tNUMBER", "{{.id}}\t{{.name}}\t{{.number}}"); err != nil {
		t.Fatal(err)
	}
	want := "ID     NAME                          NUMBER\n" +
		"key_1  \uFFFD31mRED\uFFFDoff\uFFFD[2J key_2 active  3\n"
	if out.String() != want {
		t.Errorf("got\n%q, want\n%q", out.String(), want)
	}
}

func TestForeignTextStaysIndented(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o, err := decode([]byte(`{"id":"appr_1","call_id":"c","tool":"t","arguments":"{\n\"a\":\n\u001b[2J1}"}`))
	if err == nil {
		err = (&env{out: &out}).render(&out, o, "approval")
	}
	if want := "Arguments  {\n           \"a\":\n           \uFFFD[2J1}\n"; err != nil || !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %q, %v, want the end to be %q", out.String(), err, want)
	}
}

func TestOnlyYesConfirms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"y\n": true, "YES\n": true, " y": true, "\n": false, "": false, "n\n": false, "yeah\n": false} {
		var out bytes.Buffer
		e := &env{in: strings.NewReader(text), err: &out}
		if got := e.confirmed(t.Context(), "approve? [y/N] "); got != want || !strings.Contains(out.String(), "[y/N]") {
			t.Errorf("answer %q: got %v, want %v; printed %q", text, got, want, out.String())
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	never, _ := io.Pipe()
	if (&env{in: never, err: io.Discard}).confirmed(canceled, "?") {
		t.Error("a canceled question was confirmed")
	}
}

func TestProgressWithoutATerminalPrintsALineEveryFewSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, "Replaying", 2000)
		for n := range int64(121) {
			p.Set(10 * n)
			time.Sleep(100 * time.Millisecond)
		}
		p.Done()
		const want = "Replaying: 500/2,000 (25%)\nReplaying: 1,000/2,000 (50%)\n"
		if out.String() != want {
			t.Errorf("got\n%s, want\n%s", out.String(), want)
		}
	})
}

func TestFormatDurationAndNumbers(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 45 * time.Second: "45s", 200 * time.Second: "3m20s", 125 * time.Minute: "2h05m", 76 * time.Hour: "3d4h",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("formatDuration(%v): got %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 12345678: "12,345,678", -1234: "-1,234", -123: "-123"} {
		if got := grouped(n); got != want {
			t.Errorf("grouped(%d): got %q, want %q", n, got, want)
		}
	}
}
