package jsonsample

import (
	"math"
	"slices"
)

// allOf is the schema that holds where all of the parts hold.
func allOf(parts []*value) *value {
	if len(parts) == 1 {
		return parts[0]
	}
	if len(parts) == 0 {
		return &value{kind: isTrue}
	}
	return objectValue(field{"allOf", arrayValue(parts...)})
}

// types are those that every schema of the group allows, in the order of the
// first that names any; without a "type" the other keywords tell.
func (g group) types() []string {
	var allowed []string
	named := false
	for _, s := range g.list {
		t := s.get("type")
		if t == nil {
			continue
		}
		list := typeList(t)
		if !named {
			allowed, named = list, true
			continue
		}
		allowed = intersect(allowed, list)
	}
	if named {
		return allowed
	}
	for _, s := range g.list {
		for _, f := range s.fields {
			switch f.name {
			case "properties", "patternProperties", "additionalProperties", "propertyNames",
				"required", "dependentRequired", "minProperties", "maxProperties":
				return []string{"object"}
			case "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains":
				return []string{"array"}
			case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
				return []string{"number"}
			}
		}
	}
	return []string{"string"}
}

// intersect keeps what both lists allow; an integer is also a number.
func intersect(a, b []string) []string {
	var both []string
	for _, t := range a {
		switch {
		case slices.Contains(b, t), t == "integer" && slices.Contains(b, "number"):
			both = append(both, t)
		case t == "number" && slices.Contains(b, "integer"):
			both = append(both, "integer")
		}
	}
	return both
}

// constants are the values of the group's first const or enum.
func (g group) constants() []*value {
	for _, s := range g.list {
		if c := s.get("const"); c != nil {
			return []*value{c}
		}
	}
	for _, s := range g.list {
		if e := s.get("enum"); e != nil {
			return e.items
		}
	}
	return nil
}

// atLeast is the highest value of a keyword that sets a minimum, or 0.
func (g group) atLeast(keyword string) int {
	n := 0
	for _, s := range g.list {
		n = max(n, countOf(s, keyword, 0))
	}
	return n
}

// atMost is the lowest value of a keyword that sets a maximum, or -1 for none.
func (g group) atMost(keyword string) int {
	n := -1
	for _, s := range g.list {
		if limit := countOf(s, keyword, -1); limit >= 0 && (n < 0 || limit < n) {
			n = limit
		}
	}
	return n
}

// countOf reads a counting keyword of one schema.
func countOf(s *value, keyword string, without int) int {
	v := s.get(keyword)
	if v == nil {
		return without
	}
	n := v.number().Num()
	if !n.IsInt64() || n.Int64() > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(n.Int64())
}

func (g group) requiredNames() []string {
	var names []string
	for _, s := range g.list {
		if r := s.get("required"); r != nil {
			for _, name := range r.items {
				names = append(names, name.text)
			}
		}
	}
	return names
}

func (g group) required() map[string]int {
	names := map[string]int{}
	for _, name := range g.requiredNames() {
		names[name]++
	}
	return names
}

// propertyOf lists the schemas that hold for a property.
func (m *maker) propertyOf(g group, name string) []*value {
	var list []*value
	for _, s := range g.list {
		list = append(list, m.property(s, name)...)
	}
	return list
}

// property lists what one schema says about a property: what it declares,
// what its patterns match, or else what it says about additional ones.
func (m *maker) property(s *value, name string) []*value {
	m.charge(1)
	var list []*value
	if p := declared(s, name); p != nil {
		list = append(list, p)
	}
	if patterns := s.get("patternProperties"); patterns != nil {
		for _, f := range patterns.fields {
			if m.matches(f.name, name) {
				list = append(list, f.value)
			}
		}
	}
	if additional := s.get("additionalProperties"); additional != nil && len(list) == 0 {
		list = append(list, additional)
	}
	return list
}

// declared is the property's own schema, or nil.
func declared(s *value, name string) *value {
	if properties := s.get("properties"); properties != nil {
		return properties.get(name)
	}
	return nil
}

// prefixItems lists the schemas of the first items; before draft 2020-12 they
// were an array under "items".
func prefixItems(s *value) []*value {
	if p := s.get("prefixItems"); p != nil {
		return p.items
	}
	if items := s.get("items"); items != nil && items.kind == isArray {
		return items.items
	}
	return nil
}

// itemsAt lists what one schema says about the item at an index.
func itemsAt(s *value, i int) []*value {
	if prefix := prefixItems(s); i < len(prefix) {
		return prefix[i : i+1]
	}
	rest := s.get("items")
	if rest != nil && rest.kind == isArray {
		rest = s.get("additionalItems")
	}
	if rest == nil {
		return nil
	}
	return []*value{rest}
}

// leastContained is how many items must satisfy "contains".
func leastContained(s *value) int {
	if s.get("contains") == nil {
		return 0
	}
	return countOf(s, "minContains", 1)
}

// itemsOf lists the schemas for the item at an index; the first ones are made
// to satisfy "contains".
func itemsOf(g group, i int) []*value {
	var list []*value
	for _, s := range g.list {
		list = append(list, itemsAt(s, i)...)
		if i < leastContained(s) {
			list = append(list, s.get("contains"))
		}
	}
	return list
}
