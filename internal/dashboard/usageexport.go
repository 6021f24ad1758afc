package dashboard

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"net/http"
	"slices"
	"strconv"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/fault"
	"turnpike/internal/spend"
	"turnpike/internal/web"
)

// usagePart is how many rows are sent at a time.
const usagePart = 1000

// exportUsage sends the usage of the page as a file, with a row for each bucket and
// group with usage. Unlike the page it omits nothing.
func exportUsage(req *request) (*view, error) {
	a, err := req.usageFilter()
	if err != nil {
		return nil, err
	}
	list, err := spend.ReadUsage(req.Context(), req.usage(), a.UsageQuery)
	if err != nil {
		return nil, err
	}
	var names map[string]string
	if slices.Contains(a.GroupBy, "key") {
		if names, err = req.keyNames(web.Map(list, func(u spend.Usage) string { return u.KeyID })); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	_ = w.Write(usageHeader(a)) // into memory: cannot fail
	for some := range slices.Chunk(list, usagePart) {
		for _, u := range some {
			_ = w.Write(audit.SafeCells(usageCells(a, u, names)))
		}
		w.Flush()
		req.sendCSV("usage.csv", out.Bytes())
		out.Reset()
	}
	w.Flush()
	req.sendCSV("usage.csv", out.Bytes())
	return nil, nil
}

func usageHeader(a usageFilter) []string {
	header := []string{"start"}
	for _, group := range a.GroupBy {
		if group == "key" {
			header = append(header, "key_id", "key_name")
		} else {
			header = append(header, group)
		}
	}
	header = append(header, "requests", "errors", "input_tokens", "output_tokens", "cached_tokens", "credits", "simulated_credits")
	if a.Latencies {
		header = append(header, "latency_p50_ms", "latency_p95_ms")
	}
	return header
}

func usageCells(a usageFilter, u spend.Usage, names map[string]string) []string {
	row := []string{u.Start.Format(time.RFC3339)}
	for _, group := range a.GroupBy {
		if group == "key" {
			row = append(row, u.KeyID, cmp.Or(names[u.KeyID], u.KeyID))
		} else {
			row = append(row, groupID(u, group))
		}
	}
	for _, n := range []int64{u.Requests, u.Errors, u.InputTokens, u.OutputTokens, u.CachedTokens} {
		row = append(row, strconv.FormatInt(n, 10))
	}
	row = append(row, u.Credits.String(), u.SimulatedCredits.String())
	if a.Latencies {
		for _, share := range []float64{0.5, 0.95} {
			row = append(row, strconv.FormatInt(u.Latencies.Quantile(share).Milliseconds(), 10))
		}
	}
	return row
}

// withFilterError shows an error above the filters of a list. There may be none.
func (req *request) withFilterError(shown *view, err error) (*view, error) {
	if err == nil {
		return shown, nil
	}
	f := req.Fault(err)
	status := fault.FamilyOf(f.Code).Status
	if status >= http.StatusInternalServerError {
		return nil, err
	}
	req.problem, shown.status, shown.live = formErrors{f}, status, false
	return shown, nil
}
