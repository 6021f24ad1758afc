package gateway

import (
	"context"
	"errors"
	"slices"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/limits"
	"turnpike/internal/providers"
	"turnpike/internal/spend"
)

// kindLabels name in messages what models of a kind generate.
var kindLabels = map[catalog.Kind]string{catalog.Chat: "chat", catalog.Embedding: "embedding", catalog.Image: "image", catalog.Speech: "speech", catalog.Video: "video",
	catalog.Transcription: "transcription", catalog.Moderation: "moderation", catalog.Rerank: "rerank"}

func supportsKind(p providers.Provider, kind catalog.Kind) (ok bool) {
	switch kind {
	case catalog.Chat:
		_, ok = p.(providers.ChatCompleter)
	case catalog.Embedding:
		_, ok = p.(embedder)
	case catalog.Image:
		_, ok = p.(providers.ImageGenerator)
	case catalog.Speech:
		_, ok = p.(providers.SpeechGenerator)
	case catalog.Video:
		_, ok = p.(providers.VideoGenerator)
	case catalog.Transcription:
		_, ok = p.(providers.Transcriber)
	case catalog.Moderation:
		_, ok = p.(providers.Moderator)
	case catalog.Rerank:
		_, ok = p.(providers.Reranker)
	}
	return ok
}

func unitsOf(u providers.Usage) catalog.Units {
	return catalog.Units{Tokens: catalog.Tokens{Input: u.InputTokens, Output: u.OutputTokens, CachedInput: u.CachedInput, CacheWrite: u.CacheWrite, HourWrite: u.HourWrite},
		Images: u.Images, Characters: u.Characters, Milliseconds: u.Milliseconds, Searches: u.Searches, ToolCalls: u.ToolCalls}
}

// maxUnitCost returns what units can cost at a target, at its highest rates.
func (t target) maxUnitCost(u catalog.Units) credits.Micro {
	m := t.offer.Model
	m.Price.Input = m.Price.HighestInput()
	return m.Cost(u)
}

// Quote is the maximum cost of a job and the model that will most likely run it.
type Quote struct {
	Model        string
	MaxCost      credits.Micro
	PriceVersion string

	targets []target
}

// Quote returns the maximum cost of units at any of the models. Without models the router chooses.
func (g *Gateway) Quote(ctx context.Context, o Owner, models []string, kind catalog.Kind, u catalog.Units) (*Quote, error) {
	s := g.current.Load()
	targets, err := s.jobTargets(ctx, o, models, kind)
	if err != nil {
		return nil, err
	}
	q := &Quote{Model: targets[0].offer.ID, PriceVersion: s.Catalog.PriceVersion(), targets: targets}
	for _, t := range targets {
		q.MaxCost = max(q.MaxCost, t.maxUnitCost(u))
	}
	return q, nil
}

// Reserve counts a job toward the rates of the limits for its models, and reserves its maximum cost under every
// budget that applies. Which of the models will run is unknown, so those of all apply. Test jobs are free and
// have no reservation.
func (g *Gateway) Reserve(ctx context.Context, c Call, q Quote, now time.Time) (*spend.Reservation, error) {
	if err := g.identifyUser(ctx, &c, nil); err != nil {
		return nil, err
	}
	if err := g.countJob(ctx, c, q.targets); err != nil || c.Principal.Environment == accounts.Test {
		return nil, err
	}
	caps, applied, err := g.caps(ctx, c, q.targets, now)
	if err != nil {
		return nil, err
	}
	reservation, err := g.Leases.Reserve(ctx, caps, q.MaxCost, now)
	var refusal *spend.Refusal
	if errors.As(err, &refusal) {
		noteModel(c, q.Model)
		return nil, refusalFault(c, applied, refusal, requestLess)
	}
	if err != nil {
		return nil, err
	}
	c.Record.Note(func(e *audit.Entry) { e.Accounts = reservation.Accounts() })
	return reservation, nil
}

// countJob counts a job toward the limits for its models. CheckRateLimit has counted it toward the others.
func (g *Gateway) countJob(ctx context.Context, c Call, targets []target) error {
	list, err := g.findLimits(ctx, c)
	if err != nil {
		return err
	}
	var subjects []limits.Subject
	for _, l := range list {
		if l.Models != nil && l.appliesTo(targets) {
			subjects = append(subjects, l.rates(c))
		}
	}
	ticket, err := g.Limiter.BeginAll(subjects, 0, g.Now())
	if err != nil {
		return rateLimitFault(err, list, c)
	}
	ticket.End()
	return nil
}

const defaultVideoModel = "sora-2"

func (g *snapshot) jobTargets(ctx context.Context, o Owner, models []string, kind catalog.Kind) ([]target, error) {
	if len(models) > 0 {
		return g.route(ctx, o, models, kind, &request{models: models})
	}
	if kind == catalog.Video {
		targets, err := g.route(ctx, o, []string{defaultVideoModel}, kind, &request{models: []string{defaultVideoModel}})
		if err == nil && !targets[0].offer.AnyName { // a provider that accepts any name may not have it
			return targets, nil
		}
	}
	return g.route(ctx, o, []string{Auto}, kind, &request{models: []string{Auto}})
}

// Generated is which model generated a job's output, and its cost.
type Generated struct {
	Model    string
	Provider string
	Cost     credits.Micro

	offer *catalog.Offer
}

// SpeechCost returns the cost of generated speech, at the prices with which it was generated.
func (by Generated) SpeechCost(u providers.Usage) credits.Micro {
	return by.offer.Cost(unitsOf(clampUsage(u)))
}

// generate tries one target after the other, each once: the job's own retries come later.
func (g *snapshot) generate(ctx context.Context, o Owner, models []string, kind catalog.Kind, send func(t target) (providers.Usage, error)) (Generated, error) {
	targets, err := g.jobTargets(ctx, o, models, kind)
	if err != nil {
		return Generated{}, err
	}
	return g.generateAt(targets, send)
}

func (g *snapshot) generateAt(targets []target, send func(t target) (providers.Usage, error)) (_ Generated, err error) {
	for _, t := range targets {
		started := g.Now()
		var used providers.Usage
		if used, err = send(t); err == nil {
			t.health.recordSuccess(started)
			return Generated{t.offer.ID, t.provider.Name(), t.offer.Cost(unitsOf(clampUsage(t.withImageTokens(used)))), t.offer}, nil
		}
		var f *providers.Failure
		if !errors.As(err, &f) || errors.Is(err, context.Canceled) {
			break
		}
		if rejectsRequest(f) {
			t.health.recordRejection()
			return Generated{}, err
		}
		if f.Kind == providers.KindLocal {
			break
		}
		t.health.recordFailure(f, g.Now())
	}
	return Generated{}, err
}

// GenerateImages generates images for a job.
func (g *Gateway) GenerateImages(ctx context.Context, o Owner, models []string, req providers.ImageRequest) (*providers.ImageResult, Generated, error) {
	var images *providers.ImageResult
	by, err := g.current.Load().generate(ctx, o, models, catalog.Image, func(t target) (u providers.Usage, err error) {
		if err := g.current.Load().checkImageFields(req.Body, t); err != nil {
			return u, err
		}
		req.Model = t.offer.Upstream
		if images, err = t.provider.(providers.ImageGenerator).Images(ctx, &req); err != nil {
			return u, err
		}
		return images.Usage, nil
	})
	return images, by, err
}

// GenerateSpeech converts text to speech for a job. Its cost is zero: SpeechCost returns it
// once the duration is known.
func (g *Gateway) GenerateSpeech(ctx context.Context, o Owner, models []string, req providers.SpeechRequest) (*providers.Content, Generated, error) {
	var content *providers.Content
	by, err := g.current.Load().generate(ctx, o, models, catalog.Speech, func(t target) (u providers.Usage, err error) {
		req.Model = t.offer.Upstream
		content, err = t.provider.(providers.SpeechGenerator).Speech(ctx, &req)
		return providers.Usage{}, err
	})
	return content, by, err
}

// GenerateTranscript turns speech into text for a job.
func (g *Gateway) GenerateTranscript(ctx context.Context, o Owner, models []string, req providers.TranscriptionRequest) (*providers.Response, Generated, error) {
	var response *providers.Response
	by, err := g.current.Load().generate(ctx, o, models, catalog.Transcription, func(t target) (u providers.Usage, err error) {
		req.Model = t.offer.Upstream
		if response, err = t.provider.(providers.Transcriber).Transcribe(ctx, &req); err != nil {
			return u, err
		}
		return completeAudioUsage(response.Usage, t.offer, req.Milliseconds), nil
	})
	return response, by, err
}

// StartVideo starts rendering a video and returns its ID at the provider.
func (g *Gateway) StartVideo(ctx context.Context, o Owner, models []string, req providers.VideoRequest) (id string, by Generated, err error) {
	by, err = g.current.Load().generate(ctx, o, models, catalog.Video, func(t target) (u providers.Usage, err error) {
		req.Model = t.offer.Upstream
		id, err = t.provider.(providers.VideoGenerator).StartVideo(ctx, &req)
		return providers.Usage{Milliseconds: int64(req.Seconds) * 1000}, err
	})
	return id, by, err
}

// VideoSource is a finished video: its provider and model, and its ID there.
type VideoSource struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	ID       string `json:"id"`
}

// RemixVideo starts rendering a new version of a video at the provider that has it, and returns its
// ID there.
func (g *Gateway) RemixVideo(ctx context.Context, o Owner, from VideoSource, req providers.VideoRequest) (id string, by Generated, err error) {
	s := g.current.Load()
	targets, err := s.jobTargets(ctx, o, []string{from.Model}, catalog.Video)
	if err != nil {
		return "", by, err
	}
	targets = slices.DeleteFunc(slices.Clone(targets), func(t target) bool { return t.provider.Name() != from.Provider })
	if len(targets) == 0 {
		return "", by, noVideoProvider(from.Provider)
	}
	by, err = s.generateAt(targets, func(t target) (u providers.Usage, err error) {
		remixer, ok := t.provider.(providers.VideoRemixer)
		if !ok {
			return u, fault.Invalid("id", "The provider of this video cannot remix it.")
		}
		req.Model = t.offer.Upstream
		id, err = remixer.RemixVideo(ctx, from.ID, &req)
		return providers.Usage{Milliseconds: int64(req.Seconds) * 1000}, err
	})
	return id, by, err
}

// VideoProvider returns the provider that renders a video.
func (g *Gateway) VideoProvider(env accounts.Environment, name string) (providers.VideoGenerator, error) {
	if env == accounts.Test {
		if v, ok := g.Simulator.(providers.VideoGenerator); ok {
			return v, nil
		}
	}
	for _, u := range g.current.Load().Upstreams {
		if v, ok := u.Provider.(providers.VideoGenerator); ok && u.Provider.Name() == name {
			return v, nil
		}
	}
	return nil, noVideoProvider(name)
}

func noVideoProvider(name string) error {
	return fault.New(fault.NoProvider, "Provider %q renders the video, but this server no longer has it in its configuration.", name)
}
