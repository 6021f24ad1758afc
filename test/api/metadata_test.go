package api_test

import (
	"bytes"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func TestMetadataThatHoldsAKeyIsRejected(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		c := newClient(t, s, accounts.Test)
		leaked, _ := c.Key(t, c.workspace, accounts.Test, "models:read")
		image := map[string]any{"custom_id": "a", "body": map[string]any{"prompt": "p", "size": "64x64"}}
		for path, body := range map[string]map[string]any{
			"/v1/images/batches": {"requests": []any{image}},
			"/v1/videos":         {"prompt": "p", "size": "64x64", "seconds": 1},
			"/v1/voice/renders":  {"voice": "alloy", "input": "Hi."},
			"/v1/agents/runs":    {"model": "gpt-4o-mini", "input": "hi"},
		} {
			for _, metadata := range []map[string]string{{"note": "it is " + leaked}, {leaked: "x"}} {
				body["metadata"] = metadata
				r := c.ask(t, "POST", path, body)
				if r.Status != 400 || r.Code() != "invalid_parameter" || r.Text("error.param") != "metadata" || bytes.Contains(r.Body, []byte(leaked)) {
					t.Errorf("%s: got %d %s, want 400 invalid_parameter", path, r.Status, r.Body)
				}
			}
			body["metadata"] = map[string]string{"note": "tp_test_ is a prefix"}
			c.post(t, path, body)
		}
		if bytes.Contains(s.DumpDatabase(t), []byte(leaked[8:])) {
			t.Error("the database contains the key")
		}
	})
}
