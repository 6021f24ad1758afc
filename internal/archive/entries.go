package archive

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/parquet"
	"turnpike/internal/visibility"
)

// column is a column of the files. docs/reference/request-log.md describes them.
type column struct {
	parquet.Column
	text    func(*audit.Entry) *string // of a Text
	integer func(*audit.Entry) *int64  // of the others
	set     func(e *audit.Entry, text string, n int64)
}

func text(name string, field func(*audit.Entry) *string) column {
	return column{Column: parquet.Column{Name: name}, text: field, set: func(e *audit.Entry, s string, _ int64) { *field(e) = s }}
}

// optional is null for the empty string.
func optional(name string, field func(*audit.Entry) *string) column {
	c := text(name, field)
	c.Optional = true
	c.text = func(e *audit.Entry) *string {
		if s := field(e); *s != "" {
			return s
		}
		return nil
	}
	return c
}

// raw is JSON, or null.
func raw(name string, field func(*audit.Entry) *json.RawMessage) column {
	return column{Column: parquet.Column{Name: name, Optional: true},
		text: func(e *audit.Entry) *string {
			if m := *field(e); len(m) > 0 {
				s := string(m)
				return &s
			}
			return nil
		},
		set: func(e *audit.Entry, s string, _ int64) {
			if s != "" {
				*field(e) = json.RawMessage(s)
			}
		}}
}

func amount(name string, field func(*audit.Entry) *credits.Micro) column {
	return column{Column: parquet.Column{Name: name, Type: parquet.Integer}, integer: func(e *audit.Entry) *int64 { return (*int64)(field(e)) },
		set: func(e *audit.Entry, _ string, n int64) { *field(e) = credits.Micro(n) }}
}

// micros is a duration, and null for 0.
func micros(name string, field func(*audit.Entry) *time.Duration) column {
	return column{Column: parquet.Column{Name: name, Type: parquet.Integer, Optional: true},
		integer: func(e *audit.Entry) *int64 {
			if n := field(e).Microseconds(); n != 0 {
				return &n
			}
			return nil
		},
		set: func(e *audit.Entry, _ string, n int64) { *field(e) = time.Duration(n) * time.Microsecond }}
}

func count(name string, field func(*audit.Entry) **int64) column {
	return column{Column: parquet.Column{Name: name, Type: parquet.Integer, Optional: true},
		integer: func(e *audit.Entry) *int64 { return *field(e) },
		set:     func(e *audit.Entry, _ string, n int64) { *field(e) = &n }}
}

// failure is a part of the error, or null. It is only read by its siblings: see readEntries.
func failure(name string, part func(audit.Failure) string) column {
	return column{Column: parquet.Column{Name: name, Optional: true}, text: func(e *audit.Entry) *string {
		if s := part(e.ReadFailure()); s != "" {
			return &s
		}
		return nil
	}}
}

// columns are the columns of a file, in their order. The first one is the request ID.
var columns = []column{
	text("request_id", func(e *audit.Entry) *string { return &e.RequestID }),
	{Column: parquet.Column{Name: "created_at", Type: parquet.Timestamp},
		integer: func(e *audit.Entry) *int64 { n := e.CreatedAt.UnixMicro(); return &n },
		set:     func(e *audit.Entry, _ string, n int64) { e.CreatedAt = time.UnixMicro(n).UTC() }},
	text("workspace_id", func(e *audit.Entry) *string { return &e.WorkspaceID }),
	text("environment", func(e *audit.Entry) *string { return (*string)(&e.Environment) }),
	text("key_id", func(e *audit.Entry) *string { return &e.KeyID }),
	text("key_hint", func(e *audit.Entry) *string { return &e.KeyHint }),
	optional("scoped_token_id", func(e *audit.Entry) *string { return &e.TokenID }),
	raw("token_metadata", func(e *audit.Entry) *json.RawMessage { return &e.TokenMetadata }),
	text("ip", func(e *audit.Entry) *string { return &e.IP }),
	text("method", func(e *audit.Entry) *string { return &e.Method }),
	text("path", func(e *audit.Entry) *string { return &e.Path }),
	text("user_agent", func(e *audit.Entry) *string { return &e.UserAgent }),
	optional("project", func(e *audit.Entry) *string { return &e.Project }),
	optional("user_id", func(e *audit.Entry) *string { return &e.EndUser }),
	{Column: parquet.Column{Name: "status", Type: parquet.Integer, Optional: true},
		integer: func(e *audit.Entry) *int64 {
			if n := int64(e.Status); n != 0 {
				return &n
			}
			return nil
		},
		set: func(e *audit.Entry, _ string, n int64) { e.Status = int(n) }},
	optional("error_code", func(e *audit.Entry) *string { return &e.ErrorCode }),
	failure("error_message", func(f audit.Failure) string { return f.Message }),
	failure("error_param", func(f audit.Failure) string { return f.Param }),
	failure("refused_by", func(f audit.Failure) string { return f.RefusedBy.String() }),
	{Column: parquet.Column{Name: "requested_model", Optional: true},
		text: func(e *audit.Entry) *string {
			if s := e.AskedFor(); s != "" {
				return &s
			}
			return nil
		},
		set: func(e *audit.Entry, s string, _ int64) { e.Requested = s }},
	optional("model", func(e *audit.Entry) *string { return &e.Model }),
	optional("provider", func(e *audit.Entry) *string { return &e.Provider }),
	raw("attempts", func(e *audit.Entry) *json.RawMessage { return &e.Attempts }),
	count("input_tokens", func(e *audit.Entry) **int64 { return &e.InputTokens }),
	count("output_tokens", func(e *audit.Entry) **int64 { return &e.OutputTokens }),
	count("cached_tokens", func(e *audit.Entry) **int64 { return &e.CachedTokens }),
	amount("credit_micros", func(e *audit.Entry) *credits.Micro { return &e.Credits }),
	amount("unbilled_credit_micros", func(e *audit.Entry) *credits.Micro { return &e.UnbilledCredits }),
	amount("simulated_credit_micros", func(e *audit.Entry) *credits.Micro { return &e.SimulatedCredits }),
	amount("reserved_credit_micros", func(e *audit.Entry) *credits.Micro { return &e.Reserved }),
	optional("price_version", func(e *audit.Entry) *string { return &e.PriceVersion }),
	optional("usage_source", func(e *audit.Entry) *string { return &e.UsageSource }),
	micros("latency_us", func(e *audit.Entry) *time.Duration { return &e.Latency }),
	micros("queue_us", func(e *audit.Entry) *time.Duration { return &e.Queue }),
	micros("upstream_us", func(e *audit.Entry) *time.Duration { return &e.Upstream }),
	micros("first_token_us", func(e *audit.Entry) *time.Duration { return &e.FirstToken }),
	raw("accounts", func(e *audit.Entry) *json.RawMessage { return &e.Accounts }),
}

// requestID is the position of the request ID in columns.
const requestID = 0

var schema, positions = func() (list []parquet.Column, at map[string]int) {
	at = map[string]int{}
	for i, c := range columns {
		list = append(list, c.Column)
		at[c.Name] = i
	}
	return list, at
}()

// appendEntry writes an entry as the next row.
func appendEntry(w *parquet.Writer, e *audit.Entry) error {
	for i, c := range columns {
		if c.Type == parquet.Text {
			if s := c.text(e); s != nil {
				w.Text(i, *s)
				continue
			}
		} else if n := c.integer(e); n != nil {
			w.Integer(i, *n)
			continue
		}
		w.Null(i)
	}
	return w.EndRow()
}

// clone returns an entry that doesn't keep its row group in memory.
func clone(e *audit.Entry) *audit.Entry {
	out := &audit.Entry{Settled: e.Settled, Failure: slices.Clone(e.Failure)}
	for _, c := range columns {
		if c.set == nil {
			continue
		}
		if c.Type == parquet.Text {
			if s := c.text(e); s != nil {
				c.set(out, strings.Clone(*s), 0)
			}
		} else if n := c.integer(e); n != nil {
			c.set(out, "", *n)
		}
	}
	return out
}

// isSame reports whether two entries are the same row.
func isSame(a, b *audit.Entry) bool {
	return a.Settled == b.Settled && !slices.ContainsFunc(columns, func(c column) bool {
		if c.Type == parquet.Text {
			return !equal(c.text(a), c.text(b))
		}
		return !equal(c.integer(a), c.integer(b))
	})
}

func equal[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// digest identifies a set of settled entries with all their columns, in any order.
type digest struct {
	entries int64
	sums    [sha256.Size / 8]uint64 // of the entries' hashes
}

func (d *digest) add(e *audit.Entry) {
	row := make([]byte, 0, 1024)
	for _, c := range columns {
		if c.Type == parquet.Text {
			s := c.text(e)
			if s == nil {
				row = append(row, 0)
				continue
			}
			row = binary.AppendUvarint(row, uint64(len(*s))+1)
			row = append(row, *s...)
		} else if n := c.integer(e); n != nil {
			row = binary.LittleEndian.AppendUint64(append(row, 1), uint64(*n))
		} else {
			row = append(row, 0)
		}
	}
	hash := sha256.Sum256(row)
	d.entries++
	for i := range d.sums {
		d.sums[i] += binary.LittleEndian.Uint64(hash[8*i:])
	}
}

// readEntries returns the entries of a row group.
func readEntries(f *parquet.File, group int) ([]*audit.Entry, error) {
	values, err := f.ReadGroup(group)
	if err != nil {
		return nil, err
	}
	list := make([]audit.Entry, len(values[requestID].Texts))
	out := make([]*audit.Entry, len(list))
	for i := range list {
		out[i] = &list[i]
		out[i].Settled = true
	}
	for at, c := range columns {
		if c.set == nil {
			continue
		}
		v := &values[at]
		for i, e := range out {
			switch {
			case v.IsNull(i):
			case c.Type == parquet.Text:
				c.set(e, v.Texts[i], 0)
			default:
				c.set(e, "", v.Integers[i])
			}
		}
	}
	message, param, refused := values[positions["error_message"]].Texts, values[positions["error_param"]].Texts, values[positions["refused_by"]].Texts
	for i, e := range out {
		if message[i] == "" && param[i] == "" && refused[i] == "" {
			continue
		}
		f := audit.Failure{Message: message[i], Param: param[i]}
		if refused[i] != "" {
			if err := json.Unmarshal([]byte(refused[i]), &f.RefusedBy); err != nil {
				return nil, err
			}
		}
		if e.Failure, err = json.Marshal(f); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// open reads the metadata of a file.
func (a *Archive) open(ctx context.Context, f *file) (*parquet.File, error) {
	return parquet.Open(object{ctx, a.storage, f.Object}, f.Bytes, schema)
}

// path returns where a tenant's entries of a day are.
func path(d day, t visibility.Tenant) string {
	return dayPath(d) + "workspace=" + t.WorkspaceID + "/" + string(t.Environment)
}

func dayPath(d day) string { return "log/day=" + string(d) + "/" }
