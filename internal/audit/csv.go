package audit

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"iter"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/db"
)

var csvHeader = []string{"request_id", "created_at", "key_id", "key_hint", "scoped_token_id", "token_metadata", "ip", "method", "path", "status",
	"error_code", "model", "provider", "attempts", "project", "environment", "input_tokens", "output_tokens", "cached_tokens", "credits",
	"unbilled_credits", "simulated_credits", "price_version", "usage_source", "latency_ms", "upstream_ms", "user_agent", "user_id",
	"requested_model", "error_message", "error_param", "refused_by", "queue_ms", "first_token_ms"}

func (e *Entry) csvRow() []string {
	failure := e.ReadFailure()
	return []string{e.RequestID, e.CreatedAt.UTC().Format(time.RFC3339Nano), e.KeyID, e.KeyHint, e.TokenID, string(e.TokenMetadata), e.IP, e.Method, e.Path,
		csvNumber(int64(e.Status)), e.ErrorCode, e.Model, e.Provider, string(e.Attempts), e.Project, string(e.Environment), csvCount(e.InputTokens), csvCount(e.OutputTokens), csvCount(e.CachedTokens),
		e.Credits.String(), e.UnbilledCredits.String(), e.SimulatedCredits.String(), e.PriceVersion, e.UsageSource, csvMS(e.Latency), csvMS(e.Upstream), e.UserAgent, e.EndUser,
		e.AskedFor(), failure.Message, failure.Param, failure.RefusedBy.String(), csvMS(e.Queue), csvMS(e.FirstToken)}
}

// String returns the refuser as JSON, or an empty string for nil.
func (r *Refuser) String() string {
	if r == nil {
		return ""
	}
	out, _ := json.Marshal(r) // it has only strings
	return string(out)
}

func csvNumber(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func csvCount(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

func csvMS(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 3, 64)
}

// SafeCells keeps spreadsheets from running formulas that clients put in a
// header. It prefixes cells that begin like a formula with a quote.
func SafeCells(row []string) []string {
	for i, cell := range row {
		if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
			row[i] = "'" + cell
		}
	}
	return row
}

// exportPage is the number of entries in one part of an export.
const exportPage = 1000

// Export returns all entries of a list as CSV, in parts, so that its memory doesn't grow with the log. A part
// is valid until the next one.
func Export(list func(db.Page) (*db.Found[*Entry], error), page db.Page) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		page.Limit = exportPage
		var buf bytes.Buffer
		w := csv.NewWriter(&buf)
		_ = w.Write(csvHeader) // writing to memory never fails
		for {
			r, err := list(page)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range r.Rows {
				_ = w.Write(SafeCells(e.csvRow()))
			}
			w.Flush()
			if !yield(buf.Bytes(), nil) || !r.More {
				return
			}
			buf.Reset()
			page.After = r.Cursor
		}
	}
}
