package gateway

import "testing"

// FuzzReadChat: whatever a caller sends, a call that is taken has a bound that
// makes sense, and what it says of itself agrees.
func FuzzReadChat(f *testing.F) {
	for _, seed := range []string{plainCall, countedCall,
		`{"model":"m","n":3,"max_tokens":9223372036854775807,"tools":[{}],"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"input_audio":{"data":"AAAA"}}]}]}`,
		`{"models":["a","b"],"messages":[{"content":[{"image\u005furl":"data:image/x"}]},"image"],"response_format":{"type":"json_schema"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := readChat(body)
		if err != nil {
			return
		}
		if r.inputBound < frameTokens || r.choices < 1 || r.choices > 128 || r.maxOutput < 0 || r.maxOutput > mostOutput || len(r.models) == 0 {
			t.Errorf("%s gave %+v", body, r)
		}
		for _, name := range r.models {
			if name == "" || !isName(name) {
				t.Errorf("a model is named %q", name)
			}
		}
		if n := saidIn(body); n < 0 || n > int64(len(body)) {
			t.Errorf("%s says %d tokens", body, n)
		}
		if out := spliceUsage(body, 1); len(out) == 0 && len(body) > 0 {
			t.Error("a splice has lost everything")
		}
	})
}
