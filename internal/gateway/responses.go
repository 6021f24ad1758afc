package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/gateway/responses"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

// Responses makes a response. Providers with the Responses API get the request in that format, and
// all others as a chat completion.
func (g *Gateway) Responses(ctx context.Context, c Call, in *responses.Request) (*Response, error) {
	s := g.current.Load()
	r, targets, err := s.routeResponse(ctx, c, in)
	if err != nil {
		return nil, err
	}
	c.TransformBody = in.ToResponse
	return s.run(ctx, c, r, targets, func(ctx context.Context, t target, maxOutput int64) (*providers.Response, error) {
		if native := t.responder(); native != nil {
			return native.Respond(ctx, &providers.ResponsesRequest{Model: t.offer.Upstream, ID: t.offer.ID, Body: in.Body(), Index: r.indexed, Input: in.Input(), Stream: r.stream,
				MaxOutput: maxOutput, MaxToolCalls: r.maxToolCalls(), Tools: in.KeptTools(), Stored: in.Stored, Fields: in.ResponseFields(), BeforeWait: c.BeforeWait})
		}
		if err := in.Translate(); err != nil {
			return nil, err
		}
		resp, err := t.provider.(providers.ChatCompleter).Chat(ctx, &providers.ChatRequest{Model: t.offer.Upstream, ID: t.offer.ID, Body: in.Chat, Stream: r.stream, MaxOutput: maxOutput, BeforeWait: c.BeforeWait})
		if err == nil {
			resp.Ignored = in.Ignored(resp.Ignored)
		}
		return resp, err
	})
}

// routeResponse reads a request and finds its targets.
func (g *snapshot) routeResponse(ctx context.Context, c Call, in *responses.Request) (*request, []target, error) {
	r, err := readResponses(in)
	if err != nil {
		return nil, nil, c.noteRequested(err)
	}
	if err := r.measureAudio(ctx); err != nil {
		return nil, nil, err
	}
	r.session = c.session(r)
	r.session.input = in.Input()
	targets, err := g.route(ctx, c.owner(), r.models, catalog.Chat, r)
	if err != nil {
		return nil, nil, err
	}
	if r.lacksTierPrice(targets) {
		in.UseDefaultTier()
	}
	return r, targets, cmp.Or(g.checkImageTools(ctx, c.owner(), in, targets), r.priceTools(in, targets), r.boundInput(ctx, in, targets))
}

// tokenCounter counts the input tokens of a chat request. The simulator does.
type tokenCounter interface {
	CountTokens(ctx context.Context, body []byte) (int64, error)
}

// CountResponseTokens counts the input tokens of a request, with the tokenizer of OpenAI's models. It is free.
func (g *Gateway) CountResponseTokens(ctx context.Context, c Call, in *responses.Request) (int64, error) {
	r, err := readResponses(in)
	if err != nil {
		return 0, err
	}
	if _, err := g.current.Load().route(ctx, c.owner(), r.models, catalog.Chat, r); err != nil {
		return 0, err
	}
	release, err := c.reserveTranslation(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	if err := in.Translate(); err != nil {
		return 0, err
	}
	return g.Simulator.(tokenCounter).CountTokens(ctx, in.Chat)
}

// responder returns the target's provider if it has the Responses API.
func (t target) responder() providers.Responder {
	if r, ok := t.provider.(providers.Responder); ok && r.HasResponses() {
		return r
	}
	return nil
}

func readResponses(in *responses.Request) (r *request, err error) {
	routing := in.Routing()
	r = &request{
		operation: "chat", endpoint: "responses", body: in.Body(), choices: 1, stream: routing.Stream, includeUsage: true, maxOutput: min(routing.MaxOutput, maxTokenCount),
		priorityTier: routing.PriorityService, needs: needs{tools: routing.HasTools, schema: routing.HasSchema},
	}
	if r.models, err = modelList(&routing.Model, routing.Models); err != nil {
		return nil, err
	}
	r.maxInput = maxTextTokens(in.Body(), r.needs)
	input := r.fields().Find("input")
	if resumed := in.Input(); resumed != nil { // instead of the client's
		r.maxInput += int64(len(resumed) - len(input.Text()))
		input = jsonbody.NewIndex(resumed).Root()
	}
	r.addParts(input)
	return r, nil
}

// boundInput raises the bound of the input tokens for what the targets add to the request. It
// translates the request unless every target has the Responses API.
func (r *request) boundInput(ctx context.Context, in *responses.Request, targets []target) error {
	native := slices.ContainsFunc(targets, func(t target) bool { return t.responder() != nil })
	if slices.ContainsFunc(targets, func(t target) bool { return t.responder() == nil }) {
		switch err := in.Translate(); {
		case err == nil:
			chat := &request{body: in.Chat, maxInput: maxTextTokens(in.Chat, r.needs)}
			chat.addContent("messages")
			if err := chat.measureAudio(ctx); err != nil {
				return err
			}
			r.maxInput, r.fillsWindow = max(r.maxInput, chat.maxInput), r.fillsWindow || chat.fillsWindow
		case !native:
			return err
		}
	}
	if native && in.HasHostedTools() {
		r.fillsWindow = true // the results become input
	}
	return nil
}

// ErrCut ends a stream of a provider with the Responses API that has used up its reservation.
var ErrCut = errors.New("the stream has used up its reservation")

// withResponseCredits sets credits in the usage of an event's response.
func withResponseCredits(event []byte, charged credits.Micro) []byte {
	d := jsontext.NewDecoder(bytes.NewReader(event), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if !enterMember(d, "response") {
		return event
	}
	response, err := d.ReadValue()
	if err != nil {
		return event
	}
	after := d.InputOffset()
	start := after - int64(len(response))
	return slices.Concat(event[:start], withCredits(response, charged), event[after:])
}
