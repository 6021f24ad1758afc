package turnpike

import (
	"context"
	"iter"

	"turnpike/sdk/go/api"
)

// Page is a page of a list, as the API returns it.
type Page[T any] struct {
	Data    []T
	LastID  *string
	HasMore bool
}

// All iterates over all entries of a list. get returns the page after an ID, or the first page if it is nil. The methods
// of Client call it for the lists of the API. An iteration ends with its first error.
func All[T any](get func(after *string) (Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for after := (*string)(nil); ; {
			page, err := get(after)
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, entry := range page.Data {
				if !yield(entry, nil) {
					return
				}
			}
			if !page.HasMore || page.LastID == nil {
				return
			}
			after = page.LastID
		}
	}
}

// AllKeys iterates over keys. Nil params mean all of them.
func (c *Client) AllKeys(ctx context.Context, params *api.ListKeysParams) iter.Seq2[api.Key, error] {
	return All(func(after *string) (Page[api.Key], error) {
		p := copied(params)
		if after != nil {
			p.After = after
		}
		res, err := c.ListKeysWithResponse(ctx, &p)
		if err != nil {
			return Page[api.Key]{}, err
		}
		return Page[api.Key]{res.JSON200.Data, res.JSON200.LastID, res.JSON200.HasMore}, nil
	})
}

// AllProjects iterates over projects. Nil params mean all of them.
func (c *Client) AllProjects(ctx context.Context, params *api.ListProjectsParams) iter.Seq2[api.Project, error] {
	return All(func(after *string) (Page[api.Project], error) {
		p := copied(params)
		if after != nil {
			p.After = after
		}
		res, err := c.ListProjectsWithResponse(ctx, &p)
		if err != nil {
			return Page[api.Project]{}, err
		}
		return Page[api.Project]{res.JSON200.Data, res.JSON200.LastID, res.JSON200.HasMore}, nil
	})
}

// AllWebhooks iterates over webhook endpoints. Nil params mean all of them.
func (c *Client) AllWebhooks(ctx context.Context, params *api.ListWebhooksParams) iter.Seq2[api.WebhookEndpoint, error] {
	return All(func(after *string) (Page[api.WebhookEndpoint], error) {
		p := copied(params)
		if after != nil {
			p.After = after
		}
		res, err := c.ListWebhooksWithResponse(ctx, &p)
		if err != nil {
			return Page[api.WebhookEndpoint]{}, err
		}
		return Page[api.WebhookEndpoint]{res.JSON200.Data, res.JSON200.LastID, res.JSON200.HasMore}, nil
	})
}

// AllDeliveries iterates over deliveries. Nil params mean all of them.
func (c *Client) AllDeliveries(ctx context.Context, params *api.ListDeliveriesParams) iter.Seq2[api.Delivery, error] {
	return All(func(after *string) (Page[api.Delivery], error) {
		p := copied(params)
		if after != nil {
			p.After = after
		}
		res, err := c.ListDeliveriesWithResponse(ctx, &p)
		if err != nil {
			return Page[api.Delivery]{}, err
		}
		return Page[api.Delivery]{res.JSON200.Data, res.JSON200.LastID, res.JSON200.HasMore}, nil
	})
}

// AllEvents iterates over events. Nil params mean all of them.
func (c *Client) AllEvents(ctx context.Context, params *api.ListEventsParams) iter.Seq2[api.Event, error] {
	return All(func(after *string) (Page[api.Event], error) {
		p := copied(params)
		if after != nil {
			p.After = after
		}
		res, err := c.ListEventsWithResponse(ctx, &p)
		if err != nil {
			return Page[api.Event]{}, err
		}
		return Page[api.Event]{res.JSON200.Data, res.JSON200.LastID, res.JSON200.HasMore}, nil
	})
}

// AllAgentRuns iterates over agent runs. Nil params mean all of them.
func (c *Client) AllAgentRuns(ctx context.Context, params *api.ListAgentRunsParams) iter.Seq2[api.AgentRun, error] {
	return All(func(after *string) (Page[api.AgentRun], error) {
		p := copied(params)
		if after != nil {
			p.After = after
		}
		res, err := c.ListAgentRunsWithResponse(ctx, &p)
		if err != nil {
			return Page[api.AgentRun]{}, err
		}
		return Page[api.AgentRun]{res.JSON200.Data, res.JSON200.LastID, res.JSON200.HasMore}, nil
	})
}

// AllImageBatches iterates over image batches, without their results. Nil params mean all of them.
func (c *Client) AllImageBatches(ctx context.Context, params *api.ListImageBatchesParams) iter.Seq2[api.ImageBatchSummary, error] {
	return All(func(after *string) (Page[api.ImageBatchSummary], error) {
		p := copied(params)
		if after != nil {
			p.After = after
		}
		res, err := c.ListImageBatchesWithResponse(ctx, &p)
		if err != nil {
			return Page[api.ImageBatchSummary]{}, err
		}
		return Page[api.ImageBatchSummary]{res.JSON200.Data, res.JSON200.LastID, res.JSON200.HasMore}, nil
	})
}

// AllVideos iterates over videos. Nil params mean all of them.
func (c *Client) AllVideos(ctx context.Context, params *api.ListVideosParams) iter.Seq2[api.Video, error] {
	return All(func(after *string) (Page[api.Video], error) {
		p := copied(params)
		if after != nil {
			p.After = after
		}
		res, err := c.ListVideosWithResponse(ctx, &p)
		if err != nil {
			return Page[api.Video]{}, err
		}
		return Page[api.Video]{res.JSON200.Data, res.JSON200.LastID, res.JSON200.HasMore}, nil
	})
}

// AllVoiceRenders iterates over voice renders. Nil params mean all of them.
func (c *Client) AllVoiceRenders(ctx context.Context, params *api.ListVoiceRendersParams) iter.Seq2[api.VoiceRender, error] {
	return All(func(after *string) (Page[api.VoiceRender], error) {
		p := copied(params)
		if after != nil {
			p.After = after
		}
		res, err := c.ListVoiceRendersWithResponse(ctx, &p)
		if err != nil {
			return Page[api.VoiceRender]{}, err
		}
		return Page[api.VoiceRender]{res.JSON200.Data, res.JSON200.LastID, res.JSON200.HasMore}, nil
	})
}

// AllTranscriptions iterates over transcription jobs. Nil params mean all of them.
func (c *Client) AllTranscriptions(ctx context.Context, params *api.ListTranscriptionJobsParams) iter.Seq2[api.VoiceTranscription, error] {
	return All(func(after *string) (Page[api.VoiceTranscription], error) {
		p := copied(params)
		if after != nil {
			p.After = after
		}
		res, err := c.ListTranscriptionJobsWithResponse(ctx, &p)
		if err != nil {
			return Page[api.VoiceTranscription]{}, err
		}
		return Page[api.VoiceTranscription]{res.JSON200.Data, res.JSON200.LastID, res.JSON200.HasMore}, nil
	})
}

// AllToolServers iterates over tool servers. Nil params mean all of them.
func (c *Client) AllToolServers(ctx context.Context, params *api.ListToolServersParams) iter.Seq2[api.ToolServer, error] {
	return All(func(after *string) (Page[api.ToolServer], error) {
		p := copied(params)
		if after != nil {
			p.After = after
		}
		res, err := c.ListToolServersWithResponse(ctx, &p)
		if err != nil {
			return Page[api.ToolServer]{}, err
		}
		return Page[api.ToolServer]{res.JSON200.Data, res.JSON200.LastID, res.JSON200.HasMore}, nil
	})
}

// AllAuditEntries iterates over entries of the request log. Nil params mean all of them.
func (c *Client) AllAuditEntries(ctx context.Context, params *api.ListAuditParams) iter.Seq2[api.AuditEntry, error] {
	return All(func(after *string) (Page[api.AuditEntry], error) {
		p := copied(params)
		if after != nil {
			p.After = after
		}
		res, err := c.ListAuditWithResponse(ctx, &p)
		if err != nil {
			return Page[api.AuditEntry]{}, err
		}
		return Page[api.AuditEntry]{res.JSON200.Data, res.JSON200.LastID, res.JSON200.HasMore}, nil
	})
}

// AllAgentSteps iterates over the steps of a run, oldest first.
func (c *Client) AllAgentSteps(ctx context.Context, runID string, params *api.ListAgentStepsParams) iter.Seq2[api.AgentStep, error] {
	return All(func(after *string) (Page[api.AgentStep], error) {
		p := copied(params)
		if after != nil {
			p.After = after
		}
		res, err := c.ListAgentStepsWithResponse(ctx, runID, &p)
		if err != nil {
			return Page[api.AgentStep]{}, err
		}
		return Page[api.AgentStep]{res.JSON200.Data, res.JSON200.LastID, res.JSON200.HasMore}, nil
	})
}

// copied returns a copy of the parameters, so that an iteration doesn't change the caller's.
func copied[T any](params *T) (p T) {
	if params != nil {
		p = *params
	}
	return p
}
