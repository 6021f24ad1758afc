package access

import (
	"encoding/json"
	"testing"
)

// metadataHash returns the mark on jobs and runs of a token with this metadata.
func metadataHash(t *testing.T, metadata string) string {
	t.Helper()
	canonical, err := canonicalMetadata(json.RawMessage(metadata))
	if err != nil {
		t.Fatalf("%s: %v", metadata, err)
	}
	return hashText(canonical)
}

func TestDifferentNumbersHaveDifferentMetadataHashes(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"1234567890123456789", "1234567890123456790"},
		{"9007199254740992", "9007199254740993"},
		{"1e400", "2e500"},
		{"-1e400", "-2e500"},
		{"0.1", "0.10000000000000000001"},
		{"1e-400", "0"},
	} {
		one, other := `{"user": {"id": [`+pair[0]+`]}}`, `{"user": {"id": [`+pair[1]+`]}}`
		if metadataHash(t, one) == metadataHash(t, other) {
			t.Errorf("%s and %s are the same to us", one, other)
		}
	}
}

func TestMetadataHashIgnoresOrderSpacesAndEscapes(t *testing.T) {
	t.Parallel()
	want := metadataHash(t, `{"a":{"x":"é\n/","y":[1,2.50]},"b":null}`)
	for _, same := range []string{
		"{ \"b\" : null,\n\t\"a\": {\"y\": [1, 2.50], \"x\": \"é\\n/\"} }",
		`{"\u0061":{"x":"\u00E9\u000a\/","y":[1,2.50]},"b":null}`,
	} {
		if metadataHash(t, same) != want {
			t.Errorf("%s is another user", same)
		}
	}
	for _, bad := range []string{`{"a":1,"a":2}`, `{"a":1,"\u0061":1}`, `{"b":{"a":1,"a":1}}`, `{"a":"\xff"}`, `{"a":01}`, `{"a":NaN}`, `{} {}`} {
		if _, err := canonicalMetadata(json.RawMessage(bad)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func TestMetadataHashIsStable(t *testing.T) {
	t.Parallel()
	for metadata, want := range map[string]string{
		`{}`:               "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
		`{"user": "u_42"}`: "a73e154636a3aca4d862dff8f843f4557b85bf1c2d8c9cb59a584c4cb1291a76",
		`{"user_id": 42, "team": {"name": "Grün", "id": -7}, "seats": [0, 3]}`: "ee57ac4e5e11fba575ad7a30246324415b7eb4f601b113c1fd41140a1eea349f",
		`{"user_id": 9007199254740992, "other": -9007199254740991}`:            "92dd02cddc9223e26a80993dbd435bf2ff09b5064c95a275ee67bc63e2bdb96b",
	} {
		if got := metadataHash(t, metadata); got != want {
			t.Errorf("%s has the hash %s, want %s", metadata, got, want)
		}
	}
}
