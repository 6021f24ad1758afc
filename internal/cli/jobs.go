package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/media"
)

var jobStatuses = words([]media.Status{media.Queued, media.InProgress, media.Cancelling, media.Completed, media.Failed, media.Cancelled})

var jobs = &resource{
	name: "jobs", noun: "a job", argument: "JOB_ID",
	collections: []collection{
		{string(media.Images), media.Images.Prefix(), "/v1/images/batches"},
		{string(media.Video), media.Video.Prefix(), "/v1/videos"},
		{string(media.Voice), media.Voice.Prefix(), "/v1/voice/renders"},
		{string(media.Transcript), media.Transcript.Prefix(), "/v1/voice/transcriptions"},
	},
	filters: []filter{{flag: "status", usage: "only with this status: " + strings.Join(jobStatuses, ", "), values: jobStatuses, strict: true}},
	header:  "ID\tSTATUS\tPROGRESS\tPARTS\tMODEL\tCREDITS\tCREATED",
	row: `{{.id}}	{{status .status}}	{{.progress}}%	` +
		`{{with .request_counts}}{{.completed}}/{{.total}}{{if .failed}}, {{.failed}} failed{{end}}{{else with .segments}}{{.completed}}/{{.total}}{{else}}-{{end}}	` +
		`{{.model}}	{{.cost}}	{{at .created_at}}`,
	templates: []string{"job", "job results"},
}

func newJobs(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "List, inspect, wait for and cancel media jobs",
		Long: `A job is a batch of images (imgbatch_…), a video (video_…), a voice render (voice_…)
or a transcription (transcript_…). These commands call the API with TURNPIKE_BASE_URL and TURNPIKE_API_KEY,
and see the jobs of the key's workspace and environment.`,
		Example: `  turnpike jobs list --status in_progress
  turnpike jobs show voice_01h455vb4pex5vsknk084sn02q
  turnpike jobs wait imgbatch_01h455vb4pex5vsknk084sn02q --download ./images
  turnpike jobs cancel video_01h455vb4pex5vsknk084sn02q`,
		RunE: unknownCommand,
	}
	cmd.AddCommand(jobs.list(e, `  turnpike jobs list
  turnpike jobs list --kind image --status failed
  turnpike jobs list --limit 500 --json`),
		jobs.show(e, &cobra.Command{
			Short: "Show a job and its results",
			Long: `Shows a job: its progress, its cost, its errors, and its files with links that work
for a day.`,
			Example: `  turnpike jobs show imgbatch_01h455vb4pex5vsknk084sn02q
  turnpike jobs show video_01h455vb4pex5vsknk084sn02q --json`,
		}), e.jobsWait(), jobs.cancel(e, &cobra.Command{
			Short: "Cancel a job",
			Long: `Cancels a job that has not ended. A batch finishes the images in progress, keeps
those that are done, and has the status cancelling until then. Other jobs end
immediately. A canceled video has the status failed and the error code cancelled,
as in OpenAI's API. Only completed work is charged.`,
			Example: `  turnpike jobs cancel imgbatch_01h455vb4pex5vsknk084sn02q`,
		}, "wait"))
	return cmd
}

func jobKind(id string) media.Kind {
	for _, k := range []media.Kind{media.Video, media.Voice, media.Transcript} {
		if strings.HasPrefix(id, k.Prefix()) {
			return k
		}
	}
	return media.Images
}

// jobProgress counts the parts of a job, or percent for a video.
func jobProgress(j object) (done, total int64) {
	counts, segments := j.sub("request_counts"), j.sub("segments")
	if total := counts.num("total") + segments.num("total"); total > 0 {
		return counts.num("completed") + counts.num("failed") + segments.num("completed"), total
	}
	return j.num("progress"), 100
}

func (e *env) jobsWait() *cobra.Command {
	var timeout time.Duration
	var d downloadOptions
	cmd := &cobra.Command{
		Use:   "wait JOB_ID",
		Short: "Wait until a job has ended, and save its files",
		Long: `Waits until a job has ended and shows its progress: a bar on a terminal, elsewhere
a line every few seconds on standard error. Then it shows the job. With --download
it saves the job's files and verifies their checksums.

It exits with 0 if the job completed, with 1 if it failed or was canceled, and
with 3 if the timeout expired. A batch is completed if at least one of its requests
is.`,
		Example: `  turnpike jobs wait imgbatch_01h455vb4pex5vsknk084sn02q
  turnpike jobs wait imgbatch_01h455vb4pex5vsknk084sn02q --download ./images
  turnpike jobs wait video_01h455vb4pex5vsknk084sn02q --timeout 10m --json`,
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.DurationVar(&timeout, "timeout", 0, "stop waiting after this time, such as 90s or 2h (default: never)")
	f.StringVar(&d.directory, "download", "", "save the job's files to this directory, and create it if necessary")
	f.BoolVar(&d.force, "force", false, "with --download, overwrite other files of the same name")
	if err := cmd.MarkFlagDirname("download"); err != nil {
		panic(err)
	}
	return jobs.withObject(e, cmd, func(ctx context.Context, c *apiClient, path string, args []string) error {
		switch {
		case timeout < 0:
			return wrongUsage(cmd, errors.New("--timeout must not be negative"))
		case d.force && d.directory == "":
			return wrongUsage(cmd, errors.New("--force needs --download"))
		}
		raw, j, err := watched{path: path, label: "Working on the " + jobKind(args[0]).Noun(), timeout: timeout,
			hint:     fmt.Sprintf("%s continues on the server (turnpike jobs show %s)", args[0], args[0]),
			ended:    func(j object) bool { return media.Status(j.str("status")).Ended() },
			progress: jobProgress}.watch(ctx, e, c)
		switch {
		case err != nil:
		case d.directory == "":
			err = jobs.print(e, raw, j)
		case e.asJSON:
			err = e.printJSON(raw)
		default:
			err = e.render(e.out, j, "job", "job failures")
		}
		if err != nil {
			return err
		}
		if d.directory != "" {
			err = e.download(ctx, c, j, d)
		}
		return errors.Join(err, j.endError())
	})
}
