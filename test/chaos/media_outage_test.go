package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnpike/test/chaos/program"
)

// providerBatch returns a batch of images from the test's provider.
func providerBatch(items int) any {
	list := make([]any, items)
	for i := range list {
		list[i] = map[string]any{"custom_id": fmt.Sprintf("item-%d", i), "body": map[string]any{"prompt": fmt.Sprintf("Picture %d", i)}}
	}
	return map[string]any{"model": "painter", "requests": list}
}

// checkImages checks that each image exists once and is the one the provider created.
func (w *mediaFixture) checkImages(t *testing.T, j job, items int) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	if j.Status != "completed" || len(j.Results) != items {
		wrong.add("got a batch with status %s and %d results", j.Status, len(j.Results))
	}
	for i, r := range j.Results {
		if r.Status != "completed" || len(r.Images) != 1 || r.Images[0].SHA256 != hashOf(drawImage(fmt.Sprintf("Picture %d", i))) {
			wrong.add("%s: got status %s, images %v, error %v", r.CustomID, r.Status, r.Images, r.Error)
			continue
		}
		w.checkImage(wrong, r.CustomID, r.Images[0])
	}
}

func fixedDelay() time.Duration { return 40 * time.Millisecond }

// TestJobSurvivesAFullDisk fills the disk during a batch. Stored files are still
// served, missing ones are created when there is space, and no file is truncated.
func TestJobSurvivesAFullDisk(t *testing.T) {
	longOnly(t, "api.TestImageThatCannotBeStoredIsFree, db.TestFullDiskIsAnOutageThatEndsByItself")
	t.Parallel()
	const items = 60
	eachEngine(t, func(t *testing.T, at program.Place) {
		w := newMediaFixture(t, at, newMediaProvider(t, fixedDelay), "--media-per-workspace=4")
		away := fullDisk(t, w.server.Pid())
		path := w.createJob(t, w.account.key, "/v1/images/batches", providerBatch(items))
		eventually(t, 30*time.Second, "images are created", func() bool { return w.done(t) >= items/4 })
		if err := away.begin(); err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, "an image can't be stored", func() bool { return strings.Contains(w.server.Log(), "task failed") })
		// Read from the database, because the API may fail while the disk is full.
		during := w.done(t)
		if during >= items {
			t.Fatal("the disk was full too late to show anything")
		}
		stored := w.checkFiles(t)
		if err := away.end(); err != nil {
			t.Fatal(err)
		}
		j := w.waitForEnd(t, w.account.key, path, time.Minute)
		w.checkImages(t, j, items)
		calls := len(w.provider.received("POST /images"))
		t.Logf("%d of %d were made when the disk was full, %d files were whole; %d calls in all", during, items, stored, calls)
		if calls == items {
			t.Error("got no retry, want some: the disk was full at the wrong moment to show anything")
		}
		if n := w.checkFiles(t); n != items {
			t.Errorf("got %d stored files", n)
		}
		w.checkSettled(t, "image.batch.completed", items*imagePrice)
	})
}
