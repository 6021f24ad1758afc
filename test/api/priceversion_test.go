package api_test

import (
	"slices"
	"testing"
)

func TestEveryChargeRecordsItsPriceVersion(t *testing.T) {
	eachGateway(t, both, withOtherModels, func(t *testing.T, m *gatewayClient) {
		for path, in := range map[string]any{
			"/v1/chat/completions":   body("small", "Hi.", nil),
			"/v1/responses":          map[string]any{"model": "small", "input": "Hi."},
			"/v1/messages":           messageBody("small", "Hi.", nil),
			"/v1/embeddings":         map[string]any{"model": "embed", "input": "Hi."},
			"/v1/images/generations": map[string]any{"model": "picture", "prompt": "A road."},
			"/v1/audio/speech":       map[string]any{"model": "mouth", "voice": "alloy", "input": "Hi."},
		} {
			if got := m.ask(t, "POST", path, in); got.Status != 200 {
				t.Errorf("%s: %d %s", path, got.Status, got.Body)
			}
		}
		m.transcribe(t, transcriptions, recording(1000), "model=ear").Want(t, 200, "")
		ended := []string{"completed", "failed"}
		run := m.post(t, "/v1/agents/runs", map[string]any{"model": "small", "input": "Hi."})
		m.waitForStatus(t, "/v1/agents/runs/"+run.Text("id"), ended...)
		background := m.ask(t, "POST", "/v1/responses", inBackground("small", "Hi.", nil)).Want(t, 200, "")
		m.waitForStatus(t, "/v1/responses/"+background.Text("id"), ended...)
		voice := m.ask(t, "POST", renders, map[string]any{"model": "mouth", "voice": "alloy", "input": "Hi."}).Want(t, 200, "")
		m.waitForStatus(t, renders+"/"+voice.Text("id"), ended...)
		m.waitForBatch(t, m.createBatch(t, "/v1/chat/completions", jsonLines(t, chatLine("a", "small", "Hi."))), "completed")

		version := m.entry(t, m.chat(t, body("small", "Hi.", nil)).Want(t, 200, "")).Text("price_version")
		charged := map[string]int{}
		for _, e := range m.entries(t) {
			if e["credits"] == 0.0 {
				continue
			}
			charged[e["path"].(string)]++
			if e["price_version"] != version {
				t.Errorf("%s was charged %v credits at the prices %v, want %s", e["path"], e["credits"], e["price_version"], version)
			}
		}
		for _, path := range []string{"/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/images/generations", "/v1/audio/speech", transcriptions, renders} {
			if charged[path] == 0 {
				t.Errorf("no charge for %s in %v", path, charged)
			}
		}
		if n := charged["/v1/responses"]; n != 2 || version == "" || !slices.Contains([]int{2, 3}, charged["/v1/chat/completions"]) {
			t.Errorf("got the charges %v", charged)
		}
	})
}
