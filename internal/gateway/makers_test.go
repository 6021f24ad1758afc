package gateway

import (
	"context"
	"errors"
	"math/big"
	"sync"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

// painter makes pictures and videos, or fails as it is told to.
type painter struct {
	name string
	fail error

	mu    sync.Mutex
	asked int
}

func (p *painter) Name() string { return p.name }

func (p *painter) Images(context.Context, *providers.ImageRequest) (*providers.ImageAnswer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.fail != nil {
		return nil, p.fail
	}
	return &providers.ImageAnswer{Images: make([]providers.Picture, 2), Usage: providers.Usage{Images: 2}}, nil
}

func (p *painter) StartVideo(context.Context, *providers.VideoRequest) (string, error) {
	return "video_1", p.fail
}

func (p *painter) PollVideo(context.Context, string) (*providers.VideoState, error) { return nil, nil }

func (p *painter) FetchVideo(context.Context, string, string) (*providers.Content, error) {
	return nil, nil
}

func (p *painter) DropVideo(context.Context, string) error { return nil }

func painted(dollars int64) catalog.Supplier {
	return catalog.Supplier{Models: []catalog.Supply{
		{ID: "pic", Kind: catalog.Image, Price: &catalog.ListPrice{PerImage: big.NewRat(dollars, 1000)}},
		{ID: "film", Kind: catalog.Video, Price: &catalog.ListPrice{PerSecond: big.NewRat(dollars, 1000)}},
	}}
}

// TestAJobIsQuotedAtTheDearest that may work it.
func TestAJobIsQuotedAtTheDearest(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{&painter{name: "a"}, &painter{name: "b"}}, painted(1), painted(3))
	q, err := r.Quote(accounts.Live, []string{"pic"}, catalog.Image, catalog.Units{Images: 10})
	if err != nil || q.Most != 30*credits.Credit || q.Model != "pic" {
		t.Errorf("quoted %+v, %v", q, err)
	}
	if q, err := r.Quote(accounts.Live, nil, catalog.Video, catalog.Units{Milliseconds: 4000}); err != nil || q.Most != 12*credits.Credit || q.Model != "film" {
		t.Errorf("quoted %+v, %v", q, err)
	}
	if _, err := r.Quote(accounts.Live, []string{"film"}, catalog.Image, catalog.Units{}); !fault.Is(err, fault.ModelNotFound) {
		t.Errorf("a film makes pictures: %v", err)
	}
	if _, err := r.Quote(accounts.Live, nil, catalog.Speech, catalog.Units{}); err == nil {
		t.Error("nobody speaks here, and it is quoted")
	}
}

// TestAVideoWithoutAModelGoesToWhoHasTheUsualOne, and not to a local server that
// takes any name and never heard of it.
func TestAVideoWithoutAModelGoesToWhoHasTheUsualOne(t *testing.T) {
	t.Parallel()
	local, usual := catalog.Supplier{Local: true}, painted(5)
	usual.Models[1].ID = usualVideo
	for want, other := range map[string]catalog.Supplier{"film": painted(3), usualVideo: usual} {
		r := newRig(t, []providers.Provider{&painter{name: "local"}, &painter{name: "other"}}, local, other)
		if q, err := r.Quote(accounts.Live, nil, catalog.Video, catalog.Units{Milliseconds: 4000}); err != nil || q.Model != want || q.Most == 0 {
			t.Errorf("quoted %+v, expected %s (%v)", q, want, err)
		}
	}
}

// TestAJobsTaskGoesToWhoeverCan: another is asked when one fails, and none
// when it is the request that is refused.
func TestAJobsTaskGoesToWhoeverCan(t *testing.T) {
	t.Parallel()
	broken := &providers.Failure{Kind: providers.KindServer, Err: errors.New("broken")}
	blocked := &providers.Failure{Kind: providers.KindBlockedInput, Err: errors.New("blocked")}
	for name, c := range map[string]struct {
		first  error
		asked  int // of the second
		answer bool
	}{
		"broken":    {broken, 1, true},
		"blocked":   {blocked, 0, false},
		"cancelled": {context.Canceled, 0, false},
		"fault":     {fault.Invalid("size", "no"), 0, false},
	} {
		one, two := &painter{name: "a", fail: c.first}, &painter{name: "b"}
		r := newRig(t, []providers.Provider{one, two}, painted(1), catalog.Supplier{Models: []catalog.Supply{
			{ID: "other", Kind: catalog.Image, Price: &catalog.ListPrice{PerImage: big.NewRat(2, 1000)}}}})
		answer, by, err := r.MakeImages(t.Context(), accounts.Live, []string{"pic", "other"}, providers.ImageRequest{})
		if one.asked != 1 || two.asked != c.asked || (err == nil) != c.answer {
			t.Errorf("%s: asked %d and %d times, %v", name, one.asked, two.asked, err)
		}
		if c.answer && (len(answer.Images) != 2 || by.Provider != "b" || by.Model != "other" || by.Cost != 4*credits.Credit) {
			t.Errorf("%s: made by %+v", name, by)
		}
	}
}

// TestAProviderThatFailsJobsComesLast, if it was the only one, too: others that
// have the model later are asked before it.
func TestAProviderThatFailsJobsComesLast(t *testing.T) {
	t.Parallel()
	sick := &painter{name: "a", fail: &providers.Failure{Kind: providers.KindAuth, Err: errors.New("no key")}}
	r := newRig(t, []providers.Provider{sick}, painted(1))
	if _, _, err := r.MakeImages(t.Context(), accounts.Live, []string{"pic"}, providers.ImageRequest{}); err == nil {
		t.Fatal("it answered")
	}
	targets, err := r.makers(accounts.Live, []string{"pic"}, catalog.Image)
	if err != nil || len(targets) != 1 || targets[0].health.rank(r.now()) == 0 {
		t.Errorf("nobody knows that it fails: %v", err)
	}
}

// TestAJobIsNotTakenElsewhereForOurOwnFault: the others could not be called
// either, and none of them comes last for it.
func TestAJobIsNotTakenElsewhereForOurOwnFault(t *testing.T) {
	t.Parallel()
	local := &providers.Failure{Kind: providers.KindLocal, Err: errors.New("too many open files")}
	a, b := &painter{name: "a", fail: local}, &painter{name: "b", fail: local}
	r := newRig(t, []providers.Provider{a, b}, painted(1), painted(1))
	for range 4 {
		if _, _, err := r.MakeImages(t.Context(), accounts.Live, []string{"pic"}, providers.ImageRequest{}); !errors.Is(err, local) {
			t.Error(err)
		}
	}
	if a.asked+b.asked != 4 {
		t.Errorf("asked %d and %d times", a.asked, b.asked)
	}
	targets, err := r.makers(accounts.Live, []string{"pic"}, catalog.Image)
	if err != nil || len(targets) != 2 || targets[0].health.rank(r.now())+targets[1].health.rank(r.now()) != 0 {
		t.Errorf("%+v (%v)", targets, err)
	}
}

// TestARendersProviderIsFoundAgain by its name, or it is said that it is gone.
func TestARendersProviderIsFoundAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{&painter{name: "a"}}, painted(1))
	id, by, err := r.StartVideo(t.Context(), accounts.Live, []string{"film"}, providers.VideoRequest{Seconds: 4})
	if err != nil || id != "video_1" || by.Cost != 4*credits.Credit || by.Provider != "a" {
		t.Fatalf("started %q by %+v, %v", id, by, err)
	}
	if _, err := r.VideoMaker(accounts.Live, by.Provider); err != nil {
		t.Error(err)
	}
	if _, err := r.VideoMaker(accounts.Live, "gone"); !fault.Is(err, fault.NoProvider) {
		t.Errorf("one that is gone: %v", err)
	}
	if _, err := r.VideoMaker(accounts.Test, "simulator"); err != nil {
		t.Error(err)
	}
}
