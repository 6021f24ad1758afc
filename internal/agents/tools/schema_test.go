package tools

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/safeschema"
)

// quick fails a test whose work is not bounded. It is generous: a machine may
// be busy and the race detector on.
func quick(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s does not end", what)
	}
}

func TestInvalidSchemasAreRejected(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, []byte(`{"type":"string"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var asked bool
	url := serve(t, func(http.ResponseWriter, *http.Request) { asked = true })
	many := strings.Repeat(`{},`, 20_000) + `{}`
	for what, c := range map[string]struct{ schema, says string }{
		"no JSON":           {`{`, "valid JSON"},
		"two values":        {`{} {}`, "more than one"},
		"a list":            {`[]`, "not an object"},
		"true":              {`true`, "not an object"},
		"a wrong type":      {`{"type":"strng"}`, "at /type"},
		"a wrong keyword":   {`{"properties":[]}`, "at /properties"},
		"a bad pattern":     {`{"pattern":"("}`, "/pattern"},
		"a lookahead":       {`{"pattern":"(?=a)"}`, "/pattern"},
		"a URL":             {`{"$ref":"` + url + `/s.json"}`, "only to itself"},
		"a public URL":      {`{"$ref":"https://example.com/s.json"}`, "only to itself"},
		"a file":            {`{"$ref":"file://` + file + `"}`, "only to itself"},
		"a path":            {`{"$ref":"` + file + `"}`, "only to itself"},
		"a relative path":   {`{"$ref":"schema.json"}`, "only to itself"},
		"an id and a file":  {`{"$id":"file://` + filepath.Dir(file) + `/","properties":{"a":{"$ref":"schema.json"}}}`, "only to itself"},
		"a metaschema":      {`{"$schema":"` + url + `/meta.json"}`, "only to itself"},
		"a missing place":   {`{"$ref":"#/$defs/a"}`, "$defs/a"},
		"a dynamic ref":     {`{"$dynamicAnchor":"a","properties":{"x":{"$dynamicRef":"#a"}}}`, "not supported"},
		"ten megabytes":     {`{"description":"` + strings.Repeat("a", 10<<20) + `"}`, "65536 bytes"},
		"too deep":          {strings.Repeat(`{"not":`, 100) + `{}` + strings.Repeat(`}`, 100), "64 levels"},
		"too many":          {`{"allOf":[` + many[:60_000-60_000%3-1] + `]}`, "6000 values"},
		"a huge number":     {`{"minimum":1e999999999}`, "number"},
		"a long pattern":    {`{"pattern":"` + strings.Repeat("a", 2000) + `"}`, "/pattern"},
		"a costly pattern":  {`{"pattern":"` + strings.Repeat("a{1000}", 100) + `"}`, "/pattern"},
		"many such":         {`{"allOf":[` + strings.Repeat(`{"pattern":"`+strings.Repeat("a{1000}", 20)+`"},`, 20) + `{}]}`, "pattern"},
		"a nested override": {`{"properties":{"a":{"$id":"http://example.com/x","$ref":"y"}}}`, "only to itself"},
	} {
		quick(t, what, func() {
			err := CheckSchema("output.schema", json.RawMessage(c.schema))
			f, ok := fault.As(err)
			if !ok || f.Code != fault.InvalidParameter || f.Param != "output.schema" || !strings.Contains(f.Message, c.says) || len(f.Message) > 2500 {
				t.Errorf("%s: %v, want %q", what, err, c.says)
			}
			if err != nil && strings.Contains(err.Error(), "schema.invalid") {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	if asked {
		t.Error("a schema made a request")
	}
}

func TestCommonSchemasWork(t *testing.T) {
	t.Parallel()
	tree := `{"type":"object","properties":{"name":{"type":"string"},"children":{"type":"array","items":{"$ref":"#"}}},"required":["name"],"additionalProperties":false}`
	old := `{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"n":{"type":"integer","minimum":1}},"type":"object","properties":{"n":{"$ref":"#/definitions/n"}}}`
	pattern := `{"type":"object","patternProperties":{"^x-":{"type":"string","pattern":"^[a-z]{1,10}$"}},"additionalProperties":false}`
	either := `{"oneOf":[{"const":1},{"enum":["a",{"b":2}]}]}`
	unique := `{"type":"array","uniqueItems":true,"items":{"type":"integer"}}`
	for _, c := range []struct{ schema, value, says string }{
		{tree, `{"name":"a","children":[{"name":"b","children":[]}]}`, ""},
		{tree, `{"name":"a","children":[{"children":[]}]}`, "at /children/0: missing property 'name'"},
		{tree, `{"name":"a","more":1}`, "additional properties 'more' not allowed"},
		{old, `{"n":1}`, ""},
		{old, `{"n":0}`, "at /n"},
		{old, `{"n":1.5}`, "at /n"},
		{old, `{"n":12345678901234567890123}`, ""},
		{pattern, `{"x-a":"abc"}`, ""},
		{pattern, `{"x-a":"ABC"}`, "at /x-a"},
		{pattern, `{"y":"abc"}`, "'y' not allowed"},
		{either, `1`, ""},
		{either, `{"b":2}`, ""},
		{either, `2`, "value must be"},
		{unique, `[1,2,3]`, ""},
		{unique, `[1,2,1]`, "equal"},
		{`{}`, `{"a":`, "valid JSON"},
		{`{}`, strings.Repeat("[", 200) + strings.Repeat("]", 200), "128 levels"},
		{`{}`, `1e99999999`, "number"},
	} {
		if err := CheckSchema("p", json.RawMessage(c.schema)); err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		err := Validate(json.RawMessage(c.schema), json.RawMessage(c.value))
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s with %.60s: %v, want %q", c.schema, c.value, err, c.says)
		}
	}
}

func TestExpensiveSchemasAreStopped(t *testing.T) {
	t.Parallel()
	// Each place refers twice to the next one.
	doubling := func(keyword, leaf string) string {
		defs := []string{`"p60":` + leaf}
		for i := range 60 {
			defs = append(defs, fmt.Sprintf(`"p%d":{"%s":[{"$ref":"#/$defs/p%d"},{"$ref":"#/$defs/p%d"}]}`, i, keyword, i+1, i+1))
		}
		return `{"$ref":"#/$defs/p0","$defs":{` + strings.Join(defs, ",") + `}}`
	}
	nested := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	wide := `["` + strings.Repeat(`a","`, 50_000) + `a"]`
	for what, c := range map[string]struct{ schema, value, says string }{
		"allOf":            {doubling("allOf", `{"type":"string"}`), `"a"`, "too long"},
		"allOf that fails": {doubling("allOf", `{"type":"string"}`), `1`, "too long"},
		"anyOf that fails": {doubling("anyOf", `{"type":"string"}`), `1`, "too long"},
		"oneOf":            {doubling("oneOf", `{"type":"string"}`), `1`, "too long"},
		"not anyOf":        {`{"not":` + doubling("anyOf", `{"type":"string"}`) + `,"$defs":` + doubling("anyOf", `{"type":"string"}`)[len(`{"$ref":"#/$defs/p0","$defs":`):], `1`, "too long"},
		"old draft":        {`{"$schema":"http://json-schema.org/draft-07/schema#",` + doubling("anyOf", `{"type":"string"}`)[1:], `1`, "too long"},
		"twice each level": {`{"allOf":[{"items":{"$ref":"#"}},{"items":{"$ref":"#"}}]}`, nested, "too long"},
		"a loop":           {`{"$ref":"#"}`, `1`, "cycle"},
		"a longer loop":    {`{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"anyOf":[{"$ref":"#"}]}}}`, `1`, "cycle"},
		"long matching":    {`{"pattern":"` + strings.Repeat("(a?){100}", 10) + `b"}`, `"` + strings.Repeat("a", 200_000) + `"`, "too long"},
		"many enums":       {`{"items":{"enum":[` + strings.Repeat(`"b",`, 1000) + `"c"]}}`, wide, "too long"},
		"mere size":        {`{"items":{"type":"string"}}`, wide, ""},
		"a deep tree":      {`{"items":{"$ref":"#"}}`, nested, ""},
		"much that fails":  {`{"items":{"type":"integer"}}`, wide, "and more"},
	} {
		quick(t, what, func() {
			steps := maxSteps
			if c.says == "too long" && what != "allOf" { // a shorter wait for the same end
				steps = 1 << 14
			}
			err := validate(json.RawMessage(c.schema), json.RawMessage(c.value), &safeschema.Budget{Steps: steps})
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s: %v, want %q", what, err, c.says)
			}
			if err != nil && len(err.Error()) > 2500 {
				t.Errorf("%s: an error of %d bytes", what, len(err.Error()))
			}
		})
	}
}

func TestArgumentErrorsExplainWhatToChange(t *testing.T) {
	t.Parallel()
	tool := Tool{Name: "search", Parameters: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"},"n":{"type":"integer"}},"required":["q"]}`)}
	for arguments, says := range map[string]string{
		`{"q":"x"}`:         "",
		`{"q":"x","n":3}`:   "",
		`{}`:                "missing property 'q'",
		`{"q":"x","n":"3"}`: "at /n: got string, want integer",
		`[]`:                "want object",
		`"q"`:               "want object",
		`{"q":`:             "valid JSON",
		``:                  "valid JSON",
	} {
		err := CheckArguments(tool, json.RawMessage(arguments))
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "search")) {
			t.Errorf("%s: %v, want %q", arguments, err, says)
		}
	}
}

// TestAmbiguousArgumentsAreRejected: what is checked is what whoever gets the text
// reads.
func TestAmbiguousArgumentsAreRejected(t *testing.T) {
	t.Parallel()
	tool := Tool{Name: "pay", Parameters: json.RawMessage(`{"type":"object","properties":{"amount":{"type":"integer","maximum":10}}}`)}
	for arguments, says := range map[string]string{
		`{"amount":5}}`:                "valid JSON",
		`{"amount":5}]`:                "valid JSON",
		`{"amount":5000,"amount":5}`:   "same name twice",
		`{"a":[{"x":1,"x":2}]}`:        "same name twice",
		`{"amount":5} {"amount":5000}`: "more than one",
	} {
		if err := CheckArguments(tool, json.RawMessage(arguments)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", arguments, err)
		}
	}
	if err := CheckArguments(tool, json.RawMessage(` {"amount":5,"a":"\ud800"} `)); err != nil {
		t.Error(err)
	}
}

// TestUnsupportedPatternsAreIgnored: a tool checks its own input, so one of its
// patterns that cannot be read here holds for everything. An answer is
// verified by its schema, which must be read whole.
func TestUnsupportedPatternsAreIgnored(t *testing.T) {
	t.Parallel()
	email := `{"type":"object","properties":{"to":{"type":"string","format":"email","pattern":"^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"},
		"code":{"type":"string","pattern":"^[a-z]+$"}},"patternProperties":{"^(?!to|code)":{"type":"integer"}},"additionalProperties":false}`
	specs, _ := parsed(t, local(), `{"type":"function","name":"f","parameters":`+email+`}`)
	tool := Tool{Name: "f", Parameters: specs[0].Parameters}
	for arguments, fine := range map[string]bool{
		`{"to":"a@b.example"}`: true,
		`{"to":1}`:             false,
		`{"code":"ab"}`:        true,
		`{"code":"1"}`:         false,
		`{"other":1}`:          true,
		`{"other":"x"}`:        true, // which members it is for is not known
	} {
		if err := CheckArguments(tool, json.RawMessage(arguments)); (err == nil) != fine {
			t.Errorf("%s: %v", arguments, err)
		}
	}
	if err := CheckSchema("output.schema", json.RawMessage(email)); err == nil || !strings.Contains(err.Error(), "pattern") {
		t.Errorf("an output's schema: %v", err)
	}
	if err := Validate(json.RawMessage(email), json.RawMessage(`{}`)); err == nil {
		t.Error("an answer was checked by half a schema")
	}
	// What is only too large stays refused.
	if _, _, err := local().Parse(list(t, `{"type":"function","name":"f","parameters":{"type":"object","properties":{"a":{"pattern":"`+strings.Repeat("a", safeschema.MaxPattern+1)+`"}}}}`)); err == nil {
		t.Error("a pattern of any size was taken")
	}
}
