package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// with returns a request with other fields.
func with(order map[string]any, more ...any) map[string]any {
	for i := 0; i < len(more); i += 2 {
		order[more[i].(string)] = more[i+1]
	}
	return order
}

// one returns a batch of one request.
func one(custom any, body any) map[string]any {
	return map[string]any{"model": "pic", "requests": []any{map[string]any{"custom_id": custom, "body": body}}}
}

func prompted(more ...any) map[string]any { return with(map[string]any{"prompt": "p"}, more...) }

func TestInvalidMediaRequestsAreRejected(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		many := make([]string, 1001)
		twice := batchBody("a", "b")
		twice["requests"].([]map[string]any)[1]["custom_id"] = "c0"
		segments := func(list ...any) map[string]any {
			return map[string]any{"model": "talk", "voice": "alloy", "segments": list}
		}
		for _, c := range []struct {
			path  string
			order any
			code  string
			param string
		}{
			{batches, map[string]any{}, "missing_parameter", "requests"},
			{batches, map[string]any{"requests": []any{}}, "missing_parameter", "requests"},
			{batches, batchBody(many...), "invalid_parameter", "requests"},
			{batches, twice, "invalid_parameter", "requests[1].custom_id"},
			{batches, one("", prompted()), "invalid_parameter", "requests[0].custom_id"},
			{batches, one(" ", prompted()), "invalid_parameter", "requests[0].custom_id"},
			{batches, one(strings.Repeat("é", 65), prompted()), "invalid_parameter", "requests[0].custom_id"},
			{batches, one("a\x00b", prompted()), "invalid_parameter", "requests[0].custom_id"},
			{batches, one("a", nil), "missing_parameter", "requests[0].body"},
			{batches, one("a", "p"), "missing_parameter", "requests[0].body"},
			{batches, one("a", map[string]any{}), "missing_parameter", "requests[0].body.prompt"},
			{batches, one("a", prompted("prompt", " ")), "missing_parameter", "requests[0].body.prompt"},
			{batches, one("a", prompted("prompt", strings.Repeat("x", 32_001))), "invalid_parameter", "requests[0].body.prompt"},
			{batches, one("a", prompted("n", 0)), "invalid_parameter", "requests[0].body.n"},
			{batches, one("a", prompted("n", 11)), "invalid_parameter", "requests[0].body.n"},
			{batches, one("a", prompted("n", 1.5)), "invalid_parameter", "requests[0].body.n"},
			{batches, one("a", prompted("size", "big")), "invalid_parameter", "requests[0].body.size"},
			{batches, one("a", prompted("size", "0x0")), "invalid_parameter", "requests[0].body.size"},
			{batches, one("a", prompted("size", "64x9999")), "invalid_parameter", "requests[0].body.size"},
			{batches, one("a", prompted("size", "-1x64")), "invalid_parameter", "requests[0].body.size"},
			{batches, one("a", prompted("model", "pic")), "invalid_parameter", "requests[0].body.model"},
			{batches, one("a", prompted("stream", true)), "invalid_parameter", "requests[0].body.stream"},
			{batches, with(batchBody("a"), "model", "none"), "model_not_found", "model"},
			{batches, with(batchBody("a"), "model", "film"), "model_not_found", "model"},
			{batches, with(batchBody("a"), "model", 7), "invalid_parameter", "model"},
			{batches, with(batchBody("a"), "colour", "red"), "unknown_parameter", "colour"},
			{batches, with(batchBody("a"), "metadata", map[string]any{"": "x"}), "invalid_parameter", "metadata"},
			{batches, with(batchBody("a"), "metadata", map[string]any{"a": strings.Repeat("x", 513)}), "invalid_parameter", "metadata"},
			{batches, with(batchBody("a"), "metadata", seventeen()), "invalid_parameter", "metadata"},
			{batches, `{"requests":`, "invalid_json", ""},

			{videos, videoBody(""), "missing_parameter", "prompt"},
			{videos, videoBody(" \n"), "missing_parameter", "prompt"},
			{videos, videoBody(strings.Repeat("x", 32_001)), "invalid_parameter", "prompt"},
			{videos, with(videoBody("p"), "size", "wide"), "invalid_parameter", "size"},
			{videos, with(videoBody("p"), "size", "0x0"), "invalid_parameter", "size"},
			{videos, with(videoBody("p"), "seconds", "0"), "invalid_parameter", "seconds"},
			{videos, with(videoBody("p"), "seconds", "61"), "invalid_parameter", "seconds"},
			{videos, with(videoBody("p"), "seconds", "four"), "invalid_parameter", "seconds"},
			{videos, with(videoBody("p"), "seconds", -4), "invalid_parameter", "seconds"},
			{videos, with(videoBody("p"), "seconds", 4.5), "invalid_parameter", "seconds"},
			{videos, with(videoBody("p"), "seconds", []int{4}), "invalid_parameter", "seconds"},
			{videos, with(videoBody("p"), "model", "pic"), "model_not_found", "model"},
			{videos, with(videoBody("p"), "input_reference", map[string]any{"file_id": "file_1"}), "invalid_parameter", "input_reference"},
			{videos, with(videoBody("p"), "input_reference", map[string]any{"image_url": "https://example.com/a.png"}), "invalid_parameter", "input_reference"},
			{videos, with(videoBody("p"), "input_reference", map[string]any{"image_url": "data:image/png;base64,!"}), "invalid_parameter", "input_reference"},
			{videos, with(videoBody("p"), "input_reference", map[string]any{"image_url": "data:image/png;base64,aGVsbG8="}), "invalid_parameter", "input_reference"},
			{videos, with(videoBody("p"), "n", 4), "unknown_parameter", "n"},
			{videos, with(videoBody("p"), "Size", "1280x720"), "unknown_parameter", "Size"},

			{renders, map[string]any{"voice": "alloy"}, "missing_parameter", "input"},
			{renders, speechBody(""), "missing_parameter", "input"},
			{renders, speechBody(" \n\t"), "missing_parameter", "input"},
			{renders, speechBody(strings.Repeat("é", 1_000_001)), "invalid_parameter", "input"},
			{renders, with(speechBody("a"), "voice", ""), "missing_parameter", "voice"},
			{renders, with(speechBody("a"), "voice", strings.Repeat("v", 200)), "invalid_parameter", "voice"},
			{renders, with(speechBody("a"), "segments", []any{map[string]any{"text": "b"}}), "invalid_parameter", "segments"},
			{renders, with(speechBody("a"), "response_format", "ogg"), "invalid_parameter", "response_format"},
			{renders, with(speechBody("a"), "response_format", "WAV"), "invalid_parameter", "response_format"},
			{renders, with(speechBody("a"), "speed", 0.1), "invalid_parameter", "speed"},
			{renders, with(speechBody("a"), "speed", 5), "invalid_parameter", "speed"},
			{renders, with(speechBody("a"), "model", "pic"), "model_not_found", "model"},
			{renders, segments(), "missing_parameter", "input"},
			{renders, segments(map[string]any{"text": "a"}, map[string]any{"text": " "}), "missing_parameter", "segments[1].text"},
			{renders, segments(map[string]any{"text": "a", "pause_ms": -1}), "invalid_parameter", "segments[0].pause_ms"},
			{renders, segments(map[string]any{"text": "a", "pause_ms": 60_001}), "invalid_parameter", "segments[0].pause_ms"},
			{renders, segments(map[string]any{"text": "a", "voice": "\n"}), "invalid_parameter", "segments[0].voice"},
			{renders, segments(map[string]any{"text": strings.Repeat("a", 600_000)}, map[string]any{"text": strings.Repeat("a", 400_001)}), "invalid_parameter", "segments"},
			{renders, segments(map[string]any{"text": "a", "tone": "high"}), "unknown_parameter", "segments[0].tone"},
		} {
			r := s.ask(t, "POST", c.path, c.order)
			if status := map[bool]int{true: 404, false: 400}[c.code == "model_not_found"]; r.Status != status || r.Code() != c.code || r.Text("error.param") != c.param {
				t.Errorf("%s %.100v: %d %s", c.path, fmt.Sprint(c.order), r.Status, r.Body)
			}
		}
		if n := s.rows(t, "media_jobs"); n != 0 {
			t.Errorf("%d jobs were made", n)
		}
		for _, path := range []string{batches, videos, renders} {
			for _, id := range []string{"x", "imgbatch_", "video_00000000000000000000000000", "%00"} {
				for _, r := range []*harness.Response{s.ask(t, "GET", path+"/"+id, nil), s.ask(t, "DELETE", path+"/"+id, nil), s.ask(t, "POST", path+"/"+id+"/cancel", nil)} {
					r.Want(t, 404, "not_found")
				}
			}
		}
	})
}

func seventeen() map[string]any {
	out := map[string]any{}
	for i := range 17 {
		out[fmt.Sprint("k", i)] = "v"
	}
	return out
}

func TestInvalidMediaFormsAreRejected(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		text := func(name, value string) formPart { return formPart{name: name, data: []byte(value)} }
		file := func(name, data string) formPart { return formPart{name, "a.png", "image/png", []byte(data)} }
		picture := string(upstreams.PNG())
		for _, c := range []struct {
			path  string
			parts []formPart
			param string
		}{
			{videos, nil, "prompt"},
			{videos, []formPart{text("model", "film")}, "prompt"},
			{videos, []formPart{text("prompt", "p"), text("prompt", "q")}, "prompt"},
			{videos, []formPart{text("prompt", "p"), text("n_variants", "4")}, "n_variants"},
			{videos, []formPart{text("prompt", "p"), text("metadata", "[]")}, "metadata"},
			{videos, []formPart{text("prompt", "p"), text("seconds", "x")}, "seconds"},
			{videos, []formPart{text("prompt", "p"), file("input_reference", "no picture")}, "input_reference"},
			{videos, []formPart{text("prompt", "p"), file("input_reference", "<html><script>")}, "input_reference"},
			{videos, []formPart{text("prompt", "p"), file("input_reference", picture), file("input_reference", picture)}, "input_reference"},
			{"/v1/images/edits", nil, "image"},
			{"/v1/images/edits", []formPart{text("prompt", "p")}, "image"},
			{"/v1/images/edits", []formPart{text("model", "pic"), file("image", picture)}, "prompt"},
			{"/v1/images/edits", []formPart{text("prompt", "p"), file("image", "no picture")}, "image"},
			{"/v1/images/edits", []formPart{text("prompt", "p"), file("image", picture), file("mask", "no picture")}, "mask"},
			{"/v1/images/edits", []formPart{text("prompt", "p"), text("n", "11"), file("image", picture)}, "n"},
			{"/v1/images/edits", []formPart{text("prompt", "p"), text("n", "x"), file("image", picture)}, "n"},
			{"/v1/images/edits", []formPart{text("prompt", "p"), text("size", "x"), file("image", picture)}, "size"},
		} {
			body, header := formOf(t, "edge", c.parts...)
			r := s.Do(t, harness.Request{Method: "POST", Path: c.path, Key: s.key, Body: body, Header: header})
			if r.Status != 400 || r.Text("error.param") != c.param {
				t.Errorf("%s without %s: %d %s", c.path, c.param, r.Status, r.Body)
			}
		}
		body, header := formOf(t, "edge", text("prompt", "p"), text("input_reference", "hello"))
		if r := s.Do(t, harness.Request{Method: "POST", Path: videos, Key: s.key, Body: body, Header: header}).Want(t, 400, "invalid_parameter"); !strings.Contains(r.Text("error.message"), "must be a file") {
			t.Errorf("a text in place of a file: %s", r.Body)
		}
		send := func(path, kind, body string) *harness.Response {
			return s.Do(t, harness.Request{Method: "POST", Path: path, Key: s.key, Body: body, Header: http.Header{"Content-Type": {kind}}})
		}
		for _, path := range []string{videos, "/v1/images/edits"} {
			send(path, "multipart/form-data", "--x--").Want(t, 415, "unsupported_media_type")
			if r := send(path, "multipart/form-data; boundary=x", "nothing of the kind"); r.Status != 400 {
				t.Errorf("%s takes what is no form: %d %s", path, r.Status, r.Body)
			}
			if r := send(path, "multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\ncut"); r.Status != 400 {
				t.Errorf("%s takes a form that was cut off: %d %s", path, r.Status, r.Body)
			}
			if r := send(path, "multipart/form-data; boundary=x", strings.Repeat("--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n", 200)+"--x--\r\n"); r.Status != 400 {
				t.Errorf("%s takes a form with 200 parts: %d %s", path, r.Status, r.Body)
			}
		}
		send("/v1/images/edits", "application/json", `{"prompt":"p"}`).Want(t, 415, "unsupported_media_type")
		send(batches, "multipart/form-data; boundary=x", "--x--").Want(t, 415, "unsupported_media_type")
		if n := s.rows(t, "files"); n != 0 {
			t.Errorf("got %d files", n)
		}
	})
}

func TestMediaRequestsAtTheirLimitsAreAccepted(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		s.withBusyLane(t, func() string {
			list := make([]string, 1000)
			for i := range list {
				list[i] = "p"
			}
			s.createJob(t, batches, batchBody(list...))
			s.createJob(t, batches, one(strings.Repeat("é", 64), prompted("n", 10, "size", "auto", "quality", "hd", "unknown", map[string]any{"to": "us"})))
			s.createJob(t, videos, with(videoBody(strings.Repeat("é", 32_000)), "seconds", 60, "size", "4096x4096"))
			return s.createJob(t, renders, speechBody(strings.Repeat("é", 1_000_000)))
		})
		for _, path := range []string{batches, videos, renders} {
			for _, id := range idsOf(s.get(t, path)) {
				s.post(t, path+"/"+id+"/cancel", nil)
			}
		}
		s.checkLedger(t, 0)
	})
}

func TestMediaRequestIsIdempotent(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		for path, order := range map[string]any{batches: batchBody("one"), videos: videoBody("one"), renders: speechBody("One.")} {
			send := func(order any) *harness.Response {
				return s.Do(t, harness.Request{Method: "POST", Path: path, Key: s.key, Body: order, Header: http.Header{"Idempotency-Key": {"once"}}})
			}
			first := send(order).Want(t, 200, "")
			for range 2 {
				if again := send(order).Want(t, 200, ""); string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replayed") != "true" {
					t.Errorf("a second time: %s", again.Body)
				}
			}
			send(with(map[string]any{}, "metadata", map[string]any{})).Want(t, 409, "idempotency_key_reused")
			if n := len(idsOf(s.get(t, path))); n != 1 {
				t.Errorf("%d jobs were made at %s", n, path)
			}
		}
	})
}
