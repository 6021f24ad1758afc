package turnpike

import (
	"context"
	"net/http"
	"time"

	"turnpike/sdk/go/api"
)

// WaitOptions change how to wait for a job or run. Nil means the defaults.
type WaitOptions[T any] struct {
	// OnProgress gets the job or run after each poll.
	OnProgress func(*T)
	// PollInterval is the time between polls. By default, it grows from half a second to 5 seconds.
	PollInterval time.Duration
}

const (
	firstPoll = 500 * time.Millisecond
	lastPoll  = 5 * time.Second
)

// poll gets an object until it is done or the context ends. The job goes on if the context ends.
func poll[T any](ctx context.Context, options *WaitOptions[T], get func() (*T, *http.Response, error), isDone func(*T) bool) (*T, error) {
	if options == nil {
		options = &WaitOptions[T]{}
	}
	for interval := firstPoll; ; interval = min(lastPoll, interval*3/2) {
		value, res, err := get()
		if err != nil {
			return nil, err
		}
		if options.OnProgress != nil {
			options.OnProgress(value)
		}
		if isDone(value) {
			return value, nil
		}
		wait := interval
		if asked, ok := requestedDelay(res.Header); ok {
			wait = asked
		}
		if options.PollInterval > 0 {
			wait = options.PollInterval
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// WaitForImageBatch waits until an image batch has ended. It returns failed and canceled batches too: check the Status.
func (c *Client) WaitForImageBatch(ctx context.Context, id string, options *WaitOptions[api.ImageBatch]) (*api.ImageBatch, error) {
	return poll(ctx, options, func() (*api.ImageBatch, *http.Response, error) {
		res, err := c.GetImageBatchWithResponse(ctx, id, nil)
		if err != nil {
			return nil, nil, err
		}
		return res.JSON200, res.HTTPResponse, nil
	}, func(b *api.ImageBatch) bool { return b.CompletedAt != nil })
}

// WaitForVideo waits until a video has ended. It returns failed and canceled videos too: check the Status.
func (c *Client) WaitForVideo(ctx context.Context, id string, options *WaitOptions[api.Video]) (*api.Video, error) {
	return poll(ctx, options, func() (*api.Video, *http.Response, error) {
		res, err := c.GetVideoWithResponse(ctx, id, nil)
		if err != nil {
			return nil, nil, err
		}
		return res.JSON200, res.HTTPResponse, nil
	}, func(v *api.Video) bool { return v.CompletedAt != nil })
}

// WaitForVoiceRender waits until a voice render has ended. It returns failed and canceled renders too: check the Status.
func (c *Client) WaitForVoiceRender(ctx context.Context, id string, options *WaitOptions[api.VoiceRender]) (*api.VoiceRender, error) {
	return poll(ctx, options, func() (*api.VoiceRender, *http.Response, error) {
		res, err := c.GetVoiceRenderWithResponse(ctx, id, nil)
		if err != nil {
			return nil, nil, err
		}
		return res.JSON200, res.HTTPResponse, nil
	}, func(v *api.VoiceRender) bool { return v.CompletedAt != nil })
}

// WaitForTranscription waits until a transcription has ended. It returns failed and canceled jobs too: check the Status.
func (c *Client) WaitForTranscription(ctx context.Context, id string, options *WaitOptions[api.VoiceTranscription]) (*api.VoiceTranscription, error) {
	return poll(ctx, options, func() (*api.VoiceTranscription, *http.Response, error) {
		res, err := c.GetTranscriptionJobWithResponse(ctx, id, nil)
		if err != nil {
			return nil, nil, err
		}
		return res.JSON200, res.HTTPResponse, nil
	}, func(v *api.VoiceTranscription) bool { return v.CompletedAt != nil })
}

// WaitForRun waits until an agent run has ended or needs you: if RequiredActions isn't empty, decide its approvals or
// send the outputs of your tools, and wait again.
func (c *Client) WaitForRun(ctx context.Context, id string, options *WaitOptions[api.AgentRun]) (*api.AgentRun, error) {
	return poll(ctx, options, func() (*api.AgentRun, *http.Response, error) {
		res, err := c.GetAgentRunWithResponse(ctx, id, nil)
		if err != nil {
			return nil, nil, err
		}
		return res.JSON200, res.HTTPResponse, nil
	}, func(r *api.AgentRun) bool { return r.CompletedAt != nil || len(r.RequiredActions) > 0 })
}
