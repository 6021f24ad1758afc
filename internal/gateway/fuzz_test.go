package gateway

import "testing"

// FuzzReadChat checks that every accepted body has sensible bounds.
func FuzzReadChat(f *testing.F) {
	for _, seed := range []string{plainBody, streamUsageBody,
		`{"model":"m","n":3,"max_tokens":9223372036854775807,"tools":[{}],"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"input_audio":{"data":"AAAA"}}]}]}`,
		`{"models":["a","b"],"messages":[{"content":[{"image\u005furl":"data:image/x"}]},"image"],"response_format":{"type":"json_schema"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := readChat(body)
		if err != nil {
			return
		}
		if r.maxInput < frameTokens || r.choices < 1 || r.choices > 128 || r.maxOutput < 0 || r.maxOutput > maxTokenCount || len(r.models) == 0 {
			t.Errorf("%s: got %+v", body, r)
		}
		for _, name := range r.models {
			if name == "" || !isName(name) {
				t.Errorf("invalid model name %q", name)
			}
		}
		if out := withCredits(body, 1); len(out) == 0 && len(body) > 0 {
			t.Error("the splice lost everything")
		}
	})
}
