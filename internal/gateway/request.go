package gateway

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
)

// request is what the gateway reads of a request. The body is forwarded unchanged.
type request struct {
	operation    string // its name in telemetry
	endpoint     string // whose fields the body has: see pricedFields
	body         []byte
	indexed      *jsonbody.Index // of the body, or of an earlier one: see index
	models       []string        // in the order of preference
	stream       bool
	includeUsage bool
	choices      int64
	maxOutput    int64 // output tokens per choice that the client allows; 0 if unset
	needs        needs
	user         *openai.UserNames               // that the body has; nil if they were not read yet
	priorityTier bool                            // it asks for a tier with another price
	ignored      []string                        // fields without effect, whatever the provider
	maxInput     int64                           // upper bound of the input tokens that can be measured: see maxInputAt
	fillsWindow  bool                            // the input may take up the context window
	audioFiles   [][]byte                        // of the input, in base64, until they are measured
	predicted    int64                           // output tokens of a prediction, which cost something even if they are wrong
	maxUnits     catalog.Units                   // upper bound of generated media
	store        func(ctx context.Context) error // stores the output before it is charged; may be nil
	messages     *messageFields                  // of a request in Anthropic's format; nil otherwise
	hourCache    bool                            // it may write to a cache that costs more
	webSearch    bool                            // a chat completion asks for a web search
	begun        bool                            // the client has a part of the response, so that no other provider can take over
	asEvents     bool                            // speech is sent in events
	hosted       *hostedTools                    // nil if no tool has a price
	audio        *audioInput                     // of a transcription; nil otherwise
	session      *session                        // for the choice among providers; nil chooses at random
	routes       map[string]*Route               // of the workspace, by name; nil if the request names none
	searches     int64                           // the usual number that a rerank model counts; 0 for other kinds
	runsLater    bool                            // it isn't known yet which target will run, so the limits of all apply
}

type needs struct{ tools, vision, audio, schema bool }

const (
	maxModels = 16 // in a fallback list
	// maxModelName applies where a provider accepts any name: it ends up in the log and in a header.
	maxModelName = 256
)

// CheckMessages rejects other spellings of the fields of chat messages, which must be valid
// JSON. path is where the messages are in the client's body.
func CheckMessages(path string, messages []byte) error {
	return jsonbody.CheckNames(path, messages, openai.ChatNames["messages"])
}

func readChat(body []byte) (*request, error) {
	in, err := openai.ReadRouting(body)
	if err != nil {
		return nil, err
	}
	r := &request{
		operation: "chat", endpoint: "chat", body: body, choices: in.Choices, stream: in.Stream, includeUsage: in.IncludeUsage,
		maxOutput: min(in.MaxOutput, maxTokenCount), priorityTier: in.PriorityService,
		needs: needs{tools: in.HasTools, schema: in.HasSchema}, webSearch: in.WebSearch, user: &in.User, predicted: in.Predicted,
	}
	if r.models, err = modelList(&in.Model, in.Models); err != nil {
		return nil, err
	}
	r.maxInput = maxTextTokens(body, r.needs)
	if bytes.Count(body, []byte("[")) > 1 { // messages and their parts are arrays
		r.addContent("messages")
	}
	return r, nil
}

// index returns the places of the values in the body.
func (r *request) index() *jsonbody.Index {
	r.indexed = r.indexed.Of(r.body)
	return r.indexed
}

// fields returns the body as an object.
func (r *request) fields() jsonbody.Value { return r.index().Root() }

// withEstimatedInput adds the input tokens if the provider didn't count them.
func (r *request) withEstimatedInput(u providers.Usage, t target) providers.Usage {
	if u.InputTokens == 0 {
		u.InputTokens = estimateTokens(r.maxInputAt(t))
	}
	if r.audio != nil && u.Milliseconds == 0 {
		u.Milliseconds = r.audio.milliseconds
	}
	return u
}

func modelList(model *string, models []string) ([]string, error) {
	if len(models) > maxModels {
		return nil, fault.Invalid("models", "models must have at most %d entries.", maxModels)
	}
	list := make([]string, 0, 1+len(models))
	if model != nil && *model != "" {
		if !isName(*model) {
			return nil, fault.Invalid("model", "model must have at most %d bytes and no control characters.", maxModelName)
		}
		list = append(list, *model)
	}
	for _, m := range models {
		if m == "" || !isName(m) {
			return nil, fault.Invalid("models", "models must contain names of models, each with at most %d bytes and no control characters.", maxModelName)
		}
		if !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	if len(list) == 0 {
		return nil, fault.Missing("model", "model must be the name of a model. List the available models with GET /v1/models.")
	}
	return list, nil
}

// noteRequested notes in the log which model an invalid request names. It returns the error that makes it invalid.
func (c Call) noteRequested(err error) error {
	d := jsontext.NewDecoder(bytes.NewReader(c.Body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if !enterMember(d, "model") || d.PeekKind() != '"' {
		return err
	}
	token, unreadable := d.ReadToken()
	if unreadable != nil {
		return err
	}
	if name := token.String(); isName(name) && utf8.ValidString(name) {
		c.Record.Note(func(e *audit.Entry) { e.Requested = name })
	}
	return err
}

func isName(s string) bool {
	return len(s) <= maxModelName && !strings.ContainsFunc(s, unicode.IsControl)
}

const (
	// Providers add their own text around the conversation and around tools.
	frameTokens = 64
	toolTokens  = 1024
)

// maxTextTokens returns an upper bound of a body's tokens: no tokenizer produces more tokens
// than there are bytes of text.
func maxTextTokens(body []byte, n needs) int64 {
	tokens := int64(len(body)) + frameTokens
	if n.tools {
		tokens += toolTokens
	}
	return tokens
}

// estimateTokens returns the usual number of tokens of a text.
func estimateTokens(bytes int64) int64 { return (bytes + 3) / 4 }
