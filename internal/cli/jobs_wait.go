package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/media"
)

// waitFlags say for how long, and what follows.
type waitFlags struct {
	timeout time.Duration
	folder  string
	force   bool
}

func (e *env) jobsWait() *cobra.Command {
	var w waitFlags
	cmd := &cobra.Command{
		Use:   "wait JOB_ID",
		Short: "Wait until a job has ended, and save its files",
		Long: `Waits until a job has ended and shows how far it has come: on a terminal with a
bar, elsewhere with a line every few seconds on standard error. Then it shows the
job, and with --download it saves the job's files and checks them.

It exits with 0 when the job is completed, with 1 when it failed or was cancelled,
and with 3 when that was not known in time. A batch is completed when at least one
of its requests is.`,
		Example: `  turnpike jobs wait imgbatch_01h455vb4pex5vsknk084sn02q
  turnpike jobs wait imgbatch_01h455vb4pex5vsknk084sn02q --download ./pictures
  turnpike jobs wait video_01h455vb4pex5vsknk084sn02q --timeout 10m --json`,
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.DurationVar(&w.timeout, "timeout", 0, "wait no longer than this, such as 90s or 2h (default: until it has ended)")
	f.StringVar(&w.folder, "download", "", "save the job's files into this folder, which is made if need be")
	f.BoolVar(&w.force, "force", false, "let --download overwrite other files of the same name")
	if err := cmd.MarkFlagDirname("download"); err != nil {
		panic(err)
	}
	return e.client(cmd, func(ctx context.Context, c *apiClient, args []string) error {
		k, err := kindOf(args[0])
		switch {
		case err != nil:
			return usageError{cmd.CommandPath(), err}
		case w.timeout < 0:
			return usageError{cmd.CommandPath(), errors.New("--timeout must not be negative")}
		case w.force && w.folder == "":
			return usageError{cmd.CommandPath(), errors.New("--force is for --download, which is not given")}
		}
		raw, j, err := e.watchJob(ctx, c, k, args[0], w.timeout)
		if err != nil {
			return err
		}
		if err := e.reportJob(ctx, c, k, j, raw, w.folder != ""); err != nil {
			return err
		}
		if w.folder != "" {
			err = e.download(ctx, c, k, j, &w)
		}
		return errors.Join(err, j.failure())
	})
}

// How often a job is looked at: it may be done at once, or take an hour.
const (
	firstJobLook = 100 * time.Millisecond
	lastJobLook  = 3 * time.Second
)

// watchJob shows how far a job has come until it ends.
func (e *env) watchJob(ctx context.Context, c *apiClient, k media.Kind, id string, timeout time.Duration) (raw json.RawMessage, j *job, err error) {
	late := timeoutError(fmt.Sprintf("%s had not ended after %v; it goes on by itself (turnpike jobs show %s)", id, timeout, id))
	waiting := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var bar *progress
	pause, answered := firstJobLook, time.Now()
	for {
		raw, j, err = c.job(waiting, k, id)
		wait := pause
		switch {
		case err == nil && j.Status.Ended():
			return raw, j, nil
		case err == nil:
			answered = time.Now()
			if bar == nil {
				bar = newJobProgress(e, k, j)
				defer bar.Done() // before anything else is printed
			}
			bar.Set(j.done())
		case waiting.Err() != nil:
		case !passing(err) || bar == nil && !asksForTime(err) || time.Since(answered) >= patience:
			return nil, nil, err
		default:
			wait = max(wait, timeAskedFor(err))
		}
		pause = min(pause*3/2, lastJobLook)
		select {
		case <-waiting.Done():
			if ctx.Err() == nil {
				return nil, nil, late
			}
			return nil, nil, fmt.Errorf("not waited for any longer; %s goes on by itself (turnpike jobs show %s)", id, id)
		case <-time.After(wait):
		}
	}
}

// newJobProgress begins where the job is.
func newJobProgress(e *env, k media.Kind, j *job) *progress {
	bar := newProgress(e.err, map[media.Kind]string{media.Images: "Drawing", media.Video: "Rendering", media.Voice: "Reading"}[k], j.whole())
	bar.marks[0].n = j.done()
	return bar
}

// whole and done count a job's pieces; a video has none and counts in percent.
func (j *job) whole() int64 {
	if n := j.Counts.Total + j.Segments.Total; n > 0 {
		return n
	}
	return 100
}

func (j *job) done() int64 {
	if j.Counts.Total+j.Segments.Total > 0 {
		return j.Counts.Completed + j.Counts.Failed + j.Segments.Completed
	}
	return j.Progress
}

// timeAskedFor is how long the server wants to be left alone.
func timeAskedFor(err error) time.Duration {
	var refused *apiError
	if errors.As(err, &refused) {
		return refused.RetryAfter
	}
	return 0
}

func asksForTime(err error) bool { return timeAskedFor(err) > 0 }

// reportJob shows a job that has ended, with links unless its files are saved.
func (e *env) reportJob(ctx context.Context, c *apiClient, k media.Kind, j *job, raw json.RawMessage, saved bool) error {
	if e.asJSON {
		return e.printJSON(raw)
	}
	e.printJob(k, j)
	if !saved {
		e.printResults(ctx, c, k, j)
		return nil
	}
	for _, r := range j.Results {
		if r.Error != nil {
			fmt.Fprintf(e.out, "  %s  %s: %s\n", visible(r.CustomID), e.status(r.Status), explained(r.Error))
		}
	}
	return nil
}

// failure is nil for a job that is completed.
func (j *job) failure() error {
	switch {
	case j.Status == media.Completed:
		return nil
	case j.Error != nil:
		return fmt.Errorf("%s is %s: %s", j.ID, j.Status, explained(j.Error))
	}
	return fmt.Errorf("%s is %s", j.ID, j.Status)
}
