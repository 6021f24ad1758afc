package api

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/spend"
)

// usageObject is what calls came to in one bucket and group.
type usageObject struct {
	Start            int64         `json:"start"`
	KeyID            *string       `json:"key_id,omitzero"`
	Project          *string       `json:"project,omitzero"`
	Model            *string       `json:"model,omitzero"`
	Provider         *string       `json:"provider,omitzero"`
	Requests         int64         `json:"requests"`
	Errors           int64         `json:"errors"`
	InputTokens      int64         `json:"input_tokens"`
	OutputTokens     int64         `json:"output_tokens"`
	Credits          credits.Micro `json:"credits"`
	SimulatedCredits credits.Micro `json:"simulated_credits"`
}

type usageList struct {
	Object  string         `json:"object"`
	Bucket  spend.Bucket   `json:"bucket"`
	GroupBy []string       `json:"group_by"`
	Start   int64          `json:"start"`
	End     int64          `json:"end"`
	Data    []*usageObject `json:"data"`
}

// usual is how much time an answer covers when the caller does not say.
var usual = map[spend.Bucket]time.Duration{
	spend.ByMinute: time.Hour, spend.ByHour: 24 * time.Hour, spend.ByDay: 30 * 24 * time.Hour, spend.ByMonth: 365 * 24 * time.Hour}

// maxUsage is how many rows an answer has at most: some two megabytes.
const maxUsage = 10_000

func getUsage(c *Call) (any, error) {
	q := c.query("start", "end", "bucket", "group_by")
	u := spend.UsageQuery{WorkspaceID: c.Principal.WorkspaceID, Environment: string(c.Principal.Environment), Project: c.Principal.Project, Bucket: spend.ByDay,
		Start: q.time("start"), End: q.time("end"), GroupBy: []string{}, Most: maxUsage}
	if text := q.text("bucket"); text != "" {
		u.Bucket = spend.Bucket(text)
	}
	if !slices.Contains(spend.Buckets, u.Bucket) {
		q.fail(fault.Invalid("bucket", "bucket must be minute, hour, day or month"))
	}
	if text := q.text("group_by"); text != "" {
		u.GroupBy = strings.Split(text, ",")
	}
	for i, d := range u.GroupBy {
		if !slices.Contains(spend.Dimensions, d) || slices.Contains(u.GroupBy[:i], d) {
			q.fail(fault.Invalid("group_by", "group_by must list some of %s, separated by commas", strings.Join(spend.Dimensions, ", ")))
		}
	}
	if q.err != nil {
		return nil, q.err
	}
	if u.End.IsZero() {
		u.End = c.s.Now()
	}
	if u.Start.IsZero() {
		u.Start = u.End.Add(-usual[u.Bucket])
	}
	if !u.Start.Before(u.End) {
		return nil, fault.Invalid("start", "start must be before end")
	}
	if most := u.Bucket.Longest(); u.End.Sub(u.Start) > most {
		return nil, fault.Invalid("start", "by %s, at most %d days can be asked for at once", u.Bucket, int(most.Hours()/24))
	}
	list, err := spend.ReadUsage(c.Context(), c.s.DB, u)
	if err != nil {
		return nil, usageFault(err)
	}
	out := &usageList{Object: "usage", Bucket: u.Bucket, GroupBy: u.GroupBy, Start: u.Start.Unix(), End: u.End.Unix(), Data: make([]*usageObject, len(list))}
	for i := range list {
		out.Data[i] = newUsageObject(&list[i], u.GroupBy)
	}
	return out, nil
}

// usageFault says what the caller can do about it.
func usageFault(err error) error {
	const less = "ask for less time between start and end, for a larger bucket, or for fewer of group_by"
	switch {
	case errors.Is(err, spend.ErrTooMuchUsage):
		return fault.Invalid("group_by", "the answer would have more than 10,000 rows: "+less)
	case errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Overloaded, "it took too long to add this usage up: "+less+"; or try again later").Because(err)
	}
	return err
}

func newUsageObject(x *spend.Usage, groups []string) *usageObject {
	o := &usageObject{Start: x.Start.Unix(), Requests: x.Requests, Errors: x.Errors, InputTokens: x.InputTokens, OutputTokens: x.OutputTokens,
		Credits: x.Credits, SimulatedCredits: x.SimulatedCredits}
	for _, g := range groups {
		switch g {
		case "key":
			o.KeyID = &x.KeyID
		case "project":
			o.Project = &x.Project
		case "model":
			o.Model = &x.Model
		case "provider":
			o.Provider = &x.Provider
		}
	}
	return o
}
