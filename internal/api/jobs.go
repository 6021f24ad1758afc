package api

import (
	"cmp"
	"context"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/jsonbody"
	"turnpike/internal/media"
	"turnpike/internal/web"
)

func (c *Call) requester() media.Caller {
	return media.Caller{Principal: c.Principal, Project: c.Project, RequestID: c.ID, Record: c.record}
}

// createJob creates a job of any kind. Its maximum cost is reserved first; the
// transaction that stores the job hands it the reservation.
func (c *Call) createJob(identity []byte, order func() (*media.Draft, error)) error {
	if err := c.s.Gateway.CheckRateLimit(c.Context(), c.modelCall(nil)); err != nil {
		return err
	}
	var o *media.Draft
	return c.perform(identity, action{
		before: func() (err error) {
			if o, err = order(); err != nil {
				return err
			}
			if err := c.createProject(c.Context()); err != nil {
				return err
			}
			if err := c.reserve(o); err != nil {
				return err // without noting the model: it wasn't called
			}
			if err := c.s.Media.StoreFile(c.Context(), o); err != nil {
				return err
			}
			c.record.Note(func(e *audit.Entry) { e.Model, e.Reserved = o.Job.Model, o.Job.Reserved })
			return nil
		},
		do: func(ctx context.Context, tx *db.Tx) (any, error) {
			if err := c.s.Media.Create(ctx, tx, o); err != nil {
				return nil, err
			}
			return c.s.Media.Show(ctx, tx, o.Job, true)
		},
		after: func(err error) { c.s.Media.EndReservation(o, err) },
	})
}

// reserve has a storage timeout, unlike the steps around it: splitting a long
// text and storing a file take longer.
func (c *Call) reserve(o *media.Draft) error {
	ctx, cancel := web.WithStorageTimeout(c.Context())
	defer cancel()
	return c.s.Media.Reserve(ctx, c.modelCall(nil), o)
}

// createJobOf returns a handler that creates a job from a JSON body.
func createJobOf[In any](draft func(*media.Service, context.Context, media.Caller, In) (*media.Draft, error)) handler {
	return func(c *Call) error {
		var in In
		body, err := c.readModelRequest(&in)
		if err != nil {
			return err
		}
		return c.createJob(body, func() (*media.Draft, error) { return draft(c.s.Media, c.Context(), c.requester(), in) })
	}
}

// readModelRequest decodes a body of at most Limits.ModelBody bytes and returns it.
func (c *Call) readModelRequest(into any) ([]byte, error) {
	body, err := c.readModelBody()
	if err != nil {
		return nil, err
	}
	return body, jsonbody.DecodeStrict(body, into)
}

var jobStates = []media.Status{media.Queued, media.InProgress, media.Cancelling, media.Completed, media.Failed, media.Cancelled}

func listJobs(k media.Kind) func(ctx context.Context, c *Call) (any, error) {
	return func(ctx context.Context, c *Call) (any, error) {
		q := c.query(append(pageParams, "status")...)
		page := q.page(k.Prefix())
		status := choice(q, "status", jobStates)
		if q.err != nil {
			return nil, q.err
		}
		budget := c.pageBudget()
		found, err := c.s.Media.List(ctx, budget, c.Principal, media.Filter{Kind: k, Status: status}, page)
		if err != nil {
			return nil, err
		}
		truncatePage(budget, found, func(j *media.Job) string { return j.ID })
		data := make([]any, len(found.Rows))
		for i, j := range found.Rows {
			if data[i], err = c.s.Media.Show(ctx, c.s.DB, j, true); err != nil {
				return nil, err
			}
		}
		return foundList(found, data, func(j *media.Job) string { return j.ID }), nil
	}
}

func getJob(k media.Kind) func(ctx context.Context, c *Call) (any, error) {
	return func(ctx context.Context, c *Call) (any, error) {
		j, err := c.s.Media.Get(ctx, c.s.DB, c.Principal, k, c.id())
		if err != nil {
			return nil, err
		}
		return c.s.Media.Show(ctx, c.s.DB, j, false)
	}
}

func cancelJob(k media.Kind) func(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	return func(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
		j, err := c.s.Media.Cancel(ctx, tx, c.Principal, k, c.id())
		if err != nil {
			return nil, err
		}
		return c.s.Media.Show(ctx, tx, j, true)
	}
}

var deletedNames = map[media.Kind]string{media.Images: "image.batch.deleted", media.Video: "video.deleted", media.Voice: "voice.render.deleted",
	media.Transcript: "voice.transcription.deleted"}

func deleteJob(k media.Kind) func(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	return func(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
		if err := c.s.Media.Delete(ctx, tx, c.Principal, k, c.id()); err != nil {
			return nil, err
		}
		return deletedObject{ID: c.id(), Object: deletedNames[k], Deleted: true}, nil
	}
}

// getVideoContent sends the file itself.
func getVideoContent(c *Call) error {
	q := c.query("variant")
	variant := cmp.Or(choice(q, "variant", media.VideoVariants), media.VideoVariants[0])
	if q.err != nil {
		return q.err
	}
	j, err := c.s.Media.Get(c.Context(), c.s.DB, c.Principal, media.Video, c.id())
	if err != nil {
		return err
	}
	f, name, err := c.s.Media.Content(j, variant)
	if err != nil {
		return err
	}
	if err := c.waitUntilLogged(); err != nil {
		c.failUnlogged(err)
		return nil
	}
	defer c.setWriteDeadline()
	return c.s.Files.Send(download{c}, c.R, j.Tenant, f, name)
}
