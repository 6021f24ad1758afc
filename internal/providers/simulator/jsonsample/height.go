package jsonsample

// endless is the height of a schema that only a document without end satisfies.
const endless = 1 << 20

// measure finds for every subschema how many levels its lowest document has.
// Recursive schemas are made to end by taking the lowest branch. Heights only
// fall from one round to the next, and a round without a change is the last.
// What a chain of references that all point backwards has not reached after
// maxRounds counts as endless.
func (s *schema) measure() {
	const maxRounds = 32
	for range maxRounds {
		changed := false
		for _, v := range s.nodes {
			if h := s.heightNow(v); h < s.heights[v] {
				s.heights[v] = h
				changed = true
			}
		}
		if !changed {
			return
		}
	}
}

// height is the measured one, or for a schema put together while sampling
// what follows from its parts.
func (s *schema) height(v *value) int {
	if h, ok := s.heights[v]; ok {
		return h
	}
	return s.heightNow(v)
}

func (s *schema) heightNow(v *value) int {
	switch v.kind {
	case isTrue:
		return 1
	case isFalse:
		return endless
	}
	h := s.ownHeight(v)
	if target := s.targets[v]; target != nil {
		h = max(h, s.height(target))
	}
	if all := v.get("allOf"); all != nil {
		for _, part := range all.items {
			h = max(h, s.height(part))
		}
	}
	for _, name := range []string{"anyOf", "oneOf"} {
		if union := v.get(name); union != nil {
			lowest := endless
			for _, branch := range union.items {
				lowest = min(lowest, s.height(branch))
			}
			h = max(h, lowest)
		}
	}
	return h
}

// ownHeight is what the keywords beside $ref and the combinations ask for.
func (s *schema) ownHeight(v *value) int {
	if v.get("const") != nil || v.get("enum") != nil {
		return 1
	}
	lowest := endless
	for _, t := range (group{list: []*value{v}}).types() {
		h := 1
		switch t {
		case "object":
			if required := v.get("required"); required != nil {
				for _, name := range required.items {
					if child := declared(v, name.text); child != nil {
						h = max(h, 1+s.height(child))
					}
				}
			}
		case "array":
			// Every item after the listed ones has the same schema.
			listed := len(prefixItems(v))
			for i := range min(countOf(v, "minItems", 0), listed+1) {
				for _, child := range itemsAt(v, i) {
					h = max(h, 1+s.height(child))
				}
			}
		}
		lowest = min(lowest, h)
	}
	return min(lowest, endless)
}
