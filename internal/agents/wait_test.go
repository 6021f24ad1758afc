package agents

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestWhatWaitsForCreditsAsksLessAndLessOften: a step since it was made, and a
// judge since there is an answer.
func TestWhatWaitsForCreditsAsksLessAndLessOften(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d, callDone, false)
		now := time.Now()
		for waited, want := range map[time.Duration]time.Duration{0: leastPatience, 40 * time.Second: 10 * time.Second, time.Hour: mostPatience} {
			r, _ := b.load(t)
			answered := now.Add(-waited)
			o := begin(r)
			o.step = &Step{RunID: r.ID, Number: r.StepsUsed, ID: "step", Status: stepCompleted, CreatedAt: now.Add(-24 * time.Hour), CompletedAt: &answered}
			b.write(t, o)
			r, _ = b.load(t)
			o = begin(r)
			if _, wait, err := b.takeOver(t.Context(), o); err != nil || wait {
				t.Fatal(wait, err)
			}
			if got := o.patience(now).Round(time.Millisecond); got != want {
				t.Errorf("after %s it waits for %s", waited, got)
			}
		}
	})
}

// TestTimeThatEndsChangesNothingOfAnothersRun: a node that was away for so long
// that another one has taken the run on does not take it back.
func TestTimeThatEndsChangesNothingOfAnothersRun(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, status := range []string{callAsking, callDone} {
			b := newBench(t, d, status, false)
			if _, err := b.asItIs(t.Context(), b.run.ID); err != nil {
				t.Fatal(err)
			}
			_, calls := b.load(t)
			o := begin(b.run)
			o.calls = calls
			var err error
			if status == callAsking {
				b.askFor(o.run, calls[0], "", time.Now())
				err = b.proceed(o, time.Now())
			} else {
				err = o.end(Failed, failure("model_error", "as the test says"), time.Now())
			}
			if err != nil {
				t.Fatal(err)
			}
			b.write(t, o)
			if o, err := b.asItIs(t.Context(), b.run.ID); !errors.Is(err, errLost) {
				t.Errorf("it is due at %v (%v)", o.run.DueAt, err)
			}
		}
	})
}

// TestAFailureOfACheckDoesNotHoldItsURL, which is all that a check can be told a
// secret by.
func TestAFailureOfACheckDoesNotHoldItsURL(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d, callDone, false)
		server := httptest.NewServer(nil)
		server.Close()
		_, err := b.askServer(t.Context(), b.run, serverCheck{check: check{Type: checkHTTP, URL: server.URL + "/check?token=hush"}}, nil)
		if !errors.Is(err, errCheckServer) || strings.Contains(err.Error(), "hush") {
			t.Errorf("it failed with %v", err)
		}
	})
}
