package cli

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// screen is as much of a terminal as the bar needs: one line of text that
// wraps at the window's width, also when that changes.
type screen struct {
	t      *testing.T
	width  int
	text   string // from where the bar began
	row    int    // of the cursor, below that place
	writes int
}

var escape = regexp.MustCompile(`^\x1b\[(\d*)([AJ])`)

func (s *screen) Write(b []byte) (int, error) {
	s.writes++
	for rest := string(b); rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		switch m := escape.FindStringSubmatch(rest); {
		case m != nil && m[2] == "A":
			up := 0
			fmt.Sscan(m[1], &up)
			s.row -= up
			size = len(m[0])
		case m != nil:
			if s.row != 0 {
				s.t.Errorf("%d rows of the bar stay, at a width of %d: %q", s.row, s.width, s.text)
			}
			s.text, size = "", len(m[0])
		case r == '\r':
		default:
			s.text += string(r)
			s.settle()
		}
		rest = rest[size:]
	}
	return len(b), nil
}

func (s *screen) settle() {
	s.row = max(0, utf8.RuneCountInString(s.text)-1) / s.width
}

func (s *screen) resize(width int) {
	s.width = width
	s.settle()
}

// onTerminal makes a progress on a terminal whose clock the test moves.
func onTerminal(t *testing.T, width int, total int64) (p *progress, s *screen, now *time.Time) {
	s = &screen{t: t, width: width}
	clock := time.Unix(1_760_000_000, 0)
	p = &progress{out: s, label: "Replaying", total: total, now: func() time.Time { return clock }, width: func() int { return s.width }}
	p.begin()
	return p, s, &clock
}

func TestProgressShowsHowFarHowFastAndHowLong(t *testing.T) {
	t.Parallel()
	p, s, now := onTerminal(t, 100, 5000)
	for n := int64(0); n <= 1250; n += 125 {
		p.Set(n)
		*now = now.Add(500 * time.Millisecond)
	}
	p.Set(1250)
	const want = "Replaying  ██████░░░░░░░░░░░░░░░░░░  1,250/5,000 (25%)  227/s  ETA 17s"
	if s.text != want {
		t.Errorf("the bar is\n%s\nwant\n%s", s.text, want)
	}
	p.Done()
	p.Set(5000)
	p.Done()
	if s.text != "" {
		t.Errorf("%q is left", s.text)
	}
}

func TestProgressRedrawsAtMostTenTimesASecond(t *testing.T) {
	t.Parallel()
	p, s, now := onTerminal(t, 80, 1000)
	for n := range int64(1000) {
		p.Set(n)
		*now = now.Add(time.Millisecond)
	}
	if s.writes > 20 { // a clear and a bar each
		t.Errorf("%d writes in a second", s.writes)
	}
}

func TestProgressLeavesNothingBehindWhenTheWindowChanges(t *testing.T) {
	t.Parallel()
	p, s, now := onTerminal(t, 80, 1_000_000)
	random := rand.New(rand.NewPCG(1, 2))
	for n := int64(0); n < 1_000_000; n += 5000 {
		p.Set(n)
		if got := utf8.RuneCountInString(s.text); got >= s.width {
			t.Fatalf("%d columns in a window of %d: %q", got, s.width, s.text)
		}
		*now = now.Add(redraw)
		s.resize(1 + random.IntN(150))
	}
	p.Done()
	if s.text != "" {
		t.Errorf("%q is left", s.text)
	}
}

func TestProgressWithoutATotalCounts(t *testing.T) {
	t.Parallel()
	p, s, now := onTerminal(t, 80, 0)
	*now = now.Add(2 * time.Second)
	p.Set(7)
	if want := "Replaying  7  3.5/s"; s.text != want {
		t.Errorf("it shows %q, want %q", s.text, want)
	}
}

func TestProgressElsewhereIsALineNowAndThen(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := newProgress(&out, "Replaying", 200)
	start := time.Now()
	now := start
	p.now = func() time.Time { return now }
	p.begin()
	for n := range int64(121) {
		p.Set(n)
		now = now.Add(100 * time.Millisecond)
	}
	p.Done()
	const want = "Replaying: 50/200 (25%), 10/s, ETA 15s\nReplaying: 100/200 (50%), 10/s, ETA 10s\n"
	if out.String() != want {
		t.Errorf("it prints\n%swant\n%s", out.String(), want)
	}
}
