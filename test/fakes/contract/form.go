package contract

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"strings"
)

const formType = "multipart/form-data"

// formProblems checks the field names of an accepted form. It doesn't check values,
// because all of them are strings in a form.
func (op *operation) formProblems(body []byte, boundary string) []string {
	if op.form == nil {
		return []string{"a form was accepted, and the document has none"}
	}
	schema := target(op.form)
	missing := map[string]bool{}
	for _, name := range schema.Required {
		missing[name] = true
	}
	var out []string
	for parts := multipart.NewReader(bytes.NewReader(body), boundary); ; {
		part, err := parts.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return append(out, fmt.Sprintf("the form cannot be read: %v", err))
		}
		name := strings.TrimSuffix(part.FormName(), "[]") // some clients write arrays this way
		delete(missing, name)
		if schema.Properties[name] == nil && schema.AdditionalProperties == false {
			out = append(out, fmt.Sprintf("the form was accepted, but the document does not have its field %q", name))
		}
	}
	for name := range missing {
		out = append(out, fmt.Sprintf("the form was accepted, but the document wants the field %q", name))
	}
	return out
}
