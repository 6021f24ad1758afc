package catalog_test

import (
	"math"
	"testing"

	"turnpike/internal/catalog"
	"turnpike/internal/credits"
)

func TestMediaIsChargedByItsUnits(t *testing.T) {
	t.Parallel()
	const c = credits.Credit
	image := catalog.Model{Kind: catalog.Image, Price: catalog.Price{PerImage: 40 * c, Input: 1000 * c, CachedInput: 100 * c, Output: 1000 * c}}
	counted := catalog.Model{Kind: catalog.Image, Price: catalog.Price{Input: 10 * c, Output: 40 * c}}
	video := catalog.Model{Kind: catalog.Video, Price: catalog.Price{PerSecond: 100 * c}}
	read := catalog.Model{Kind: catalog.Speech, Price: catalog.Price{PerCharacter: c / 100}}
	timed := catalog.Model{Kind: catalog.Speech, Price: catalog.Price{PerSecond: c / 1000}}
	spoken := catalog.Model{Kind: catalog.Speech, Price: catalog.Price{Input: 600_000, Output: 12_000_000}}
	for name, tt := range map[string]struct {
		model catalog.Model
		used  catalog.Units
		want  credits.Micro
	}{
		"images":                          {image, catalog.Units{Images: 3, Tokens: catalog.Tokens{Output: 4000}}, 120 * c}, // their tokens have no price beside theirs
		"images, and what was read":       {image, catalog.Units{Images: 1, Tokens: catalog.Tokens{Input: 1000}}, 41 * c},
		"images, and what was cached":     {image, catalog.Units{Images: 1, Tokens: catalog.Tokens{Input: 1000, CachedInput: 1000}}, 40*c + c/10},
		"images by tokens":                {counted, catalog.Units{Images: 3, Tokens: catalog.Tokens{Input: 100_000, Output: 50_000}}, c + 2*c},
		"half a second":                   {video, catalog.Units{Milliseconds: 500}, 50 * c},
		"a millisecond":                   {video, catalog.Units{Milliseconds: 1}, c / 10},
		"a video has no tokens":           {video, catalog.Units{Milliseconds: 8000, Tokens: catalog.Tokens{Input: 1 << 30}, Images: 5}, 800 * c},
		"characters":                      {read, catalog.Units{Characters: 250, Milliseconds: 90_000}, 250 * c / 100},
		"seconds of speech":               {timed, catalog.Units{Characters: 250, Milliseconds: 1500}, 1500},
		"speech by tokens":                {spoken, catalog.Units{Tokens: catalog.Tokens{Input: 1_000_000}, Milliseconds: 40_000_000}, 600_000 + 12_000_000},
		"speech by tokens that it counts": {spoken, catalog.Units{Tokens: catalog.Tokens{Output: 2_000_000}, Milliseconds: 40_000_000}, 24_000_000},
		"rounded up once":                 {catalog.Model{Kind: catalog.Video, Price: catalog.Price{PerSecond: 1}}, catalog.Units{Milliseconds: 1}, 1},
		"less than nothing":               {image, catalog.Units{Images: -5, Tokens: catalog.Tokens{Input: -5}}, 0},
	} {
		if got := tt.model.Cost(tt.used); got != tt.want {
			t.Errorf("%s: %+v costs %d, want %d", name, tt.used, got, tt.want)
		}
	}
	// Nonsense of a provider's is dear, and never negative.
	for _, m := range []catalog.Model{image, counted, video, read, timed, spoken} {
		u := catalog.Units{Images: math.MaxInt64, Characters: math.MaxInt64, Milliseconds: math.MaxInt64, Tokens: catalog.Tokens{Input: math.MaxInt64, Output: math.MaxInt64}}
		if got := m.Cost(u); got <= 0 {
			t.Errorf("a %s of no end costs %d", m.Kind, got)
		}
	}
}
