package responses

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
)

// conversationID is the value of "conversation": the ID, or an object with it.
type conversationID = openai.StringOr[struct {
	ID string `json:"id"`
}]

func (in *request) checkInput() error {
	switch in.Input.Kind {
	case jsontext.KindString, jsontext.KindBeginArray:
		return nil
	case jsontext.KindInvalid, jsontext.KindNull:
		if in.PreviousResponseID != nil || in.conversation() != "" {
			in.Input = input{Kind: jsontext.KindBeginArray}
			return nil
		}
		return fault.Missing("input", "input is required: a string or an array of items.")
	}
	return fault.Invalid("input", "input must be a string or an array of items.")
}

func (in *request) checkState() error {
	switch {
	case !in.Conversation.IsNull() && in.conversation() == "":
		return fault.Invalid("conversation", "conversation must be an ID, or an object with an id.")
	case in.Background && in.Store != nil && !*in.Store:
		return fault.Invalid("store", "A background response must be stored. Omit store, or omit background.")
	case in.PreviousResponseID != nil && in.conversation() != "":
		return fault.Invalid("conversation", "conversation and previous_response_id exclude each other. Send one of them.")
	}
	return nil
}

func (in *request) conversation() string {
	if in.Conversation.Kind == jsontext.KindString {
		return in.Conversation.Text
	}
	return in.Conversation.Value.ID
}

// PreviousResponseID returns the response that this one continues, or "".
func (r *Request) PreviousResponseID() string { return value(r.in.PreviousResponseID) }

// ConversationID returns the conversation that this response belongs to, or "".
func (r *Request) ConversationID() string { return r.in.conversation() }

// MayBeStored reports whether the client lets the response be stored, which is the default.
func (r *Request) MayBeStored() bool { return r.in.Store == nil || *r.in.Store }

// NeedsState reports whether the request refers to stored items.
func (r *Request) NeedsState() bool {
	return r.PreviousResponseID() != "" || r.ConversationID() != "" || len(r.References()) > 0
}

// References returns the IDs of the items that the input refers to.
func (r *Request) References() (ids []string) {
	for i := range r.in.Input.Value {
		if item := &r.in.Input.Value[i]; item.isReference() {
			ids = append(ids, item.ID)
		}
	}
	return ids
}

func (i *item) isReference() bool {
	return i.Type == "item_reference" || i.Type == "" && i.Role == "" && i.ID != ""
}

// CheckItems checks that values are items: objects with a type, or messages.
func CheckItems(items []jsontext.Value, at string) error {
	for i, text := range items {
		var read struct {
			Type      string         `json:"type"`
			Role      string         `json:"role"`
			Container jsontext.Value `json:"container_id"`
		}
		at := at + "[" + strconv.Itoa(i) + "]"
		if err := json.Unmarshal(text, &read); err != nil || text.Kind() != jsontext.KindBeginObject {
			return fault.Invalid(at, "%s must be an item: an object such as a message.", at)
		}
		if read.Type == "" && read.Role == "" {
			return fault.Missing(at+".type", "%s.type is required, such as message.", at)
		}
		if read.Type == "item_reference" {
			return fault.Invalid(at, "%s is an item_reference. Send the item itself.", at)
		}
		if isSet(read.Container) { // only responses may bring containers into a conversation
			return fault.Invalid(at+".container_id", "%s.container_id names a container in the account at a provider. Leave the item out.", at)
		}
	}
	return nil
}

// Items returns the input as items, which are parts of the body. References are left as they are.
func (r *Request) Items() (items []jsontext.Value, err error) {
	if r.in.Input.Kind == jsontext.KindString {
		item, err := json.Marshal(map[string]any{"type": "message", "role": "user", "content": []any{map[string]string{"type": "input_text", "text": r.in.Input.Text}}}, json.Deterministic(true))
		return []jsontext.Value{item}, err
	}
	for item := range jsonbody.NewIndex(r.body).Root().Find("input").Elements() {
		items = append(items, slices.Clip(item.Text()))
	}
	return items, nil
}

// OwnItems returns the input as items, without those that Resume put before it.
func (r *Request) OwnItems() ([]jsontext.Value, error) {
	if r.resumed == nil {
		return r.Items()
	}
	var all []jsontext.Value
	err := json.Unmarshal(r.resumed, &all)
	return all[min(len(r.earlier), len(all)):], err
}

// Resume puts earlier items before the input and replaces references by the items found.
func (r *Request) Resume(earlier []jsontext.Value, found map[string]jsontext.Value) error {
	own, err := r.Items()
	if err != nil {
		return err
	}
	all := append([]jsontext.Value{}, earlier...)
	for i, given := range own {
		if r.in.Input.Kind == jsontext.KindBeginArray && r.in.Input.Value[i].isReference() {
			id := r.in.Input.Value[i].ID
			stored, ok := found[id]
			if !ok {
				at := "input[" + strconv.Itoa(i) + "]"
				return fault.Param(fault.NotFound, at, "%s refers to the item %.80q, which is not stored. Send the item itself.", at, id)
			}
			given = stored
		}
		all = append(all, given)
	}
	r.earlier = earlier
	if r.resumed, err = json.Marshal(all); err != nil {
		return err
	}
	r.in.Input = input{Kind: jsontext.KindBeginArray}
	return json.Unmarshal(r.resumed, &r.in.Input.Value)
}

// Input returns the input with the state that Resume added, or nil if it is the client's.
func (r *Request) Input() jsontext.Value { return r.resumed }

// itemPath returns where an item of the input comes from.
func (r *Request) itemPath(i int) string {
	if i < len(r.earlier) {
		if r.ConversationID() != "" {
			return "conversation"
		}
		return "previous_response_id"
	}
	return "input[" + strconv.Itoa(i-len(r.earlier)) + "]"
}

// ResponseID returns the ID of the response.
func (r *Request) ResponseID() string { return "resp_" + r.suffix("") }

// ResponseFields returns the fields of the response that Turnpike sets, whichever provider created it.
func (r *Request) ResponseFields() []providers.Field {
	quote := func(text string) jsontext.Value {
		quoted, _ := jsontext.AppendQuote(nil, text)
		return quoted
	}
	fields := []providers.Field{
		{Name: "id", Value: quote(r.ResponseID())},
		{Name: "store", Value: jsontext.Value(strconv.FormatBool(r.Stored))},
	}
	if r.Background() {
		fields = append(fields, providers.Field{Name: "background", Value: jsontext.Value("true")},
			providers.Field{Name: "created_at", Value: jsontext.Value(strconv.FormatInt(r.CreatedAt.Unix(), 10))})
	}
	if id := r.PreviousResponseID(); id != "" {
		fields = append(fields, providers.Field{Name: "previous_response_id", Value: quote(id)})
	}
	if id := r.ConversationID(); id != "" {
		fields = append(fields, providers.Field{Name: "conversation", Value: jsontext.Value(`{"id":` + string(quote(id)) + `}`)})
	}
	return fields
}
