package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"turnpike/internal/credits"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/media"
)

func newJobs(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "List, look into, wait for and cancel image, video and voice jobs",
		Long: `A job is a batch of pictures (imgbatch_…), a video (video_…) or a long text that is
read aloud (voice_…). These commands use the API, with the server's address in
TURNPIKE_BASE_URL and a key in TURNPIKE_API_KEY, and see the jobs of the key's
workspace and environment.`,
		Example: `  turnpike jobs list --status in_progress
  turnpike jobs show voice_01h455vb4pex5vsknk084sn02q
  turnpike jobs wait imgbatch_01h455vb4pex5vsknk084sn02q --download ./pictures
  turnpike jobs cancel video_01h455vb4pex5vsknk084sn02q`,
		RunE: noSuchCommand,
	}
	cmd.AddCommand(e.jobsList(), e.jobsShow(), e.jobsWait(), e.jobsCancel())
	return cmd
}

// job is one of any kind as the API shows it.
type job struct {
	ID          string             `json:"id"`
	Status      media.Status       `json:"status"`
	Model       string             `json:"model"`
	Progress    int64              `json:"progress"`
	Cost        credits.Micro      `json:"cost"`
	Error       *events.JobError   `json:"error"`
	CreatedAt   int64              `json:"created_at"`
	StartedAt   *int64             `json:"started_at"`
	CompletedAt *int64             `json:"completed_at"`
	ExpiresAt   *int64             `json:"expires_at"`
	URL         *string            `json:"url"`
	Metadata    map[string]string  `json:"metadata"`
	Counts      events.ImageCounts `json:"request_counts"` // of pictures, as are the results

	Results []events.ImageResult `json:"results"`

	Prompt  string `json:"prompt"` // of a video
	Seconds string `json:"seconds"`
	Size    string `json:"size"`

	Voice      string               `json:"voice"` // of a text
	Segments   events.VoiceSegments `json:"segments"`
	Characters int64                `json:"characters"`
	Duration   float64              `json:"duration_seconds"`
}

// jobPaths is where the jobs of a kind are.
var jobPaths = map[media.Kind]string{media.Images: "/v1/images/batches", media.Video: "/v1/videos", media.Voice: "/v1/voice/renders"}

var (
	jobKinds    = []media.Kind{media.Images, media.Video, media.Voice}
	jobStatuses = []string{"queued", "in_progress", "cancelling", "completed", "failed", "cancelled"}
)

// kindOf is what a job's id begins with. What cannot be an id is not asked for.
func kindOf(id string) (media.Kind, error) {
	for _, k := range jobKinds {
		if ids.Valid(k.Prefix(), id) {
			return k, nil
		}
	}
	return "", fmt.Errorf("%q is not the id of a job, which looks like imgbatch_01h455vb4pex5vsknk084sn02q, or begins with video_ or voice_; turnpike jobs list shows them", id)
}

func readJob(raw json.RawMessage) (*job, error) {
	var j job
	if err := json.Unmarshal(raw, &j); err != nil {
		return nil, fmt.Errorf("read job: %w", err)
	}
	return &j, nil
}

// job reads a job with all of its results.
func (c *apiClient) job(ctx context.Context, k media.Kind, id string) (raw json.RawMessage, j *job, err error) {
	if err := c.do(ctx, http.MethodGet, jobPaths[k]+"/"+id, nil, &raw); err != nil {
		return nil, nil, err
	}
	j, err = readJob(raw)
	return raw, j, err
}

func (e *env) jobsList() *cobra.Command {
	var kind, status string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs, newest first",
		Example: `  turnpike jobs list
  turnpike jobs list --kind image --status failed
  turnpike jobs list --limit 500 --json`,
	}
	f := cmd.Flags()
	f.StringVar(&kind, "kind", "", "only those of this kind: image, video or voice")
	f.StringVar(&status, "status", "", "only those that are "+strings.Join(jobStatuses, ", "))
	f.IntVar(&limit, "limit", 20, fmt.Sprintf("show this many at most, up to %d", maxListed))
	for name, values := range map[string][]string{"kind": {string(media.Images), string(media.Video), string(media.Voice)}, "status": jobStatuses} {
		// It fails for a flag that does not exist, which the first run finds.
		if err := cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err)
		}
	}
	return e.client(cmd, func(ctx context.Context, c *apiClient, _ []string) error {
		kinds := jobKinds
		if kind != "" {
			kinds = []media.Kind{media.Kind(kind)}
		}
		switch {
		case jobPaths[kinds[0]] == "":
			return usageError{cmd.CommandPath(), errors.New("--kind must be image, video or voice")}
		case status != "" && !slices.Contains(jobStatuses, status):
			return usageError{cmd.CommandPath(), fmt.Errorf("--status must be one of %s", strings.Join(jobStatuses, ", "))}
		case limit < 1 || limit > maxListed:
			return usageError{cmd.CommandPath(), fmt.Errorf("--limit must be from 1 to %d", maxListed)}
		}
		list, more, err := e.listJobs(ctx, c, kinds, status, limit)
		if err != nil {
			return err
		}
		return e.printJobs(list, more)
	})
}

// listedJob is a job of a list, as it came and as it is read.
type listedJob struct {
	raw json.RawMessage
	*job
}

// listJobs merges the lists of the kinds. Of several, those that the key may
// not read are left out.
func (e *env) listJobs(ctx context.Context, c *apiClient, kinds []media.Kind, status string, limit int) (all []listedJob, more bool, err error) {
	var refused error
	read := 0
	for _, k := range kinds {
		q := url.Values{}
		if status != "" {
			q.Set("status", status)
		}
		page, rest, err := c.list(ctx, jobPaths[k], q, limit)
		if unscoped(err) && len(kinds) > 1 {
			refused = err
			fmt.Fprintf(e.err, "Without those of the kind %s: %v\n", k, err)
			continue
		}
		if err != nil {
			return nil, false, err
		}
		read++
		more = more || rest
		for _, raw := range page {
			j, err := readJob(raw)
			if err != nil {
				return nil, false, err
			}
			all = append(all, listedJob{raw, j})
		}
	}
	if read == 0 {
		return nil, false, refused
	}
	// Behind its prefix an id is a time.
	slices.SortFunc(all, func(a, b listedJob) int { return cmp.Compare(timeOf(b.ID), timeOf(a.ID)) })
	if len(all) > limit {
		all, more = all[:limit], true
	}
	return all, more, nil
}

func timeOf(id string) string { return id[strings.IndexByte(id, '_')+1:] }

// unscoped reports whether the key lacks the scope.
func unscoped(err error) bool {
	var refused *apiError
	return errors.As(err, &refused) && refused.Code == string(fault.InsufficientScope)
}

func (e *env) printJobs(list []listedJob, more bool) error {
	if e.asJSON {
		all := make([]json.RawMessage, len(list))
		for i, j := range list {
			all[i] = j.raw
		}
		return e.printJSON(all)
	}
	if len(list) == 0 {
		fmt.Fprintln(e.err, "There are no such jobs.")
		return nil
	}
	rows := make([][]any, len(list))
	for i, j := range list {
		rows[i] = []any{j.ID, painted(e.status(string(j.Status))), fmt.Sprintf("%d%%", j.Progress), cmp.Or(j.parts(), "-"), j.Model, j.Cost, e.at(j.CreatedAt)}
	}
	if err := e.table("ID\t"+e.status("STATUS")+"\tPROGRESS\tPARTS\tMODEL\tCREDITS\tCREATED", rows); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(e.err, "There are more than these %d; see --limit.\n", len(rows))
	}
	return nil
}

// parts is how many pieces of the job are done; a video has none.
func (j *job) parts() string {
	switch {
	case j.Counts.Failed > 0:
		return fmt.Sprintf("%d/%d, %d failed", j.Counts.Completed, j.Counts.Total, j.Counts.Failed)
	case j.Counts.Total > 0:
		return fmt.Sprintf("%d/%d", j.Counts.Completed, j.Counts.Total)
	case j.Segments.Total > 0:
		return fmt.Sprintf("%d/%d", j.Segments.Completed, j.Segments.Total)
	}
	return ""
}

func (e *env) jobsShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show JOB_ID",
		Short: "Show a job with its results",
		Long: `Shows a job: how far it has come, what it costs, its files with links that work for
a day, and what went wrong.`,
		Example: `  turnpike jobs show imgbatch_01h455vb4pex5vsknk084sn02q
  turnpike jobs show video_01h455vb4pex5vsknk084sn02q --json`,
		Args: cobra.ExactArgs(1),
	}
	return e.client(cmd, func(ctx context.Context, c *apiClient, args []string) error {
		k, err := kindOf(args[0])
		if err != nil {
			return usageError{cmd.CommandPath(), err}
		}
		raw, j, err := c.job(ctx, k, args[0])
		if err != nil {
			return err
		}
		if e.asJSON {
			return e.printJSON(raw)
		}
		e.printJob(k, j)
		e.printResults(ctx, c, k, j)
		return nil
	})
}

// printJob shows everything but the results.
func (e *env) printJob(k media.Kind, j *job) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(e.out, "%-9s "+format+"\n", append([]any{name}, args...)...)
	}
	line("Job", "%s, %s", j.ID, k.Noun())
	progress := ""
	if j.Status == media.InProgress || j.Status == media.Cancelling {
		progress = fmt.Sprintf(", %d%%", j.Progress)
	}
	line("Status", "%s%s", e.status(string(j.Status)), progress)
	if j.Error != nil {
		line("Error", "%s", e.paint(red, explained(j.Error)))
	}
	switch k {
	case media.Images:
		line("Requests", "%d of %d completed, %d failed", j.Counts.Completed, j.Counts.Total, j.Counts.Failed)
	case media.Video:
		line("Video", "%s s, %s", visible(j.Seconds), visible(j.Size))
		line("Prompt", "%s", shortened(j.Prompt))
	case media.Voice:
		line("Text", "%s characters by %s, %d of %d segments read", grouped(j.Characters), visible(j.Voice), j.Segments.Completed, j.Segments.Total)
	}
	line("Model", "%s", visible(j.Model))
	line("Cost", "%s credits", j.Cost)
	for _, name := range slices.Sorted(maps.Keys(j.Metadata)) {
		line("Metadata", "%s: %s", visible(name), visible(j.Metadata[name]))
	}
	line("Created", "%s", e.at(j.CreatedAt))
	if j.StartedAt != nil {
		line("Started", "%s", e.at(*j.StartedAt))
	}
	if j.CompletedAt != nil {
		line("Ended", "%s", e.at(*j.CompletedAt))
	}
}

// explained is why a job failed, with the word for it.
func explained(f *events.JobError) string {
	text := fmt.Sprintf("%s (%s)", visible(f.Message), visible(f.Code))
	if f.Retryable {
		text += "; another try may do better"
	}
	return text
}

// longPrompt is how much of a prompt people are shown.
const longPrompt = 200

// shortened is a text in one line.
func shortened(s string) string {
	text := strings.Join(strings.Fields(visible(s)), " ")
	if r := []rune(text); len(r) > longPrompt {
		text = string(r[:longPrompt]) + "…"
	}
	return text
}

// printResults shows what came of the job, with links.
func (e *env) printResults(ctx context.Context, c *apiClient, k media.Kind, j *job) {
	if k != media.Images {
		if j.URL == nil {
			return
		}
		size := ""
		if about, err := c.look(ctx, *j.URL); err == nil {
			size = byteSize(about.size) + ", "
		}
		if j.Duration > 0 {
			size += fmt.Sprintf("%.1f s, ", j.Duration)
		}
		fmt.Fprintf(e.out, "\nFile\n  %s%s\n", size, visible(*j.URL))
		e.printExpiry(j)
		return
	}
	if len(j.Results) == 0 {
		return
	}
	fmt.Fprintln(e.out, "\nResults")
	for _, r := range j.Results {
		fmt.Fprintf(e.out, "  %s  %s\n", visible(r.CustomID), e.status(r.Status))
		if r.Error != nil {
			fmt.Fprintf(e.out, "    %s\n", e.paint(red, explained(r.Error)))
		}
		for _, p := range r.Images {
			fmt.Fprintf(e.out, "    %s, %s, %s\n", byteSize(p.Bytes), visible(p.ContentType), visible(p.URL))
		}
	}
	e.printExpiry(j)
}

func (e *env) printExpiry(j *job) {
	if j.ExpiresAt != nil {
		fmt.Fprintf(e.out, "Files are kept until %s; turnpike jobs wait %s --download FOLDER saves them.\n", e.at(*j.ExpiresAt), j.ID)
	}
}

// byteSize is a number of bytes for people.
func byteSize(n int64) string {
	size, unit := float64(n), "bytes"
	for _, next := range []string{"KB", "MB", "GB", "TB"} {
		if size < 1000 {
			break
		}
		size, unit = size/1000, next
	}
	if unit == "bytes" {
		return counted(n, "byte", unit)
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}

func (e *env) jobsCancel() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel JOB_ID",
		Short: "Stop a job; what was not done is not charged",
		Long: `Stops a job that has not ended. A batch finishes the pictures that are being made,
keeps those that are done, and is cancelling meanwhile; anything else ends at once.
A cancelled video is failed with the code cancelled, as clients of OpenAI's know it.`,
		Example: `  turnpike jobs cancel imgbatch_01h455vb4pex5vsknk084sn02q`,
		Args:    cobra.ExactArgs(1),
	}
	return e.client(cmd, func(ctx context.Context, c *apiClient, args []string) error {
		k, err := kindOf(args[0])
		if err != nil {
			return usageError{cmd.CommandPath(), err}
		}
		var raw json.RawMessage
		if err := c.do(ctx, http.MethodPost, jobPaths[k]+"/"+args[0]+"/cancel", struct{}{}, &raw); err != nil {
			return err
		}
		if e.asJSON {
			return e.printJSON(raw)
		}
		j, err := readJob(raw)
		if err != nil {
			return err
		}
		if !j.Status.Ended() {
			fmt.Fprintf(e.out, "%s is %s: what is under way still ends; to wait for it: turnpike jobs wait %s\n", j.ID, e.status(string(j.Status)), j.ID)
			return nil
		}
		fmt.Fprintf(e.out, "%s is cancelled.\n", j.ID)
		return nil
	})
}
