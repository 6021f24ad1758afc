package accounts

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
)

func TestLimitKeepsItsIDWhenOthersChange(t *testing.T) {
	t.Parallel()
	one, rate := credits.Credit, int64(1)
	claude := Limit{Models: catalog.Patterns{"claude-*", "gpt-5"}, Budget: &one, Window: WindowDay}
	weekly := Limit{Budget: &one, Window: WindowWeek}
	before := []Limit{claude, weekly}
	if err := ReplaceLimits(nil, before); err != nil || before[0].ID == "" || before[0].ID == before[1].ID {
		t.Fatalf("got %+v (%v)", before, err)
	}
	moved := claude
	moved.Models, moved.RequestsPerMinute = catalog.Patterns{"gpt-5", "claude-*"}, &rate
	named := Limit{ID: before[1].ID, Models: catalog.Patterns{"gpt-5"}, Budget: &one, Window: WindowMonth}
	after := []Limit{{RequestsPerMinute: &rate}, weekly, moved, named}
	if err := ReplaceLimits(before, after); err != nil {
		t.Fatal(err)
	}
	if after[2].ID != before[0].ID || after[3].ID != before[1].ID || after[1].ID == before[1].ID || after[0].ID == "" {
		t.Errorf("got %+v after %+v", after, before)
	}
	again := slices.Clone(after)
	if err := ReplaceLimits(after, again); err != nil || !slices.EqualFunc(after, again, func(a, b Limit) bool { return a.ID == b.ID }) {
		t.Errorf("got %+v, want no change (%v)", again, err)
	}
}

func TestLimitWithMoreModelsKeepsItsID(t *testing.T) {
	t.Parallel()
	one, rate := credits.Credit, int64(1)
	before := []Limit{{ID: "lim_1", Models: catalog.Patterns{"claude-*", "gpt-5"}, Budget: &one, Window: WindowDay}}
	for name, tt := range map[string]struct {
		after []Limit
		want  []bool // whether it keeps the ID
	}{
		"repeated models":   {[]Limit{{Models: catalog.Patterns{"gpt-5", "claude-*", "gpt-5"}, Budget: &one, Window: WindowDay}}, []bool{true}},
		"more models":       {[]Limit{{Models: catalog.Patterns{"gpt-*", "claude-*"}, Budget: &one, Window: WindowDay}}, []bool{true}},
		"all models":        {[]Limit{{Budget: &one, Window: WindowDay}}, []bool{true}},
		"no budget":         {[]Limit{{Models: before[0].Models, RequestsPerMinute: &rate}}, []bool{true}},
		"the same is there": {[]Limit{{Budget: &one, Window: WindowDay}, before[0]}, []bool{false, true}},
		"fewer models":      {[]Limit{{Models: catalog.Patterns{"claude-*"}, Budget: &one, Window: WindowDay}}, []bool{false}},
		"another window":    {[]Limit{{Models: before[0].Models, Budget: &one, Window: WindowWeek}}, []bool{false}},
		"only a rate":       {[]Limit{{RequestsPerMinute: &rate}}, []bool{false}},
	} {
		for i := range tt.after {
			tt.after[i].ID = ""
		}
		if err := ReplaceLimits(before, tt.after); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i, want := range tt.want {
			if got := tt.after[i].ID == "lim_1"; got != want {
				t.Errorf("%s: limits[%d] has the ID %s", name, i, tt.after[i].ID)
			}
		}
	}
}

// TestBoundKeyNeverHasMoreLeft replaces limits at random, on behalf of a key that has them itself.
func TestBoundKeyNeverHasMoreLeft(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	names := []string{"claude-opus", "claude-haiku", "gpt-5"}
	patterns := []string{"claude-*", "claude-opus", "claude-haiku", "gpt-*", "gpt-5", "*"}
	draw := func(before []Limit) Limit {
		budget := credits.Micro(1+random.IntN(2)) * credits.Credit
		l := Limit{Budget: &budget, Window: Windows[random.IntN(2)]}
		for range random.IntN(4) {
			l.Models = append(l.Models, patterns[random.IntN(len(patterns))])
		}
		if len(before) > 0 && random.IntN(2) == 0 {
			l = before[random.IntN(len(before))]
			l.Models = append(slices.Clone(l.Models), patterns[random.IntN(len(patterns))])
		}
		if random.IntN(2) == 0 {
			l.ID = ""
		}
		return l
	}
	spent := map[string]credits.Micro{}
	left := func(list []Limit, model string) credits.Micro {
		least := credits.Max
		for _, l := range list {
			if l.Match(&catalog.Offer{Model: catalog.Model{ID: model}}) {
				least = min(least, *l.Budget-spent[l.ID])
			}
		}
		return least
	}
	accepted := 0
	for range 5_000 {
		var lists [2][]Limit
		for i := range lists {
			for range 1 + random.IntN(3) {
				lists[i] = append(lists[i], draw(lists[0]))
			}
			if i == 0 {
				for j := range lists[0] {
					lists[0][j].ID = fmt.Sprintf("lim_%d", j)
					spent[lists[0][j].ID] = credits.Micro(random.IntN(3)) * credits.Credit
				}
			}
		}
		before, after := lists[0], lists[1]
		if ReplaceLimits(before, after) != nil || FirstMissingLimit(after, before) >= 0 || FirstDroppedLimit(before, after, before) != "" {
			continue
		}
		accepted++
		for _, name := range names {
			if got, most := left(after, name), left(before, name); got > most {
				t.Fatalf("%s: %s left under %+v, want at most the %s under %+v", name, got, after, most, before)
			}
		}
	}
	if accepted < 100 {
		t.Errorf("only %d changes were accepted", accepted)
	}
}

func TestInvalidLimitsAreNamed(t *testing.T) {
	t.Parallel()
	one, zero, rate := credits.Credit, int64(0), int64(1)
	for param, list := range map[string][]Limit{
		"limits":                        make([]Limit, 21),
		"limits[0]":                     {{}},
		"limits[1].window":              {{Budget: &one, Window: WindowDay}, {Budget: &one}},
		"limits[0].window":              {{RequestsPerMinute: &rate, Window: WindowDay}},
		"limits[0].models":              {{Models: catalog.Patterns{}, RequestsPerMinute: &rate}},
		"limits[1].models":              {{RequestsPerMinute: &rate}, {Models: catalog.Patterns{"*-x"}, RequestsPerMinute: &rate}},
		"limits[2].models":              {{RequestsPerMinute: &rate}, {RequestsPerMinute: &rate}, {Models: catalog.Patterns{"route/fast"}, RequestsPerMinute: &rate}},
		"limits[0].requests_per_minute": {{RequestsPerMinute: &zero}},
		"limits[0].tokens_per_minute":   {{TokensPerMinute: &zero}},
		"limits[0].concurrent_requests": {{ConcurrentRequests: &zero}},
		"limits[0].id":                  {{ID: "lim_unknown", RequestsPerMinute: &rate}},
	} {
		err := ReplaceLimits(nil, list)
		if f, ok := fault.As(err); !ok || f.Param != param {
			t.Errorf("%s: got %v", param, err)
		}
	}
	stored := []Limit{{ID: "lim_1", RequestsPerMinute: &rate}}
	if f, _ := fault.As(ReplaceLimits(stored, []Limit{stored[0], stored[0]})); f == nil || f.Param != "limits[1].id" {
		t.Errorf("repeated ID: got %v", f)
	}
}

func TestLimitsWithinAnOwners(t *testing.T) {
	t.Parallel()
	one, two, rate := credits.Credit, 2*credits.Credit, int64(1)
	own := []Limit{{Models: catalog.Patterns{"claude-*"}, Budget: &one, Window: WindowDay, RequestsPerMinute: &rate}}
	for name, tt := range map[string]struct {
		list []Limit
		want int
	}{
		"the same":       {own, -1},
		"for more":       {[]Limit{{Budget: &one, Window: WindowDay, RequestsPerMinute: &rate}}, -1},
		"for fewer":      {[]Limit{{Models: catalog.Patterns{"claude-opus-*"}, Budget: &one, Window: WindowDay, RequestsPerMinute: &rate}}, 0},
		"higher":         {[]Limit{{Models: catalog.Patterns{"claude-*"}, Budget: &two, Window: WindowDay, RequestsPerMinute: &rate}}, 0},
		"another window": {[]Limit{{Models: catalog.Patterns{"claude-*"}, Budget: &one, Window: WindowMonth, RequestsPerMinute: &rate}}, 0},
		"without a rate": {[]Limit{{Models: catalog.Patterns{"claude-*"}, Budget: &one, Window: WindowDay}}, 0},
		"none":           {nil, 0},
	} {
		if got := FirstMissingLimit(tt.list, own); got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
	}
}

func TestRaiseNeedsABudgetToRaise(t *testing.T) {
	t.Parallel()
	now, one := time.Now(), credits.Credit
	for param, tt := range map[string]struct {
		monthly *credits.Micro
		raise   Raise
	}{
		"temporary_raise":        {nil, Raise{Budget: 2 * one, Until: now.Add(time.Hour)}},
		"temporary_raise.budget": {&one, Raise{Budget: one, Until: now.Add(time.Hour)}},
		"temporary_raise.until":  {&one, Raise{Budget: 2 * one, Until: now}},
	} {
		if f, _ := fault.As(tt.raise.Check(tt.monthly, now)); f == nil || f.Param != param {
			t.Errorf("%s: got %v", param, f)
		}
	}
}
