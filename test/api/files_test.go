package api_test

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/files"
	"turnpike/internal/ids"
)

func TestEventsCarryLinksThatOpenTheirFiles(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		// Like the server's jobs.
		store, err := files.Open(t.Context(), files.Options{DB: c.DB, Dir: filepath.Join(c.Data, "files"), Retention: 30 * 24 * time.Hour, Now: c.Clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		owner := c.workspace.In(c.env)
		id := ids.New("video_")
		f, err := store.Put(t.Context(), owner, id, "video/mp4", strings.NewReader("a video"))
		if err != nil {
			t.Fatal(err)
		}
		hook := newReceiver(t, c.Clock, respond(http.StatusInternalServerError))
		endpoint, _ := c.endpoint(t, hook.URL)
		ref, zero := events.FileRef(f.SHA256, id+".mp4"), int64(0)
		made := c.publish(t, events.VideoRender{ID: id, Object: "video", Status: "completed", Model: "sora-2", Progress: 100, Seconds: "8", Size: "1280x720",
			URL: &ref, URLExpiresAt: &zero, CreatedAt: c.Clock.Now().Unix()})[0]
		first := hook.wait(t, c, 1)[0]
		sent := linkIn(t, first.body)
		if body := follow(t, sent, http.StatusOK); body != "a video" {
			t.Errorf("the link leads to %q", body)
		}
		follow(t, strings.Replace(sent, ".mp4", ".html", 1), http.StatusForbidden)
		c.waitForDelivery(t, c.deliveries(t, endpoint, 1)[0], "retrying", 1)
		hook.respondWith(respond(http.StatusOK))
		c.advanceEndpoint(t, 2*time.Minute, endpoint)
		if again := hook.wait(t, c, 2)[1]; string(again.body) != string(first.body) {
			t.Errorf("the retry's body is\n%s, the first was\n%s", again.body, first.body)
		}

		c.Clock.Turn(30 * time.Hour)
		shown := linkIn(t, c.get(t, "/v1/events/"+made.ID).Body)
		listed := linkIn(t, c.get(t, "/v1/events?type=video.render.completed").Body)
		if shown != listed || shown == sent {
			t.Errorf("shown are %s and %s, sent was %s", shown, listed, sent)
		}
		follow(t, sent, http.StatusOK)
		c.Clock.Turn(20 * time.Hour)
		follow(t, sent, http.StatusForbidden)
		follow(t, shown, http.StatusOK)
		c.post(t, "/v1/deliveries/"+first.id+"/replay", map[string]any{})
		replayed := linkIn(t, hook.wait(t, c, 3)[2].body)
		c.Clock.Turn(20 * time.Hour)
		follow(t, shown, http.StatusForbidden)
		follow(t, replayed, http.StatusOK)

		c.write(t, func(tx *db.Tx) error { return store.Drop(t.Context(), tx, owner, id) })
		follow(t, replayed, http.StatusNotFound)
		if err := c.App.RunRetention(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := c.rows(t, "files"); n != 0 {
			t.Errorf("%d files are left", n)
		}
	})
}

func TestForgedFileLinksAreRejected(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		store, err := files.Open(t.Context(), files.Options{DB: c.DB, Dir: filepath.Join(c.Data, "files"), Retention: 30 * 24 * time.Hour, Now: c.Clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		// The links come from the server, as in events.
		link := func(c *client, content string) (string, files.File) {
			id := ids.New("video_")
			f, err := store.Put(t.Context(), c.workspace.In(c.env), id, "video/mp4", strings.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			ref, zero := events.FileRef(f.SHA256, "v.mp4"), int64(0)
			e := c.publish(t, events.VideoRender{ID: id, Object: "video", Status: "completed", Model: "sora-2", Progress: 100, Seconds: "8", Size: "1280x720",
				URL: &ref, URLExpiresAt: &zero, CreatedAt: c.Clock.Now().Unix()})[0]
			return linkIn(t, c.get(t, "/v1/events/"+e.ID).Body), f
		}
		other, test := newClient(t, c.Server, accounts.Live), c.withTestKey(t)
		whole, _ := link(c, "a video")
		second, secondFile := link(c, "another video")
		foreign, _ := link(other, "a video")
		sandbox, _ := link(test, "a video")
		for _, good := range []string{whole, second, foreign, sandbox} {
			follow(t, good, http.StatusOK)
		}
		address, query, _ := strings.Cut(whole, "?")
		_, signature, _ := strings.Cut(query, "signature=")
		expires := strings.TrimSuffix(strings.TrimPrefix(query, "expires="), "&signature="+signature)
		signatureOf := func(link string) string { _, s, _ := strings.Cut(link, "signature="); return s }
		later := itoa(c.Clock.Now().Add(1000 * time.Hour).Unix())
		parts := strings.Split(address, "/") // …/files/workspace/environment/sha256/name
		sum := parts[len(parts)-2]
		forged := map[string]string{
			"another signature":               strings.Replace(whole, signature, strings.Repeat("0", len(signature)), 1),
			"no signature":                    address + "?expires=" + expires,
			"a longer life":                   strings.Replace(whole, expires, later, 1),
			"no expiry":                       address + "?signature=" + signature,
			"another name":                    strings.Replace(whole, "v.mp4", "v.html", 1),
			"another file":                    strings.Replace(whole, sum, secondFile.SHA256, 1),
			"another workspace":               strings.Replace(whole, c.workspace.ID, other.workspace.ID, 1),
			"another workspace's signature":   address + "?expires=" + expires + "&signature=" + signatureOf(foreign),
			"another environment":             strings.Replace(whole, "/live/", "/test/", 1),
			"another environment's signature": address + "?expires=" + expires + "&signature=" + signatureOf(sandbox),
			"path traversal":                  strings.Replace(whole, "/live/", "/live/x/..%2F..%2Flive/", 1),
			"plain path traversal":            strings.Replace(whole, "/files/", "/files/../files/", 1),
			"traversal to the database":       strings.Replace(whole, sum, "..%2F..%2F..%2Fturnpike.db", 1),
			"a doubled expiry":                address + "?expires=" + later + "&" + query,
			"a doubled signature":             address + "?expires=" + later + "&signature=" + strings.Repeat("0", len(signature)) + "&signature=" + signature,
		}
		for name, link := range forged {
			req, err := http.NewRequest("GET", link, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultTransport.RoundTrip(req) // unchanged, and without redirects
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || res.StatusCode != http.StatusForbidden && res.StatusCode != http.StatusNotFound || strings.Contains(string(body), "video") {
				t.Errorf("%s: got %d %s for %s, want 403 or 404 (%v)", name, res.StatusCode, body, link, err)
			}
		}
	})
}

// linkIn returns the only link in a body.
func linkIn(t *testing.T, body []byte) string {
	t.Helper()
	_, rest, found := strings.Cut(string(body), `"url":"`)
	link, _, _ := strings.Cut(rest, `"`)
	if !found || strings.Contains(rest, `"url":"`) || strings.Contains(string(body), `"file:`) {
		t.Fatalf("there is not one link in %s", body)
	}
	return link
}

// follow opens a link without a key.
func follow(t *testing.T, link string, want int) string {
	t.Helper()
	res, err := http.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		t.Errorf("%s answers %d %s, want %d (%v)", link, res.StatusCode, body, want, err)
	}
	return string(body)
}
