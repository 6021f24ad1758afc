package openai

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/catalog"
	"turnpike/internal/providers/wire"
)

// toolCounter counts the calls of hosted tools that OpenAI charges for.
type toolCounter struct {
	calls      catalog.ToolCalls
	containers []string
}

// add counts an item of a response. Of the actions of a web search only searches are charged, and
// the calls of a code interpreter by container.
func (c *toolCounter) add(value jsontext.Value) {
	var item struct {
		Type   string `json:"type"`
		Action struct {
			Type string `json:"type"`
		} `json:"action"`
		ContainerID string `json:"container_id"`
	}
	if value.Kind() != '{' || json.Unmarshal(value, &item, wire.Lenient) != nil && item.Type == "" {
		return
	}
	switch item.Type {
	case "web_search_call":
		if item.Action.Type == "" || item.Action.Type == "search" {
			c.calls[catalog.WebSearch]++
		}
	case "file_search_call":
		c.calls[catalog.FileSearch]++
	case "image_generation_call":
		c.calls[catalog.ImageGeneration]++
	case "code_interpreter_call":
		if !slices.Contains(c.containers, item.ContainerID) {
			c.containers = append(c.containers, item.ContainerID)
			c.calls[catalog.CodeInterpreter]++
		}
	}
}

// countToolCalls counts the calls in the output of a response.
func countToolCalls(output jsontext.Value) catalog.ToolCalls {
	if !bytes.Contains(output, []byte("_call")) { // most have none
		return catalog.ToolCalls{}
	}
	var items []jsontext.Value
	_ = json.Unmarshal(output, &items, wire.Lenient) // the caller has checked that it is an array
	var c toolCounter
	for _, item := range items {
		c.add(item)
	}
	return c.calls
}
