package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"turnpike/internal/catalog/table"
)

// Table is a model table: list prices and properties of models as of a date.
type Table struct {
	AsOf time.Time
	rows []table.Row
	hash string // empty for the embedded one
}

// Embedded returns the table in the binary.
var Embedded = sync.OnceValues(func() (*Table, error) {
	t, err := ParseTable(embedded)
	if err != nil {
		return nil, fmt.Errorf("model table: %w", err)
	}
	t.hash = ""
	return t, nil
})

var kinds = []Kind{Chat, Embedding, Image, Video, Speech, Transcription, Moderation, Rerank}

// ParseTable reads a table in the format of the embedded one. Load checks its prices.
func ParseTable(data []byte) (*Table, error) {
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.DisallowUnknownFields()
	var file table.Table
	if err := decoder.Decode(&file); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, errors.New("data after the table")
	}
	asOf, err := time.Parse(time.DateOnly, file.AsOf)
	if err != nil {
		return nil, fmt.Errorf("as_of: %q is not a date such as 2026-08-08", file.AsOf)
	}
	if len(file.Models) == 0 {
		return nil, errors.New("models: the table is empty")
	}
	seen := map[modelKey]bool{}
	for i, row := range file.Models {
		key := modelKey{row.Provider, row.ID}
		switch {
		case row.Provider == "" || row.ID == "":
			return nil, fmt.Errorf("models[%d]: provider or id is missing", i)
		case !slices.Contains(kinds, Kind(row.Kind)):
			return nil, fmt.Errorf("models[%d].kind: %q is not a kind of model", i, row.Kind)
		case row.ContextWindow < 0 || row.MaxOutputTokens < 0:
			return nil, fmt.Errorf("models[%d]: context_window or max_output_tokens is negative", i)
		case seen[key]:
			return nil, fmt.Errorf("models[%d]: %s at %s is listed twice", i, row.ID, row.Provider)
		}
		seen[key] = true
	}
	return &Table{AsOf: asOf, rows: file.Models, hash: fmt.Sprintf("%x", sha256.Sum256(data))}, nil
}

// Change is a model that two tables have differently.
type Change struct {
	Provider string     `json:"provider"`
	Model    string     `json:"model"`
	Before   *table.USD `json:"before"` // nil if the model is new
	After    *table.USD `json:"after"`  // nil if the model is gone
}

// SamePrice reports whether only other properties of the model differ.
func (c Change) SamePrice() bool { return c.Before != nil && c.After != nil && *c.Before == *c.After }

// Changes returns how the next table differs, by provider and model.
func (t *Table) Changes(next *Table) []Change {
	changes := []Change{}
	before := map[modelKey]table.Row{}
	for _, row := range t.rows {
		before[modelKey{row.Provider, row.ID}] = row
	}
	for _, row := range next.rows {
		key := modelKey{row.Provider, row.ID}
		old, had := before[key]
		delete(before, key)
		switch {
		case !had:
			changes = append(changes, Change{row.Provider, row.ID, nil, &row.USD})
		case !sameRow(old, row):
			changes = append(changes, Change{row.Provider, row.ID, &old.USD, &row.USD})
		}
	}
	for key, row := range before {
		changes = append(changes, Change{key.provider, key.id, &row.USD, nil})
	}
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(strings.Compare(a.Provider, b.Provider), strings.Compare(a.Model, b.Model))
	})
	return changes
}

func sameRow(a, b table.Row) bool {
	return a.Kind == b.Kind && a.ContextWindow == b.ContextWindow && a.MaxOutputTokens == b.MaxOutputTokens && a.USD == b.USD &&
		a.DeprecatedOn == b.DeprecatedOn && slices.Equal(a.Capabilities, b.Capabilities)
}
