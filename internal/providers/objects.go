package providers

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

// toolObjects are the objectFields of a tool.
var toolObjects = []string{"vector_store_ids", "container", "container.file_ids", "container.skills.skill_id", "environment.container_id", "environment.file_ids",
	"environment.skills.skill_id", "input_image_mask.file_id"}

// objectFields are the fields of requests that name an object in the account at a provider, such as a file. Turnpike
// creates no such object, so each belongs to someone who may be in another workspace. Elements of arrays have the path
// of the array, and * is any name.
var objectFields = newFieldTree(
	under("tools", toolObjects), under("input.tools", toolObjects),
	// The Responses API.
	[]string{"input.content.file_id", "input.output.file_id", "input.container_id", "input.environment.container_id", "prompt.id", "prompt.variables.*.file_id"},
	// Chat completions.
	[]string{"messages.content.file.file_id"},
	// The Messages API.
	[]string{"container", "container.id", "container.skills.skill_id", "messages.content.file_id", "messages.content.source.file_id", "messages.content.content.source.file_id",
		"messages.content.source.content.source.file_id"},
)

// stateFields are those of the input that Turnpike has composed from stored items. Containers in them come from
// responses: no client can store another one.
var stateFields = newFieldTree([]string{"content.file_id", "output.file_id"}, under("tools", toolObjects))

// fieldTree has the fields below a field.
type fieldTree struct {
	named  bool // the field itself names an object
	fields map[string]*fieldTree
}

func under(parent string, paths []string) (out []string) {
	for _, p := range paths {
		out = append(out, parent+"."+p)
	}
	return out
}

func newFieldTree(lists ...[]string) *fieldTree {
	root := &fieldTree{fields: map[string]*fieldTree{}}
	for _, list := range lists {
		for _, path := range list {
			t := root
			for name := range strings.SplitSeq(path, ".") {
				if t.fields[name] == nil {
					t.fields[name] = &fieldTree{fields: map[string]*fieldTree{}}
				}
				t = t.fields[name]
			}
			t.named = true
		}
	}
	return root
}

func (t *fieldTree) below(name string) *fieldTree {
	if next := t.fields[name]; next != nil {
		return next
	}
	return t.fields["*"]
}

// CheckObjects rejects a request in which the client names an object in the account at the provider.
func CheckObjects(body []byte) error {
	if !mayNameObjects(body) {
		return nil
	}
	return objectFields.check("", body)
}

// CheckStateObjects is CheckObjects for an input that Turnpike has composed from stored items.
func CheckStateObjects(input []byte) error {
	if !mayNameObjects(input) {
		return nil
	}
	return stateFields.check("/input", input)
}

// mayNameObjects is a quick check. Names may contain escapes.
func mayNameObjects(body []byte) bool {
	if bytes.Contains(body, []byte(`"container"`)) || bytes.Contains(body, []byte(`"prompt"`)) || bytes.Contains(body, []byte(`\u00`)) {
		return true
	}
	if !bytes.Contains(body, []byte("_id")) {
		return false
	}
	for _, name := range []string{"file_id", "container_id", "vector_store_id", "skill_id"} {
		if bytes.Contains(body, []byte(name)) {
			return true
		}
	}
	return false
}

func (t *fieldTree) check(at string, body []byte) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	found, err := t.find(d)
	if err != nil || !found {
		return nil // the server rejects what isn't JSON
	}
	at = pathOf(at + string(d.StackPointer()))
	return fault.Invalid(at, "%s names an object in the account at the provider, which other workspaces may share. Send the content itself. If only one workspace uses the account, the operator can set private: true for the provider.", at)
}

// find reads the next value and reports whether it has a field of the tree. If so, the decoder stops there.
func (t *fieldTree) find(d *jsontext.Decoder) (found bool, err error) {
	switch kind := d.PeekKind(); {
	case kind == '"' && t.named:
		token, err := d.ReadToken()
		return err == nil && token.String() != "", err
	case kind == '[':
		if _, err = d.ReadToken(); err != nil {
			return false, err
		}
		for d.PeekKind() != ']' {
			if found, err = t.find(d); found || err != nil {
				return found, err
			}
		}
	case kind == '{' && len(t.fields) > 0:
		if _, err = d.ReadToken(); err != nil {
			return false, err
		}
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return false, err
			}
			next := t.below(name.String())
			if next == nil {
				err = d.SkipValue()
			} else {
				found, err = next.find(d)
			}
			if found || err != nil {
				return found, err
			}
		}
	default:
		return false, d.SkipValue()
	}
	_, err = d.ReadToken()
	return false, err
}

var arrayIndex = regexp.MustCompile(`/(\d+)`)

// pathOf returns a JSON Pointer in the form that errors have, such as tools[0].container.
func pathOf(pointer string) string {
	return strings.TrimPrefix(strings.ReplaceAll(arrayIndex.ReplaceAllString(pointer, "[$1]"), "/", "."), ".")
}
