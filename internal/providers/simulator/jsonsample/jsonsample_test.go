package jsonsample

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

// validate compiles the schema separately, without the work limits of the package.
func validate(schema string, document []byte) error {
	s, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		return err
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", s); err != nil {
		return err
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return err
	}
	return compiled.Validate(v)
}

func TestDocumentIsValidForItsSchema(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ schema, want string }{ // want "": any valid document
		"anything":            {`{}`, `"simulated"`},
		"true":                {`true`, ``},
		"flat object":         {`{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city","days"],"additionalProperties":false}`, `{"city":"simulated city","days":1}`},
		"optional properties": {`{"type":"object","properties":{"b":{"type":"null"},"a":{"type":"boolean"}}}`, `{"a":true,"b":null}`},
		"order of required":   {`{"type":"object","properties":{"b":{"type":"null"},"a":{"type":"boolean"}},"required":["b","a"]}`, `{"b":null,"a":true}`},
		"undeclared required": {`{"type":"object","required":["x"]}`, ``},
		"additional schema":   {`{"type":"object","required":["x"],"additionalProperties":{"type":"integer"}}`, `{"x":1}`},
		"min properties":      {`{"type":"object","minProperties":3,"additionalProperties":{"type":"number"}}`, ``},
		"max properties":      {`{"type":"object","properties":{"a":{},"b":{},"c":{}},"required":["c"],"maxProperties":2}`, ``},
		"property names":      {`{"type":"object","properties":{"a":{}},"propertyNames":{"maxLength":1}}`, ``},
		"dependent":           {`{"type":"object","properties":{"a":{}},"dependentRequired":{"a":["b"]}}`, ``},
		"array":               {`{"type":"array","items":{"type":"integer"}}`, `[1]`},
		"min items":           {`{"type":"array","items":{"type":"integer"},"minItems":3}`, `[1,1,1]`},
		"max items":           {`{"type":"array","items":{"type":"integer"},"maxItems":0}`, `[]`},
		"tuple":               {`{"type":"array","prefixItems":[{"type":"string"},{"type":"null"}],"items":false}`, `["simulated",null]`},
		"tuple and rest":      {`{"type":"array","prefixItems":[{"type":"null"}],"items":{"type":"boolean"},"minItems":3}`, ``},
		"draft 7 tuple":       {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"type":"null"}],"additionalItems":{"type":"integer"},"minItems":2}`, `[null,1]`},
		"unique items":        {`{"type":"array","items":{"type":"integer"},"uniqueItems":true}`, `[1]`},
		"enum":                {`{"enum":["red","green"]}`, `"red"`},
		"enum and type":       {`{"type":"integer","enum":["red",3]}`, `3`},
		"const object":        {`{"const":{"a":[1,null]}}`, `{"a":[1,null]}`},
		"const null":          {`{"const":null}`, `null`},
		"type list":           {`{"type":["null","string"]}`, `"simulated"`},
		"any of":              {`{"anyOf":[{"type":"integer","minimum":4},{"type":"null"}]}`, `4`},
		"any of, first fails": {`{"type":"string","anyOf":[{"type":"integer"},{"minLength":3}]}`, ``},
		"one of overlapping":  {`{"oneOf":[{"type":"number"},{"type":"integer"},{"type":"string"}]}`, ``},
		"one of objects":      {`{"oneOf":[{"type":"object","properties":{"k":{"const":"a"}},"required":["k"]},{"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]}`, `{"k":"a"}`},
		"two unions":          {`{"anyOf":[{"minimum":1},{"minimum":2}],"oneOf":[{"multipleOf":3},{"multipleOf":5}],"type":"integer"}`, ``},
		"all of":              {`{"allOf":[{"type":"object","properties":{"a":{"type":"integer","minimum":3}},"required":["a"]},{"properties":{"a":{"maximum":4},"b":{"type":"null"}},"required":["b"]}]}`, `{"a":3,"b":null}`},
		"not":                 {`{"type":"string","not":{"minLength":100}}`, ``},
		"defs":                {`{"$ref":"#/$defs/p","$defs":{"p":{"type":"object","properties":{"x":{"$ref":"#/$defs/n"}},"required":["x"]},"n":{"type":"number","exclusiveMinimum":0,"maximum":0.5}}}`, ``},
		"definitions":         {`{"type":"array","items":{"$ref":"#/definitions/a~1b"},"minItems":1,"definitions":{"a/b":{"type":"integer"}}}`, `[1]`},
		"list":                {`{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}`, ``},
		"tree":                {`{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["children"]}}}`, ``},
		"expression":          {`{"$ref":"#/$defs/e","$defs":{"e":{"anyOf":[{"$ref":"#/$defs/op"},{"$ref":"#/$defs/lit"}]},"op":{"type":"object","properties":{"l":{"$ref":"#/$defs/e"},"r":{"$ref":"#/$defs/e"}},"required":["l","r"],"additionalProperties":false},"lit":{"type":"object","properties":{"v":{"type":"number"}},"required":["v"],"additionalProperties":false}}}`, ``},
		"optional recursion":  {`{"type":"object","properties":{"a":{"$ref":"#"},"b":{"$ref":"#"},"c":{"$ref":"#"}}}`, ``},
		"nullable recursion":  {`{"type":["object","null"],"properties":{"a":{"$ref":"#"}},"required":["a"]}`, ``},
		"lengths":             {`{"type":"string","minLength":30,"maxLength":30}`, ``},
		"empty string":        {`{"type":"string","maxLength":0}`, `""`},
		"pattern":             {`{"type":"string","pattern":"^[A-Z]{3}-\\d{4}(-x)?$"}`, `"AAA-0000"`},
		"pattern with length": {`{"type":"string","pattern":"^[a-z]+$","minLength":12}`, ``},
		"pattern inside":      {`{"type":"string","pattern":"q","minLength":4,"maxLength":6}`, `"qxxx"`},
		"pattern choice":      {`{"type":"string","pattern":"^(foo|bar)_.+$"}`, ``},
		"slug":                {`{"type":"string","pattern":"^[a-z0-9]+(?:-[a-z0-9]+)*$"}`, ``},
		"format":              {`{"type":"string","format":"date-time"}`, `"2025-01-01T12:00:00Z"`},
		"format and length":   {`{"type":"string","format":"email","maxLength":16}`, `"user@example.com"`},
		"minimum":             {`{"type":"integer","minimum":10}`, `10`},
		"exclusive minimum":   {`{"type":"integer","exclusiveMinimum":10}`, `11`},
		"maximum":             {`{"type":"number","maximum":-2.5}`, ``},
		"exclusive maximum":   {`{"type":"integer","exclusiveMaximum":-3}`, `-4`},
		"narrow":              {`{"type":"number","exclusiveMinimum":0.1,"exclusiveMaximum":0.2}`, `0.15`},
		"multiple":            {`{"type":"integer","multipleOf":7,"minimum":50}`, `56`},
		"decimal multiple":    {`{"type":"number","multipleOf":0.01,"minimum":2.005,"maximum":2.015}`, `2.01`},
		"fraction of integer": {`{"type":"integer","multipleOf":1.5,"minimum":1}`, `3`},
		"implied object":      {`{"properties":{"a":{"type":"null"}}}`, `{"a":null}`},
		"implied number":      {`{"minimum":3}`, `3`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Value([]byte(test.schema))
			if err != nil {
				t.Fatal(err)
			}
			if err := validate(test.schema, got); err != nil {
				t.Errorf("%s: %v", got, err)
			}
			if test.want != "" && string(got) != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if second, _ := Value([]byte(test.schema)); !bytes.Equal(second, got) {
				t.Errorf("second document is %s, want the first again: %s", second, got)
			}
		})
	}
}

func TestObjectIsAlwaysAnObject(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{}`: `{}`,
		`{"properties":{"a":{"type":"integer"}}}`: `{"a":1}`,
		`{"type":["string","object"]}`:            `{}`,
		`{"type":"object","$ref":"#/$defs/a","$defs":{"a":{"required":["x"],"properties":{"x":{"type":"null"}}}}}`: `{"x":null}`,
	} {
		got, err := Object([]byte(schema))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v; want %s", schema, got, err, want)
		}
	}
}

func TestErrorExplainsWhyNoDocumentWasGenerated(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`false`:                            "does not allow",
		`[]`:                               "got array, want boolean or object",
		`{`:                                "can't be decoded",
		`{"type":"objekt"}`:                `at /type: value must be one of`,
		`{"properties":{"a":1}}`:           `at /properties/a: got number`,
		`{"multipleOf":0}`:                 `at /multipleOf`,
		`{"pattern":"(?=x)"}`:              "is not valid regex",
		`{"$ref":"#/$defs/no"}`:            `"#/$defs/no" not found`,
		`{"$ref":"https://example.com/s"}`: "can refer only to itself",
		`{"$dynamicRef":"#a","$defs":{"a":{"$dynamicAnchor":"a"}}}`: "use $ref",
		`{"$ref":"#"}`:                                                       "no string",
		`{"minimum":1e999999999}`:                                            "can't be decoded",
		`{"type":"integer","minimum":2,"maximum":1}`:                         "no number",
		`{"type":"string","allOf":[{"type":"null"}]}`:                        "two types",
		`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`: "requires itself",
		`{"enum":[1,2],"type":"string"}`:                                     "none of the values",
		`{"type":"array","contains":{"const":7}}`:                            "no valid document",
		`{"type":"array","minItems":1000000000,"items":{"type":"null"}}`:     "more than 5000 values",
		`{"type":"string","minLength":1000000000}`:                           "131072 bytes",
		`{"type":"object","minProperties":1000000000}`:                       "more than 5000 values",
	} {
		got, err := Value([]byte(schema))
		if err == nil {
			t.Errorf("%s: got %s, want an error", schema, got)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %q, want one with %q", schema, err, want)
		}
	}
}

// hostile schemas are small and have a huge naive expansion.
func hostile() map[string]string {
	doubling := func(keyword string) string {
		var b strings.Builder
		b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
		for i := range 60 {
			fmt.Fprintf(&b, `"d%d":{"%s":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, keyword, i+1, i+1)
		}
		b.WriteString(`"d60":{"type":"integer"}}}`)
		return b.String()
	}
	wide := `{"type":"object","properties":{`
	for i := range 100 {
		wide += fmt.Sprintf(`"p%d":{"$ref":"#"},`, i)
	}
	wide += `"z":{}}}`
	return map[string]string{
		"doubling allOf":   doubling("allOf"),
		"doubling anyOf":   doubling("anyOf"),
		"doubling oneOf":   doubling("oneOf"),
		"doubling tuple":   strings.ReplaceAll(doubling("prefixItems"), `"prefixItems"`, `"minItems":2,"prefixItems"`),
		"wide recursion":   wide,
		"wide required":    strings.Replace(wide, `{"type":"object"`, `{"type":["object","null"],"minProperties":50`, 1),
		"nested minItems":  `{"type":"array","minItems":1000,"items":{"type":"array","minItems":1000,"items":{"type":"array","minItems":1000}}}`,
		"big const, often": `{"type":"array","minItems":4000,"items":{"const":[` + strings.Repeat(`"aaaaaaaaaaaaaaaaaaaa",`, 4000) + `1]}}`,
		"enum that fails":  `{"type":"string","enum":[` + strings.Repeat(`1,`, 19000) + `1]}`,
		"deep":             strings.Repeat(`{"items":`, 5000) + `{}` + strings.Repeat(`}`, 5000),
		"deep not":         strings.Repeat(`{"not":`, 90) + `{}` + strings.Repeat(`}`, 90),
		"pattern size":     `{"pattern":"((a{30}){30}){30}"}`,
		"pattern empties":  `{"pattern":"^((\\b*)*)*$","minLength":100000}`,
		"pattern long":     `{"pattern":"^(a|b|ab)*c$","minLength":100000}`,
		"many patterns":    `{"type":"object","minProperties":4000,"patternProperties":{"a.*b":{},"b.*c":{},"c.*d":{},"x.*y.*z":{}}}`,
		"unique":           `{"type":"array","uniqueItems":true,"minItems":4900,"items":{"type":"integer"}}`,
		"many unions":      `{"allOf":[` + strings.Repeat(`{"anyOf":[{"type":"integer"},{"type":"string"},{"type":"null"}]},`, 300) + `{"not":{}}]}`,
	}
}

// TestHostileSchemaTakesBoundedWork counts allocations, because steps cover
// only the package's own work. It isn't parallel, because other tests'
// allocations would count.
func TestHostileSchemaTakesBoundedWork(t *testing.T) {
	const maxAllocations = 1_000_000 // the most expensive schema takes half of it
	for name, schema := range hostile() {
		var (
			got []byte
			err error
		)
		allocations := testing.AllocsPerRun(1, func() { got, err = Value([]byte(schema)) })
		t.Logf("%-18s %9.0f allocations, %6d bytes, %v", name, allocations, len(got), err)
		if err == nil && !json.Valid(got) {
			t.Errorf("%s: got %.100s, want JSON", name, got)
		}
		if len(got) > 4*maxBytes {
			t.Errorf("%s: got %d bytes, want at most %d", name, len(got), 4*maxBytes)
		}
		if allocations > maxAllocations {
			t.Errorf("%s: got %.0f allocations, want at most %d", name, allocations, maxAllocations)
		}
	}
}

// anySchema draws schemas from the keywords that models are given.
func anySchema(depth int) *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		kinds := []string{"string", "integer", "number", "boolean", "null", "enum", "ref"}
		if depth > 0 {
			kinds = append(kinds, "object", "array", "anyOf", "oneOf", "allOf")
		}
		s := map[string]any{}
		child := func(label string) any { return anySchema(depth-1).Draw(t, label) }
		maybe := func(key string, v any) {
			if rapid.Bool().Draw(t, "has "+key) {
				s[key] = v
			}
		}
		small := rapid.IntRange(0, 6)
		switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
		case "string":
			s["type"] = kind
			maybe("minLength", small.Draw(t, "min"))
			maybe("maxLength", 6+small.Draw(t, "max"))
			maybe("pattern", rapid.SampledFrom([]string{"^[a-z]*$", "x", "^.{2,8}$", "^a?b+c*$"}).Draw(t, "pattern"))
		case "integer", "number":
			s["type"] = kind
			maybe("minimum", rapid.IntRange(-20, 20).Draw(t, "low"))
			maybe("maximum", rapid.IntRange(20, 60).Draw(t, "high"))
			maybe("multipleOf", rapid.SampledFrom([]any{1, 2, 5, 0.5}).Draw(t, "multiple"))
		case "enum":
			s["enum"] = []any{"a", 1, nil}
		case "ref":
			s["$ref"] = rapid.SampledFrom([]string{"#", "#/$defs/leaf", "#/$defs/node"}).Draw(t, "ref")
		case "object":
			s["type"] = kind
			s["properties"] = map[string]any{"a": child("a"), "b": child("b")}
			s["required"] = rapid.SampledFrom([][]string{{}, {"a"}, {"a", "b"}, {"c"}}).Draw(t, "required")
			maybe("additionalProperties", rapid.Bool().Draw(t, "additional"))
		case "array":
			s["type"] = kind
			s["items"] = child("items")
			maybe("minItems", small.Draw(t, "min"))
			maybe("uniqueItems", true)
		case "boolean", "null":
			s["type"] = kind
		default:
			s[kind] = []any{child("first"), child("second")}
		}
		return s
	})
}

func TestEveryDocumentIsValid(t *testing.T) {
	t.Parallel()
	generated := 0
	rapid.Check(t, func(t *rapid.T) {
		s := anySchema(3).Draw(t, "schema")
		s["$defs"] = map[string]any{
			"leaf": map[string]any{"type": "integer"},
			"node": map[string]any{"type": "object", "properties": map[string]any{"next": map[string]any{"$ref": "#/$defs/node"}}},
		}
		schema, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Value(schema)
		if err != nil {
			return
		}
		generated++
		if err := validate(string(schema), got); err != nil && !strings.Contains(err.Error(), "compile") {
			t.Fatalf("%s\nis not valid for %s:\n%v", got, schema, err)
		}
	})
	if generated == 0 {
		t.Error("got no document at all, want some")
	}
}

func FuzzValue(f *testing.F) {
	for _, schema := range hostile() {
		f.Add([]byte(schema))
	}
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"enum":[1]}}}`))
	f.Fuzz(func(t *testing.T, schema []byte) {
		if got, err := Value(schema); err == nil && !json.Valid(got) {
			t.Errorf("got %s, want JSON", got)
		}
	})
}
