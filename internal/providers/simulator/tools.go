package simulator

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/providers/simulator/jsonsample"
)

// call is a tool call of the response.
type call struct {
	name      string
	arguments string
	ends      []int // of the arguments' tokens
}

// newCall returns a call with arguments that are valid for the tool's schema.
func (r *request) newCall(name string) (call, error) {
	i := r.ToolIndex(name)
	c := call{name: name, arguments: "{}"}
	if p := r.Tools[i].Function.Parameters; p.Kind() == jsontext.KindBeginObject {
		arguments, err := jsonsample.Object(p)
		if err != nil {
			param := fmt.Sprintf("tools[%d].function.parameters", i)
			return c, fault.Invalid(param, "Cannot simulate %s: %v.", param, err)
		}
		c.arguments = string(arguments)
	}
	return c, nil
}
