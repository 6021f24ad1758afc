package conversations

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// ItemID returns the ID of an item, or "".
func ItemID(item jsontext.Value) string { return itemID(item) }

// Page returns a page of items, which are in the order of the conversation, and whether there are
// more. After is the ID of an item.
func Page(items []jsontext.Value, p db.Page) (page []jsontext.Value, more bool, err error) {
	page = slices.Clone(items)
	if !p.Asc {
		slices.Reverse(page)
	}
	if p.After != "" {
		at := slices.IndexFunc(page, func(item jsontext.Value) bool { return itemID(item) == p.After })
		if at < 0 {
			return nil, false, fault.NoSuch("item", p.After)
		}
		page = page[at+1:]
	}
	if more = len(page) > p.Limit; more {
		page = page[:p.Limit]
	}
	return page, more, nil
}

// itemID returns the ID of an item, or "".
func itemID(item jsontext.Value) string {
	var read struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(item, &read, lenient) // an ID of another type is none
	return read.ID
}

// withID returns an item with an ID. One that it has already stays.
func withID(item jsontext.Value, id string) jsontext.Value {
	if item.Kind() != jsontext.KindBeginObject || itemID(item) != "" {
		return item
	}
	var fields map[string]jsontext.Value
	if json.Unmarshal(item, &fields, lenient) != nil {
		return item
	}
	fields["id"], _ = jsontext.AppendQuote(nil, id)
	out, err := json.Marshal(fields, json.Deterministic(true), lenient)
	if err != nil {
		return item
	}
	return out
}

// itemPrefixes are the prefixes of IDs by the type of the item.
var itemPrefixes = map[string]string{"message": "msg", "function_call": "fc", "function_call_output": "fco", "custom_tool_call": "ctc",
	"custom_tool_call_output": "ctco", "reasoning": "rs", "tool_search_call": "tsc", "tool_search_output": "tso"}

func prefixOf(item jsontext.Value) string {
	var read struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(item, &read, lenient)
	if prefix, ok := itemPrefixes[read.Type]; ok {
		return prefix
	}
	if read.Type == "" {
		return "msg"
	}
	return "item"
}

// inputID returns the ID of a response's input item without one: resp_abc gives msg_abc_i0.
func inputID(responseID string, i int, item jsontext.Value) string {
	return prefixOf(item) + "_" + strings.TrimPrefix(responseID, "resp_") + "_i" + strconv.Itoa(i)
}

// derivedForm matches IDs that contain that of their response, such as msg_abc_0 and msg_abc_i0.
var derivedForm = regexp.MustCompile(`^[a-z]+_([0-7][0-9a-z]{25})_i?\d+$`)

// derivedResponse returns the response that an item's ID names, or "".
func derivedResponse(id string) string {
	if m := derivedForm.FindStringSubmatch(id); m != nil {
		return "resp_" + m[1]
	}
	return ""
}

func derivedFrom(id, responseID string) bool { return derivedResponse(id) == responseID }
