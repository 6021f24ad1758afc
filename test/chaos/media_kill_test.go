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

// TestVoiceRenderSurvivesKill9 repeatedly kills the server while it renders fifty
// thousand characters. The audio has every word once, in order, with its pauses.
//
// Without a record of each piece, the text would start again. If a piece were charged
// before its record is written, it would be charged twice.
func TestVoiceRenderSurvivesKill9(t *testing.T) {
	longOnly(t, "TestImageBatchSurvivesKill9, api.TestRestartRepeatsAtMostOnePart")
	t.Parallel()
	kills, length := 3, 50_000
	if full {
		kills, length = 12, 200_000
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		s := newMediaProvider(t, func() time.Duration { return 20*time.Millisecond + rand.N(60*time.Millisecond) })
		w := newMediaFixture(t, at, s, "--media-per-workspace=3")
		parts, want := longText(length)
		path := w.createJob(t, w.account.key, "/v1/voice/renders", map[string]any{"model": "speaker", "voice": "alloy", "segments": parts})
		pieces := w.getJob(t, w.account.key, path).Segments.Total
		for range kills {
			// Early enough that the last kill comes before the end.
			killAt := len(s.received("POST")) + 1 + random.IntN(pieces/kills)
			early := random.IntN(2) == 0
			w.killWhen(t, func(c providerCall, answered bool) bool { return answered != early && c.n >= killAt })
			before := w.done(t)
			w.restart(t)
			t.Logf("killed at call %d, answered %t: %d of %d pieces are there", killAt, !early, before, pieces)
			if before >= pieces {
				t.Error("the kill came too late to show anything")
			}
		}
		j := w.waitForEnd(t, w.account.key, path, time.Minute)
		if j.Status != "completed" || j.Segments.Completed != pieces {
			t.Fatalf("got render %+v, want a completed one", j)
		}
		file, err := w.fetch(j.URL)
		if err != nil {
			t.Fatal(err)
		}
		text, lasts, err := decodeSpeech(file)
		if err != nil || withoutSpaces(text) != withoutSpaces(want) {
			t.Errorf("got %d bytes of speech that differ from the %d expected ones (%v)", len(text), len(want), err)
		}
		// The bill has the characters the provider spoke, and the pauses.
		said, characters := map[string]bool{}, int64(0)
		var sum time.Duration
		for _, c := range s.received("POST /audio/speech") {
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
			t.Errorf("got a duration of %v, want the sum of its %d pieces (%v) and the one the API returns (%v)", lasts, len(said), sum, j.Duration)
		}
		t.Logf("%d kills; %d calls for %d pieces; %v of sound", w.deaths, len(s.received("POST /audio/speech")), pieces, lasts.Round(time.Second))
		w.checkFiles(t)
		if cost := credits.Micro(characters) * characterPrice; j.Cost != cost {
			t.Errorf("got cost %s, want %s", j.Cost, cost)
		}
		w.checkSettled(t, "voice.render.completed", j.Cost)
	})
}

// longText returns a text of the given length in parts with pauses, and the expected
// speech.
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

// killWhen kills the server at a provider request. The response of that request may or
// may not get lost.
func (w *mediaFixture) killWhen(t *testing.T, now func(c providerCall, answered bool) bool) {
	t.Helper()
	killed := make(chan struct{})
	var once sync.Once
	server := w.server
	w.provider.onCall(func(c providerCall, answered bool) {
		if now(c, answered) {
			once.Do(func() {
				server.Kill()
				close(killed)
			})
		}
	})
	defer w.provider.onCall(nil)
	select {
	case <-killed:
	case <-time.After(time.Minute):
		t.Fatal("timed out waiting for the moment to kill the server")
	}
}

// TestImageBatchSurvivesKill9 kills the server during a batch. The batch ends with
// every image, and the receiver gets one event.
func TestImageBatchSurvivesKill9(t *testing.T) {
	t.Parallel()
	kills, items := 2, 200
	if full {
		kills, items = 10, 600
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		w := newMediaFixture(t, at, newMediaProvider(t, func() time.Duration { return 0 }))
		c := newWebhookFixture(t, at)
		// The simulator's cost of one image.
		one := w.createJob(t, c.key, "/v1/images/batches", batch(1))
		w.waitForEnd(t, c.key, one, 20*time.Second)
		eventually(t, promptly, "no delivery is pending", func() bool { return c.undelivered(t) == 0 })
		price := count(t, w.d, "SELECT CAST(sum(simulated_credits) AS BIGINT) FROM requests")
		inbox := c.inbox(t, w.server.URL, "image.batch.completed")
		path := w.createJob(t, c.key, "/v1/images/batches", batch(items))
		for range kills {
			// Early enough that the last kill comes before the end.
			killAt := w.done(t) + 1 + random.IntN(items/kills/2)
			eventually(t, time.Minute, "images are created", func() bool { return w.done(t) >= killAt })
			w.server.Kill()
			before := w.done(t) - 1
			w.restart(t)
			t.Logf("killed at %d of %d", before, items)
			if before >= items {
				t.Error("the kill came too late to show anything")
			}
		}
		j := w.waitForEnd(t, c.key, path, time.Minute)
		if j.Status != "completed" || j.Progress != 100 || len(j.Results) != items {
			t.Fatalf("got a batch with status %s, progress %d and %d results", j.Status, j.Progress, len(j.Results))
		}
		wrong := &failures{t: t}
		defer wrong.done()
		for _, r := range j.Results {
			if r.Status != "completed" || len(r.Images) != 1 {
				wrong.add("%s: got status %s and %d images", r.CustomID, r.Status, len(r.Images))
				continue
			}
			w.checkImage(wrong, r.CustomID, r.Images[0])
		}
		eventually(t, time.Minute, "the event is delivered", func() bool { return inbox.receivedSince(time.Time{}) > 0 && c.undelivered(t) == 0 })
		w.checkDelivery(t, wrong, inbox, items)
		w.checkFiles(t)
		if simulated := count(t, w.d, "SELECT CAST(sum(simulated_credits) AS BIGINT) FROM requests"); price == 0 || simulated != (items+1)*price {
			wrong.add("got a usage of %d for %d images at %d each", simulated, items+1, price)
		}
		if n := count(t, w.d, "SELECT count(*) FROM events WHERE type = 'image.batch.completed'"); n != 2 {
			wrong.add("got %d events for two batches", n)
		}
		stop(t, w.server)
		checkBalances(t, w.d)
	})
}

// batch returns a batch of images that take a moment each.
func batch(items int) any {
	list := make([]any, items)
	for i := range list {
		list[i] = map[string]any{"custom_id": fmt.Sprintf("item-%d", i), "body": map[string]any{"prompt": fmt.Sprintf("Picture %d [[sim:delay=40ms]]", i), "size": "64x64"}}
	}
	return map[string]any{"model": "dall-e-3", "requests": list}
}

// checkDelivery checks that the receiver got one event with links to all images.
func (w *mediaFixture) checkDelivery(t *testing.T, wrong *failures, b *inbox, items int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, complaint := range b.wrong {
		wrong.add("%s", complaint)
	}
	if len(b.got) != 1 {
		wrong.add("got %d deliveries, want 1", len(b.got))
	}
	for _, all := range b.got {
		var event struct{ Data job }
		if err := json.Unmarshal([]byte(all[0].body), &event); err != nil {
			t.Fatal(err)
		}
		if event.Data.Status != "completed" || len(event.Data.Results) != items {
			wrong.add("got an event with status %s and %d results", event.Data.Status, len(event.Data.Results))
		}
		for _, r := range event.Data.Results {
			for _, made := range r.Images {
				w.checkImage(wrong, "delivered "+r.CustomID, made)
			}
		}
	}
}

// TestVideoIsStartedOnceDespiteKill9 kills the server after the provider's response,
// before the first poll, and during the polls.
//
// If the server polled a render before recording it, every restart would start and pay
// for another one.
func TestVideoIsStartedOnceDespiteKill9(t *testing.T) {
	longOnly(t, "TestImageBatchSurvivesKill9, api.TestRenderContinuesAfterARestart")
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
	s := newMediaProvider(t, func() time.Duration { return rand.N(20 * time.Millisecond) })
	w := newMediaFixture(t, at, s)
	written := func() int { return count(t, w.d, "SELECT count(*) FROM media_tasks WHERE output IS NOT NULL") }
	looks := func() int { return len(s.received("GET /videos")) }

	// The response may be lost with the server. The job isn't.
	go call(w.server.URL, request{mark: "order", method: "POST", path: "/v1/videos", key: w.account.key, body: `{"model":"director","prompt":"Waves","seconds":"4"}`})
	w.killWhen(t, func(c providerCall, answered bool) bool { return answered && c.what == "POST /videos" })
	atOnce := written()
	w.restart(t)
	eventually(t, 20*time.Second, "the render is recorded", func() bool { return written() == 1 })
	w.server.Kill()
	before := looks()
	for _, answered := range []bool{false, true} {
		w.restart(t)
		w.killWhen(t, func(c providerCall, done bool) bool {
			return done == answered && strings.HasPrefix(c.what, "GET /videos")
		})
	}
	w.restart(t)

	var id string
	if err := w.d.QueryRow(t.Context(), "SELECT id FROM media_jobs").Scan(&id); err != nil {
		t.Fatal(err)
	}
	j := w.waitForEnd(t, w.account.key, "/v1/videos/"+id, 30*time.Second)
	starts := s.received("POST /videos")
	if j.Status != "completed" || len(starts) != 2-atOnce {
		t.Errorf("got status %s after %d starts, %d of them recorded before the first kill", j.Status, len(starts), atOnce)
	}
	for _, c := range starts {
		if c.key != id {
			t.Errorf("got a start of %s with the key %q", id, c.key)
		}
	}
	if file, err := w.fetch(j.URL); err != nil || string(file) != string(renderVideo(len(starts)-1)) {
		t.Errorf("got %d bytes that differ from the video (%v)", len(file), err)
	}
	t.Logf("%d kills: %d recorded before the first, %d polls before the second; %d starts and %d polls in total", w.deaths, atOnce, before, len(starts), looks())
	if j.Cost != 4*secondPrice {
		t.Errorf("got cost %s, want %s", j.Cost, 4*secondPrice)
	}
	w.checkSettled(t, "video.render.completed", 4*secondPrice)
}
