package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"turnpike/internal/credits"
	"turnpike/test/chaos/program"
)

// TestLongTextIsReadAloudThoughTheServerIsKilled kills the server in the middle
// of a text of fifty thousand characters, again and again. Every word of it is
// heard once, in its place, with the pauses between.
//
// Without a record of each piece the text would begin anew; a piece that was
// charged when it was asked for, and not with its record, would be paid twice.
func TestLongTextIsReadAloudThoughTheServerIsKilled(t *testing.T) {
	t.Parallel()
	kills, length := 3, 50_000
	if full {
		kills, length = 12, 200_000
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		s := newStudio(t, func() time.Duration { return 20*time.Millisecond + rand.N(60*time.Millisecond) })
		w := newWorkshop(t, at, s, "--media-per-workspace=3")
		parts, want := longText(length)
		path := w.order(t, w.payer.key, "/v1/voice/renders", map[string]any{"model": "speaker", "voice": "alloy", "segments": parts})
		pieces := w.look(t, w.payer.key, path).Segments.Total
		for range kills {
			// So soon that the last kill comes before the end.
			killAt := len(s.came("POST")) + 1 + random.IntN(pieces/kills)
			early := random.IntN(2) == 0
			w.killWhen(t, func(c studioCall, answered bool) bool { return answered != early && c.n >= killAt })
			before := w.done(t)
			w.revive(t)
			t.Logf("killed at call %d, answered %t: %d of %d pieces are there", killAt, !early, before, pieces)
			if before >= pieces {
				t.Error("the kill came too late to show anything")
			}
		}
		j := w.ended(t, w.payer.key, path, time.Minute)
		if j.Status != "completed" || j.Segments.Completed != pieces {
			t.Fatalf("the render is %+v", j)
		}
		file, err := w.fetch(j.URL)
		if err != nil {
			t.Fatal(err)
		}
		text, lasts, err := heard(file)
		if err != nil || squeezed(text) != squeezed(want) {
			t.Errorf("heard are %d bytes of %d, and they are not the same; %v", len(text), len(want), err)
		}
		// By what the studio said, and the pauses.
		said, characters := map[string]bool{}, int64(0)
		var sum time.Duration
		for _, c := range s.came("POST /audio/speech") {
			if !said[c.text] {
				said[c.text] = true
				sum += speechFormat.Duration(int64(2 * perByte * len(c.text)))
				characters += int64(utf8.RuneCountInString(c.text))
			}
		}
		for _, p := range parts {
			sum += time.Duration(p["pause_ms"].(int)) * time.Millisecond
		}
		if (lasts-sum).Abs() > time.Millisecond || time.Duration(j.Duration*float64(time.Second))-lasts > time.Millisecond || len(said) != pieces {
			t.Errorf("it lasts %v, its %d pieces %v, and %v is what is said of it", lasts, len(said), sum, j.Duration)
		}
		t.Logf("%d kills; %d calls for %d pieces; %v of sound", w.deaths, len(s.came("POST /audio/speech")), pieces, lasts.Round(time.Second))
		w.checkFiles(t)
		if cost := credits.Micro(characters) * characterPrice; j.Cost != cost {
			t.Errorf("it costs %s instead of %s", j.Cost, cost)
		}
		w.settled(t, "voice.render.completed", j.Cost)
	})
}

// longText is so many characters in parts with pauses, and what is to be heard
// of them.
func longText(length int) (parts []map[string]any, want string) {
	const partLength = 4000
	var all strings.Builder
	for n, left := 0, length; left > 0; {
		var part strings.Builder
		for room := min(partLength, left); part.Len() < room; n++ {
			sentence := fmt.Sprintf("Sentence %d is read aloud, and nobody else has it. ", n)
			part.WriteString(sentence[:min(len(sentence), room-part.Len())])
		}
		left -= part.Len()
		pause := 50 * (1 + len(parts)%4)
		parts = append(parts, map[string]any{"text": part.String(), "pause_ms": pause})
		all.WriteString(part.String() + strings.Repeat("\x00", pause*speechRate/1000/perByte))
	}
	return parts, all.String()
}

// killWhen kills the server at a call of the studio. That call's answer may
// have been sent, and is lost or not, as it happens.
func (w *workshop) killWhen(t *testing.T, now func(c studioCall, answered bool) bool) {
	t.Helper()
	killed := make(chan struct{})
	var once sync.Once
	server := w.server
	w.studio.onCall(func(c studioCall, answered bool) {
		if now(c, answered) {
			once.Do(func() {
				server.Kill()
				close(killed)
			})
		}
	})
	defer w.studio.onCall(nil)
	select {
	case <-killed:
	case <-time.After(time.Minute):
		t.Fatal("the moment for the kill does not come")
	}
}

// TestImageBatchEndsThoughTheServerIsKilled kills the server in the middle of a
// batch. Every picture is there in the end, and the receiver hears of it once.
func TestImageBatchEndsThoughTheServerIsKilled(t *testing.T) {
	t.Parallel()
	kills, items := 2, 200
	if full {
		kills, items = 10, 600
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		w := newWorkshop(t, at, newStudio(t, func() time.Duration { return 0 }))
		c := newCustomer(t, at)
		// What one costs, in the same money of the simulator.
		one := w.order(t, c.key, "/v1/images/batches", batch(1))
		w.ended(t, c.key, one, 20*time.Second)
		eventually(t, promptly, "nobody is to be told of it", func() bool { return c.open(t) == 0 })
		price := count(t, w.d, "SELECT CAST(sum(simulated_credits) AS BIGINT) FROM requests")
		inbox := c.inbox(t, w.server.URL, "image.batch.completed")
		path := w.order(t, c.key, "/v1/images/batches", batch(items))
		for range kills {
			// So soon that the last kill comes before the end.
			killAt := w.done(t) + 1 + random.IntN(items/kills/2)
			eventually(t, time.Minute, "pictures are made", func() bool { return w.done(t) >= killAt })
			w.server.Kill()
			before := w.done(t) - 1
			w.revive(t)
			t.Logf("killed at %d of %d", before, items)
			if before >= items {
				t.Error("the kill came too late to show anything")
			}
		}
		j := w.ended(t, c.key, path, time.Minute)
		if j.Status != "completed" || j.Progress != 100 || len(j.Results) != items {
			t.Fatalf("the batch is %s at %d with %d results", j.Status, j.Progress, len(j.Results))
		}
		wrong := &complaints{t: t}
		defer wrong.done()
		for _, r := range j.Results {
			if r.Status != "completed" || len(r.Images) != 1 {
				wrong.add("%s is %s with %d pictures", r.CustomID, r.Status, len(r.Images))
				continue
			}
			w.checkImage(wrong, r.CustomID, r.Images[0])
		}
		eventually(t, time.Minute, "the event is delivered", func() bool { return inbox.came(time.Time{}) > 0 && c.open(t) == 0 })
		w.checkDelivery(t, wrong, inbox, items)
		w.checkFiles(t)
		if simulated := count(t, w.d, "SELECT CAST(sum(simulated_credits) AS BIGINT) FROM requests"); price == 0 || simulated != (items+1)*price {
			wrong.add("%d are said to be used for %d pictures of %d each", simulated, items+1, price)
		}
		if n := count(t, w.d, "SELECT count(*) FROM events WHERE type = 'image.batch.completed'"); n != 2 {
			wrong.add("two batches had %d events", n)
		}
		stop(t, w.server)
		checkBooks(t, w.d)
	})
}

// batch is an order of so many pictures, which take a moment each.
func batch(items int) any {
	list := make([]any, items)
	for i := range list {
		list[i] = map[string]any{"custom_id": fmt.Sprintf("item-%d", i), "body": map[string]any{"prompt": fmt.Sprintf("Picture %d [[sim:delay=40ms]]", i), "size": "64x64"}}
	}
	return map[string]any{"model": "dall-e-3", "requests": list}
}

// checkDelivery looks at what came to the receiver: one event, whose links lead
// to all the pictures.
func (w *workshop) checkDelivery(t *testing.T, wrong *complaints, b *inbox, items int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, complaint := range b.wrong {
		wrong.add("%s", complaint)
	}
	if len(b.got) != 1 {
		wrong.add("%d deliveries came", len(b.got))
	}
	for _, all := range b.got {
		var event struct{ Data job }
		if err := json.Unmarshal([]byte(all[0].body), &event); err != nil {
			t.Fatal(err)
		}
		if event.Data.Status != "completed" || len(event.Data.Results) != items {
			wrong.add("the event says %s with %d results", event.Data.Status, len(event.Data.Results))
		}
		for _, r := range event.Data.Results {
			for _, made := range r.Images {
				w.checkImage(wrong, "delivered "+r.CustomID, made)
			}
		}
	}
}

// TestVideoIsStartedOnceThoughTheServerIsKilled kills the server when the
// provider has answered, before the first look, and during the looks.
//
// A render that is not written down before it is looked after would be started
// again each time, and be paid for at the provider.
func TestVideoIsStartedOnceThoughTheServerIsKilled(t *testing.T) {
	t.Parallel()
	rounds := 1
	if full {
		rounds = 8
	}
	for n := range rounds {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			eachEngine(t, killVideo)
		})
	}
}

func killVideo(t *testing.T, at program.Place) {
	s := newStudio(t, func() time.Duration { return rand.N(20 * time.Millisecond) })
	w := newWorkshop(t, at, s)
	written := func() int { return count(t, w.d, "SELECT count(*) FROM media_tasks WHERE output IS NOT NULL") }
	looks := func() int { return len(s.came("GET /videos")) }

	// The order's answer may be lost with the server; the job is not.
	go call(w.server.URL, request{mark: "order", method: "POST", path: "/v1/videos", key: w.payer.key, body: `{"model":"director","prompt":"Waves","seconds":"4"}`})
	w.killWhen(t, func(c studioCall, answered bool) bool { return answered && c.what == "POST /videos" })
	atOnce := written()
	w.revive(t)
	eventually(t, 20*time.Second, "the render is written down", func() bool { return written() == 1 })
	w.server.Kill()
	before := looks()
	for _, answered := range []bool{false, true} {
		w.revive(t)
		w.killWhen(t, func(c studioCall, done bool) bool {
			return done == answered && strings.HasPrefix(c.what, "GET /videos")
		})
	}
	w.revive(t)

	var id string
	if err := w.d.QueryRow(t.Context(), "SELECT id FROM media_jobs").Scan(&id); err != nil {
		t.Fatal(err)
	}
	j := w.ended(t, w.payer.key, "/v1/videos/"+id, 30*time.Second)
	starts := s.came("POST /videos")
	if j.Status != "completed" || len(starts) != 2-atOnce {
		t.Errorf("the video is %s after %d starts, of which %d was written down before the first kill", j.Status, len(starts), atOnce)
	}
	for _, c := range starts {
		if c.key != id {
			t.Errorf("a start of %s has the key %q", id, c.key)
		}
	}
	if file, err := w.fetch(j.URL); err != nil || string(file) != string(filmed(len(starts)-1)) {
		t.Errorf("%d bytes are not the video, %v", len(file), err)
	}
	t.Logf("%d kills: %d was written down before the first, %d looks came before the second; %d starts and %d looks in all", w.deaths, atOnce, before, len(starts), looks())
	if j.Cost != 4*secondPrice {
		t.Errorf("it costs %s", j.Cost)
	}
	w.settled(t, "video.render.completed", 4*secondPrice)
}
