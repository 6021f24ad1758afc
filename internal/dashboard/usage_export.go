package dashboard

import (
	"bytes"
	"encoding/csv"
	"strconv"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/spend"
)

// exportUsage sends what the page shows as a file: a row for each bucket and
// group in which something was used, and every group by name.
func exportUsage(v *visit) (*view, error) {
	a, err := v.usageAsked()
	if err != nil {
		return nil, err
	}
	sum, err := v.readUsage(a)
	if err != nil {
		return nil, err
	}
	if err := v.nameGroups(a.Group, sum.groups); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	_ = w.Write(usageHeader(a.Group)) // into memory: cannot fail
	for i, step := range sum.steps {
		for _, g := range sum.groups {
			if u, used := g.steps[i]; used {
				_ = w.Write(audit.SafeCells(usageCells(a.Group, step, g, u)))
			}
		}
	}
	w.Flush()
	return nil, v.sent(v.sendCSV("usage.csv", out.Bytes()))
}

func usageHeader(group string) []string {
	header := []string{"start"}
	switch group {
	case "":
	case "key":
		header = append(header, "key_id", "key_name")
	default:
		header = append(header, group)
	}
	return append(header, "requests", "errors", "input_tokens", "output_tokens", "credits", "simulated_credits")
}

func usageCells(group string, step time.Time, g *usageGroup, u spend.Usage) []string {
	row := []string{step.Format(time.RFC3339)}
	switch group {
	case "":
	case "key":
		row = append(row, g.ID, g.Name)
	default:
		row = append(row, g.ID)
	}
	for _, n := range []int64{u.Requests, u.Errors, u.InputTokens, u.OutputTokens} {
		row = append(row, strconv.FormatInt(n, 10))
	}
	return append(row, u.Credits.String(), u.SimulatedCredits.String())
}
