package jsonsample

import (
	"errors"
	"strconv"
)

// object makes the required properties, and the others while there is room.
func (m *maker) object(g group, depth int) (*value, error) {
	if err := m.spend(0); err != nil {
		return nil, err
	}
	defer func(name string) { m.name = name }(m.name)
	required := g.required()
	limit := g.atMost("maxProperties")
	room := maxValues // for properties that are not required
	if limit >= 0 {
		room = limit - len(required)
	}
	if m.small(depth) {
		room = 0
	}
	v := &value{kind: isObject, index: map[string]*value{}}
	add := func(name string, wanted bool) error {
		if v.index[name] != nil {
			return nil
		}
		if !wanted && room <= 0 {
			return nil
		}
		m.name = name
		child := allOf(m.propertyOf(g, name))
		if !wanted && m.height(child) >= endless {
			return nil
		}
		made, err := m.make(child, depth+1)
		switch {
		case err == nil:
			err = m.spend(len(name))
		case !wanted && !errors.Is(err, errTooMuch):
			return nil
		}
		if err != nil {
			return err
		}
		if !wanted {
			room--
		}
		v.fields = append(v.fields, field{name, made})
		v.index[name] = made
		return nil
	}
	for _, s := range g.list {
		if properties := s.get("properties"); properties != nil {
			for _, p := range properties.fields {
				if err := add(p.name, required[p.name] > 0); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, name := range g.requiredNames() {
		if err := add(name, true); err != nil {
			return nil, err
		}
	}
	least := g.atLeast("minProperties")
	for i := 1; len(v.fields) < least; i++ { // spend ends it
		if err := add("extra"+strconv.Itoa(i), true); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// array makes as many items as are required, and one where none is.
func (m *maker) array(g group, depth int) (*value, error) {
	if err := m.spend(0); err != nil {
		return nil, err
	}
	needed, listed, hasItems, unique := g.atLeast("minItems"), 0, false, false
	for _, s := range g.list {
		needed = max(needed, leastContained(s))
		listed = max(listed, len(prefixItems(s)))
		hasItems = hasItems || s.get("items") != nil
		unique = unique || s.get("uniqueItems") != nil && s.get("uniqueItems").kind == isTrue
	}
	wanted := max(needed, listed)
	if wanted == 0 && hasItems {
		wanted = 1
	}
	if limit := g.atMost("maxItems"); limit >= 0 {
		wanted = min(wanted, limit)
	}
	if m.small(depth) {
		wanted = needed
	}
	defer func(variant int) { m.variant = variant }(m.variant)
	v := &value{kind: isArray}
	for i := range wanted {
		if unique {
			m.variant = i
		}
		child := allOf(itemsOf(g, i))
		if i >= needed && m.height(child) >= endless {
			break
		}
		item, err := m.make(child, depth+1)
		if err != nil {
			if i >= needed && !errors.Is(err, errTooMuch) {
				break
			}
			return nil, err
		}
		v.items = append(v.items, item)
	}
	return v, nil
}
