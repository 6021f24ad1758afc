// Package jsonsample makes a JSON document that is valid for a JSON Schema.
//
// The same schema always gives the same document. Work and output are bounded
// for every schema; what would go beyond, or is not understood well enough to
// be sure of a valid document, is an error that says why.
package jsonsample

import (
	"errors"
	"fmt"
	"slices"
)

// Bounds for one document.
const (
	maxSteps  = 100_000   // subschemas looked at, in making and checking
	maxValues = 5_000     // JSON values in the document
	maxBytes  = 128 << 10 // of text in the document
	maxDepth  = 64

	maxPatternText = 4 << 10 // of a text made from a pattern
)

// Beyond these a document is kept as small as the schema allows.
const (
	richDepth  = 3
	richValues = 200
)

// Value makes a document for the schema.
func Value(schema []byte) ([]byte, error) {
	s, err := parse(schema)
	if err != nil {
		return nil, err
	}
	return s.sample(s.root)
}

// Object makes a document for the schema that is an object, as a tool's arguments are.
func Object(schema []byte) ([]byte, error) {
	s, err := parse(schema)
	if err != nil {
		return nil, err
	}
	anObject := objectValue(field{"type", stringValue("object")})
	return s.sample(allOf([]*value{s.root, anObject}))
}

// sample tries a document with optional parts first, then the smallest one,
// which has fewer ways to go wrong.
func (s *schema) sample(root *value) ([]byte, error) {
	if s.height(root) >= endless {
		return nil, errors.New("no finite document satisfies the schema: it requires itself, or allows nothing")
	}
	var err error
	for _, lean := range []bool{false, true} {
		m := maker{schema: s, lean: lean}
		var v *value
		v, err = m.make(root, 0)
		if err == nil && m.valid(root, v) {
			return v.append(nil), nil
		}
		if !m.charge(0) {
			err = errTooMuch
		} else if err == nil {
			err = errors.New("the schema combines rules for which no valid document was found")
		}
	}
	return nil, err
}

// errTooMuch ends the search for another way.
var errTooMuch = fmt.Errorf("the schema asks for more than is simulated: %d values, %d bytes of text, %d steps to find them", maxValues, maxBytes, maxSteps)

// maker makes one document.
type maker struct {
	*schema
	lean    bool
	steps   int
	values  int
	bytes   int
	name    string // of the property in the making, for its text
	variant int    // of an item that must differ from its neighbours
}

func (m *maker) small(depth int) bool {
	return m.lean || depth > richDepth || m.values > richValues
}

// make makes a value for a subschema.
func (m *maker) make(v *value, depth int) (*value, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("the schema asks for more than %d levels", maxDepth)
	}
	var g group
	if err := m.gather(&g, v); err != nil {
		return nil, err
	}
	return m.build(g, depth)
}

// group is a set of schemas that must hold together, $ref and allOf resolved,
// and the unions of which one branch each is still to be chosen.
type group struct {
	list   []*value
	unions []union
}

type union struct {
	branches []*value
	one      bool // exactly one branch may hold
}

// gather adds a schema to the group.
func (m *maker) gather(g *group, v *value) error {
	if !m.charge(1 + len(g.list)/4) {
		return errTooMuch
	}
	switch {
	case v.kind == isFalse:
		return errors.New("the schema requires something that it does not allow")
	case v.kind == isTrue || slices.Contains(g.list, v):
		return nil
	}
	g.list = append(g.list, v)
	if target := m.targets[v]; target != nil {
		if err := m.gather(g, target); err != nil {
			return err
		}
	}
	if all := v.get("allOf"); all != nil {
		for _, part := range all.items {
			if err := m.gather(g, part); err != nil {
				return err
			}
		}
	}
	if branches := v.get("anyOf"); branches != nil {
		g.unions = append(g.unions, union{branches: branches.items})
	}
	if branches := v.get("oneOf"); branches != nil {
		g.unions = append(g.unions, union{branches: branches.items, one: true})
	}
	if condition := v.get("if"); condition != nil {
		then, otherwise := []*value{condition}, []*value{objectValue(field{"not", condition})}
		if s := v.get("then"); s != nil {
			then = append(then, s)
		}
		if s := v.get("else"); s != nil {
			otherwise = append(otherwise, s)
		}
		g.unions = append(g.unions, union{branches: []*value{allOf(then), allOf(otherwise)}})
	}
	return nil
}

// build makes a value for a group: first it settles the unions, then the
// constants, then the type.
func (m *maker) build(g group, depth int) (*value, error) {
	if len(g.unions) > 0 {
		return m.choose(g, depth)
	}
	if constants := g.constants(); constants != nil {
		for i := range constants {
			c := constants[(i+m.variant)%len(constants)]
			if m.allValid(g.list, c) {
				return c, m.spendAll(c)
			}
		}
		return nil, m.orTooMuch("none of the schema's constants satisfies its other rules")
	}
	allowed := g.types()
	if m.small(depth) { // a container may need another level
		slices.SortStableFunc(allowed, func(a, b string) int { return rankOf(a) - rankOf(b) })
	}
	err := errors.New("the schema requires a value of two types at once")
	for _, t := range allowed {
		var v *value
		if v, err = m.ofType(g, t, depth); err == nil || errors.Is(err, errTooMuch) {
			return v, err
		}
	}
	return nil, err
}

func rankOf(t string) int {
	switch t {
	case "object":
		return 2
	case "array":
		return 1
	}
	return 0
}

// choose settles the group's first union by the first branch that works.
func (m *maker) choose(g group, depth int) (*value, error) {
	u := g.unions[0]
	branches := slices.Clone(u.branches)
	if m.small(depth) {
		slices.SortStableFunc(branches, func(a, b *value) int { return m.height(a) - m.height(b) })
	}
	err := errors.New("no branch of the schema's anyOf or oneOf can be satisfied")
	for _, branch := range branches {
		if m.height(branch) >= endless {
			continue
		}
		// Clipped, so that one branch's additions are not seen by the next.
		next := group{list: slices.Clip(g.list), unions: slices.Clip(g.unions[1:])}
		failure := m.gather(&next, branch)
		var v *value
		if failure == nil {
			v, failure = m.build(next, depth)
		}
		if failure == nil && m.holds(u, branch, v) {
			return v, nil
		}
		if !m.charge(0) || errors.Is(failure, errTooMuch) {
			return nil, errTooMuch
		}
		if failure != nil {
			err = failure
		}
	}
	return nil, err
}

// holds checks a value against the branch it was made for and, where only
// one may hold, against the others.
func (m *maker) holds(u union, branch, v *value) bool {
	if !m.valid(branch, v) {
		return false
	}
	return !u.one || !slices.ContainsFunc(u.branches, func(b *value) bool { return b != branch && m.valid(b, v) })
}

func (m *maker) allValid(list []*value, v *value) bool {
	return !slices.ContainsFunc(list, func(s *value) bool { return !m.valid(s, v) })
}

// spend accounts for one value with so many bytes of text.
func (m *maker) spend(bytes int) error {
	m.values++
	m.bytes += bytes
	if m.values > maxValues || m.bytes > maxBytes || !m.charge(1) {
		return errTooMuch
	}
	return nil
}

// spendAll accounts for a value and all in it.
func (m *maker) spendAll(v *value) error {
	err := m.spend(len(v.text))
	for _, item := range v.items {
		if err == nil {
			err = m.spendAll(item)
		}
	}
	for _, f := range v.fields {
		if err == nil {
			m.bytes += len(f.name)
			err = m.spendAll(f.value)
		}
	}
	return err
}

// charge counts steps and reports whether any are left.
func (m *maker) charge(steps int) bool {
	m.steps += steps
	return m.steps <= maxSteps
}

func (m *maker) orTooMuch(message string) error {
	if !m.charge(0) {
		return errTooMuch
	}
	return errors.New(message)
}

func (m *maker) ofType(g group, t string, depth int) (*value, error) {
	switch t {
	case "object":
		return m.object(g, depth)
	case "array":
		return m.array(g, depth)
	case "string":
		return m.string(g)
	case "number", "integer":
		return m.number(g, t == "integer")
	case "boolean":
		if m.variant%2 == 1 {
			return &value{kind: isFalse}, m.spend(0)
		}
		return &value{kind: isTrue}, m.spend(0)
	}
	return &value{kind: isNull}, m.spend(0)
}
