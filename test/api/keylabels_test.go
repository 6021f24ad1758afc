package api_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func TestKeysAreFoundByMetadataAndExternalID(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		c := newClient(t, s, accounts.Live)
		create := func(name string, fields map[string]any) string {
			fields["name"], fields["scopes"] = name, []string{"models:read"}
			return c.post(t, "/v1/keys", fields).Text("id")
		}
		red := create("Red Shop", map[string]any{"external_id": "cust-1", "metadata": map[string]string{"team": "red", "tier": "gold"}})
		blue := create("blue_shop", map[string]any{"external_id": "cust-2", "metadata": map[string]string{"team": "blue", `x",y"team`: "red"}})
		create("other", map[string]any{"metadata": map[string]string{"note": `,"team":"red"`}})
		find := func(query string, want ...string) {
			t.Helper()
			found := idsOf(c.get(t, "/v1/keys?"+query))
			slices.Sort(found)
			slices.Sort(want)
			if !slices.Equal(found, want) {
				t.Errorf("%s finds %v, want %v", query, found, want)
			}
		}
		find("external_id=cust-1", red)
		find("external_id=CUST-1")
		find("metadata[team]=red", red)
		find("metadata[team]=Red")
		find("metadata[team]=red&metadata[tier]=gold", red)
		find("metadata[team]=red&metadata[tier]=silver")
		find("metadata["+url.QueryEscape(`x",y"team`)+"]=red", blue)
		find("search=SHOP", red, blue)
		find("search=e_s", blue)
		find("search=%25")
		find("search=cust-2", blue)
		find("search=gold", red)
		find("search=shop&status=revoked")
		c.ask(t, "GET", "/v1/keys?metadata=red", nil).Want(t, 400, "unknown_parameter")
		c.ask(t, "GET", "/v1/keys?status=lost", nil).Want(t, 400, "invalid_parameter")

		k := c.ask(t, "PATCH", "/v1/keys/"+red, map[string]any{"metadata": map[string]string{"team": "green"}, "external_id": nil}).Want(t, 200, "")
		if k.Text("metadata.team") != "green" || k.At("metadata.tier") != nil || k.At("external_id") != nil {
			t.Errorf("the changed key is %s", k.Body)
		}
		find("metadata[team]=green", red)
		find("external_id=cust-1")
		many := map[string]string{}
		for i := range 17 {
			many[strings.Repeat("k", i+1)] = "v"
		}
		for param, bad := range map[string][]any{"metadata": {many, map[string]string{"": "x"}, map[string]string{"k": strings.Repeat("v", 513)}, map[string]string{"k": c.key}},
			"external_id": {strings.Repeat("x", 256), "a\nb", c.key}} {
			for _, value := range bad {
				if r := c.ask(t, "PATCH", "/v1/keys/"+red, map[string]any{"name": "new", param: value}); r.Status != 400 || r.Text("error.param") != param {
					t.Errorf("%s %v: got %d %s", param, value, r.Status, r.Body)
				}
			}
		}
		if k := c.get(t, "/v1/keys/"+red); k.Text("name") != "Red Shop" {
			t.Errorf("after rejected changes the key is %s", k.Body)
		}
	})
}
