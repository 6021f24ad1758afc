package jsonsample

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"turnpike/internal/safeschema"
)

type union struct {
	branches  []*jsonschema.Schema
	exclusive bool // exactly one branch must hold
}

func (s *sampler) generate(schemas []*jsonschema.Schema, depth int) (value, error) {
	if depth > s.depth {
		return value{}, errTooDeep
	}
	var (
		flat   []*jsonschema.Schema
		unions []union
	)
	for _, schema := range schemas {
		if err := s.flatten(schema, &flat, &unions); err != nil {
			return value{}, err
		}
	}
	return s.resolve(flat, unions, depth)
}

// flatten collects a schema with the schemas of its $ref and allOf.
func (s *sampler) flatten(schema *jsonschema.Schema, flat *[]*jsonschema.Schema, unions *[]union) error {
	s.budget.Steps -= 1 + len(*flat)/4
	if err := s.checkLimits(); err != nil {
		return err
	}
	switch {
	case schema == nil || slices.Contains(*flat, schema):
		return nil
	case schema.Bool != nil && !*schema.Bool:
		return errors.New("it requires a value that it does not allow")
	}
	*flat = append(*flat, schema)
	if len(schema.AnyOf) > 0 {
		*unions = append(*unions, union{branches: schema.AnyOf})
	}
	if len(schema.OneOf) > 0 {
		*unions = append(*unions, union{branches: schema.OneOf, exclusive: true})
	}
	for _, part := range append([]*jsonschema.Schema{schema.Ref}, schema.AllOf...) {
		if err := s.flatten(part, flat, unions); err != nil {
			return err
		}
	}
	return nil
}

// resolve tries the branches of the first union until one produces a value.
func (s *sampler) resolve(flat []*jsonschema.Schema, unions []union, depth int) (v value, err error) {
	if len(unions) == 0 {
		return s.plain(flat, depth)
	}
	u := unions[0]
	for _, branch := range u.branches {
		// Clip the slice, so that branches don't share appended elements.
		schemas, rest := slices.Clip(flat), slices.Clip(unions[1:])
		if err = s.flatten(branch, &schemas, &rest); err == nil {
			v, err = s.resolve(schemas, rest, depth)
		}
		if err == nil && u.exclusive && s.countValid(u.branches, v.plain) != 1 {
			err = errNoMatch
		}
		if err == nil || s.checkLimits() != nil {
			break
		}
	}
	return v, err
}

func (s *sampler) countValid(schemas []*jsonschema.Schema, v any) int {
	n := 0
	for _, schema := range schemas {
		if s.valid(v, schema) {
			n++
		}
	}
	return n
}

// plain generates a value for schemas whose references and unions are resolved.
func (s *sampler) plain(schemas []*jsonschema.Schema, depth int) (v value, err error) {
	if constants := constantsOf(schemas); constants != nil {
		i := slices.IndexFunc(constants, func(c any) bool { return s.valid(c, schemas...) })
		if i < 0 {
			return v, errors.New("none of the values in its enum or const satisfies its other rules")
		}
		s.values += safeschema.CountValues(constants[i])
		return s.scalar(constants[i])
	}
	err = errors.New("it requires a value of two types at once")
	for _, t := range typesOf(schemas, s.onlyRequired(depth)) {
		if v, err = s.ofType(t, schemas, depth); err == nil || s.checkLimits() != nil {
			break
		}
	}
	return v, err
}

// constantsOf returns the values of the first const, or else of the first enum.
func constantsOf(schemas []*jsonschema.Schema) (constants []any) {
	for _, schema := range schemas {
		if schema.Const != nil {
			return []any{*schema.Const}
		}
		if schema.Enum != nil && constants == nil {
			constants = schema.Enum.Values
		}
	}
	return constants
}

var (
	richTypes = []string{"object", "array", "string", "number", "integer", "boolean", "null"}
	leanTypes = []string{"string", "number", "integer", "boolean", "null", "array", "object"}
)

// typesOf returns the types that all schemas allow. Without a "type", other keywords decide.
func typesOf(schemas []*jsonschema.Schema, lean bool) []string {
	types, named := richTypes, false
	if lean {
		types = leanTypes
	}
	for _, schema := range schemas {
		if schema.Types == nil {
			continue
		}
		named = true
		allowed := schema.Types.ToStrings()
		if slices.Contains(allowed, "number") {
			allowed = append(allowed, "integer")
		}
		types = slices.DeleteFunc(slices.Clone(types), func(t string) bool { return !slices.Contains(allowed, t) })
	}
	if named {
		return types
	}
	for _, schema := range schemas {
		switch s := schema; {
		case s.Properties != nil || s.AdditionalProperties != nil || len(s.Required) > 0 || s.MinProperties != nil:
			return []string{"object"}
		case s.Items != nil || s.Items2020 != nil || s.PrefixItems != nil || s.MinItems != nil || s.UniqueItems:
			return []string{"array"}
		case s.Minimum != nil || s.Maximum != nil || s.ExclusiveMinimum != nil || s.ExclusiveMaximum != nil || s.MultipleOf != nil:
			return []string{"number"}
		}
	}
	return []string{"string"}
}

func (s *sampler) ofType(t string, schemas []*jsonschema.Schema, depth int) (value, error) {
	switch t {
	case "object":
		return s.object(schemas, depth)
	case "array":
		return s.array(schemas, depth)
	case "string":
		return s.string(schemas)
	case "number", "integer":
		return s.number(schemas, t == "integer")
	case "boolean":
		return s.scalar(true)
	}
	return s.scalar(nil)
}

func (s *sampler) scalar(v any) (value, error) {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return value{}, err
	}
	return value{v, text}, s.spend(len(text))
}

// object generates the required properties, in the order of "required", and near
// the top also the optional ones.
func (s *sampler) object(schemas []*jsonschema.Schema, depth int) (value, error) {
	defer func(property string) { s.property = property }(s.property)
	var required, optional []string
	minimum, maximum := 0, maxValues
	for _, schema := range schemas {
		required = append(required, schema.Required...)
		optional = slices.AppendSeq(optional, maps.Keys(schema.Properties))
		minimum, maximum = max(minimum, intOr(schema.MinProperties, 0)), min(maximum, intOr(schema.MaxProperties, maximum))
	}
	slices.Sort(optional)
	if s.budget.Steps -= len(required) + len(optional); s.onlyRequired(depth) {
		optional = nil
	}
	members, text := map[string]any{}, []byte{'{'}
	add := func(name string) error {
		if _, ok := members[name]; ok {
			return nil
		}
		s.property = name
		v, err := s.generate(s.propertySchemas(schemas, name), depth+1)
		if err != nil {
			return err
		}
		if len(members) > 0 {
			text = append(text, ',')
		}
		members[name] = v.plain
		text, _ = jsontext.AppendQuote(text, name)
		text = append(append(text, ':'), v.json...)
		return s.spend(len(name))
	}
	for _, name := range required {
		if err := add(name); err != nil {
			return value{}, err
		}
	}
	for _, name := range optional {
		if len(members) < maximum {
			_ = add(name) // omitted if it fails
		}
	}
	for i := 1; len(members) < minimum; i++ { // the limits end the loop
		if err := add("extra" + strconv.Itoa(i)); err != nil {
			return value{}, err
		}
	}
	return value{members, append(text, '}')}, s.spend(0)
}

func (s *sampler) propertySchemas(schemas []*jsonschema.Schema, name string) []*jsonschema.Schema {
	var applicable []*jsonschema.Schema
	for _, schema := range schemas {
		s.budget.Steps--
		sub := schema.Properties[name]
		if sub == nil {
			sub, _ = schema.AdditionalProperties.(*jsonschema.Schema)
		}
		applicable = append(applicable, sub)
	}
	return applicable
}

// array generates the required items, or one if none is required.
func (s *sampler) array(schemas []*jsonschema.Schema, depth int) (value, error) {
	required, wanted, maximum := 0, 0, maxValues+1
	for _, schema := range schemas {
		prefix, rest := itemSchemas(schema)
		wanted = max(wanted, len(prefix))
		if rest != nil {
			wanted = max(wanted, 1)
		}
		required, maximum = max(required, intOr(schema.MinItems, 0)), min(maximum, intOr(schema.MaxItems, maximum))
	}
	if s.onlyRequired(depth) {
		wanted = 0
	}
	items, text := []any{}, []byte{'['}
	for i := range min(max(required, wanted), maximum) {
		var applicable []*jsonschema.Schema
		for _, schema := range schemas {
			prefix, rest := itemSchemas(schema)
			if i < len(prefix) {
				rest = prefix[i]
			}
			applicable = append(applicable, rest)
		}
		item, err := s.generate(applicable, depth+1)
		if err != nil && i >= required {
			break
		}
		if err != nil {
			return value{}, err
		}
		if i > 0 {
			text = append(text, ',')
		}
		items, text = append(items, item.plain), append(text, item.json...)
	}
	return value{items, append(text, ']')}, s.spend(0)
}

// itemSchemas returns the schemas of the first items and the one of the rest.
// Before draft 2020-12 the former were an array in "items".
func itemSchemas(schema *jsonschema.Schema) (prefix []*jsonschema.Schema, rest *jsonschema.Schema) {
	switch items := schema.Items.(type) {
	case *jsonschema.Schema:
		return nil, items
	case []*jsonschema.Schema:
		rest, _ = schema.AdditionalItems.(*jsonschema.Schema)
		return items, rest
	}
	return schema.PrefixItems, schema.Items2020
}

func intOr(n *int, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return *n
}
