package api

import (
	"context"

	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/jsonbody"
)

// toolServerObject is a tool server. Its headers are never shown.
type toolServerObject struct {
	ID              string                  `json:"id"`
	Object          string                  `json:"object"`
	Label           string                  `json:"label"`
	Description     string                  `json:"description"`
	URL             string                  `json:"url"`
	HasHeaders      bool                    `json:"has_headers"`
	OAuthStatus     *string                 `json:"oauth_status"`
	Approval        tools.Approval          `json:"require_approval"`
	Rules           *tools.ApprovalRules    `json:"approval_rules"`
	AllowedTools    *[]string               `json:"allowed_tools"`
	ToolSettings    map[string]toolSettings `json:"tool_settings"`
	TimeoutSeconds  int64                   `json:"timeout_seconds"`
	ApprovalSeconds int64                   `json:"approval_timeout_seconds"`
	Tools           []listedTool            `json:"tools"`
	ListedAt        *int64                  `json:"listed_at"`
	Problem         *string                 `json:"problem"`
	Project         *string                 `json:"project"`
	Environment     accounts.Environment    `json:"environment"`
	CreatedAt       int64                   `json:"created_at"`
}

type toolSettings struct {
	PricePerCall credits.Micro `json:"price_per_call"`
	// Rules replace those of the server.
	Rules *tools.ApprovalRules `json:"approval_rules,omitzero"`
}

// listedTool is a tool as its server described it when its tools were last read.
type listedTool struct {
	Name            string        `json:"name"`
	ListedName      string        `json:"listed_name"`
	Description     string        `json:"description"`
	RequireApproval bool          `json:"require_approval"`
	PricePerCall    credits.Micro `json:"price_per_call"`
}

func newToolServerObject(s *toolservers.Server) (*toolServerObject, error) {
	list, err := s.Tools()
	if err != nil {
		return nil, err
	}
	o := &toolServerObject{ID: s.ID, Object: "tool_server", Label: s.Label, Description: s.Description, URL: s.URL, HasHeaders: s.HasHeaders(), OAuthStatus: orNil(string(s.Connection)), Approval: s.Approval,
		ToolSettings: map[string]toolSettings{}, TimeoutSeconds: s.TimeoutSeconds, ApprovalSeconds: s.ApprovalSeconds, Tools: []listedTool{},
		ListedAt: unix(s.ListedAt), Problem: orNil(s.Problem), Project: orNil(s.Project), Environment: s.Environment, CreatedAt: s.CreatedAt.Unix()}
	if s.AllowedTools != nil {
		o.AllowedTools = &s.AllowedTools
	}
	if !s.Rules.IsZero() {
		o.Rules = &s.Rules
	}
	for name, price := range s.Prices {
		o.ToolSettings[name] = toolSettings{PricePerCall: price}
	}
	for name, rules := range s.ToolRules {
		o.ToolSettings[name] = toolSettings{s.Price(name), &rules}
	}
	for _, t := range list {
		o.Tools = append(o.Tools, listedTool{Name: t.Name, ListedName: tools.ListedName(s.Label, t.Name), Description: t.Description,
			RequireApproval: s.Approval.Needed(t), PricePerCall: s.Price(t.Name)})
	}
	return o, nil
}

// showToolServer returns the response for a server, unless err is set.
func showToolServer(s *toolservers.Server, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return newToolServerObject(s)
}

type createToolServerRequest struct {
	Label           string                  `json:"label"`
	Description     string                  `json:"description"`
	URL             string                  `json:"url"`
	Headers         map[string]string       `json:"headers"`
	OAuth           *toolservers.OAuth      `json:"oauth"`
	Approval        *tools.Approval         `json:"require_approval"`
	Rules           *tools.ApprovalRules    `json:"approval_rules"`
	AllowedTools    *[]string               `json:"allowed_tools"`
	ToolSettings    map[string]toolSettings `json:"tool_settings"`
	TimeoutSeconds  *int64                  `json:"timeout_seconds"`
	ApprovalSeconds *int64                  `json:"approval_timeout_seconds"`
}

func createToolServer(ctx context.Context, c *Call, tx *db.Tx, in createToolServerRequest) (any, error) {
	s := &toolservers.Server{Tenant: c.Principal.Tenant, Project: c.Principal.Project, Label: in.Label, Description: in.Description, URL: in.URL,
		Approval: tools.ApproveAlways, Prices: pricesOf(in.ToolSettings), ToolRules: toolRulesOf(in.ToolSettings)}
	if in.Approval != nil {
		s.Approval = *in.Approval
	}
	if in.Rules != nil {
		s.Rules = *in.Rules
	}
	if in.AllowedTools != nil {
		s.AllowedTools = *in.AllowedTools
	}
	for _, n := range []struct {
		name     string
		given    *int64
		into     *int64
		allowsTo int64
	}{{"timeout_seconds", in.TimeoutSeconds, &s.TimeoutSeconds, tools.MaxTimeout},
		{"approval_timeout_seconds", in.ApprovalSeconds, &s.ApprovalSeconds, toolservers.MaxApprovalSeconds}} {
		if n.given == nil {
			continue
		}
		if *n.given < 1 { // 0 would mean the default
			return nil, fault.Invalid(n.name, "%s must be from 1 to %d.", n.name, n.allowsTo)
		}
		*n.into = *n.given
	}
	return showToolServer(s, c.s.ToolServers.Create(ctx, tx, c.Actor(), s, toolservers.Credentials{Headers: in.Headers, OAuth: in.OAuth}))
}

func pricesOf(settings map[string]toolSettings) map[string]credits.Micro {
	prices := make(map[string]credits.Micro, len(settings))
	for name, s := range settings {
		prices[name] = s.PricePerCall
	}
	return prices
}

func toolRulesOf(settings map[string]toolSettings) map[string]tools.ApprovalRules {
	rules := map[string]tools.ApprovalRules{}
	for name, s := range settings {
		if s.Rules != nil {
			rules[name] = *s.Rules
		}
	}
	return rules
}

func listToolServers(ctx context.Context, c *Call) (any, error) {
	q := c.query(pageParams...)
	page := q.page(ids.ToolServer)
	if q.err != nil {
		return nil, q.err
	}
	budget := c.pageBudget()
	found, err := c.s.ToolServers.List(ctx, budget, c.Principal.Visibility(), page)
	if err != nil {
		return nil, err
	}
	truncatePage(budget, found, func(s *toolservers.Server) string { return s.ID })
	data := make([]*toolServerObject, len(found.Rows))
	for i, s := range found.Rows {
		if data[i], err = newToolServerObject(s); err != nil {
			return nil, err
		}
	}
	return newList(data, func(o *toolServerObject) string { return o.ID }, found.More), nil
}

func getToolServer(ctx context.Context, c *Call) (any, error) {
	return showToolServer(c.s.ToolServers.Get(ctx, c.s.DB, c.Principal.Visibility(), c.id()))
}

type updateToolServerRequest struct {
	Label           jsonbody.Optional[string]                  `json:"label"`
	Description     jsonbody.Optional[string]                  `json:"description"`
	URL             jsonbody.Optional[string]                  `json:"url"`
	Headers         jsonbody.Optional[map[string]string]       `json:"headers"`
	OAuth           jsonbody.Optional[toolservers.OAuth]       `json:"oauth"`
	Approval        jsonbody.Optional[tools.Approval]          `json:"require_approval"`
	Rules           jsonbody.Optional[tools.ApprovalRules]     `json:"approval_rules"`
	AllowedTools    jsonbody.Optional[[]string]                `json:"allowed_tools"`
	ToolSettings    jsonbody.Optional[map[string]toolSettings] `json:"tool_settings"`
	TimeoutSeconds  jsonbody.Optional[int64]                   `json:"timeout_seconds"`
	ApprovalSeconds jsonbody.Optional[int64]                   `json:"approval_timeout_seconds"`
}

func updateToolServer(ctx context.Context, c *Call, tx *db.Tx, in updateToolServerRequest) (any, error) {
	if in.Approval.Null {
		return nil, fault.Invalid("require_approval", "require_approval must not be null.")
	}
	change := toolservers.Change{
		SetHeaders: in.Headers.Set, SetOAuth: in.OAuth.Set, Credentials: toolservers.Credentials{Headers: in.Headers.Value, OAuth: in.OAuth.Pointer()},
		Apply: func(s *toolservers.Server) {
			set(&s.Label, in.Label)
			set(&s.Description, in.Description)
			set(&s.URL, in.URL)
			set(&s.Approval, in.Approval)
			set(&s.Rules, in.Rules)
			set(&s.AllowedTools, in.AllowedTools)
			set(&s.TimeoutSeconds, in.TimeoutSeconds)
			set(&s.ApprovalSeconds, in.ApprovalSeconds)
			if in.ToolSettings.Set {
				s.Prices, s.ToolRules = pricesOf(in.ToolSettings.Value), toolRulesOf(in.ToolSettings.Value)
			}
		}}
	return showToolServer(c.s.ToolServers.Change(ctx, tx, toolservers.ServerChange{By: tools.Decider{Principal: c.Principal, Actor: c.Actor()}, Visibility: c.Principal.Visibility(), ID: c.id(),
		Decide: func(*toolservers.Server) (toolservers.Change, error) { return change, nil }}))
}

func deleteToolServer(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	s, err := c.s.ToolServers.GetLocked(ctx, tx, c.Principal.Visibility(), c.id())
	if err != nil {
		return nil, err
	}
	if err := c.s.ToolServers.Delete(ctx, tx, c.Actor(), s); err != nil {
		return nil, err
	}
	return deletedObject{s.ID, "tool_server", true}, nil
}

// refreshToolServer asks the server for its tools.
func refreshToolServer(c *Call) error {
	body, err := c.readJSON(c.Limits.Body)
	if err != nil {
		return err
	}
	if err := jsonbody.DecodeStrict(body, &struct{}{}); err != nil {
		return err
	}
	return c.perform(body, action{
		before: func() error {
			s, err := c.s.ToolServers.Get(c.Context(), c.s.DB, c.Principal.Visibility(), c.id())
			if err != nil {
				return err
			}
			return c.s.ToolServers.Refresh(c.Context(), s)
		},
		do: func(ctx context.Context, tx *db.Tx) (any, error) {
			return showToolServer(c.s.ToolServers.Get(ctx, tx, c.Principal.Visibility(), c.id()))
		},
	})
}
