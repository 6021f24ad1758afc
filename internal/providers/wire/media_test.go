package wire

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"

	"turnpike/internal/providers"
)

func TestRequestsHaveTheirMethodAndBody(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
			return
		}
		_, _ = fmt.Fprintf(w, "%s %q %d %s", r.Method, r.Header.Get("Content-Type"), r.ContentLength, body)
	})
	for want, call := range map[string]Call{
		`GET "" 0 `:                      {Method: http.MethodGet},
		`DELETE "" 0 `:                   {Method: http.MethodDelete},
		`POST "application/json" 4 [{}]`: {Method: http.MethodPost, Body: []byte("[{}]")},
		`POST "application/json" 0 `:     {Method: http.MethodPost, Body: []byte{}},
		`PUT "text/plain" 2 ab`:          {Method: http.MethodPut, Body: []byte("ab"), Header: http.Header{"Content-Type": {"text/plain"}}},
	} {
		for _, path := range []string{"/", "/moved"} { // a redirect sends the body again
			call.URL = url + path
			resp, err := NewClient(Timeouts{}).Do(t.Context(), call)
			if err != nil {
				t.Fatalf("%s: %v", want, err)
			}
			if got, err := ReadAll(resp); !strings.HasPrefix(string(got), want) || err != nil {
				t.Errorf("%s: got %s, want %s: %v", path, got, want, err)
			}
		}
	}
}

func TestDownloadFromOtherServerDoesNotSendTheKey(t *testing.T) {
	t.Parallel()
	var keys atomic.Int32
	elsewhere := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			keys.Add(1)
		}
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "not with "+apiKey)
			return
		}
		_, _ = io.WriteString(w, "the file")
	})
	var home string
	home = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/back" && r.Header.Get("Authorization") != "" {
			keys.Add(1)
		}
		switch r.URL.Path {
		case "/same":
			http.Redirect(w, r, "/here", http.StatusSeeOther)
		case "/here":
			_, _ = io.WriteString(w, r.Header.Get("Authorization"))
		case "/away":
			http.Redirect(w, r, elsewhere+"/"+r.URL.RawQuery, http.StatusFound)
		case "/and-back": // redirected through another server: the key isn't sent again
			http.Redirect(w, r, elsewhere+"/?to="+home+"/back", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, elsewhere+"/?to="+home+"/loop", http.StatusFound)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/back":
			_, _ = io.WriteString(w, "back")
		}
	})
	header := http.Header{"Authorization": {"Bearer " + apiKey}}
	for path, want := range map[string]string{"/same": "Bearer " + apiKey, "/here": "Bearer " + apiKey, "/away": "the file", "/and-back": "back"} {
		resp, err := NewClient(Timeouts{}).Download(t.Context(), home+path, header, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if got, err := ReadAll(resp); string(got) != want || err != nil {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
	for path, want := range map[string]providers.Kind{home + "/loop": providers.KindProtocol, home + "/file": providers.KindProtocol, home + "/away?broken": providers.KindAuth, "file:///etc/passwd": providers.KindProtocol, "/relative": providers.KindProtocol, "http://[": providers.KindProtocol} {
		_, err := NewClient(Timeouts{}).Download(t.Context(), path, header, nil)
		if kindOf(err) != want || strings.Contains(err.Error(), apiKey) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if keys.Load() != 0 {
		t.Errorf("the key was given away %d times", keys.Load())
	}
}

func TestResponseBeyondTheLimitFails(t *testing.T) {
	t.Parallel()
	for size, ok := range map[int]bool{0: true, 9: true, 10: true, 11: false, 5000: false} {
		body, err := ReadAtMost(response(strings.NewReader(strings.Repeat("x", size))), 10)
		if ok && (err != nil || len(body) != size) || !ok && kindOf(err) != providers.KindProtocol {
			t.Errorf("%d: %d bytes, %v", size, len(body), err)
		}
		var into string
		err = ReadJSON(response(strings.NewReader(`"`+strings.Repeat("x", size)+`"`)), 12, &into)
		if ok && (err != nil || len(into) != size) || !ok && kindOf(err) != providers.KindProtocol {
			t.Errorf("%d as JSON: %d bytes, %v", size, len(into), err)
		}
	}
	if err := ReadJSON(response(endless(' ')), 1<<20, new(string)); kindOf(err) != providers.KindProtocol || !strings.Contains(err.Error(), "more than") {
		t.Errorf("without an end: %v", err)
	}
}

func TestFormFilesAreUnchanged(t *testing.T) {
	t.Parallel()
	form := NewForm()
	form.Field("prompt", "a\r\nb ü")
	data := []byte("\x89PNG\r\n\x1a\n and more")
	form.File("image", "image", &providers.Upload{Name: "a\"b\r\nX-Evil: 1.png", ContentType: "image/webp; v=1", Data: data})
	form.File("mask", "mask", &providers.Upload{ContentType: "no type\r\nX-Evil: 1", Data: data})
	whole, kind := form.Close()
	if bytes.Contains(whole, []byte("\nX-Evil")) {
		t.Errorf("a name or a type made a header: %s", whole)
	}
	_, params, _ := mime.ParseMediaType(kind)
	read, err := multipart.NewReader(bytes.NewReader(whole), params["boundary"]).ReadForm(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	image, mask := read.File["image"][0], read.File["mask"][0]
	if read.Value["prompt"][0] != "a\r\nb ü" || image.Header.Get("Content-Type") != "image/webp; v=1" || mask.Filename != "mask" || mask.Header.Get("Content-Type") != "image/png" || image.Size != int64(len(data)) {
		t.Errorf("got %v, %v, %v", read.Value, image.Header, mask.Header)
	}
}

func TestImageTypeIsDetected(t *testing.T) {
	t.Parallel()
	for begin, want := range map[string]string{"\x89PNG\r\n\x1a\n": "image/png", "\xff\xd8\xff\xe0": "image/jpeg", "RIFF\x10\x00\x00\x00WEBPVP": "image/webp", "GIF89a": "", "<svg>": "", "": ""} {
		picture, err := NewImage([]byte(begin), "revised")
		if want == "" && kindOf(err) != providers.KindProtocol || want != "" && (err != nil || picture.ContentType != want || picture.RevisedPrompt != "revised") {
			t.Errorf("%q is %s, %v", begin, picture.ContentType, err)
		}
	}
}

func FuzzBase64(f *testing.F) {
	for _, seed := range []string{`"aGVsbG8="`, `"aGVsbG8"`, `"data:image/png;base64,aGVsbG8="`, `null`, `7`, `"\u0061\/=="`, `"data:"`, `"!"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var in struct{ File Base64 }
		if err := json.Unmarshal([]byte(`{"File":`+text+`}`), &in); err == nil && len(in.File) > len(text) {
			t.Errorf("%s became %q", text, in.File)
		}
	})
}
