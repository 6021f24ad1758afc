package api

import (
	"slices"

	"github.com/go-json-experiment/json"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/media"
)

// Batches of pictures, videos and voice renders are jobs: what is the same for
// all three is here.

// from is who orders a job.
func (c *Call) from() media.From {
	return media.From{Principal: c.Principal, Project: c.Project, RequestID: c.id}
}

// createJob makes a job of an order: its price is reserved first, and the job
// has the reservation from the transaction on that stores it.
func (c *Call) createJob(identity []byte, order func() (*media.Order, error)) error {
	if err := c.s.Gateway.CheckRateLimit(c.modelCall(nil)); err != nil {
		return err
	}
	var o *media.Order
	return c.perform(identity, action{
		before: func() (err error) {
			if o, err = order(); err != nil {
				return err
			}
			if err := c.createProject(c.Context()); err != nil {
				return err
			}
			if err := c.reserve(o); err != nil {
				return err // what is refused was no call of a model
			}
			if err := c.s.Media.Keep(c.Context(), o); err != nil {
				return err
			}
			c.record.Note(func(e *audit.Entry) { e.Model, e.Reserved = o.Job.Model, o.Job.Reserved })
			return nil
		},
		do: func(tx *db.Tx) (any, error) {
			if err := c.s.Media.Create(c.Context(), tx, o); err != nil {
				return nil, err
			}
			return c.s.Media.Show(c.Context(), tx, o.Job, true)
		},
		after: func(err error) { c.s.Media.Handed(o, err) },
	})
}

// reserve waits for the store alone: a long text takes a while to be taken
// apart, and a file to be kept.
func (c *Call) reserve(o *media.Order) error {
	defer c.impatient()()
	return c.s.Media.Reserve(c.Context(), c.modelCall(nil), o)
}

func createImageBatch(c *Call) error {
	var in media.ImageBatchRequest
	body, err := c.readOrder(&in)
	if err != nil {
		return err
	}
	return c.createJob(body, func() (*media.Order, error) { return c.s.Media.OrderImages(c.from(), in) })
}

func createVoiceRender(c *Call) error {
	var in media.VoiceRequest
	body, err := c.readOrder(&in)
	if err != nil {
		return err
	}
	return c.createJob(body, func() (*media.Order, error) { return c.s.Media.OrderVoice(c.from(), in) })
}

// readOrder reads a body that may be as large as a model call's.
func (c *Call) readOrder(into any) ([]byte, error) {
	body, err := c.readJSON(c.s.Limits.ModelBody)
	if err != nil {
		return nil, err
	}
	if err := c.still(); err != nil {
		return nil, err
	}
	return body, jsonbody.DecodeStrict(body, into)
}

var jobStates = []media.Status{media.Queued, media.InProgress, media.Cancelling, media.Completed, media.Failed, media.Cancelled}

func listJobs(k media.Kind) func(c *Call) (any, error) {
	return func(c *Call) (any, error) {
		q := c.query(append(pageParams, "status")...)
		page := q.page(k.Prefix())
		status := media.Status(q.text("status"))
		if status != "" && !slices.Contains(jobStates, status) {
			q.fail(fault.Invalid("status", "status must be queued, in_progress, cancelling, completed, failed or cancelled"))
		}
		if q.err != nil {
			return nil, q.err
		}
		portion := c.portion()
		found, err := c.s.Media.List(c.Context(), portion, c.Principal, k, status, page)
		if err != nil {
			return nil, err
		}
		cutPage(portion, found, func(j *media.Job) string { return j.ID })
		data := make([]shownJob, len(found.Rows))
		for i, j := range found.Rows {
			object, err := c.s.Media.Show(c.Context(), c.s.DB, j, true)
			if err != nil {
				return nil, err
			}
			data[i] = shownJob{j.ID, object}
		}
		l := newList(data, func(j shownJob) string { return j.id }, found.More)
		l.goOnFrom(found.Cursor)
		return l, nil
	}
}

// shownJob is a job as the interface shows it.
type shownJob struct {
	id     string
	object any
}

// MarshalJSON is the object's.
func (j shownJob) MarshalJSON() ([]byte, error) { return json.Marshal(j.object) }

func getJob(k media.Kind) func(c *Call) (any, error) {
	return func(c *Call) (any, error) {
		id, err := c.pathID(k.Prefix(), k.Noun())
		if err != nil {
			return nil, err
		}
		j, err := c.s.Media.Get(c.Context(), c.s.DB, c.Principal, k, id)
		if err != nil {
			return nil, err
		}
		return c.s.Media.Show(c.Context(), c.s.DB, j, false)
	}
}

func cancelJob(k media.Kind) func(c *Call, tx *db.Tx, _ struct{}) (any, error) {
	return func(c *Call, tx *db.Tx, _ struct{}) (any, error) {
		id, err := c.pathID(k.Prefix(), k.Noun())
		if err != nil {
			return nil, err
		}
		j, err := c.s.Media.Cancel(c.Context(), tx, c.Principal, k, id)
		if err != nil {
			return nil, err
		}
		return c.s.Media.Show(c.Context(), tx, j, true)
	}
}

var deletedNames = map[media.Kind]string{media.Images: "image.batch.deleted", media.Video: "video.deleted", media.Voice: "voice.render.deleted"}

func deleteJob(k media.Kind) func(c *Call, tx *db.Tx, _ struct{}) (any, error) {
	return func(c *Call, tx *db.Tx, _ struct{}) (any, error) {
		id, err := c.pathID(k.Prefix(), k.Noun())
		if err != nil {
			return nil, err
		}
		if err := c.s.Media.Delete(c.Context(), tx, c.Principal, k, id); err != nil {
			return nil, err
		}
		return deletedObject{ID: id, Object: deletedNames[k], Deleted: true}, nil
	}
}

// getVideoContent sends the file itself, to whoever may see the video.
func getVideoContent(c *Call) error {
	id, err := c.pathID(media.Video.Prefix(), media.Video.Noun())
	if err != nil {
		return err
	}
	q := c.query("variant")
	variant := q.text("variant")
	if variant == "" {
		variant = media.VideoVariants[0]
	}
	if !slices.Contains(media.VideoVariants, variant) {
		q.fail(fault.Invalid("variant", "variant must be video, thumbnail or spritesheet"))
	}
	if q.err != nil {
		return q.err
	}
	j, err := c.s.Media.Get(c.Context(), c.s.DB, c.Principal, media.Video, id)
	if err != nil {
		return err
	}
	f, name, err := c.s.Media.Content(j, variant)
	if err != nil {
		return err
	}
	if err := c.logged(); err != nil {
		c.unlogged(err)
		return nil
	}
	defer c.expectPiece()
	return c.s.Files.Send(download{c}, c.r, j.Owner(), f, name)
}
