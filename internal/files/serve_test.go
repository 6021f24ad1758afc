package files_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/files"
	"turnpike/test/fakes/s3"
)

func TestChangedURLIsRejected(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := open(t, d, "", false)
		f := r.put(acme, "imgbatch_1", "image/png", "a picture")
		other := r.put(acme, "imgbatch_1", "image/png", "another")
		for _, o := range []accounts.Tenant{{WorkspaceID: "ws_2", Environment: "live"}, {WorkspaceID: "ws_1", Environment: "test"}} {
			r.put(o, "imgbatch_9", "image/png", "a picture") // they have the same file
		}
		whole := r.URL(acme, f, "a.png", begin.Add(time.Hour))
		want := "https://api.example.com/files/ws_1/live/" + f.SHA256 + "/a.png?expires=1773493200&signature="
		if !strings.HasPrefix(whole, want) || len(whole) != len(want)+64 {
			t.Fatalf("the url is %s", whole)
		}
		if w := r.fetch(http.MethodGet, whole); w.Code != http.StatusOK || w.Body.String() != "a picture" {
			t.Fatalf("the url itself: %d %s", w.Code, w.Body)
		}
		_, signature, _ := strings.Cut(whole, "signature=")
		flipped := strings.Map(func(c rune) rune {
			if c == '0' {
				return '1'
			}
			return c
		}, "0"+signature[1:])
		foreign := r.URL(accounts.Tenant{WorkspaceID: "ws_2", Environment: "live"}, f, "a.png", begin.Add(time.Hour))
		for name, c := range map[string]struct {
			url  string
			want int
		}{
			"another workspace":        {strings.Replace(whole, "/ws_1/", "/ws_2/", 1), 403},
			"another environment":      {strings.Replace(whole, "/live/", "/test/", 1), 403},
			"another file":             {strings.Replace(whole, f.SHA256, other.SHA256, 1), 403},
			"another name":             {strings.Replace(whole, "a.png", "b.html", 1), 403},
			"a longer life":            {strings.Replace(whole, "=1773493200", "=1773493201", 1), 403},
			"the time with a zero":     {strings.Replace(whole, "=1773493200", "=01773493200", 1), 403},
			"no time":                  {strings.Replace(whole, "expires=1773493200&", "", 1), 403},
			"no signature":             {strings.Replace(whole, "&signature="+signature, "", 1), 403},
			"an empty signature":       {strings.Replace(whole, signature, "", 1), 403},
			"another signature":        {strings.Replace(whole, signature, flipped, 1), 403},
			"half a signature":         {strings.Replace(whole, signature, signature[:32], 1), 403},
			"a signature and more":     {whole + "0", 403},
			"a signature in capitals":  {strings.Replace(whole, signature, strings.ToUpper(signature), 1), 403},
			"another's signature":      {whole[:len(whole)-64] + foreign[len(foreign)-64:], 403},
			"parts that shifted":       {strings.Replace(whole, "/ws_1/live/", "/ws_1%0Alive/", 1), 403},
			"an escaped slash":         {strings.Replace(whole, "/ws_1/live/", "/ws_1%2Flive/", 1), 200}, // the same parts
			"no name":                  {strings.Replace(whole, "/a.png", "", 1), 403},
			"nothing":                  {"https://api.example.com/files/", 403},
			"an extra parameter":       {whole + "&download=1", 200},
			"another's, by their link": {foreign, 200},
		} {
			w := r.fetch(http.MethodGet, c.url)
			if w.Code != c.want {
				t.Errorf("%s: %d, want %d", name, w.Code, c.want)
			}
			if c.want == 403 && (!strings.HasPrefix(w.Body.String(), "invalid_signature") || strings.Contains(w.Body.String(), "picture")) {
				t.Errorf("%s: %s", name, w.Body)
			}
		}
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
			if w := r.fetch(method, whole); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s: %d", method, w.Code)
			}
		}
		r.advance(time.Hour - time.Second)
		if w := r.fetch(http.MethodGet, whole); w.Code != http.StatusOK {
			t.Errorf("a second before it expires: %d", w.Code)
		}
		r.advance(time.Second)
		if w := r.fetch(http.MethodGet, whole); w.Code != http.StatusForbidden {
			t.Errorf("when it expires: %d", w.Code)
		}
		r.advance(time.Second)
		if w := r.fetch(http.MethodGet, whole); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "expired") {
			t.Errorf("a second later: %d %s", w.Code, w.Body)
		}
	})
}

func TestURLSignedWithAnotherKeyIsRejected(t *testing.T) {
	t.Parallel()
	r := open(t, dbtest.Open(t, dbtest.Address(t, "sqlite")), "", false)
	f := r.put(acme, "imgbatch_1", "image/png", "a picture")
	other, err := files.Open(t.Context(), files.Options{DB: r.db, Dir: t.TempDir(), Key: []byte("another"), PublicURL: "https://api.example.com",
		Retention: month, Now: r.clock})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if w := r.fetch(http.MethodGet, other.URL(acme, f, "a.png", begin.Add(time.Hour))); w.Code != http.StatusForbidden {
		t.Errorf("%d", w.Code)
	}
}

func TestDownloadsSupportRangesAndCaching(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		f := r.put(acme, "imgbatch_1", "image/png", "0123456789")
		url := r.URL(acme, f, "a.png", begin.Add(90*time.Minute))
		etag := `"` + f.SHA256 + `"`
		w := r.fetch(http.MethodGet, url)
		for name, want := range map[string]string{
			"Content-Type": "image/png", "Content-Length": "10", "Content-Disposition": "inline; filename=a.png", "ETag": etag, "Accept-Ranges": "bytes",
			"Cache-Control": "private, max-age=5400, immutable", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox",
			"Access-Control-Allow-Origin": "*",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if w.Code != http.StatusOK || w.Body.String() != "0123456789" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := r.fetch(http.MethodHead, url); w.Code != http.StatusOK || w.Body.Len() != 0 || w.Header().Get("Content-Length") != "10" {
			t.Errorf("HEAD: %d with %d bytes", w.Code, w.Body.Len())
		}
		for _, c := range []struct {
			header, value, got string
			status             int
		}{
			{"Range", "bytes=2-4", "234", 206},
			{"Range", "bytes=7-", "789", 206},
			{"Range", "bytes=-3", "789", 206},
			{"Range", "bytes=0-99", "0123456789", 206},
			{"Range", "bytes=10-", "", 416},
			{"If-None-Match", etag, "", 304},
			{"If-None-Match", `"other", ` + etag, "", 304},
			{"If-None-Match", `"other"`, "0123456789", 200},
		} {
			w := r.fetch(http.MethodGet, url, c.header, c.value)
			if w.Code != c.status || c.status < 400 && w.Body.String() != c.got {
				t.Errorf("%s %s: %d %q", c.header, c.value, w.Code, w.Body)
			}
		}
		if w := r.fetch(http.MethodGet, url, "Range", "bytes=2-4", "If-Range", `"other"`); w.Code != http.StatusOK || w.Body.String() != "0123456789" {
			t.Errorf("a range of another file: %d %q", w.Code, w.Body)
		}
		if w := r.fetch(http.MethodGet, url, "Range", "bytes=0-1,8-9"); w.Code != http.StatusPartialContent || !strings.Contains(w.Body.String(), "01") || !strings.Contains(w.Body.String(), "89") {
			t.Errorf("two ranges: %d %q", w.Code, w.Body)
		}
	})
}

func TestContentDispositionEscapesTheFileName(t *testing.T) {
	t.Parallel()
	r := open(t, dbtest.Open(t, dbtest.Address(t, "sqlite")), "", false)
	for _, c := range []struct{ contentType, name, want string }{
		{"video/mp4", "v.mp4", "inline; filename=v.mp4"},
		{"audio/wav", "two words.wav", `inline; filename="two words.wav"`},
		{"text/html", "page.html", "attachment; filename=page.html"},
		{"application/json", `a"b\c.json`, `attachment; filename="a\"b\\c.json"`},
		{"image/png", "größe.png", "inline; filename*=utf-8''gr%C3%B6%C3%9Fe.png"},
		{"text/plain", "a\r\nSet-Cookie: x=1.txt", "attachment; filename*=utf-8''a%0D%0ASet-Cookie%3A%20x%3D1.txt"},
		{"no type at all", "a b/c?d#e%.bin", `attachment; filename="a b/c?d#e%.bin"`},
	} {
		f := r.put(acme, "imgbatch_1", c.contentType, c.name)
		w := r.fetch(http.MethodGet, r.URL(acme, f, c.name, begin.Add(time.Hour)))
		if got := w.Header().Get("Content-Disposition"); w.Code != http.StatusOK || got != c.want {
			t.Errorf("%q of type %s: %d %s", c.name, c.contentType, w.Code, got)
		}
	}
}

func TestFileWithoutBytesIsNotServed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := s3.New(t)
		r := open(t, d, server.Address(""), false)
		f := r.put(acme, "imgbatch_1", "image/png", "a picture")
		server.Clear()
		if got := r.status(acme, f); got != http.StatusNotFound {
			t.Errorf("without bytes: got %d, want 404", got)
		}
		server.Close()
		if got := r.status(acme, f); got != http.StatusServiceUnavailable {
			t.Errorf("without the bucket: got %d, want 503", got)
		}
	})
}

func TestDownloadsRedirectToTheBucket(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	bucket := s3.New(t)
	r := open(t, d, bucket.Address(""), true)
	f := r.put(acme, "imgbatch_1", "image/png", "a picture")
	own := r.URL(acme, f, "a.png", begin.Add(time.Hour))
	if again := r.URL(acme, f, "a.png", begin.Add(time.Hour)); again != own {
		t.Errorf("got two links for the same file: %s, %s", own, again)
	}
	w := r.fetch(http.MethodGet, own)
	there, err := url.Parse(w.Header().Get("Location"))
	if err != nil || w.Code != http.StatusFound || w.Header().Get("Cache-Control") != "no-store" || !strings.HasPrefix(there.String(), bucket.URL) ||
		there.Query().Get("X-Amz-Signature") == "" || there.Query().Get("X-Amz-Expires") != "900" {
		t.Fatalf("%d to %s (%v)", w.Code, there, err)
	}
	res, err := http.Get(there.String())
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || string(body) != "a picture" || res.Header.Get("Content-Type") != "image/png" || res.Header.Get("Content-Disposition") != "inline; filename=a.png" {
		t.Errorf("the bucket sent %q as %v (%v)", body, res.Header, err)
	}
	if w := r.fetch(http.MethodHead, own); w.Code != http.StatusOK || w.Header().Get("Content-Length") != "9" {
		t.Errorf("HEAD: %d", w.Code)
	}
	if w := r.fetch(http.MethodGet, strings.Replace(own, "a.png", "b.png", 1)); w.Code != http.StatusForbidden {
		t.Errorf("changed name: got %d, want 403", w.Code)
	}
	r.drop(acme, "imgbatch_1")
	if w := r.fetch(http.MethodGet, own); w.Code != http.StatusNotFound {
		t.Errorf("dropped: %d", w.Code)
	}
	// A directory can't sign URLs, so Turnpike sends the file.
	r = open(t, d, "", true)
	f = r.put(acme, "imgbatch_2", "image/png", "a picture")
	if w := r.fetch(http.MethodGet, r.URL(acme, f, "a.png", begin.Add(time.Hour))); w.Code != http.StatusOK || w.Body.String() != "a picture" {
		t.Errorf("from a directory: got %d, want 200", w.Code)
	}
}
