package credits_test

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"turnpike/internal/credits"
)

func TestJSONRoundTripKeepsEveryAmount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := credits.Micro(rapid.Int64Range(0, int64(credits.Max)).Draw(t, "amount"))
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got credits.Micro
		if err := json.Unmarshal(b, &got); err != nil || got != want {
			t.Fatalf("got %[3]d from %[2]s, want %[1]d (%[4]v)", want, b, got, err)
		}
	})
}

func TestParseRejectsInvalidAmounts(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", ".", "1.", ".5", "-1", "+1", "1e3", "0x1", "1.0000001", "1000000000000.000001", "01", "null", `"1"`, "1 ", "99999999999999"} {
		if v, err := credits.Parse(bad); err == nil {
			t.Errorf("%q: got %d, want an error", bad, v)
		}
	}
	for in, want := range map[string]credits.Micro{"0": 0, "1": 1_000_000, "0.000001": 1, "12.5": 12_500_000, "1000000000000": credits.Max} {
		if v, err := credits.Parse(in); err != nil || v != want {
			t.Errorf("%q: got %d, %v", in, v, err)
		}
	}
}
