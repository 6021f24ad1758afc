package audio

import (
	"bytes"
	"io"
	"testing"
)

func TestFLACStreamHasItsLength(t *testing.T) {
	t.Parallel()
	flac, err := encode(t, tone(), "flac")
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string][]byte{"whole": flac, "no FLAC": []byte("something else that is longer than a head of FLAC"), "short": flac[:10], "empty": {}} {
		r, err := WithLength(bytes.NewReader(file), mono, 32000)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil || len(got) != len(file) {
			t.Fatalf("%s: %d bytes became %d, %v", name, len(file), len(got), err)
		}
		if name != "whole" {
			if !bytes.Equal(got, file) {
				t.Errorf("%s was changed", name)
			}
			continue
		}
		// 16,000 of them, and nothing else is touched.
		want := bytes.Clone(file)
		want[24], want[25] = 16000>>8, 16000&0xFF
		if !bytes.Equal(got, want) {
			t.Errorf("it begins with % x, expected % x", got[:42], want[:42])
		}
	}
}
