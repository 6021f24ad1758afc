package responses

import (
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

// textSettings is "text" in a request and in its response.
type textSettings struct {
	Format    *textFormat `json:"format"`
	Verbosity *string     `json:"verbosity,omitzero"`
}

type textFormat struct {
	Type        string         `json:"type"`
	Name        string         `json:"name,omitzero"`
	Description *string        `json:"description,omitzero"`
	Schema      jsontext.Value `json:"schema,omitzero"`
	Strict      *bool          `json:"strict,omitzero"`
}

type responseFormat struct {
	Type       string      `json:"type"`
	JSONSchema *jsonSchema `json:"json_schema,omitzero"`
}

type jsonSchema struct {
	Name        string         `json:"name"`
	Description *string        `json:"description,omitzero"`
	Schema      jsontext.Value `json:"schema,omitzero"`
	Strict      *bool          `json:"strict,omitzero"`
}

// translateText translates "text". The schema is one object deeper in chat completions.
func (in *request) translateText(out *chat) error {
	if in.Text == nil {
		return nil
	}
	out.Verbosity = in.Text.Verbosity
	f := in.Text.Format
	if f == nil {
		return nil
	}
	switch f.Type {
	case "text": // the default, which not every server accepts by name
	case "json_object":
		out.ResponseFormat = &responseFormat{Type: f.Type}
	case "json_schema":
		if f.Name == "" {
			return fault.Missing("text.format.name", "text.format.name is required with json_schema: a name for the schema.")
		}
		if f.Schema.Kind() != jsontext.KindBeginObject {
			return fault.Missing("text.format.schema", "text.format.schema is required with json_schema: a JSON Schema as an object.")
		}
		out.ResponseFormat = &responseFormat{Type: f.Type, JSONSchema: &jsonSchema{
			Name: f.Name, Description: f.Description, Schema: f.Schema, Strict: f.Strict,
		}}
	case "":
		return fault.Missing("text.format.type", "text.format.type is required: text, json_object or json_schema.")
	default:
		return fault.Invalid("text.format.type", "text.format.type must be text, json_object or json_schema.")
	}
	return nil
}
