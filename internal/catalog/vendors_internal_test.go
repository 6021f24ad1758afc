package catalog

import "testing"

// The embedded table has no such case.
func TestLookupPrefersVendorToHosts(t *testing.T) {
	t.Parallel()
	from, err := ParseTable([]byte(`{"as_of":"2026-01-02","models":[
		{"provider":"groq","id":"m","kind":"chat","usd":{"input_per_million":"1","output_per_million":"1"}},
		{"provider":"zai","id":"m","kind":"chat","usd":{"input_per_million":"2","output_per_million":"2"}},
		{"provider":"together","id":"m","kind":"chat","usd":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Load(Terms{Table: from})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"m": "zai", "m-2026-01-02": "zai"} {
		if m := c.Lookup(id); m == nil || m.Provider != want {
			t.Errorf("%s: got %+v, want %s", id, m, want)
		}
	}
	if got := c.Distinct(Chat); len(got) != 1 || got[0].Provider != "zai" {
		t.Errorf("got %+v", got)
	}
	if c.Find("together", "m").Priced {
		t.Error("a chat model without a price counts as priced")
	}
}
