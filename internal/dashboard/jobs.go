package dashboard

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/logsearch"
	"turnpike/internal/media"
	"turnpike/internal/web"
)

// jobTab is a kind of job with its paths and names.
type jobTab struct {
	Kind   media.Kind
	Path   string // after jobs/
	Name   string
	Reads  access.Scope
	Writes access.Scope // for canceling and deleting
	None   string       // the endpoint that creates one, for an empty list
	log    string       // prefix of its actions in the admin log
	states []media.Status
}

// Only batches cancel gradually, and a canceled video is failed, as at OpenAI.
var jobTabs = []jobTab{
	{media.Images, "images", "Images", access.ImagesRead, access.ImagesCreate, "POST /v1/images/batches", "image.batch",
		[]media.Status{media.Queued, media.InProgress, media.Cancelling, media.Completed, media.Failed, media.Cancelled}},
	{media.Video, "videos", "Videos", access.VideosRead, access.VideosCreate, "POST /v1/videos", "video.render",
		[]media.Status{media.Queued, media.InProgress, media.Completed, media.Failed}},
	{media.Voice, "voice", "Voice", access.VoiceRead, access.VoiceCreate, "POST /v1/voice/renders", "voice.render",
		[]media.Status{media.Queued, media.InProgress, media.Completed, media.Failed, media.Cancelled}},
	{media.Transcript, "transcriptions", "Transcriptions", access.VoiceRead, access.TranscriptionsCreate, "POST /v1/voice/transcriptions", "voice.transcription",
		[]media.Status{media.Queued, media.InProgress, media.Completed, media.Failed, media.Cancelled}},
}

// tabLink is a link to a kind of jobs.
type tabLink struct {
	Path, Name string
	Reads      access.Scope
}

func tabLinks() []tabLink {
	var out []tabLink
	for _, t := range jobTabs {
		out = append(out, tabLink{t.Path, t.Name, t.Reads})
	}
	for _, t := range batchTabs {
		out = append(out, tabLink{t.Path, t.Name, access.BatchesRead})
	}
	return out
}

func jobsStart(req *request) (*view, error) {
	return req.redirect(req.to("jobs/images"), flash{})
}

type jobRow struct {
	*media.Job
	Asked   media.RequestSummary
	KeyName string
	Thumbs  []shownFile // the first images, in a list
}

func (req *request) jobRows(list ...*media.Job) ([]jobRow, error) {
	names, err := req.keyNames(web.Map(list, func(j *media.Job) string { return j.KeyID }))
	if err != nil {
		return nil, err
	}
	rows := make([]jobRow, len(list))
	for i, j := range list {
		asked, err := j.Summary()
		if err != nil {
			return nil, err
		}
		rows[i] = jobRow{Job: j, Asked: asked, KeyName: cmp.Or(names[j.KeyID], j.KeyID)}
	}
	return rows, nil
}

// addThumbs adds the first images of batches.
func (req *request) addThumbs(rows []jobRow) error {
	first, err := req.s.Media.FirstImages(req.Context(), req.s.DB, web.Map(rows, func(r jobRow) *media.Job { return r.Job }), thumbsShown)
	for i, r := range rows {
		rows[i].Thumbs = req.shownFiles(r.Job, first[r.ID])
	}
	return err
}

// thumbsShown is how many images a list shows of a batch.
const thumbsShown = 3

// Took returns how long the job took, or 0 until it ends.
func (r jobRow) Took() time.Duration { return between(&r.CreatedAt, r.CompletedAt) }

// First returns the beginning of the prompt or text, or an empty string.
func (r jobRow) First() string { return cmp.Or(r.Preview, accounts.Preview(r.Asked.Prompt)) }

// Done returns how many parts have ended.
func (r jobRow) Done() int64 { return r.Completed + r.Failed }

// Audio returns how long a file to transcribe plays.
func (r jobRow) Audio() time.Duration { return time.Duration(r.Asked.Milliseconds) * time.Millisecond }

type jobsData struct {
	Search *searchBox
	Tab    jobTab
	Tabs   []tabLink
	Jobs   []jobRow
	Looked *scanned // nil if the search is complete
	Next   pager
}

func (tab jobTab) listPage(req *request) (*view, error) {
	f := media.Filter{Kind: tab.Kind}
	box, err := req.searchWork(workFields{example: "status:failed project:shop last:7d", models: func() ([]string, error) {
		return modelsOfJobs(req.Context(), req.history(), req.workspace.In(req.env), tab.Kind)
	}, search: &f.WorkSearch}, logsearch.Field{Name: "status", Label: "Status",
		Help: string(media.Failed), Values: logsearch.Strings(tab.states), Only: true, Set: logsearch.OneOf(&f.Status, tab.states)})
	if err != nil || box == nil {
		return nil, err
	}
	page, found := req.page(tab.Kind.Prefix()), &db.Found[*media.Job]{}
	if !box.Unmatched() {
		if found, err = req.s.Media.List(req.Context(), req.history(), req.principal, f, page); err != nil {
			return nil, err
		}
		t := box.span(req.now())
		f.Since, f.Until = within(t, f.Until)
		counts, err := req.s.Media.Count(req.Context(), req.history(), req.principal, f, t)
		if err != nil {
			return nil, err
		}
		box.draw(t, counts, "jobs")
	}
	rows, err := req.jobRows(found.Rows...)
	if err == nil && tab.Kind == media.Images {
		err = req.addThumbs(rows)
	}
	if err != nil {
		return nil, err
	}
	d := jobsData{Search: box, Tab: tab, Tabs: tabLinks(), Jobs: rows, Next: req.pager(page, found.More, func() string { return found.Cursor })}
	d.Looked = scanLimit(found, d.Next)
	return &view{template: "jobs", title: tab.Name, data: d, live: found.Looked == 0}, nil
}

const (
	// partsPerPage, imagesPerPart and partText keep a page of a batch small: a link
	// to an image has about 300 characters.
	partsPerPage  = 20
	imagesPerPart = 4
	partText      = 280
	// voicePartsPerPage is less, because their text is shown completely.
	voicePartsPerPage = 10
	promptText        = 1000
)

type shownFile struct {
	media.NamedFile
	URL    string
	Kind   string // image, video or audio if the page can show it
	Poster string // image of a video before it plays
}

// partRow is a request of a batch, or a part of a text.
type partRow struct {
	*media.Part
	Short clipped
	Shown []shownFile
	More  int // images that aren't shown
}

// Number returns the part's position, from 1.
func (r partRow) Number() int64 { return r.Position + 1 }

type jobData struct {
	Tab    jobTab
	Job    jobRow
	Prompt clipped
	Files  []shownFile
	Parts  []partRow
	One    bool // Parts has a single part, shown completely
	Next   pager
	Embeds bool // files are served from here, so the page may show them
}

// Cancels reports whether the job can be canceled.
func (d jobData) Cancels() bool {
	return !d.Job.Status.Ended() && d.Job.Status != media.Cancelling
}

// HasParts reports whether the job has parts. A video and a transcription have none.
func (d jobData) HasParts() bool { return d.Job.Kind == media.Images || d.Job.Kind == media.Voice }

func (tab jobTab) jobPage(req *request) (*view, error) {
	j, err := req.s.Media.Get(req.Context(), req.s.DB, req.principal, tab.Kind, req.id())
	if err != nil {
		return nil, err
	}
	rows, err := req.jobRows(j)
	if err != nil {
		return nil, err
	}
	d := jobData{Tab: tab, Job: rows[0], Embeds: !req.s.Files.Redirects()}
	d.Prompt = req.clip(d.Job.Asked.Prompt, promptText)
	named, err := j.Files()
	if err != nil {
		return nil, err
	}
	d.Files = withPoster(req.shownFiles(j, named))
	if d.HasParts() {
		err = req.jobParts(j, &d)
	}
	title := strings.ToUpper(tab.Kind.Noun()[:1]) + tab.Kind.Noun()[1:]
	return &view{template: "job", title: title, data: d, live: !j.Status.Ended()}, err
}

// jobParts reads a page of parts, or a single one.
func (req *request) jobParts(j *media.Job, d *jobData) error {
	if one := req.query("part"); one != "" {
		n, err := strconv.ParseInt(one, 10, 64)
		if err != nil || n < 0 {
			return fault.New(fault.NotFound, "This part does not exist.")
		}
		p, err := req.s.Media.Part(req.Context(), req.s.DB, j, n)
		if err != nil {
			return err
		}
		d.One = true
		d.Parts = []partRow{{Part: p, Short: clipped{Text: p.Text}, Shown: req.shownFiles(j, p.Files)}}
		return nil
	}
	after := int64(-1)
	if n, err := strconv.ParseInt(req.query("after"), 10, 64); err == nil && n >= 0 {
		after = n
	}
	limit, text := partsPerPage, partText
	if j.Kind == media.Voice {
		limit, text = voicePartsPerPage, 1<<20
	}
	parts, more, err := req.s.Media.Parts(req.Context(), req.s.DB, j, media.PartsPage{OnlyFailed: req.query("only") == "failed", After: after, Limit: limit})
	if err != nil {
		return err
	}
	for _, p := range parts {
		named := p.Files[:min(len(p.Files), imagesPerPart)]
		d.Parts = append(d.Parts, partRow{Part: p, Short: clip(p.Text, text), Shown: req.shownFiles(j, named), More: len(p.Files) - len(named)})
	}
	next := ""
	if more {
		next = strconv.FormatInt(parts[len(parts)-1].Position, 10)
	}
	d.Next = req.pagerAt(after >= 0, next)
	return nil
}

// linkStep is how long the URL of a file stays the same, so that a live page doesn't
// load it again at each refresh.
const linkStep = time.Hour

// shownFiles links to files, with URLs that are valid for at least an hour. They are
// relative, because the policy forbids media of other hosts.
func (req *request) shownFiles(j *media.Job, list []media.NamedFile) []shownFile {
	until := req.now().Truncate(linkStep).Add(2 * linkStep)
	out := make([]shownFile, len(list))
	for i, f := range list {
		out[i] = shownFile{NamedFile: f, URL: req.s.Files.URL(j.Tenant, f.File, f.Name, until)}
		if u, err := url.Parse(out[i].URL); err == nil {
			out[i].URL = u.RequestURI()
		}
		if kind, _, _ := strings.Cut(f.ContentType, "/"); !req.s.Files.Redirects() && (kind == "image" || kind == "video" || kind == "audio") {
			out[i].Kind = kind
		}
	}
	return out
}

// withPoster shows the thumbnail of a video until it plays.
func withPoster(list []shownFile) []shownFile {
	i := slices.IndexFunc(list, func(f shownFile) bool { return f.Variant == "thumbnail" && f.Kind == "image" })
	for n := range list {
		if i >= 0 && list[n].Kind == "video" {
			list[n].Poster = list[i].URL
		}
	}
	return list
}

func (tab jobTab) cancel(req *request) (*view, error) {
	notice := "Canceled the " + tab.Kind.Noun() + "."
	err := req.write(func(tx *db.Tx) error {
		j, err := req.s.Media.Cancel(req.Context(), tx, req.principal, tab.Kind, req.id())
		if err != nil {
			return err
		}
		if j.Status == media.Cancelling {
			notice = "Canceling the " + tab.Kind.Noun() + ". Parts in progress still finish."
		}
		return req.logJob(tx, j, tab.log+".cancelled")
	})
	if err != nil {
		return nil, err
	}
	return req.redirect(req.to("jobs/"+tab.Path+"/"+req.id()), flash{Notice: notice})
}

// remove deletes a job that has ended, and its files.
func (tab jobTab) remove(req *request) (*view, error) {
	return req.save(req.to("jobs/"+tab.Path), "Deleted the "+tab.Kind.Noun()+" and its files.", func(tx *db.Tx) error {
		j, err := req.s.Media.Get(req.Context(), tx, req.principal, tab.Kind, req.id())
		if err != nil {
			return err
		}
		if err := req.s.Media.Delete(req.Context(), tx, req.principal, tab.Kind, req.id()); err != nil {
			return err
		}
		return req.logJob(tx, j, tab.log+".deleted")
	})
}

// logJob writes to the admin log, because people's actions aren't in the request log.
func (req *request) logJob(tx *db.Tx, j *media.Job, action string) error {
	return req.actor().Log(req.Context(), tx, audit.Action{Tenant: j.Tenant, Project: j.Project, Action: action, Target: j.ID}, nil, req.now())
}
