package providers

import (
	"strconv"
	"strings"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
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
func CheckObjects(body *jsonbody.Index) error { return objectFields.check("", body) }

// CheckStateObjects is CheckObjects for an input that Turnpike has composed from stored items.
func CheckStateObjects(input []byte) error {
	return stateFields.check("input", jsonbody.NewIndex(input))
}

func (t *fieldTree) check(at string, body *jsonbody.Index) error {
	path, found := t.find(body.Root())
	if !found {
		return nil
	}
	at = strings.TrimPrefix(at+path, ".")
	return fault.Invalid(at, "%s names an object in the account at the provider, which other workspaces may share. Send the content itself. If only one workspace uses the account, the operator can set private: true for the provider.", at)
}

// find returns the path of the first field of the tree in a value.
func (t *fieldTree) find(value jsonbody.Value) (path string, found bool) {
	switch kind := value.Kind(); {
	case kind == '"' && t.named:
		return "", len(value.String()) > 0
	case kind == '[':
		i := 0
		for element := range value.Elements() {
			if path, found = t.find(element); found {
				return "[" + strconv.Itoa(i) + "]" + path, true
			}
			i++
		}
	case kind == '{' && len(t.fields) > 0:
		for name, member := range value.Members() {
			next := t.below(string(name))
			if next == nil {
				continue
			}
			if path, found = next.find(member); found {
				return "." + string(name) + path, true
			}
		}
	}
	return "", false
}
