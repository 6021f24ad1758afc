package media

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

func TestLinksExpireWithTheirFiles(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		end := time.Now().Add(retention)
		early := end.Add(-10 * time.Hour) // of a file that was made long before the job was done
		for _, kind := range []Kind{Images, Video, Voice} {
			noted, old := b.job(kind, 1), b.job(kind, 1)
			for j, expires := range map[*Job]int64{noted: early.Unix(), old: 0} {
				out := result{status: taskCompleted, output: taskOutput{Files: []outputFile{{SHA256: "5", ContentType: "image/png", ExpiresAt: expires}}}}
				if kind == Video {
					out.output.Files[0].Variant = variantVideo
				}
				b.results(of(j, 0, 0, out))
				if kind == Voice {
					b.results(of(j, 1, 0, out))
				}
				b.write(func(ctx context.Context, tx *db.Tx) error {
					_, err := tx.Exec(ctx, "UPDATE media_jobs SET completed_at = $2 WHERE id = $1", j.ID, end.Add(-retention).UnixMicro())
					return err
				})
			}
			for _, c := range []struct {
				job  *Job
				at   time.Time
				want time.Time // zero for no link
			}{
				{noted, end.Add(-retention), end.Add(-retention + linkTTL)},
				{noted, early.Add(-linkTTL - time.Minute), early.Add(-time.Minute)},
				{noted, early.Add(-time.Hour), early},
				{noted, early, time.Time{}},
				{old, end.Add(-time.Hour), end},
				{old, end.Add(time.Second), time.Time{}},
			} {
				b.Now = func() time.Time { return c.at }
				url, until := b.link(b.read(c.job))
				if want := max(0, c.want.Unix()); until != want || (url == "") != c.want.IsZero() {
					t.Errorf("a link of %s, %s before the end, works until %s: %q", kind, end.Sub(c.at), time.Unix(until, 0), url)
				}
			}
			b.Now = time.Now
		}
	})
}

// link is that of the first file that a job shows.
func (b *bench) link(j *Job) (url string, until int64) {
	b.t.Helper()
	object, err := b.Show(b.t.Context(), b.DB, j, false)
	if err != nil {
		b.t.Fatal(err)
	}
	text, err := json.Marshal(object)
	if err != nil {
		b.t.Fatal(err)
	}
	type link struct {
		URL   string `json:"url"`
		Until int64  `json:"url_expires_at"`
	}
	var shown struct {
		link
		Results []struct {
			Images []link `json:"images"`
		} `json:"results"`
	}
	if err := json.Unmarshal(text, &shown); err != nil {
		b.t.Fatal(err)
	}
	for _, r := range shown.Results {
		for _, l := range r.Images {
			return l.URL, l.Until
		}
	}
	return shown.URL, shown.Until
}
