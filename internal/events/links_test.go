package events_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
)

var someHash = strings.Repeat("0123456789abcdef", 4)

func mint(sha256, name string) (string, int64) {
	return "https://api.example.com/files/ws_1/live/" + sha256 + "/" + name + "?expires=77&signature=<&>", 77
}

// batch has references in all fields that can hold one, and text that looks like
// one in all fields that customers write.
func batch() events.ImageBatch {
	ref, bait := events.FileRef(someHash, "imgbatch_1.png"), events.FileRef(someHash, "bait.png")
	images := func(url string) []events.Image {
		return []events.Image{{URL: url, ContentType: "image/png", Bytes: 7, SHA256: someHash}}
	}
	return events.ImageBatch{ID: "imgbatch_1", Object: "image.batch", Status: "completed", Model: bait, RequestCounts: events.ImageCounts{Total: 3, Completed: 2, Failed: 1},
		Results: []events.ImageResult{
			{CustomID: bait, Status: "completed", Images: append(images(ref), images(ref)...)},
			{CustomID: "é<&>", Status: "completed", Images: images("https://files.example.com/a.png")},
			{CustomID: "c", Status: "failed", Images: []events.Image{}, Error: &events.JobError{Code: "upstream_error", Message: bait}},
		},
		Cost: 1_234_567, Metadata: map[string]string{"file": bait, "b": "2", "c": "3", bait: "4"}, CreatedAt: 1}
}

func TestReferencesBecomeLinks(t *testing.T) {
	t.Parallel()
	ref := events.FileRef(someHash, "a.bin")
	video, voice := ref, ref
	zero := int64(0)
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for want, data := range map[int]events.Payload{
			2: batch(),
			1: events.VideoRender{ID: "video_1", Seconds: "8", URL: &video, URLExpiresAt: &zero, Cost: 3},
			// The engine need not set what is about to be set.
			-1: events.VoiceRender{ID: "voice_1", DurationSeconds: 541.25, URL: &voice, Metadata: map[string]string{"x": ref, "a": "b"}},
		} {
			e := publish(t, d, acme, data)
			linked, err := events.Link(e.Type, e.Body, mint)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(linked), `?expires=77&signature=<&>"`); n != max(want, -want) {
				t.Errorf("%s has %d links: %s", e.Type, n, linked)
			}
			if n := strings.Count(string(linked), `"url_expires_at":77`); n != max(want, -want) {
				t.Errorf("%s has %d times of expiry: %s", e.Type, n, linked)
			}
			// With the links taken out again, it is what was stored.
			back := map[string]any{}
			stored := map[string]any{}
			url, _ := mint(someHash, "a.bin")
			url2, _ := mint(someHash, "imgbatch_1.png")
			unlinked := strings.NewReplacer(url, ref, url2, events.FileRef(someHash, "imgbatch_1.png"), `"url_expires_at":77`, `"url_expires_at":0`).Replace(string(linked))
			body := strings.ReplaceAll(string(e.Body), `"url_expires_at":null`, `"url_expires_at":0`)
			if err := json.Unmarshal([]byte(unlinked), &back); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(body), &stored); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(back, stored) || len(unlinked) != len(body) {
				t.Errorf("the body of %s changed:\n%s\nwas\n%s", e.Type, unlinked, body)
			}
			for range 20 {
				if again, err := events.Link(e.Type, e.Body, mint); err != nil || string(again) != string(linked) {
					t.Fatalf("%s is not the same a second time (%v):\n%s\n%s", e.Type, err, again, linked)
				}
			}
			order := func(s string) (keys []string) {
				for _, key := range []string{`{"id":"evt_`, `"object":"event"`, `"type":`, `"created_at":`, `"environment":`, `"workspace":`, `"project":`, `"data":{"id":`} {
					keys = append(keys, fmt.Sprint(strings.Index(s, key)))
				}
				return keys
			}
			if !reflect.DeepEqual(order(string(linked)), order(string(e.Body))) {
				t.Errorf("the order of %s changed: %s", e.Type, linked)
			}
		}
	})
}

func TestCustomerTextIsNeverTakenForAReference(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	b := batch()
	b.Results[0].Images = nil // what is left looks like one, and is none
	e := publish(t, d, acme, b)
	got, err := events.Link(e.Type, e.Body, func(string, string) (string, int64) {
		t.Error("a link was minted")
		return "", 0
	})
	if err != nil || string(got) != string(e.Body) {
		t.Errorf("the body became %s (%v)", got, err)
	}
	whole := publish(t, d, acme, batch())
	linked, err := events.Link(whole.Type, whole.Body, mint)
	if n := strings.Count(string(linked), events.FileRef(someHash, "bait.png")); n != 5 || err != nil {
		t.Errorf("%d of 5 words that look like references were left alone (%v): %s", n, err, linked)
	}
}

func TestEventsWithoutFilesKeepTheirBytes(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	p := newPublisher()
	for _, typ := range events.Types {
		var e *events.Event
		err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
			e, err = p.StoreSample(t.Context(), tx, acme, typ)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := events.Link(typ, e.Body, mint)
		if err != nil || &got[0] != &e.Body[0] || len(got) != len(e.Body) {
			t.Errorf("%s: %v, %s", typ, err, got)
		}
	}
	// Not even read.
	odd := []byte(`{"data":{"url":"file:`)
	if got, err := events.Link(events.AgentRunFailed, odd, mint); err != nil || &got[0] != &odd[0] {
		t.Errorf("%v", err)
	}
	if _, err := events.Link(events.ImageBatchCompleted, odd, mint); err == nil {
		t.Error("half a body is linked")
	}
}
