package dashboard

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/media"
)

// jobTab is a kind of job: where its pages are, and what people call it.
type jobTab struct {
	Kind   media.Kind
	Path   string // behind jobs/
	Name   string
	Reads  string // the scope that shows its jobs
	Writes string // and the one that ends and deletes them
	None   string // said of an empty list
	log    string // what its acts begin with in the admin log
}

var jobTabs = []jobTab{
	{media.Images, "images", "Images", "images:read", "images:create", "POST /v1/images/batches", "image.batch"},
	{media.Video, "videos", "Videos", "videos:read", "videos:create", "POST /v1/videos", "video.render"},
	{media.Voice, "voice", "Voice", "voice:read", "voice:create", "POST /v1/voice/renders", "voice.render"},
}

func tabOf(k media.Kind) jobTab {
	return jobTabs[slices.IndexFunc(jobTabs, func(t jobTab) bool { return t.Kind == k })]
}

// jobsStart leads to the first kind.
func jobsStart(v *visit) (*view, error) {
	v.redirect(v.to("jobs/images"), flash{})
	return nil, nil
}

// jobStates are those that jobs of each kind can be in: only a batch ends its
// requests one by one, and a cancelled video is failed, as OpenAI has it.
var jobStates = map[media.Kind][]media.Status{
	media.Images: {media.Queued, media.InProgress, media.Cancelling, media.Completed, media.Failed, media.Cancelled},
	media.Video:  {media.Queued, media.InProgress, media.Completed, media.Failed},
	media.Voice:  {media.Queued, media.InProgress, media.Completed, media.Failed, media.Cancelled},
}

// jobRow is a job in a list.
type jobRow struct {
	*media.Job
	Asked media.Asked
	Took  time.Duration // 0 while it is not done
}

func newJobRow(j *media.Job) (jobRow, error) {
	asked, err := j.Asked()
	row := jobRow{Job: j, Asked: asked}
	if j.CompletedAt != nil {
		row.Took = j.CompletedAt.Sub(j.CreatedAt)
	}
	return row, err
}

// Done is how many of the parts have ended.
func (r jobRow) Done() int64 { return r.Completed + r.Failed }

// Short is the beginning of what was asked for.
func (r jobRow) Short() clipped { return clip(r.Asked.Prompt, 80) }

type jobsData struct {
	Now    time.Time
	Tab    jobTab
	Tabs   []jobTab
	States []media.Status
	Jobs   []jobRow
	Next   pager
}

// jobsPage is the list of a kind.
func jobsPage(k media.Kind) page {
	return func(v *visit) (*view, error) {
		page := v.page(k.Prefix())
		status := media.Status(v.query("status"))
		if !slices.Contains(jobStates[k], status) {
			status = ""
		}
		found, err := v.s.Media.List(v.ctx(), v.s.DB, v.principal, k, status, page)
		if err != nil {
			return nil, err
		}
		d := jobsData{Now: v.now(), Tab: tabOf(k), Tabs: jobTabs, States: jobStates[k], Jobs: make([]jobRow, len(found.Rows)),
			Next: v.pager(page, found.More, func() string { return found.Cursor })}
		for i, j := range found.Rows {
			if d.Jobs[i], err = newJobRow(j); err != nil {
				return nil, err
			}
		}
		return &view{template: "jobs", title: d.Tab.Name, data: d, live: found.Looked == 0}, nil
	}
}

const (
	// partsPerPage, picturesPerPart and partText keep a page of a batch small:
	// a link to a picture is some 300 characters long.
	partsPerPage    = 20
	picturesPerPart = 4
	partText        = 280
	// piecesPerPage is less: a piece of a text is shown whole.
	piecesPerPage = 10
	promptText    = 1000
)

// shownFile is a file with a link to it.
type shownFile struct {
	media.NamedFile
	URL    string
	Kind   string // image, video or audio, where the page can show it
	Poster string // what is shown of a video before it plays
}

// partRow is a request of a batch, or a piece of a text.
type partRow struct {
	*media.Part
	Short clipped
	Shown []shownFile
	More  int // pictures that are not shown
}

// Number is the part's place as people count.
func (r partRow) Number() int64 { return r.Position + 1 }

type jobData struct {
	Now    time.Time
	Tab    jobTab
	Job    jobRow
	Prompt clipped
	Files  []shownFile
	Parts  []partRow
	One    bool // Parts is the one that the address asks for, whole
	Next   pager
	Embeds bool // the files come from here, so that the page may show them
}

// Cancels reports whether there is something to cancel.
func (d jobData) Cancels() bool {
	return !d.Job.Status.Ended() && d.Job.Status != media.Cancelling
}

// HasParts reports whether the job is made of several: a video is one.
func (d jobData) HasParts() bool { return d.Job.Kind != media.Video }

// jobPage is one job.
func jobPage(k media.Kind) page {
	return func(v *visit) (*view, error) {
		j, err := v.job(k)
		if err != nil {
			return nil, err
		}
		d := jobData{Now: v.now(), Tab: tabOf(k), Embeds: !v.s.Files.Redirects()}
		if d.Job, err = newJobRow(j); err != nil {
			return nil, err
		}
		d.Prompt = clip(d.Job.Asked.Prompt, promptText)
		if v.query("all") != "" {
			d.Prompt = clipped{Text: d.Job.Asked.Prompt}
		}
		named, err := j.Files()
		if err != nil {
			return nil, err
		}
		d.Files = withPoster(v.shownFiles(j, named))
		if d.HasParts() {
			if err := v.jobParts(j, &d); err != nil {
				return nil, err
			}
		}
		title := strings.ToUpper(k.Noun()[:1]) + k.Noun()[1:]
		return &view{template: "job", title: title, data: d, live: !j.Status.Ended()}, nil
	}
}

func (v *visit) job(k media.Kind) (*media.Job, error) {
	id, err := v.pathID(k.Prefix(), k.Noun())
	if err != nil {
		return nil, err
	}
	return v.s.Media.Get(v.ctx(), v.s.DB, v.principal, k, id)
}

// jobParts reads the parts that the address asks for: a page of them, or one.
func (v *visit) jobParts(j *media.Job, d *jobData) error {
	if one := v.query("part"); one != "" {
		n, err := strconv.ParseInt(one, 10, 64)
		if err != nil || n < 0 {
			return fault.New(fault.NotFound, "there is no such part")
		}
		p, err := v.s.Media.Part(v.ctx(), v.s.DB, j, n)
		if err != nil {
			return err
		}
		d.One = true
		d.Parts = []partRow{{Part: p, Short: clipped{Text: p.Text}, Shown: v.shownFiles(j, p.Files)}}
		return nil
	}
	after := int64(-1)
	if n, err := strconv.ParseInt(v.query("after"), 10, 64); err == nil && n >= 0 {
		after = n
	}
	limit, text := partsPerPage, partText
	if j.Kind == media.Voice {
		limit, text = piecesPerPage, 1<<20
	}
	parts, more, err := v.s.Media.Parts(v.ctx(), v.s.DB, j, v.query("only") == "failed", after, limit)
	if err != nil {
		return err
	}
	for _, p := range parts {
		named := p.Files[:min(len(p.Files), picturesPerPart)]
		d.Parts = append(d.Parts, partRow{Part: p, Short: clip(p.Text, text), Shown: v.shownFiles(j, named), More: len(p.Files) - len(named)})
	}
	next := ""
	if more {
		next = strconv.FormatInt(parts[len(parts)-1].Position, 10)
	}
	d.Next = v.pagerAt(after >= 0, next)
	return nil
}

// linkStep is how long the address of a file stays the same, so that a page
// that is kept up to date does not load it again each time.
const linkStep = time.Hour

// shownFiles links to files, by addresses that are good for an hour at least.
// They lead to this server by whatever name the browser knows it: what has
// another one is not shown on a page.
func (v *visit) shownFiles(j *media.Job, list []media.NamedFile) []shownFile {
	until := v.now().Truncate(linkStep).Add(2 * linkStep)
	out := make([]shownFile, len(list))
	for i, f := range list {
		out[i] = shownFile{NamedFile: f, URL: v.s.Files.URL(j.Owner(), f.File, f.Name, until)}
		if u, err := url.Parse(out[i].URL); err == nil {
			out[i].URL = u.RequestURI()
		}
		if kind, _, _ := strings.Cut(f.ContentType, "/"); !v.s.Files.Redirects() && (kind == "image" || kind == "video" || kind == "audio") {
			out[i].Kind = kind
		}
	}
	return out
}

// withPoster has the thumbnail of a video be shown in its place.
func withPoster(list []shownFile) []shownFile {
	i := slices.IndexFunc(list, func(f shownFile) bool { return f.Variant == "thumbnail" && f.Kind == "image" })
	for n := range list {
		if i >= 0 && list[n].Kind == "video" {
			list[n].Poster = list[i].URL
		}
	}
	return list
}

// cancelJob stops a job.
func cancelJob(k media.Kind) deed {
	return func(v *visit) (*view, error) {
		id, err := v.pathID(k.Prefix(), k.Noun())
		if err != nil {
			return nil, err
		}
		notice := "The " + k.Noun() + " is cancelled."
		err = v.write(func(tx *db.Tx) error {
			j, err := v.s.Media.Cancel(v.ctx(), tx, v.principal, k, id)
			if err != nil {
				return err
			}
			if j.Status == media.Cancelling {
				notice = "The " + k.Noun() + " is being cancelled: what is under way comes to its end."
			}
			return v.logJob(tx, j, "cancelled")
		})
		if err != nil {
			return nil, err
		}
		v.redirect(v.to("jobs/"+tabOf(k).Path+"/"+id), flash{Notice: notice})
		return nil, nil
	}
}

// deleteJob removes a job that has ended, and its files.
func deleteJob(k media.Kind) deed {
	return func(v *visit) (*view, error) {
		id, err := v.pathID(k.Prefix(), k.Noun())
		if err != nil {
			return nil, err
		}
		err = v.write(func(tx *db.Tx) error {
			j, err := v.s.Media.Get(v.ctx(), tx, v.principal, k, id)
			if err != nil {
				return err
			}
			if err := v.s.Media.Delete(v.ctx(), tx, v.principal, k, id); err != nil {
				return err
			}
			return v.logJob(tx, j, "deleted")
		})
		if err != nil {
			return nil, err
		}
		v.redirect(v.to("jobs/"+tabOf(k).Path), flash{Notice: "The " + k.Noun() + " and its files are deleted."})
		return nil, nil
	}
}

// logJob writes down who did it: what keys do is in the request log, and what
// people do is not.
func (v *visit) logJob(tx *db.Tx, j *media.Job, what string) error {
	return audit.LogAction(v.ctx(), tx, v.actor(), audit.Action{WorkspaceID: j.WorkspaceID, Environment: string(j.Environment), Project: j.Project,
		Action: tabOf(j.Kind).log + "." + what, Target: j.ID}, nil, v.now())
}
