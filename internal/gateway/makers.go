package gateway

import (
	"context"
	"errors"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

// products are what kinds of models make, in words.
var products = map[catalog.Kind]string{catalog.Chat: "models", catalog.Embedding: "embeddings", catalog.Image: "pictures", catalog.Speech: "speech", catalog.Video: "videos"}

// makes reports whether a provider can be asked for what a kind of model makes.
func makes(p providers.Provider, kind catalog.Kind) (can bool) {
	switch kind {
	case catalog.Chat:
		_, can = p.(providers.Chatter)
	case catalog.Embedding:
		_, can = p.(embedder)
	case catalog.Image:
		_, can = p.(providers.ImageMaker)
	case catalog.Speech:
		_, can = p.(providers.SpeechMaker)
	case catalog.Video:
		_, can = p.(providers.VideoMaker)
	}
	return can
}

// unitsOf is what a call used, as it is charged.
func unitsOf(u providers.Usage) catalog.Units {
	return catalog.Units{Tokens: catalog.Tokens{Input: u.InputTokens, Output: u.OutputTokens, CachedInput: u.CachedInput, CacheWrite: u.CacheWrite},
		Images: u.Images, Characters: u.Characters, Milliseconds: u.Milliseconds}
}

// most is what units can cost at a target, at its dearest rates.
func (t target) most(u catalog.Units) credits.Micro {
	m := t.offer.Model
	m.Price.Input = m.Price.Dearest()
	return m.Cost(u)
}

// Made says by whom something was made, and what that costs.
type Made struct {
	Model    string
	Provider string
	Cost     credits.Micro
}

// Quote is what a job can cost at most, and the model that will most likely
// work it.
type Quote struct {
	Model string
	Most  credits.Micro
	// PriceVersion names the prices.
	PriceVersion string
}

// Quote finds what can make the units, by the names of models as a caller
// gives them; none is for the router to choose.
func (g *Gateway) Quote(env accounts.Environment, models []string, kind catalog.Kind, u catalog.Units) (*Quote, error) {
	targets, err := g.makers(env, models, kind)
	if err != nil {
		return nil, err
	}
	q := &Quote{Model: targets[0].offer.ID, PriceVersion: g.catalog.PriceVersion()}
	for _, t := range targets {
		q.Most = max(q.Most, t.most(u))
	}
	return q, nil
}

func (g *Gateway) makers(env accounts.Environment, models []string, kind catalog.Kind) ([]target, error) {
	if len(models) > 0 {
		return g.route(env, models, kind, &request{models: models})
	}
	if kind == catalog.Video { // as OpenAI's own interface has it, where clients leave it out
		targets, err := g.route(env, []string{usualVideo}, kind, &request{models: []string{usualVideo}})
		if err == nil && !targets[0].offer.Any { // who takes any name need not have it
			return targets, nil
		}
	}
	return g.route(env, []string{Auto}, kind, &request{models: []string{Auto}})
}

// usualVideo is the model of a video that names none, where there is one.
const usualVideo = "sora-2"

// make asks one target after the other. A job is tried again later, so nobody
// is asked twice here.
func (g *Gateway) make(env accounts.Environment, models []string, kind catalog.Kind, ask func(t target) (providers.Usage, error)) (Made, error) {
	targets, err := g.makers(env, models, kind)
	if err != nil {
		return Made{}, err
	}
	for _, t := range targets {
		began := g.now()
		var used providers.Usage
		if used, err = ask(t); err == nil {
			t.health.worked(began)
			return Made{t.offer.ID, t.provider.Name(), t.offer.Cost(unitsOf(sane(t.withPictures(used))))}, nil
		}
		var f *providers.Failure
		if !errors.As(err, &f) || errors.Is(err, context.Canceled) {
			break
		}
		if refusesCaller(f) {
			t.health.refused()
			return Made{}, err
		}
		if f.Kind == providers.KindLocal {
			break
		}
		t.health.failed(f, g.now())
	}
	return Made{}, err
}

// MakeImages makes pictures for a job.
func (g *Gateway) MakeImages(ctx context.Context, env accounts.Environment, models []string, req providers.ImageRequest) (*providers.ImageAnswer, Made, error) {
	var answer *providers.ImageAnswer
	made, err := g.make(env, models, catalog.Image, func(t target) (u providers.Usage, err error) {
		req.Model = t.offer.Upstream
		if answer, err = t.provider.(providers.ImageMaker).Images(ctx, &req); err != nil {
			return u, err
		}
		return answer.Usage, nil
	})
	return answer, made, err
}

// MakeSpeech has a text read aloud for a job. What it costs by its length is
// for SpeechCost, once that is known.
func (g *Gateway) MakeSpeech(ctx context.Context, env accounts.Environment, models []string, req providers.SpeechRequest) (*providers.Content, Made, error) {
	var content *providers.Content
	made, err := g.make(env, models, catalog.Speech, func(t target) (u providers.Usage, err error) {
		req.Model = t.offer.Upstream
		content, err = t.provider.(providers.SpeechMaker).Speech(ctx, &req)
		return providers.Usage{}, err
	})
	return content, made, err
}

// SpeechCost is what a text costs that was read aloud.
func (g *Gateway) SpeechCost(env accounts.Environment, m Made, u providers.Usage) credits.Micro {
	for _, t := range g.offering(env, m.Model, catalog.Speech) {
		if t.provider.Name() == m.Provider {
			return t.offer.Cost(unitsOf(sane(u)))
		}
	}
	return 0 // it was taken from the configuration meanwhile
}

// StartVideo starts a render at one of the targets.
func (g *Gateway) StartVideo(ctx context.Context, env accounts.Environment, models []string, req providers.VideoRequest) (id string, made Made, err error) {
	made, err = g.make(env, models, catalog.Video, func(t target) (u providers.Usage, err error) {
		req.Model = t.offer.Upstream
		id, err = t.provider.(providers.VideoMaker).StartVideo(ctx, &req)
		return providers.Usage{Milliseconds: int64(req.Seconds) * 1000}, err
	})
	return id, made, err
}

// VideoMaker is the provider that has a render.
func (g *Gateway) VideoMaker(env accounts.Environment, provider string) (providers.VideoMaker, error) {
	if env == accounts.Test {
		if v, can := g.simulator.(providers.VideoMaker); can {
			return v, nil
		}
	}
	for _, u := range g.upstreams {
		if v, can := u.Provider.(providers.VideoMaker); can && u.Provider.Name() == provider {
			return v, nil
		}
	}
	return nil, fault.New(fault.NoProvider, "the provider %q that has the render is no longer set up on this server", provider)
}
