package api

import (
	"context"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/accounts"
	"turnpike/internal/conversations"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/gateway/responses"
	"turnpike/internal/visibility"
	"turnpike/internal/web"
)

// responseVisibility returns the stored responses and conversations that the principal can see.
// Tokens without metadata share nothing, because such tokens may belong to different people.
func (c *Call) responseVisibility() visibility.Filter {
	f := c.Principal.Visibility()
	if t := c.Principal.Token; t != nil {
		if text := strings.TrimSpace(string(t.Metadata)); text == "" || text == "{}" || text == "null" {
			f.Reader = c.Principal.KeyID + "/" + t.ID
		}
	}
	return f
}

func (c *Call) responseOwner() conversations.Owner {
	return conversations.Owner{Tenant: c.Principal.Tenant, Project: c.Project, Reader: c.responseVisibility().Reader}
}

// responseState is what a response continues, and whether it is stored.
type responseState struct {
	request *responses.Request
	own     []jsontext.Value // the items of the request, to be stored
	kept    time.Duration    // how long it is stored; 0 if it isn't
}

const (
	fullWarning = "The response is not stored: the workspace has used up its space for stored responses."
	offWarning  = "The response is not stored: storing is turned off for this workspace."
)

// prepareState decides whether the response is stored, and adds the items that the request refers to.
func (c *Call) prepareState(r *responses.Request) (*responseState, error) {
	s := &responseState{request: r}
	if !r.MayBeStored() && !r.NeedsState() {
		return s, nil
	}
	ctx, cancel := web.WithStorageTimeout(c.Context())
	defer cancel()
	if r.MayBeStored() {
		var err error
		if s.kept, err = c.reserveStorage(ctx); err != nil {
			return nil, err
		}
	}
	if r.ConversationID() != "" && s.kept == 0 {
		return nil, fault.Invalid("conversation", "A conversation needs a stored response. Omit store, or omit conversation and send the items in input.")
	}
	if r.Background() && s.kept == 0 {
		return nil, fault.Invalid("background", "A background response must be stored, and this workspace stores none at the moment. Omit background.")
	}
	if r.NeedsState() {
		if err := c.resume(ctx, r); err != nil {
			return nil, err
		}
	}
	if r.Stored = s.kept > 0; !r.Stored {
		return s, nil
	}
	var err error
	s.own, err = r.OwnItems()
	return s, err
}

// reserveStorage returns how long the response is kept, or warns that it isn't.
func (c *Call) reserveStorage(ctx context.Context) (kept time.Duration, err error) {
	kept, err = c.s.Projects.ResponseRetention(ctx, c.Principal.WorkspaceID)
	if err != nil {
		return 0, err
	}
	if kept == 0 {
		c.warn(offWarning)
		return 0, nil
	}
	room, err := c.s.Conversations.HasRoom(ctx, c.Principal.WorkspaceID)
	if err != nil {
		return 0, err
	}
	if !room {
		c.warn(fullWarning)
		return 0, nil
	}
	return kept, nil
}

// resume adds stored items to the request.
func (c *Call) resume(ctx context.Context, r *responses.Request) error {
	store, f := c.s.Conversations, c.responseVisibility()
	var earlier []jsontext.Value
	switch {
	case r.PreviousResponseID() != "":
		chain, err := store.Chain(ctx, c.s.DB, f, r.PreviousResponseID())
		if err != nil {
			return paramFault(err, "previous_response_id")
		}
		if last := chain[len(chain)-1]; last.Status != "" {
			return fault.Invalid("previous_response_id", "previous_response_id is %s. Continue it when it has ended.", last.Status)
		}
		if id := chain[len(chain)-1].ConversationID; id != "" {
			return fault.Invalid("previous_response_id", "previous_response_id belongs to a conversation. Continue it with conversation %q instead.", id)
		}
		if earlier, err = conversations.Items(chain); err != nil {
			return err
		}
	case r.ConversationID() != "":
		conversation, err := store.GetConversation(ctx, c.s.DB, f, r.ConversationID())
		if err != nil {
			return paramFault(err, "conversation")
		}
		if earlier, err = store.AllItems(ctx, c.s.DB, conversation); err != nil {
			return err
		}
	}
	var found map[string]jsontext.Value
	if ids := r.References(); len(ids) > 0 {
		var err error
		if found, err = store.Find(ctx, c.s.DB, f, ids); err != nil {
			return err
		}
	}
	return r.Resume(earlier, found)
}

// paramFault names the field that a missing record was requested by.
func paramFault(err error, param string) error {
	f, ok := fault.As(err)
	if !ok || f.Code != fault.NotFound {
		return err
	}
	named := *f
	named.Param = param
	return &named
}

// saveResponse queues the response, which is durable when the returned write is. It is nil if the response
// isn't stored.
func (c *Call) saveResponse(s *responseState, response []byte) (*db.Pending, error) {
	r := s.request
	return c.save(s.kept, &conversations.Response{ID: r.ResponseID(), PreviousID: r.PreviousResponseID(), ConversationID: r.ConversationID(),
		Content: conversations.Content{Input: s.own, Response: response}})
}

// save queues a response or a message that is kept for a time, or returns nil if there is none.
func (c *Call) save(kept time.Duration, r *conversations.Response) (*db.Pending, error) {
	if kept == 0 || r.Response == nil {
		return nil, nil
	}
	r.Owner, r.CreatedAt = c.responseOwner(), c.s.Now()
	r.ExpiresAt = r.CreatedAt.Add(kept)
	return c.s.Conversations.Save(r)
}

// waitUntilStored waits for a write that saveResponse has queued.
func waitUntilStored(p *db.Pending) error {
	if p == nil {
		return nil
	}
	return p.WaitFor(web.StorageTimeout)
}

type inputTokens struct {
	Object      string `json:"object"`
	InputTokens int64  `json:"input_tokens"`
}

// countInputTokens counts the input of a request without calling a model.
func countInputTokens(c *Call) error {
	body, err := c.readModelBody()
	if err != nil {
		return err
	}
	r, err := c.decodeResponse(body)
	if err != nil {
		return err
	}
	if r.NeedsState() {
		ctx, cancel := web.WithStorageTimeout(c.Context())
		defer cancel()
		if err := c.resume(ctx, r); err != nil {
			return err
		}
	}
	n, err := c.s.Gateway.CountResponseTokens(c.Context(), c.modelCall(body), r)
	if err != nil {
		return r.TranslateFault(err)
	}
	return c.sendJSON(inputTokens{"response.input_tokens", n})
}

func getResponse(c *Call) error {
	q := c.query("include", "include[]", "stream", "starting_after", "include_obfuscation")
	stream := q.boolean("stream")
	after := q.number("starting_after", 0, 1<<53, beforeAll)
	if q.err != nil {
		return q.err
	}
	if stream {
		return c.watchResponse(c.id(), after)
	}
	return read(func(ctx context.Context, c *Call) (any, error) {
		r, err := c.s.Conversations.Get(ctx, c.s.DB, c.responseVisibility(), c.id())
		if err != nil {
			return nil, err
		}
		return r.Response, nil
	})(c)
}

func deleteResponse(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	if err := c.s.Conversations.Delete(ctx, tx, c.responseVisibility(), c.id()); err != nil {
		return nil, err
	}
	return deletedObject{c.id(), "response", true}, nil
}

// itemParams are the parameters of lists of items. include adds nothing: items have all their fields.
var itemParams = append([]string{"include", "include[]"}, pageParams...)

func listInputItems(ctx context.Context, c *Call) (any, error) {
	q := c.query(itemParams...)
	page := q.page("")
	if q.err != nil {
		return nil, q.err
	}
	f := c.responseVisibility()
	r, err := c.s.Conversations.Get(ctx, c.s.DB, f, c.id())
	if err != nil {
		return nil, err
	}
	var items []jsontext.Value
	if r.PreviousID != "" {
		chain, err := c.s.Conversations.Chain(ctx, c.s.DB, f, r.PreviousID)
		if err != nil {
			return nil, err
		}
		if items, err = conversations.Items(chain); err != nil {
			return nil, err
		}
	}
	items, more, err := conversations.Page(append(items, r.InputItems()...), page)
	return itemListOf(items, more), err
}

type itemList struct {
	Object  string           `json:"object"`
	Data    []jsontext.Value `json:"data"`
	FirstID *string          `json:"first_id"`
	LastID  *string          `json:"last_id"`
	HasMore bool             `json:"has_more"`
}

func itemListOf(items []jsontext.Value, more bool) itemList {
	l := itemList{Object: "list", Data: items, HasMore: more}
	if n := len(items); n > 0 {
		l.FirstID, l.LastID = new(conversations.ItemID(items[0])), new(conversations.ItemID(items[n-1]))
	}
	if items == nil {
		l.Data = []jsontext.Value{}
	}
	return l
}

type conversationObject struct {
	ID        string            `json:"id"`
	Object    string            `json:"object"`
	CreatedAt int64             `json:"created_at"`
	Metadata  map[string]string `json:"metadata"`
}

func renderConversation(c *conversations.Conversation) conversationObject {
	o := conversationObject{c.ID, "conversation", c.CreatedAt.Unix(), c.Metadata}
	if o.Metadata == nil {
		o.Metadata = map[string]string{}
	}
	return o
}

type newConversation struct {
	Metadata map[string]string `json:"metadata"`
	Items    []jsontext.Value  `json:"items"`
}

// maxNewItems is OpenAI's limit of items in one request.
const maxNewItems = 20

func createConversation(ctx context.Context, c *Call, tx *db.Tx, in newConversation) (any, error) {
	kept, err := c.conversationRetention(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkConversation(in.Metadata, in.Items); err != nil {
		return nil, err
	}
	if err := c.createProjectIn(ctx, tx); err != nil {
		return nil, err
	}
	now := c.s.Now()
	conversation := &conversations.Conversation{Owner: c.responseOwner(), Metadata: in.Metadata, CreatedAt: now, ExpiresAt: now.Add(kept)}
	if _, err := c.s.Conversations.CreateConversation(ctx, tx, conversation, in.Items); err != nil {
		return nil, err
	}
	return renderConversation(conversation), nil
}

func (c *Call) conversationRetention(ctx context.Context) (time.Duration, error) {
	kept, err := c.s.Projects.ResponseRetention(ctx, c.Principal.WorkspaceID)
	if err == nil && kept == 0 {
		return 0, fault.New(fault.InvalidState, "This workspace stores no responses and conversations. An owner or admin can change that in the dashboard's settings.")
	}
	if err != nil {
		return 0, err
	}
	room, err := c.s.Conversations.HasRoom(ctx, c.Principal.WorkspaceID)
	if err == nil && !room {
		return 0, fault.New(fault.LimitReached, "The workspace has used up its space for stored responses and conversations. Delete some, or wait until they expire.")
	}
	return kept, err
}

func getConversation(ctx context.Context, c *Call) (any, error) {
	found, err := c.s.Conversations.GetConversation(ctx, c.s.DB, c.responseVisibility(), c.id())
	return show(found, err, renderConversation)
}

func updateConversation(ctx context.Context, c *Call, tx *db.Tx, in struct {
	Metadata map[string]string `json:"metadata"`
}) (any, error) {
	if err := checkConversation(in.Metadata, nil); err != nil {
		return nil, err
	}
	found, err := c.s.Conversations.GetConversationLocked(ctx, tx, c.responseVisibility(), c.id())
	if err != nil {
		return nil, err
	}
	found.Metadata = in.Metadata
	return show(found, c.s.Conversations.SetMetadata(ctx, tx, found), renderConversation)
}

func deleteConversation(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	if err := c.s.Conversations.DeleteConversation(ctx, tx, c.responseVisibility(), c.id()); err != nil {
		return nil, err
	}
	return deletedObject{c.id(), "conversation.deleted", true}, nil
}

func listConversationItems(ctx context.Context, c *Call) (any, error) {
	q := c.query(itemParams...)
	page := q.page("")
	if q.err != nil {
		return nil, q.err
	}
	found, err := c.s.Conversations.GetConversation(ctx, c.s.DB, c.responseVisibility(), c.id())
	if err != nil {
		return nil, err
	}
	items, more, err := c.s.Conversations.ListItems(ctx, c.s.DB, found, page)
	return itemListOf(items, more), err
}

func addConversationItems(ctx context.Context, c *Call, tx *db.Tx, in struct {
	Items []jsontext.Value `json:"items"`
}) (any, error) {
	if len(in.Items) == 0 {
		return nil, fault.Missing("items", "items is required: an array of 1 to %d items.", maxNewItems)
	}
	if err := checkConversation(nil, in.Items); err != nil {
		return nil, err
	}
	kept, err := c.conversationRetention(ctx)
	if err != nil {
		return nil, err
	}
	found, err := c.s.Conversations.GetConversationLocked(ctx, tx, c.responseVisibility(), c.id())
	if err != nil {
		return nil, err
	}
	found.ExpiresAt = c.s.Now().Add(kept)
	added, err := c.s.Conversations.AddItems(ctx, tx, found, in.Items)
	return itemListOf(added, false), err
}

func getConversationItem(ctx context.Context, c *Call) (any, error) {
	found, err := c.s.Conversations.GetConversation(ctx, c.s.DB, c.responseVisibility(), c.id())
	if err != nil {
		return nil, err
	}
	return c.s.Conversations.GetItem(ctx, c.s.DB, found, c.R.PathValue("item"))
}

func deleteConversationItem(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	found, err := c.s.Conversations.GetConversationLocked(ctx, tx, c.responseVisibility(), c.id())
	if err != nil {
		return nil, err
	}
	return show(found, c.s.Conversations.DeleteItem(ctx, tx, found, c.R.PathValue("item")), renderConversation)
}

func checkConversation(metadata map[string]string, items []jsontext.Value) error {
	if len(items) > maxNewItems {
		return fault.Invalid("items", "items may have at most %d items.", maxNewItems)
	}
	if err := responses.CheckItems(items, "items"); err != nil {
		return err
	}
	return accounts.CheckMetadata(metadata)
}
