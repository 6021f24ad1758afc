package gateway

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/credits"
)

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
