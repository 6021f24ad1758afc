package api_test

import (
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func newKey(by string, body map[string]any) harness.Request {
	return harness.Request{Method: "POST", Path: "/v1/keys", Key: by, Body: body}
}

func TestKeyValueIsShownOnce(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		admin, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Live)
		r := s.Do(t, newKey(admin, map[string]any{"name": "worker", "scopes": []string{"images:create"}, "monthly_budget": 12.5})).Want(t, 200, "")
		value, id := r.Text("value"), r.Text("id")
		if r.Text("prefix") != "tp_live_" || r.Text("last_four") != value[len(value)-4:] || r.At("monthly_budget") != 12.5 || r.Text("environment") != "live" {
			t.Errorf("the key looks wrong: %s", r.Body)
		}
		got := s.Do(t, harness.Request{Method: "GET", Path: "/v1/keys/" + id, Key: admin}).Want(t, 200, "")
		list := s.Do(t, harness.Request{Method: "GET", Path: "/v1/keys", Key: admin}).Want(t, 200, "")
		for _, answer := range []*harness.Response{r, got, list} {
			if kept := answer.Header.Get("Cache-Control"); kept != "no-store" {
				t.Errorf("Cache-Control is %q", kept)
			}
		}
		if got.At("value") != nil || list.At("data.0.value") != nil || list.Text("data.0.id") != id {
			t.Errorf("read again: %s %s", got.Body, list.Body)
		}
	})
}

func TestAdminLogRecordsAllPropertiesOfAKey(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		admin, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Live)
		ends := s.Clock.Now().Unix() + 3600
		id := s.Do(t, newKey(admin, map[string]any{"name": "worker", "scopes": []string{"images:create"}, "monthly_budget": 5, "rate_limit": 60,
			"allowed_ips": []string{"10.0.0.0/8"}, "project": "web", "expires_at": ends})).Want(t, 200, "").Text("id")
		s.Do(t, harness.Request{Method: "PATCH", Path: "/v1/keys/" + id, Key: admin, Body: map[string]any{"monthly_budget": 100000, "rate_limit": nil,
			"allowed_ips": []string{}, "project": nil, "expires_at": nil}}).Want(t, 200, "")
		log := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/actions?limit=2", Key: admin}).Want(t, 200, "")
		for at, want := range map[string]any{"data.0.action": "key.updated", "data.0.detail.monthly_budget": 100000.0, "data.0.detail.rate_limit": nil,
			"data.0.detail.allowed_ips.0": nil, "data.0.detail.project": nil, "data.0.detail.expires_at": nil,
			"data.1.action": "key.created", "data.1.detail.monthly_budget": 5.0, "data.1.detail.rate_limit": 60.0,
			"data.1.detail.allowed_ips.0": "10.0.0.0/8", "data.1.detail.project": "web", "data.1.detail.expires_at": float64(ends)} {
			if got := log.At(at); got != want {
				t.Errorf("%s is %v, not %v, in %s", at, got, want, log.Body)
			}
		}
	})
}

func TestKeyManagesOnlyKeysNoWiderThanItself(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Test)
		bounds := map[string]any{"name": "n", "scopes": []string{"keys:write", "keys:read", "images:create"}, "monthly_budget": 100, "project": "p1",
			"allowed_ips": []string{"127.0.0.0/8"}, "rate_limit": 60, "expires_at": s.Clock.Now().Unix() + 3600}
		widerID := s.Do(t, newKey(admin, map[string]any{"name": "n", "scopes": []string{"*"}, "project": "p1"})).Want(t, 200, "").Text("id")
		made := s.Do(t, newKey(admin, bounds)).Want(t, 200, "")
		bounded, boundedID := made.Text("value"), made.Text("id")

		with := func(name string, value any) map[string]any {
			out := map[string]any{}
			for k, v := range bounds {
				out[k] = v
			}
			if value == nil {
				delete(out, name)
			} else {
				out[name] = value
			}
			return out
		}
		s.Do(t, newKey(bounded, bounds)).Want(t, 200, "")
		s.Do(t, newKey(bounded, with("monthly_budget", 99.999999))).Want(t, 200, "")
		s.Do(t, newKey(bounded, with("allowed_ips", []string{"127.0.0.1"}))).Want(t, 200, "")
		s.Do(t, newKey(bounded, with("scopes", []string{"images:read"}))).Want(t, 200, "")
		for param, values := range map[string][]any{
			"scopes":         {[]string{"videos:create"}, []string{"*"}, []string{"images:*"}},
			"monthly_budget": {nil, 100.000001},
			"allowed_ips":    {nil, []string{"10.0.0.1"}, []string{"127.0.0.0/7"}, []string{"127.0.0.1", "::1"}},
			"rate_limit":     {nil, 61},
			"expires_at":     {nil, s.Clock.Now().Unix() + 3601},
		} {
			for _, v := range values {
				r := s.Do(t, newKey(bounded, with(param, v)))
				if r.Status != 403 || r.Text("error.param") != param {
					t.Errorf("%s %v: %d %s", param, v, r.Status, r.Body)
				}
			}
		}
		s.Do(t, newKey(bounded, with("project", nil))).Want(t, 403, "project_not_allowed")
		s.Do(t, newKey(bounded, with("project", "p2"))).Want(t, 403, "project_not_allowed")

		// It can neither widen itself nor change a wider key.
		patch := func(id string, body map[string]any) *harness.Response {
			return s.Do(t, harness.Request{Method: "PATCH", Path: "/v1/keys/" + id, Key: bounded, Body: body})
		}
		patch(boundedID, map[string]any{"monthly_budget": nil}).Want(t, 403, "insufficient_scope")
		patch(boundedID, map[string]any{"scopes": []string{"*"}}).Want(t, 403, "insufficient_scope")
		patch(boundedID, map[string]any{"project": nil}).Want(t, 403, "project_not_allowed")
		patch(boundedID, map[string]any{"name": "renamed", "monthly_budget": 50}).Want(t, 200, "")
		patch(widerID, map[string]any{"name": "x"}).Want(t, 403, "insufficient_scope")
		patch(widerID, bounds).Want(t, 403, "insufficient_scope") // the change would narrow it, but it is wider now
		s.Do(t, harness.Request{Method: "DELETE", Path: "/v1/keys/" + widerID, Key: bounded}).Want(t, 403, "insufficient_scope")
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys/" + widerID + "/rotate", Key: bounded}).Want(t, 403, "insufficient_scope")
	})
}

func TestInvalidKeyIsRejectedAndNotStored(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		admin, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		before := s.Do(t, harness.Request{Method: "GET", Path: "/v1/keys", Key: admin}).Want(t, 200, "")
		for _, c := range []struct {
			body  string
			code  string
			param string
		}{
			{`{`, "invalid_json", ""},
			{`[]`, "invalid_json", ""},
			{`"x"`, "invalid_json", ""},
			{`null`, "invalid_json", ""},
			{`{}`, "missing_parameter", "name"},
			{`{"name":"n"}`, "missing_parameter", "scopes"},
			{`{"name":"n","scopes":["*"],"name":"m"}`, "invalid_json", "name"},
			{`{"name":"n","scopes":["*"],"nmae":1}`, "unknown_parameter", "nmae"},
			{`{"Name":"n","scopes":["*"]}`, "unknown_parameter", "Name"},
			{`{"name":7,"scopes":["*"]}`, "invalid_parameter", "name"},
			{`{"name":"a\u0000b","scopes":["*"]}`, "invalid_parameter", "name"},
			{`{"name":"n","scopes":"*"}`, "invalid_parameter", "scopes"},
			{`{"name":"n","scopes":[1]}`, "invalid_parameter", "scopes[0]"},
			{`{"name":"n","scopes":["all"]}`, "invalid_parameter", "scopes"},
			{`{"name":"n","scopes":["*"],"monthly_budget":-1}`, "invalid_parameter", "monthly_budget"},
			{`{"name":"n","scopes":["*"],"monthly_budget":0.0000001}`, "invalid_parameter", "monthly_budget"},
			{`{"name":"n","scopes":["*"],"monthly_budget":1000000000001}`, "invalid_parameter", "monthly_budget"},
			{`{"name":"n","scopes":["*"],"monthly_budget":"5"}`, "invalid_parameter", "monthly_budget"},
			{`{"name":"n","scopes":["*"],"project":"-x"}`, "invalid_parameter", "project"},
			{`{"name":"n","scopes":["*"],"allowed_ips":["10.0.0.0/33"]}`, "invalid_parameter", "allowed_ips"},
			{`{"name":"n","scopes":["*"],"allowed_ips":["fe80::1%eth0"]}`, "invalid_parameter", "allowed_ips"},
			{`{"name":"n","scopes":["*"],"rate_limit":0}`, "invalid_parameter", "rate_limit"},
			{`{"name":"n","scopes":["*"],"expires_at":1}`, "invalid_parameter", "expires_at"},
			{`{"name":"n","scopes":["*"],"expires_at":99999999999999999999}`, "invalid_parameter", "expires_at"},
			{"{\"name\":\"\xff\",\"scopes\":[\"*\"]}", "invalid_json", ""},
			{`{"name":"n","scopes":["*"]} x`, "invalid_json", ""},
		} {
			r := s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys", Key: admin, Body: c.body})
			if r.Status != 400 || r.Code() != c.code || r.Text("error.param") != c.param {
				t.Errorf("%s: got %d %s %q", c.body, r.Status, r.Body, r.Text("error.param"))
			}
			if r.Text("error.message") == "" {
				t.Errorf("%s: no message", c.body)
			}
		}
		after := s.Do(t, harness.Request{Method: "GET", Path: "/v1/keys", Key: admin}).Want(t, 200, "")
		if before.Text("first_id") != after.Text("first_id") {
			t.Error("a refused key was stored")
		}
	})
}

func TestListsPageByKeyset(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, first := s.Key(t, w, accounts.Test)
		want := []string{first}
		for range 6 {
			_, id := s.Key(t, w, accounts.Test)
			want = append(want, id)
		}
		for _, order := range []string{"asc", "desc"} {
			var got []string
			after := ""
			for {
				r := s.Do(t, harness.Request{Method: "GET", Path: "/v1/keys?limit=3&order=" + order + after, Key: admin}).Want(t, 200, "")
				for _, k := range r.At("data").([]any) {
					got = append(got, k.(map[string]any)["id"].(string))
				}
				if r.At("has_more") != true {
					break
				}
				after = "&after=" + r.Text("last_id")
			}
			if len(got) != len(want) {
				t.Fatalf("%s: %d keys of %d", order, len(got), len(want))
			}
			for i := range want {
				j := i
				if order == "desc" {
					j = len(want) - 1 - i
				}
				if got[i] != want[j] {
					t.Errorf("%s: key %d is out of order", order, i)
				}
			}
		}
		for _, q := range []string{"limit=0", "limit=101", "limit=x", "order=up", "after=key_x", "after=wh_01h455vb4pex5vsknk084sn02q", "page=2", "limit=1&limit=2", "%zz", "after=%00"} {
			if r := s.Do(t, harness.Request{Method: "GET", Path: "/v1/keys?" + q, Key: admin}); r.Status != 400 {
				t.Errorf("%s: %d %s", q, r.Status, r.Body)
			}
		}
	})
}
