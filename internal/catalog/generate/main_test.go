package main

import (
	"strings"
	"testing"
)

func TestTableIsNormalizedAndSorted(t *testing.T) {
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

func TestAliasInheritsDeprecation(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rows []string // id, or id@day
		want string   // of the first
	}{
		"its only snapshot":      {[]string{"x", "x-20250805@2026-08-05"}, "2026-08-05"},
		"the last of them":       {[]string{"x", "x-0314@2026-03-26", "x-0613@2025-06-06"}, "2026-03-26"},
		"not all":                {[]string{"x", "x-0314@2026-03-26", "x-2025-06-13"}, ""},
		"none":                   {[]string{"x", "x-mini@2026-03-26", "x-1@2026-03-26", "x-preview-0314@2026-03-26"}, ""},
		"its own day":            {[]string{"x@2027-01-01", "x-0314@2026-03-26"}, "2027-01-01"},
		"the latest":             {[]string{"x-latest", "x@2026-05-15"}, "2026-05-15"},
		"the latest's snapshots": {[]string{"x-latest", "x", "x-0709@2026-05-15"}, "2026-05-15"},
		"the latest of another":  {[]string{"x-latest", "x-mini@2026-05-15"}, ""},
		"the words swappedName":  {[]string{"claude-4-opus-20250514", "claude-opus-4-20250514@2026-05-14"}, "2026-05-14"},
		"and swappedName alone":  {[]string{"claude-4-opus-20250514", "claude-sonnet-4-20250514@2026-05-14"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var rows []string
			for _, row := range tt.rows {
				id, day, _ := strings.Cut(row, "@")
				rows = append(rows, `{"provider":"a","id":"`+id+`","kind":"chat","usd":{},"deprecated_on":"`+day+`"}`)
			}
			rows = append(rows, `{"provider":"b","id":"x-0613","kind":"chat","usd":{}}`)
			got, err := convert([]byte(`{"as_of":"2026-01-02","models":[` + strings.Join(rows, ",") + `]}`))
			if err != nil {
				t.Fatal(err)
			}
			id, _, _ := strings.Cut(tt.rows[0], "@")
			want := `"a","id":"` + id + `","kind":"chat","usd":{}`
			if tt.want != "" {
				want += `,"deprecated_on":"` + tt.want + `"`
			}
			if !strings.Contains(string(got), want+"}") {
				t.Errorf("there is no %s in\n%s", want, got)
			}
		})
	}
}

func TestInvalidTablesAreRejected(t *testing.T) {
	t.Parallel()
	const good = `{"provider":"a","id":"x","kind":"chat","usd":{}}`
	for table, want := range map[string]string{
		`{"as_of":"2026-01-02","models":[` + good + "," + good + `]}`: "duplicate model x at a",
		`{"as_of":"today","models":[]}`:                               "as_of",
	} {
		if _, err := convert([]byte(table)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", table, err, want)
		}
	}
}
