package events_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"turnpike/internal/api"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
)

// The API reference and the catalogue are kept in two places, and must agree.

func TestReferenceListsAllEventTypes(t *testing.T) {
	t.Parallel()
	type schema struct {
		Ref        string `json:"$ref"`
		Enum       []string
		AnyOf      []schema
		AllOf      []schema
		Properties struct{ Data *schema }
	}
	var doc struct {
		Webhooks map[string]struct {
			Post struct {
				RequestBody struct {
					Content map[string]struct{ Schema schema }
				}
			}
		}
		Components struct{ Schemas map[string]schema }
	}
	if err := json.Unmarshal(api.ExactOpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, typ := range events.Types {
		names = append(names, string(typ))
	}
	same := func(what string, got, want []string) {
		t.Helper()
		if got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
			t.Errorf("%s are\n%v, want\n%v", what, got, want)
		}
	}
	same("the document's webhooks", slices.Collect(maps.Keys(doc.Webhooks)), names)
	same("the event names", doc.Components.Schemas["EventName"].Enum, names)
	var listed, sent []string
	for _, s := range doc.Components.Schemas["Event"].Properties.Data.AnyOf {
		listed = append(listed, s.Ref)
	}
	for _, w := range doc.Webhooks {
		for _, s := range w.Post.RequestBody.Content["application/json"].Schema.AllOf {
			if s.Properties.Data != nil && !slices.Contains(sent, s.Properties.Data.Ref) {
				sent = append(sent, s.Properties.Data.Ref)
			}
		}
	}
	same("the objects of events", listed, sent)
	same("the subscriptions", doc.Components.Schemas["EventPattern"].Enum, append(slices.Collect(maps.Keys(resources)), names...))
}

func TestSamplesMatchTheReference(t *testing.T) {
	t.Parallel()
	const at = "https://turnpike.invalid/openapi.json"
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(api.ExactOpenAPI()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	if err := compiler.AddResource(at, root); err != nil {
		t.Fatal(err)
	}
	schemas := map[events.Type]*jsonschema.Schema{}
	for _, typ := range events.Types {
		schema, err := compiler.Compile(at + "#/webhooks/" + string(typ) + "/post/requestBody/content/application~1json/schema")
		if err != nil {
			t.Fatal(err)
		}
		schemas[typ] = schema
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, typ := range events.Types {
			err := d.Write(t.Context(), func(tx *db.Tx) error {
				e, err := newPublisher().PublishSample(t.Context(), tx, acme, typ)
				if err != nil {
					return err
				}
				body, err := jsonschema.UnmarshalJSON(bytes.NewReader(e.Body))
				if err == nil {
					err = schemas[typ].Validate(body)
				}
				if e.Type != typ || !strings.Contains(string(e.Body), `"sample":true`) {
					t.Errorf("the sample of %s is %s", typ, e.Body)
				}
				return err
			})
			if err != nil {
				t.Errorf("%s: %v", typ, err)
			}
		}
	})
}
