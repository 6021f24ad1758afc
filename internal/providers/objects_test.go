package providers_test

import (
	"strings"
	"testing"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

// N12: each field that names an object in the operator's account, in each dialect.
func TestFieldsThatNameObjectsOfTheProvider(t *testing.T) {
	for at, body := range map[string]string{
		"tools[0].vector_store_ids[0]":                     `{"tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]}`,
		"tools[1].container":                               `{"tools":[{"type":"x"},{"type":"code_interpreter","container":"cntr_1"}]}`,
		"tools[0].container.file_ids[0]":                   `{"tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["file_1"]}}]}`,
		"tools[0].environment.container_id":                `{"tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"cntr_1"}}]}`,
		"tools[0].environment.skills[0].skill_id":          `{"tools":[{"type":"shell","environment":{"skills":[{"type":"skill_reference","skill_id":"s"}]}}]}`,
		"tools[0].input_image_mask.file_id":                `{"tools":[{"type":"image_generation","input_image_mask":{"file_id":"file_1"}}]}`,
		"input[0].tools[0].vector_store_ids[0]":            `{"input":[{"type":"additional_tools","tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]}]}`,
		"input[0].content[0].file_id":                      `{"input":[{"role":"user","content":[{"type":"input_file","file_id":"file_1"}]}]}`,
		"input[0].content[1].file_id":                      `{"input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","file_id":"file_1"}]}]}`,
		"input[0].output.file_id":                          `{"input":[{"type":"computer_call_output","output":{"type":"computer_screenshot","file_id":"file_1"}}]}`,
		"input[0].output[0].file_id":                       `{"input":[{"type":"function_call_output","output":[{"type":"input_file","file_id":"file_1"}]}]}`,
		"input[0].container_id":                            `{"input":[{"type":"code_interpreter_call","container_id":"cntr_1"}]}`,
		"prompt.id":                                        `{"prompt":{"id":"pmpt_1"}}`,
		"prompt.variables.doc.file_id":                     `{"prompt":{"variables":{"doc":{"type":"input_file","file_id":"file_1"}}}}`,
		"messages[0].content[0].file.file_id":              `{"messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"file_1"}}]}]}`,
		"container":                                        `{"container":"container_1"}`,
		"container.id":                                     `{"container":{"id":"container_1"}}`,
		"messages[0].content[0].file_id":                   `{"messages":[{"role":"user","content":[{"type":"container_upload","file_id":"file_1"}]}]}`,
		"messages[0].content[0].source.file_id":            `{"messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"file_1"}}]}]}`,
		"messages[1].content[0].source.file_id":            `{"messages":[{"content":"a"},{"content":[{"type":"image","source":{"type":"file","\u0066ile_id":"file_1"}}]}]}`,
		"messages[0].content[0].content[0].source.file_id": `{"messages":[{"content":[{"type":"tool_result","content":[{"type":"image","source":{"type":"file","file_id":"file_1"}}]}]}]}`,
	} {
		err := providers.CheckObjects(jsonbody.NewIndex([]byte(body)))
		if f, ok := fault.As(err); !ok || f.Code != fault.InvalidParameter || f.Param != at || !strings.Contains(f.Message, "private: true") {
			t.Errorf("%s: got %v, want invalid_parameter about %s", body, err, at)
		}
	}
	for _, body := range []string{
		`{}`, `[]`, `{"a`, `{"container":null,"prompt":"Say file_id","messages":[{"role":"user","content":"file_id container_id"}]}`,
		`{"tools":[{"type":"code_interpreter","container":{"type":"auto"}},{"type":"file_search","vector_store_ids":[]}]}`,
		`{"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"file_id":{"type":"string","default":"f"},"container":{"default":"c"}}}}}]}`,
		`{"messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"file_id":"f","container":"c"}}]}]}`,
		`{"messages":[{"role":"tool","tool_call_id":"call_1","content":"{\"file_id\":\"f\"}"}],"user":"container"}`,
		`{"input":[{"role":"assistant","content":[{"type":"output_text","annotations":[{"type":"file_citation","file_id":"file_1"}]}]}],"previous_response_id":"resp_1"}`,
	} {
		if err := providers.CheckObjects(jsonbody.NewIndex([]byte(body))); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	// Containers in stored items come from responses.
	if err := providers.CheckStateObjects([]byte(`[{"type":"code_interpreter_call","container_id":"cntr_1"}]`)); err != nil {
		t.Error(err)
	}
	if f, ok := fault.As(providers.CheckStateObjects([]byte(`[{"content":"a"},{"role":"user","content":[{"type":"input_file","file_id":"file_1"}]}]`))); !ok || f.Param != "input[1].content[0].file_id" {
		t.Errorf("got %v, want an error about a stored item", f)
	}
}
