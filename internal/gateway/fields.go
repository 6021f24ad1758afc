package gateway

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// fields are the few that the gateway itself reads. All others belong to the
// provider and are passed on as they are.
type fields struct {
	Model        string
	Stream       bool
	IncludeUsage bool
}

func readFields(body []byte) (fields, error) {
	var in struct {
		Model         *string `json:"model"`
		Stream        *bool   `json:"stream"`
		StreamOptions *struct {
			IncludeUsage *bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := jsonbody.DecodeLenient(body, &in); err != nil {
		return fields{}, err
	}
	if in.Model == nil || *in.Model == "" {
		return fields{}, fault.Missing("model", "model must name a model; GET /v1/models lists those there are")
	}
	f := fields{Model: *in.Model, Stream: in.Stream != nil && *in.Stream}
	f.IncludeUsage = in.StreamOptions != nil && in.StreamOptions.IncludeUsage != nil && *in.StreamOptions.IncludeUsage
	return f, nil
}

// spliceUsage adds the credits to a chunk's usage object. It is a splice and
// not a re-encoding: whatever else the provider says there stays as it is.
func spliceUsage(chunk []byte, charged credits.Micro) []byte {
	d := jsontext.NewDecoder(bytes.NewReader(chunk), jsontext.AllowDuplicateNames(true))
	if _, err := d.ReadToken(); err != nil {
		return chunk
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return chunk
		}
		isUsage := name.String() == "usage" // before the token's memory is used again
		if isUsage && d.PeekKind() == '{' {
			if _, err := d.ReadToken(); err != nil {
				return chunk
			}
			at := d.InputOffset()
			field := `"credits":` + charged.String()
			if d.PeekKind() != '}' {
				field += ","
			}
			return slices.Concat(chunk[:at], []byte(field), chunk[at:])
		}
		if err := d.SkipValue(); err != nil {
			return chunk
		}
	}
	return chunk
}
