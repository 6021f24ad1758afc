package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnpike/test/chaos/program"
)

// pictures is an order of so many pictures at the studio.
func pictures(items int) any {
	list := make([]any, items)
	for i := range list {
		list[i] = map[string]any{"custom_id": fmt.Sprintf("item-%d", i), "body": map[string]any{"prompt": fmt.Sprintf("Picture %d", i)}}
	}
	return map[string]any{"model": "painter", "requests": list}
}

// checkPictures sees that each of them is there once, and is what the studio
// drew.
func (w *workshop) checkPictures(t *testing.T, j job, items int) {
	t.Helper()
	wrong := &complaints{t: t}
	defer wrong.done()
	if j.Status != "completed" || len(j.Results) != items {
		wrong.add("the batch is %s with %d results", j.Status, len(j.Results))
	}
	for i, r := range j.Results {
		if r.Status != "completed" || len(r.Images) != 1 || r.Images[0].SHA256 != hashOf(drawn(fmt.Sprintf("Picture %d", i))) {
			wrong.add("%s is %s with %v, %v", r.CustomID, r.Status, r.Images, r.Error)
			continue
		}
		w.checkImage(wrong, r.CustomID, r.Images[0])
	}
}

// steady is a studio that takes its time.
func steady() time.Duration { return 40 * time.Millisecond }

// TestFullDiskDelaysAJob takes the room for files away in the middle of a
// batch. What was stored is served as it is, what was not is made again when
// there is room, and nothing is half a file.
func TestFullDiskDelaysAJob(t *testing.T) {
	t.Parallel()
	const items = 60
	eachEngine(t, func(t *testing.T, at program.Place) {
		w := newWorkshop(t, at, newStudio(t, steady), "--media-per-workspace=4")
		away := fullDisk(t, w.server.Pid())
		path := w.order(t, w.payer.key, "/v1/images/batches", pictures(items))
		eventually(t, 30*time.Second, "pictures are made", func() bool { return w.done(t) >= items/4 })
		if err := away.begin(); err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, "a picture finds no room", func() bool { return strings.Contains(w.server.Log(), "a task failed") })
		// By the store itself: with a full disk not every call is answered.
		during := w.done(t)
		if during >= items {
			t.Fatal("the disk was full too late to show anything")
		}
		stored := w.checkFiles(t)
		if err := away.end(); err != nil {
			t.Fatal(err)
		}
		j := w.ended(t, w.payer.key, path, time.Minute)
		w.checkPictures(t, j, items)
		calls := len(w.studio.came("POST /images"))
		t.Logf("%d of %d were made when the disk was full, %d files were whole; %d calls in all", during, items, stored, calls)
		if calls == items {
			t.Error("nothing was tried again: the disk was full at the wrong moment to show anything")
		}
		if n := w.checkFiles(t); n != items {
			t.Errorf("%d files are stored", n)
		}
		w.settled(t, "image.batch.completed", items*picturePrice)
	})
}

// TestProviderThatGoesAwayDelaysAJob loses the provider in the middle of a
// batch, and finds it again.
func TestProviderThatGoesAwayDelaysAJob(t *testing.T) {
	t.Parallel()
	const items = 60
	eachEngine(t, func(t *testing.T, at program.Place) {
		w := newWorkshop(t, at, newStudio(t, steady), "--media-per-workspace=4")
		path := w.order(t, w.payer.key, "/v1/images/batches", pictures(items))
		eventually(t, 30*time.Second, "pictures are made", func() bool { return w.done(t) >= items/4 })
		w.studio.gone.Store(true)
		w.studio.server.CloseClientConnections()
		eventually(t, 30*time.Second, "a call fails", func() bool {
			return count(t, w.d, "SELECT count(*) FROM media_tasks WHERE tries > 0") > 0
		})
		during := w.done(t)
		w.studio.gone.Store(false)
		j := w.ended(t, w.payer.key, path, time.Minute)
		w.checkPictures(t, j, items)
		t.Logf("%d of %d were made when the provider went; %d calls in all", during, items, len(w.studio.came("POST /images")))
		w.settled(t, "image.batch.completed", items*picturePrice)
	})
}

// TestProviderThatStaysAwayEndsAJob loses the provider for good. The job says
// why it failed, and costs nothing, whatever was made of it.
func TestProviderThatStaysAwayEndsAJob(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, at program.Place) {
		w := newWorkshop(t, at, newStudio(t, steady), "--media-per-workspace=2", "--media-deadline=4s")
		parts, _ := longText(50_000)
		path := w.order(t, w.payer.key, "/v1/voice/renders", map[string]any{"model": "speaker", "voice": "alloy", "segments": parts})
		if n := count(t, w.d, "SELECT count(*) FROM spend_leases WHERE node_id LIKE 'job:%' AND granted >= $1", int64(50_000*characterPrice)); n != 3 {
			t.Errorf("the job has %d leases, of the workspace, the project and the key", n)
		}
		eventually(t, 30*time.Second, "pieces are made", func() bool { return w.done(t) >= 5 })
		w.studio.gone.Store(true)
		j := w.ended(t, w.payer.key, path, time.Minute)
		if j.Status != "failed" || j.Error == nil || j.Error.Code != "deadline_exceeded" || j.URL != "" || j.Cost != 0 {
			t.Errorf("the render is %+v, %+v", j, j.Error)
		}
		t.Logf("failed after %d of %d pieces", j.Segments.Completed, j.Segments.Total)
		// What a node has set aside for calls to come is reserved, too.
		if n := count(t, w.d, "SELECT count(*) FROM spend_leases WHERE node_id LIKE 'job:%'"); n > 0 {
			t.Errorf("%d leases of the job are left", n)
		}
		w.settled(t, "voice.render.completed", 0)
	})
}
