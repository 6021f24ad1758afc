package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"turnpike/internal/fault"
)

// maxApplyFile limits the size of a file that is applied.
const maxApplyFile = 16 << 20

// applyFile is a file that describes workspaces. Its errors name the line.
type applyFile struct {
	name string // for errors
	dir  string // that paths in the file are relative to
	root *yaml.Node
}

// readApplyFile reads a file, or standard input if the path is -.
func (e *env) readApplyFile(path string) (*applyFile, error) {
	f := &applyFile{name: path, dir: filepath.Dir(path)}
	var from io.Reader = e.in
	if path == "-" {
		f.name, f.dir = "standard input", "."
	} else {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, maxApplyFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxApplyFile {
		return nil, fmt.Errorf("%s: the file is larger than %d MB", f.name, maxApplyFile>>20)
	}
	return f, f.parse(text)
}

func (f *applyFile) parse(text []byte) error {
	var document yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: the file is empty; it must list workspaces", f.name)
		}
		return fmt.Errorf("%s: %s", f.name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: the file must contain one YAML document", f.name)
	}
	f.root = document.Content[0]
	return nil
}

// fail returns an error about a node. field may be empty.
func (f *applyFile) fail(at *yaml.Node, field, format string, args ...any) error {
	if field != "" {
		field += ": "
	}
	return fmt.Errorf("%s:%d: %s%s", f.name, at.Line, field, fmt.Sprintf(format, args...))
}

// explain returns an error of the API about an object as one about its lines.
func (f *applyFile) explain(object *yaml.Node, err error) error {
	problem, ok := fault.As(err)
	if !ok {
		return err
	}
	return f.fail(nodeAt(object, problem.Param), problem.Param, "%s", problem.Message)
}

// nodeAt returns the node of a field such as limits[1].window, or the closest one around it.
func nodeAt(object *yaml.Node, path string) *yaml.Node {
	at := resolve(object)
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		var next *yaml.Node
		switch at.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(at.Content); i += 2 {
				if at.Content[i].Value == step {
					next = at.Content[i+1]
				}
			}
		case yaml.SequenceNode:
			if n, err := strconv.Atoi(step); err == nil && n >= 0 && n < len(at.Content) {
				next = at.Content[n]
			}
		}
		if next == nil {
			return at
		}
		at = resolve(next)
	}
	return at
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// mapping returns the fields of an object, in order. It allows only the given names, unless there are none.
func (f *applyFile) mapping(n *yaml.Node, what string, allowed ...string) (names []string, fields map[string]*yaml.Node, err error) {
	if n = resolve(n); n.Kind != yaml.MappingNode {
		return nil, nil, f.fail(n, "", "%s must be a mapping of fields to values", what)
	}
	fields = map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if fields[key.Value] != nil {
			return nil, nil, f.fail(key, key.Value, "the field is given twice")
		}
		if len(allowed) > 0 && !slices.Contains(allowed, key.Value) {
			return nil, nil, f.fail(key, key.Value, "unknown field; allowed fields: %s", strings.Join(allowed, ", "))
		}
		fields[key.Value] = n.Content[i+1]
		names = append(names, key.Value)
	}
	return names, fields, nil
}

// list returns the elements of an array. A missing one has none.
func (f *applyFile) list(n *yaml.Node, what string) ([]*yaml.Node, error) {
	if n == nil {
		return nil, nil
	}
	if n = resolve(n); n.Kind != yaml.SequenceNode {
		return nil, f.fail(n, what, "must be a list")
	}
	return n.Content, nil
}

// text returns a string. A missing one is empty.
func (f *applyFile) text(n *yaml.Node, what string) (string, error) {
	if n == nil {
		return "", nil
	}
	if n = resolve(n); n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return "", f.fail(n, what, "must be text")
	}
	return n.Value, nil
}

// path returns the path of a file that a field names.
func (f *applyFile) path(n *yaml.Node, what string) (string, error) {
	path, err := f.text(n, what)
	if err != nil || path == "" || filepath.IsAbs(path) {
		return path, err
	}
	return filepath.Join(f.dir, path), nil
}

// maxApplyDepth limits nested values, which aliases could make endless.
const maxApplyDepth = 32

// json returns a value as JSON.
func (f *applyFile) json(n *yaml.Node) (json.RawMessage, error) {
	var out bytes.Buffer
	err := f.writeJSON(&out, n, maxApplyDepth)
	return out.Bytes(), err
}

func (f *applyFile) writeJSON(out *bytes.Buffer, n *yaml.Node, depth int) error {
	n = resolve(n)
	if depth == 0 || out.Len() > maxApplyFile {
		return f.fail(n, "", "the value is nested too deeply or too large")
	}
	switch n.Kind {
	case yaml.MappingNode:
		names, fields, err := f.mapping(n, "the value")
		if err != nil {
			return err
		}
		return writeJSONList(out, "{}", names, func(name string) error {
			writeJSONString(out, name)
			out.WriteByte(':')
			return f.writeJSON(out, fields[name], depth-1)
		})
	case yaml.SequenceNode:
		return writeJSONList(out, "[]", n.Content, func(one *yaml.Node) error { return f.writeJSON(out, one, depth-1) })
	}
	switch n.Tag {
	case "!!null":
		out.WriteString("null")
		return nil
	case "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			return f.fail(n, "", "%v", err)
		}
		if json.Valid([]byte(n.Value)) { // as written: credits have more digits than a float
			out.WriteString(n.Value)
			return nil
		}
		text, err := json.Marshal(v)
		if err != nil {
			return f.fail(n, "", "%s is not a number", n.Value)
		}
		out.Write(text)
		return nil
	}
	writeJSONString(out, n.Value)
	return nil
}

func writeJSONString(out *bytes.Buffer, s string) {
	text, _ := json.Marshal(s) // strings: cannot fail
	out.Write(text)
}

func writeJSONList[T any](out *bytes.Buffer, around string, list []T, write func(T) error) error {
	out.WriteByte(around[0])
	for i, v := range list {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := write(v); err != nil {
			return err
		}
	}
	out.WriteByte(around[1])
	return nil
}

// readSecretFile returns the trimmed content of a file, or "" if it doesn't exist.
func readSecretFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// writeSecretFile writes a file that only its owner can read, completely or not at all.
func writeSecretFile(path string, content []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".turnpike-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
	}
	return err
}
