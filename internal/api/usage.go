package api

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/endusers"
	"turnpike/internal/fault"
	"turnpike/internal/spend"
	"turnpike/internal/web"
)

type usageObject struct {
	Start            int64         `json:"start"`
	KeyID            *string       `json:"key_id,omitzero"`
	Project          *string       `json:"project,omitzero"`
	Model            *string       `json:"model,omitzero"`
	Provider         *string       `json:"provider,omitzero"`
	UserID           *string       `json:"user_id,omitzero"`
	User             *string       `json:"user,omitzero"` // the workspace's ID of the user, if it isn't deleted
	Requests         int64         `json:"requests"`
	Errors           int64         `json:"errors"`
	InputTokens      int64         `json:"input_tokens"`
	OutputTokens     int64         `json:"output_tokens"`
	CachedTokens     int64         `json:"cached_tokens"`
	Credits          credits.Micro `json:"credits"`
	SimulatedCredits credits.Micro `json:"simulated_credits"`
	LatencyP50MS     *int64        `json:"latency_p50_ms,omitzero"`
	LatencyP95MS     *int64        `json:"latency_p95_ms,omitzero"`
}

type usageList struct {
	Object  string         `json:"object"`
	Bucket  spend.Bucket   `json:"bucket"`
	GroupBy []string       `json:"group_by"`
	Start   int64          `json:"start"`
	End     int64          `json:"end"`
	Data    []*usageObject `json:"data"`
}

// defaultUsageRange is the time range of requests without start.
var defaultUsageRange = map[spend.Bucket]time.Duration{
	spend.ByMinute: time.Hour, spend.ByHour: 24 * time.Hour, spend.ByDay: 30 * 24 * time.Hour, spend.ByMonth: 365 * 24 * time.Hour}

// maxUsageRows limits a response to about two megabytes.
const maxUsageRows = 10_000

func getUsage(ctx context.Context, c *Call) (any, error) {
	q := c.query("start", "end", "bucket", "group_by", "include")
	u := spend.UsageQuery{Tenant: c.Principal.Tenant, Project: c.Principal.Project, Bucket: cmp.Or(choice(q, "bucket", spend.Buckets), spend.ByDay),
		Start: q.time("start"), End: q.time("end"), GroupBy: []string{}, Most: maxUsageRows}
	if text := q.text("group_by"); text != "" {
		u.GroupBy = strings.Split(text, ",")
	}
	byUser := slices.Equal(u.GroupBy, []string{spend.ByUser})
	for i, d := range u.GroupBy {
		if !byUser && (!slices.Contains(spend.Dimensions, d) || slices.Contains(u.GroupBy[:i], d)) {
			q.fail(fault.Invalid("group_by", "group_by must be user, or a comma-separated list of %s, without duplicates.", strings.Join(spend.Dimensions, ", ")))
		}
	}
	if byUser && (u.Bucket == spend.ByMinute || u.Bucket == spend.ByHour) {
		q.fail(fault.Invalid("bucket", "Usage by user is stored by the day. Set bucket to day or month."))
	}
	switch include := q.text("include"); {
	case include != "" && include != "latency":
		q.fail(fault.Invalid("include", "include must be latency."))
	case include != "" && byUser:
		q.fail(fault.Invalid("include", "Usage by user has no latency. Remove include, or group by something else."))
	default:
		u.Latencies = include != ""
	}
	if q.err != nil {
		return nil, q.err
	}
	if u.End.IsZero() {
		u.End = c.s.Now()
	}
	if u.Start.IsZero() {
		u.Start = time.Unix(max(0, u.End.Add(-defaultUsageRange[u.Bucket]).Unix()), 0)
	}
	if !u.Start.Before(u.End) {
		return nil, fault.Invalid("start", "start must be before end.")
	}
	if most := u.Bucket.Longest(); u.End.Sub(u.Start) > most {
		return nil, fault.Invalid("start", "With bucket %s, the range can be at most %d days.", u.Bucket, int(most.Hours()/24))
	}
	out := &usageList{Object: "usage", Bucket: u.Bucket, GroupBy: u.GroupBy, Start: u.Start.Unix(), End: u.End.Unix()}
	if byUser {
		var err error
		out.Data, err = c.usageByUser(ctx, u)
		return out, usageFault(err)
	}
	list, err := spend.ReadUsage(ctx, c.s.DB.Replica(), u)
	if err != nil {
		return nil, usageFault(err)
	}
	out.Data = make([]*usageObject, len(list))
	for i := range list {
		out.Data[i] = newUsageObject(&list[i], u.GroupBy)
		if p50 := list[i].Latencies.Quantile(0.5); p50 > 0 {
			p95 := list[i].Latencies.Quantile(0.95)
			out.Data[i].LatencyP50MS, out.Data[i].LatencyP95MS = new(p50.Milliseconds()), new(p95.Milliseconds())
		}
	}
	return out, nil
}

func (c *Call) usageByUser(ctx context.Context, u spend.UsageQuery) ([]*usageObject, error) {
	if err := c.checkUserAccess(); err != nil {
		return nil, err
	}
	list, err := spend.ReadUserUsage(ctx, c.s.DB.Replica(), u)
	if err != nil {
		return nil, err
	}
	users, err := endusers.ByID(ctx, c.s.DB, web.Map(list, func(x spend.UserUsage) string { return x.EndUser }))
	if err != nil {
		return nil, err
	}
	data := make([]*usageObject, len(list))
	for i := range list {
		data[i] = newUsageObject(&list[i].Usage, nil)
		data[i].UserID = &list[i].EndUser
		if user := users[list[i].EndUser]; user != nil {
			data[i].User = &user.Name
		}
	}
	return data, nil
}

// usageFault adds what the client can do.
func usageFault(err error) error {
	const narrow = "Choose a shorter range between start and end, a larger bucket or fewer group_by dimensions"
	switch {
	case errors.Is(err, spend.ErrTooMuchUsage):
		return fault.Invalid("group_by", "The response would have more than 10,000 rows. "+narrow+".")
	case errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Overloaded, "Adding up this usage took too long. "+narrow+", or retry later.").Because(err)
	}
	return err
}

func newUsageObject(x *spend.Usage, groups []string) *usageObject {
	o := &usageObject{Start: x.Start.Unix(), Requests: x.Requests, Errors: x.Errors, InputTokens: x.InputTokens, OutputTokens: x.OutputTokens, CachedTokens: x.CachedTokens,
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
