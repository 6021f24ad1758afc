package contract

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"strings"
)

const formType = "multipart/form-data"

// formProblems checks the names in a form that was accepted. What the values
// may be is the server's own to check: in a form all of them are texts.
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
		name := strings.TrimSuffix(part.FormName(), "[]") // as some clients write lists
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
