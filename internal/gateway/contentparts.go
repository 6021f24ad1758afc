package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"turnpike/internal/audio/duration"
	"turnpike/internal/budget"
	"turnpike/internal/jsonbody"
)

const (
	// maxInputImageTokens is the maximum for one image. Providers count by size, which a URL
	// doesn't reveal, up to a maximum: 48,169 tokens for OpenAI's small models.
	maxInputImageTokens = 50_000
	// maxContentDepth is more than any API nests: a message has a tool result with a document of blocks.
	maxContentDepth = 12
)

// contentKind is how a content part, a message or an item counts toward the bound of the input.
type contentKind int8

const (
	unmeasured contentKind = iota // up to the whole context window
	textual                       // at most a token per byte
	nested                        // content and output have parts
	document                      // source may be text or have parts
	image
	audio
)

// contentKinds has the types of all dialects whose size is known. A provider may read any number of
// tokens from what another type refers to or contains, such as a file or a video.
var contentKinds = func() map[string]contentKind {
	kinds := map[string]contentKind{"document": document, "input_audio": audio}
	for kind, list := range map[contentKind]string{
		textual: `text input_text output_text summary_text reasoning_text refusal reasoning thinking redacted_thinking compaction compaction_trigger
			tool_use server_tool_use mcp_tool_use function_call custom_tool_call tool_search_call tool_search_output additional_tools
			local_shell_call local_shell_call_output shell_call shell_call_output apply_patch_call apply_patch_call_output computer_call web_search_call
			mcp_list_tools mcp_call mcp_approval_request mcp_approval_response`,
		nested: "message function_call_output custom_tool_call_output computer_call_output tool_result search_result",
		image:  "image image_url input_image computer_screenshot",
	} {
		for name := range strings.FieldsSeq(list) {
			kinds[name] = kind
		}
	}
	return kinds
}()

// messageMembers are objects and arrays in messages that are text: clients return what a response had.
var messageMembers = jsonbody.NewNames(`tool_calls function_call reasoning reasoning_details thinking_blocks annotations citations search_results
	cache_control extra_content provider_specific_fields metadata logprobs additional_kwargs response_metadata`, nil)

// contentNames are the members that the walk reads.
var contentNames = jsonbody.NewNames("type role content output source image image_url input_audio data url format", nil)

// contentSize is what a walk over the content of a request finds. All dialects share the walk.
type contentSize struct {
	tokens     int64    // correction to a bound that counts bytes as tokens; negative if media data isn't text
	unmeasured bool     // the context window is the bound
	audio      [][]byte // files in base64
	needs      *needs
}

// addContent adds the content in members of the body to the bound of its input.
func (r *request) addContent(members ...string) {
	for name, value := range r.fields().Members() {
		if slices.Contains(members, string(name)) {
			r.addParts(value)
		}
	}
}

// addParts adds a content to the bound of the input: a string, an object, or an array of them.
func (r *request) addParts(content jsonbody.Value) {
	c := contentSize{needs: &r.needs}
	c.add(content, 0)
	r.maxInput += c.tokens
	r.fillsWindow = r.fillsWindow || c.unmeasured
	r.audioFiles = append(r.audioFiles, c.audio...)
}

func (c *contentSize) add(content jsonbody.Value, depth int) {
	switch kind := content.Kind(); {
	case kind == 0:
	case depth > maxContentDepth:
		c.unmeasured = true
	case kind == '[':
		for element := range content.Elements() {
			c.add(element, depth+1)
		}
	case kind == '{':
		c.addNode(content, depth)
	}
}

// contentNode has what the walk reads of a part, a message or an item.
type contentNode struct {
	kind                            string
	message                         bool // it has a role
	other                           bool // it has an object or array that isn't known to be text
	content, output, source, im, au jsonbody.Value
}

func (c *contentSize) readNode(node jsonbody.Value) (n contentNode) {
	for name, value := range node.Members() {
		switch string(name) {
		case "type":
			n.kind = string(value.String())
		case "role":
			n.message = true
		case "content":
			n.content = value
		case "output":
			n.output = value
		case "source":
			n.source = value
		case "image", "image_url":
			n.im = value
		case "input_audio":
			n.au = value
		default:
			_, text := messageMembers[string(name)]
			n.other = n.other || !text && (value.Kind() == '{' || value.Kind() == '[')
			// A provider that ignores case reads another content than the walk.
			c.unmeasured = c.unmeasured || contentNames.Respells(name)
		}
	}
	if n.kind == "" && n.message {
		n.kind = "message"
	}
	return n
}

func (c *contentSize) addNode(node jsonbody.Value, depth int) {
	n := c.readNode(node)
	if n.im.Exists() || strings.Contains(n.kind, "image") {
		c.needs.vision = true
	}
	switch contentKinds[n.kind] {
	case textual:
		c.unmeasured = c.unmeasured || n.im.Exists() || n.au.Exists() || n.source.Exists()
	case nested:
		c.unmeasured = c.unmeasured || n.kind == "message" && n.other
		c.add(n.content, depth+1)
		c.add(n.output, depth+1)
	case document:
		c.addDocument(n.source, depth)
	case image:
		c.addImage(n)
	case audio:
		c.addAudio(n.au)
	default:
		c.unmeasured = true
	}
}

func (c *contentSize) addDocument(source jsonbody.Value, depth int) {
	switch s := c.readNode(source); s.kind {
	case "text":
	case "content":
		c.add(s.content, depth+1)
	default: // the pages of a PDF can have any amount of text
		c.unmeasured = true
	}
}

// addImage counts the maximum for an image instead of its data.
func (c *contentSize) addImage(n contentNode) {
	c.tokens += maxInputImageTokens
	if n.im.Exists() {
		url := string(stringOrMember(n.im, "url"))
		switch {
		case strings.HasPrefix(url, "data:image/"):
			c.tokens -= int64(len(url))
		case !strings.HasPrefix(url, "https://") && !strings.HasPrefix(url, "http://"):
			c.unmeasured = true // it may be something else
		}
	}
	if !n.source.Exists() {
		return
	}
	switch string(stringOrMember(n.source, "type")) {
	case "base64":
		c.tokens -= int64(len(stringOrMember(n.source, "data")))
	case "url", "file":
	default:
		c.unmeasured = true
	}
}

// addAudio keeps a file for measureAudio. Some providers accept a URL in place of the data.
func (c *contentSize) addAudio(value jsonbody.Value) {
	c.needs.audio = true
	data := stringOrMember(value, "data")
	if value.Kind() != '{' || bytes.IndexByte(data, ':') >= 0 {
		c.unmeasured = true
		return
	}
	c.audio = append(c.audio, data)
}

// measureAudio counts the duration of audio files instead of their data. The size of a file says
// little: silence can be compressed to almost nothing.
func (r *request) measureAudio(ctx context.Context) error {
	files := r.audioFiles
	r.audioFiles = nil
	for _, data := range files {
		var length float64
		err := budget.Of(ctx).Decode(ctx, int64(len(data)), func() error {
			file := make([]byte, base64.StdEncoding.DecodedLen(len(data)))
			n, err := base64.StdEncoding.Decode(file, data)
			if err == nil {
				if d, err := duration.Measure(ctx, file[:n]); err == nil {
					length = d.Seconds()
				}
			}
			return ctx.Err()
		})
		if err != nil {
			return err
		}
		if length > 0 && length < maxUnknownInput {
			r.maxInput += int64(length*maxAudioTokensPerSecond) + 1 - int64(len(data))
		} else {
			r.fillsWindow = true
		}
	}
	return nil
}

// maxUnknownInput is the bound for models with an unknown context window: the largest in the catalog.
const maxUnknownInput = 2_097_152

// maxInputAt returns the upper bound of the input tokens at a target.
func (r *request) maxInputAt(t target) int64 {
	switch {
	case !r.fillsWindow && len(r.audioFiles) == 0:
		return r.maxInput
	case t.offer.ContextWindow > 0:
		return max(r.maxInput, t.offer.ContextWindow)
	}
	return max(r.maxInput, maxUnknownInput)
}

// stringOrMember returns a string, or that in a member of an object.
func stringOrMember(value jsonbody.Value, name string) []byte {
	if member := value.Find(name); member.Exists() {
		return member.String()
	}
	return value.String()
}
