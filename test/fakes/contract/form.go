package contract

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/url"
	"slices"
	"strings"
)

// formTypes are the content types of forms.
var formTypes = []string{multipartType, urlencodedType}

const (
	multipartType  = "multipart/form-data"
	urlencodedType = "application/x-www-form-urlencoded"
)

// formFields returns the field names of a form, or nil if the content isn't one.
func formFields(contentType string, body []byte) ([]string, error) {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, nil // the server decides about that
	}
	switch kind {
	case urlencodedType:
		values, err := url.ParseQuery(string(body))
		return slices.Collect(maps.Keys(values)), err
	case multipartType:
		fields := []string{}
		for parts := multipart.NewReader(bytes.NewReader(body), params["boundary"]); ; {
			part, err := parts.NextPart()
			if err == io.EOF {
				return fields, nil
			}
			if err != nil {
				return nil, err
			}
			fields = append(fields, strings.TrimSuffix(part.FormName(), "[]")) // some clients write arrays this way
		}
	}
	return nil, nil
}

// formProblems checks the field names of an accepted form. It doesn't check values,
// because all of them are strings in a form.
func (op *operation) formProblems(fields []string) []string {
	if op.form == nil {
		return []string{"a form was accepted, and the document has none"}
	}
	schema := target(op.form)
	var out []string
	for _, name := range fields {
		if schema.Properties[name] == nil && schema.AdditionalProperties == false {
			out = append(out, fmt.Sprintf("the form was accepted, but the document does not have its field %q", name))
		}
	}
	for _, name := range schema.Required {
		if !slices.Contains(fields, name) {
			out = append(out, fmt.Sprintf("the form was accepted, but the document wants the field %q", name))
		}
	}
	return out
}
