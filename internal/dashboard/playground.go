package dashboard

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/ids"
	"turnpike/internal/people"
)

// playgroundData is what the page shows before its script runs.
type playgroundData struct {
	Allowed    bool   // the person's role may send model requests
	NoProvider bool   // live requests fail, because the server has no provider
	Config     string // of the script, as JSON
	Directives []directive
	Pickers    []modelPicker
}

// modelPicker is a field that chooses a model.
type modelPicker struct {
	Field, Label string
	Kind         catalog.Kind
	Hidden       bool
}

var modelPickers = []modelPicker{
	{"model", "Model", catalog.Chat, false},
	{"second_model", "Second model", catalog.Chat, true},
	{"image_model", "Model", catalog.Image, true},
	{"speech_model", "Model", catalog.Speech, true},
}

// playgroundConfig is what the script needs to know.
type playgroundConfig struct {
	Environment accounts.Environment `json:"environment"`
	Path        string               `json:"path"` // of the page
	Log         string               `json:"log"`  // path of the request log
	Billing     string               `json:"billing"`
	Providers   string               `json:"providers"` // path of the page that says how to add one
	BaseURL     string               `json:"base_url"`
	Model       string               `json:"model,omitempty"` // to start with
	Kind        catalog.Kind         `json:"kind,omitempty"`  // of that model, if it is known
	Logged      *loggedRequest       `json:"logged,omitempty"`
	CreditUSD   float64              `json:"credit_usd,omitempty"` // 0 if it isn't known
}

// loggedRequest is a request of the log that the page is filled with.
type loggedRequest struct {
	ID    string          `json:"id"`
	Path  string          `json:"path"`
	Model string          `json:"model"`
	Body  json.RawMessage `json:"body,omitempty"` // as the client sent it, if it is known
}

// directive is an instruction for the simulator that the page can insert into a message.
type directive struct{ Name, Text, Effect, Tabs string }

const (
	onChat  = "chat"
	onMedia = "images speech"
)

var directives = []directive{
	{"Error 429", "[[sim:error=429]]", "The request fails with 429 rate_limit_exceeded.", onChat + " " + onMedia},
	{"Error 500", "[[sim:error=500]]", "The request fails with 500 internal_error.", onChat + " " + onMedia},
	{"Delay 2s", "[[sim:delay=2s]]", "The response starts after 2 seconds.", onChat + " " + onMedia},
	{"Slow stream", "[[sim:chunk_delay=80ms]]", "The stream waits 80 ms between chunks.", onChat},
	{"Broken stream", "[[sim:cut=5]]", "The stream breaks after 5 chunks.", onChat},
	{"500 tokens", "[[sim:length=500]]", "The response has exactly 500 tokens.", onChat},
	{"Fixed text", "[[sim:text=Hello from the simulator]]", "The response is exactly this text.", onChat},
	{"Tool call", "[[sim:tool=get_weather]]", "The response calls this tool. An example of it is added to the tools.", onChat},
	{"Refusal", "[[sim:refusal]]", "The response is a refusal.", onChat},
	{"Content filter", "[[sim:finish=content_filter]]", "The response ends with the reason content_filter.", onChat},
	{"No capacity", "[[sim:fail=capacity]]", "The request fails because the provider has no capacity.", onMedia},
}

func playgroundPage(req *request) (*view, error) {
	config := playgroundConfig{Environment: req.env, Path: req.to("playground"), Log: req.to("requests"), Billing: req.to("billing"),
		Providers: "/docs/reference/providers", BaseURL: req.s.PublicURL, Model: req.query("model"), CreditUSD: req.dollarRate()}
	is, err := req.isOperator()
	if err != nil {
		return nil, err
	}
	if is {
		config.Providers = serverPath
	}
	if config.Model != "" {
		callable, err := req.s.Gateway.Models(req.Context(), gateway.Owner{Principal: req.principal})
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(callable.Models, func(m *catalog.Model) bool { return m.ID == config.Model }); i >= 0 {
			config.Kind = callable.Models[i].Kind
		}
	}
	if config.Logged, err = req.loggedRequest(req.query("request")); err != nil {
		return nil, err
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	d := playgroundData{Pickers: modelPickers, Allowed: req.principal.Grant.Allows(access.ChatCompletionsCreate), Config: string(text),
		NoProvider: req.env == accounts.Live && len(req.s.Facts().Providers) == 0}
	if req.env == accounts.Test {
		d.Directives = directives
	}
	shown := &view{template: "playground", title: "Playground", data: d}
	if d.Allowed {
		shown.script = "playground.js"
	}
	return shown, nil
}

// loggedRequest returns the request to fill the page with, or nil without an ID.
func (req *request) loggedRequest(id string) (*loggedRequest, error) {
	if id == "" {
		return nil, nil
	}
	if err := req.principal.Require(access.AuditRead); err != nil {
		return nil, err
	}
	if !ids.Valid(ids.Request, id) {
		return nil, fault.NoSuch("request", id)
	}
	e, err := req.s.Archive.Get(req.Context(), req.s.DB, req.principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	logged := &loggedRequest{ID: e.RequestID, Path: e.Path, Model: cmp.Or(e.Model, e.Requested)}
	if req.principal.Grant.Allows(access.ContentRead) {
		logged.Body, err = req.playableBody(id)
	}
	return logged, err
}

// sendJSON responds to a script.
func sendJSON[T any](read func(*request) (T, error)) handler {
	return func(req *request) (*view, error) {
		out, err := read(req)
		status := http.StatusOK
		var body any = out
		if err != nil {
			f := req.Fault(err)
			status = fault.FamilyOf(f.Code).Status
			body = map[string]any{"error": map[string]any{"message": f.Message, "code": f.Code}}
		}
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		req.W.Header().Set("Content-Type", "application/json")
		req.WriteHeader(status)
		_, _ = req.W.Write(text) // the browser may have disconnected
		return nil, nil
	}
}

type playgroundToken struct {
	Value     string `json:"value"`
	ExpiresIn int64  `json:"expires_in"` // seconds
}

// mintPlaygroundToken returns a token for the person's browser. It locks the workspace, as changes of
// roles do, so that no token outlives a membership that ends meanwhile.
func mintPlaygroundToken(req *request) (*playgroundToken, error) {
	return writeValue(req, func(tx *db.Tx) (*playgroundToken, error) {
		ctx, t := req.Context(), req.workspace.In(req.env)
		if err := accounts.LockWorkspace(ctx, tx, t.WorkspaceID); err != nil {
			return nil, err
		}
		role, err := people.RoleIn(ctx, tx, req.session.UserID, t.WorkspaceID)
		if err != nil {
			return nil, err
		}
		person := req.session.Person
		by := access.Caller{Principal: access.PersonPrincipal(person.ID, role, t), Actor: req.actor()}
		minted, value, err := req.s.Tokens.MintForPlayground(ctx, tx, by, cmp.Or(person.Name, person.Email))
		if err != nil {
			return nil, err
		}
		return &playgroundToken{value, int64(minted.ExpiresAt.Sub(minted.CreatedAt) / time.Second)}, nil
	})
}

// playgroundModel is a model that the person can choose. Prices are in credits.
type playgroundModel struct {
	ID           string             `json:"id"`
	Kind         catalog.Kind       `json:"kind"`
	Vendor       string             `json:"vendor"`
	Context      int64              `json:"context,omitempty"`
	Capabilities []string           `json:"capabilities"`
	Prices       map[string]float64 `json:"prices,omitempty"` // per million tokens, image, second, character
}

var playgroundKinds = []catalog.Kind{catalog.Chat, catalog.Image, catalog.Speech}

func playgroundModels(req *request) ([]playgroundModel, error) {
	callable, err := req.s.Gateway.Models(req.Context(), gateway.Owner{Principal: req.principal})
	if err != nil {
		return nil, err
	}
	out := []playgroundModel{}
	for _, name := range callable.Router {
		out = append(out, playgroundModel{ID: name, Kind: catalog.Chat, Vendor: "route", Capabilities: []string{"json_schema", "reasoning", "tools", "vision"}})
	}
	for _, m := range callable.Models {
		if !slices.Contains(playgroundKinds, m.Kind) {
			continue
		}
		shown := playgroundModel{ID: m.ID, Kind: m.Kind, Vendor: m.Provider, Context: m.ContextWindow, Capabilities: m.Capabilities.Names()}
		if m.Priced {
			shown.Prices = pricesOf(m.Price)
		}
		out = append(out, shown)
	}
	return out, nil
}

func pricesOf(p catalog.Price) map[string]float64 {
	prices := map[string]float64{}
	for unit, amount := range map[string]credits.Micro{"input": p.Input, "output": p.Output, "image": p.PerImage, "second": p.PerSecond, "character": p.PerCharacter} {
		if amount != 0 {
			prices[unit] = amount.Float()
		}
	}
	return prices
}

// requestFacts are the facts of a log entry that the page shows beside a response.
type requestFacts struct {
	Settled          bool          `json:"settled"`
	Status           int           `json:"status"`
	Model            string        `json:"model"`
	Provider         string        `json:"provider"`
	InputTokens      *int64        `json:"input_tokens"`
	OutputTokens     *int64        `json:"output_tokens"`
	CachedTokens     *int64        `json:"cached_tokens"`
	Credits          credits.Micro `json:"credits"`
	SimulatedCredits credits.Micro `json:"simulated_credits"`
}

func playgroundRequest(req *request) (*requestFacts, error) {
	e, err := req.s.Archive.Get(req.Context(), req.s.DB, req.principal.Visibility(), req.id())
	if err != nil {
		return nil, err
	}
	return &requestFacts{e.Settled, e.Status, e.Model, e.Provider, e.InputTokens, e.OutputTokens, e.CachedTokens, e.Credits, e.SimulatedCredits}, nil
}

// showKeyOrPlayground shows a key, or the requests of someone's playground, which has no page.
func showKeyOrPlayground(page handler) handler {
	return func(req *request) (*view, error) {
		is, err := req.s.Keys.IsPlayground(req.Context(), req.s.DB, req.principal.Visibility(), req.id())
		if err != nil {
			return nil, err
		}
		if is {
			return req.redirect(req.to("requests?key="+req.id()), flash{})
		}
		return page(req)
	}
}
