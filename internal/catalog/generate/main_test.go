package main

import (
	"strings"
	"testing"
)

func TestTableIsTidyAndInOrder(t *testing.T) {
	t.Parallel()
	got, err := convert([]byte(`{"as_of":"2026-01-02","unit":"USD","models":[
		{"provider":"b","id":"y","kind":"chat","note":"dropped","usd":{"input_per_million":"1","cache_write_per_million":"0"},"capabilities":["vision","tools"]},
		{"provider":"b","id":"free","kind":"chat","usd":{"input_per_million":"0","cache_write_per_million":"0"}},
		{"provider":"a","id":"z","kind":"video","usd":{"per_second":"0.5"},"deprecated_on":"2026-03-04"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"as_of":"2026-01-02","models":[
{"provider":"a","id":"z","kind":"video","usd":{"per_second":"0.5"},"deprecated_on":"2026-03-04"},
{"provider":"b","id":"free","kind":"chat","usd":{"input_per_million":"0","cache_write_per_million":"0"}},
{"provider":"b","id":"y","kind":"chat","usd":{"input_per_million":"1"},"capabilities":["tools","vision"]}
]}
`
	if string(got) != want {
		t.Errorf("got\n%s", got)
	}
}

func TestBadFactsAreRefused(t *testing.T) {
	t.Parallel()
	const good = `{"provider":"a","id":"x","kind":"chat","usd":{}}`
	for name, tt := range map[string]struct{ models, want string }{
		"twice":         {good + "," + good, "x at a is there twice"},
		"no id":         {`{"provider":"a","kind":"chat"}`, "provider or id is missing"},
		"kind":          {`{"provider":"a","id":"x","kind":"smell"}`, `kind "smell"`},
		"capability":    {`{"provider":"a","id":"x","kind":"chat","capabilities":["flight"]}`, `capability "flight"`},
		"exponent":      {`{"provider":"a","id":"x","kind":"chat","usd":{"input_per_million":"1e3"}}`, `price "1e3"`},
		"negative":      {`{"provider":"a","id":"x","kind":"chat","usd":{"per_image":"-1"}}`, `price "-1"`},
		"negative size": {`{"provider":"a","id":"x","kind":"chat","context_window":-1}`, "negative"},
		"date":          {`{"provider":"a","id":"x","kind":"chat","deprecated_on":"soon"}`, "deprecated_on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := convert([]byte(`{"as_of":"2026-01-02","models":[` + tt.models + `]}`))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := convert([]byte(`{"as_of":"today","models":[]}`)); err == nil || !strings.Contains(err.Error(), "as_of") {
		t.Errorf("got %v", err)
	}
}
