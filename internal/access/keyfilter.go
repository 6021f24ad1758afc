package access

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

const maxExternalID = 255

func checkExternalID(id string) error {
	switch {
	case len(id) > maxExternalID || !utf8.ValidString(id) || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fault.Invalid("external_id", "external_id must be text of at most %d bytes without control characters.", maxExternalID)
	case keyring.ContainsSecret(id):
		return fault.Invalid("external_id", "external_id looks like an API key, which must not be stored.")
	}
	return nil
}

func (k *Key) storedMetadata() any {
	if len(k.Metadata) == 0 {
		return nil
	}
	return db.JSON(k.Metadata)
}

// KeySort is the order of a list of keys.
type KeySort string

// The orders. The default is by creation, newest first.
const (
	SortByCreation KeySort = ""
	SortByName     KeySort = "name"
	SortByLastUse  KeySort = "last_used"
)

// KeySorts are the orders other than the default.
var KeySorts = []KeySort{SortByName, SortByLastUse}

// KeyFilter selects and sorts keys. Empty fields match all.
type KeyFilter struct {
	State      string // of States
	Project    string // they are pinned to
	ExternalID string
	Metadata   map[string]string // that they have, perhaps among others
	// Text is a part of their name, ID, external ID, metadata or last four characters, in upper or lower case.
	Text string
	Sort KeySort
}

// keyCondition is a condition with ? for its value. It applies if the value isn't empty.
type keyCondition struct{ sql, value string }

func (f KeyFilter) conditions() []keyCondition {
	list := []keyCondition{{"k.project = ?", f.Project}, {"k.external_id = ?", f.ExternalID}}
	if f.Text != "" {
		fields := []string{"k.name", "k.id", "s.last_four", "COALESCE(k.external_id, '')", "COALESCE(k.metadata, '')"}
		for i, field := range fields {
			fields[i] = "lower(" + field + ") LIKE ? ESCAPE '!'"
		}
		pattern := "%" + strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(strings.ToLower(f.Text)) + "%"
		list = append(list, keyCondition{"(" + strings.Join(fields, " OR ") + ")", pattern})
	}
	for _, name := range slices.Sorted(maps.Keys(f.Metadata)) {
		// Metadata is stored as a JSON object of strings, in which quotes are escaped. So the pair after a
		// brace or a comma is an entry and not a part of another one.
		pair, _ := json.Marshal(map[string]string{name: f.Metadata[name]}) // strings: cannot fail
		text := string(pair[1 : len(pair)-1])
		// Unlike LIKE, replace distinguishes upper and lower case on both engines.
		list = append(list, keyCondition{"replace(replace(k.metadata, '{' || ?, ''), ',' || ?, '') <> k.metadata", text})
	}
	return list
}

// keyOrder is the SQL of a KeySort.
type keyOrder struct {
	column     string // besides the ID; empty for none
	descending bool
}

func (s KeySort) order() keyOrder {
	switch s {
	case SortByName:
		return keyOrder{column: "lower(%.name)"}
	case SortByLastUse:
		return keyOrder{column: "COALESCE(%.last_used_at, 0)", descending: true}
	}
	return keyOrder{}
}

func (o keyOrder) of(table string) string { return strings.ReplaceAll(o.column, "%", table) }

// by returns the columns to order by.
func (o keyOrder) by(page db.Page) string {
	if o.column == "" {
		return "k.id " + page.Order()
	}
	if o.descending {
		return o.of("k") + " DESC, k.id DESC"
	}
	return o.of("k") + ", k.id"
}

// after returns the condition for rows after the one with the ID in the page.
func (o keyOrder) after(page db.Page) string {
	if o.column == "" {
		return "k.id " + page.Past() + " ?"
	}
	past := ">"
	if o.descending {
		past = "<"
	}
	return "(" + o.of("k") + ", k.id) " + past + " (SELECT " + o.of("a") + ", a.id FROM keys a WHERE a.id = ?)"
}
