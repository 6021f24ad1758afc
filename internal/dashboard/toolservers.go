package dashboard

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

type toolServersData struct {
	Servers []*toolservers.Server
	Next    pager
	Waiting int // calls that need a decision
	MCP     string
}

func toolServersPage(req *request) (*view, error) {
	page := req.page(ids.ToolServer)
	found, err := req.s.ToolServers.List(req.Context(), req.s.DB, req.principal.Visibility(), page)
	if err != nil {
		return nil, err
	}
	waiting, err := req.pendingToolCalls()
	if err != nil {
		return nil, err
	}
	d := toolServersData{Servers: found.Rows, Next: req.pager(page, found.More, func() string { return found.Cursor }), Waiting: len(waiting), MCP: req.s.PublicURL + "/mcp"}
	return &view{template: "tools", title: "Tool servers", data: d, live: true}, nil
}

type toolServerForm struct {
	Server   *toolservers.Server
	Approval string // always, never or lists
	Tools    string // the allowed tools, one in each line
	Rules    rulesForm
}

// Seen returns the fingerprint of the server.
func (f toolServerForm) Seen() string { return toolServerFingerprint(f.Server) }

func toolServerFingerprint(s *toolservers.Server) string {
	return fingerprint(s.Label, s.URL, s.Description, s.Approval.Rule(), s.Rules, s.AllowedTools, s.TimeoutSeconds, s.ApprovalSeconds)
}

func newToolServerForm(s *toolservers.Server) toolServerForm {
	return toolServerForm{s, s.Approval.Rule(), strings.Join(s.AllowedTools, "\n"), newRulesForm(s.Rules)}
}

func newToolServerPage(*request) (*view, error) {
	s := &toolservers.Server{Approval: tools.ApproveAlways, TimeoutSeconds: tools.DefaultTimeout, ApprovalSeconds: toolservers.DefaultApprovalSeconds}
	return &view{template: "tool_new", title: "New tool server", data: newToolServerForm(s)}, nil
}

// readToolServer returns the change that the form makes, and the errors of fields that could not be read.
func (req *request) readToolServer() (c toolservers.Change, err error) {
	var invalid [5]error
	c.Headers, invalid[0] = parseHeaders(req.form("headers"))
	remove := req.form("remove_headers") != ""
	c.SetHeaders = len(c.Headers) > 0 || remove
	c.OAuth, invalid[1] = req.readOAuth()
	c.SetOAuth = c.OAuth != nil || remove
	timeout, err := req.formNumber("timeout_seconds")
	invalid[2] = err
	wait, err := req.formNumber("approval_timeout_seconds")
	invalid[3] = err
	rules, err := req.readRules()
	invalid[4] = err
	approval := req.form("require_approval")
	c.Apply = func(s *toolservers.Server) {
		s.Label, s.URL, s.Description = req.form("label"), req.form("url"), req.form("description")
		if s.AllowedTools = strings.Fields(req.form("allowed_tools")); len(s.AllowedTools) == 0 {
			s.AllowedTools = nil
		}
		if approval != s.Approval.Rule() {
			s.Approval = tools.ApprovalRule(approval)
		}
		s.Rules = rules
		s.TimeoutSeconds, s.ApprovalSeconds = tools.DefaultTimeout, toolservers.DefaultApprovalSeconds
		if timeout != nil {
			s.TimeoutSeconds = *timeout
		}
		if wait != nil {
			s.ApprovalSeconds = *wait
		}
	}
	return c, errors.Join(invalid[:]...)
}

// readOAuth returns the OAuth client of the form, or nil if the form keeps what the server has.
func (req *request) readOAuth() (*toolservers.OAuth, error) {
	o := &toolservers.OAuth{GrantType: toolservers.GrantType(req.form("oauth")), TokenURL: req.form("oauth_token_url"), ClientID: req.form("oauth_client_id"),
		ClientSecret: req.form("oauth_client_secret"), Scope: req.form("oauth_scope"), Issuer: req.form("oauth_issuer")}
	if o.GrantType != "" {
		return o, nil
	}
	if *o != (toolservers.OAuth{}) {
		return nil, fault.Invalid("oauth", "Select how Turnpike gets tokens, or leave the fields of OAuth empty.")
	}
	return nil, nil
}

// parseHeaders reads one header in each line, such as Authorization: Bearer ….
func parseHeaders(text string) (map[string]string, error) {
	headers := map[string]string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fault.Invalid("headers", "Enter one header in each line, as in Authorization: Bearer ….")
		}
		headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return headers, nil
}

func createToolServer(req *request) (*view, error) {
	c, invalid := req.readToolServer()
	s := &toolservers.Server{Tenant: req.workspace.In(req.env), Prices: map[string]credits.Micro{}}
	c.Apply(s)
	if err := req.write(func(tx *db.Tx) error {
		if invalid != nil {
			return errors.Join(invalid, req.s.ToolServers.Check(req.Context(), tx, s, c.Credentials))
		}
		return req.s.ToolServers.Create(req.Context(), tx, req.actor(), s, c.Credentials)
	}); err != nil {
		return nil, rulesErrors(err, toolservers.RulesParam)
	}
	notice := "Tool server registered."
	if s.Connection == toolservers.NeedsAuthorization {
		return req.redirect(req.to("tools/"+s.ID), flash{Notice: notice + " Connect it to read its tools."})
	}
	if err := req.s.ToolServers.Refresh(req.Context(), s); err != nil || s.Problem != "" {
		notice = "Tool server registered. Its tools were not read."
	}
	return req.redirect(req.to("tools/"+s.ID), flash{Notice: notice})
}

func (req *request) toolServer() (*toolservers.Server, error) {
	return req.s.ToolServers.Get(req.Context(), req.s.DB, req.principal.Visibility(), req.id())
}

type toolServerData struct {
	Server    *toolservers.Server
	Approval  string
	Rules     rulesForm
	Tools     []serverTool
	Simulated bool
	MCP       string
	Callback  string // the redirect URL of OAuth clients
}

// ToolsSeen returns the fingerprint of the tools' approvals and prices.
func (d toolServerData) ToolsSeen() string { return toolsFingerprint(d.Server) }

func toolsFingerprint(s *toolservers.Server) string { return fingerprint(s.Approval, s.Prices) }

// NeedsConnection reports whether a member must connect the server before its tools can be called.
func (d toolServerData) NeedsConnection() bool {
	return d.Server.Connection == toolservers.NeedsAuthorization
}

type serverTool struct {
	*toolservers.Target
	Price credits.Micro
}

// ShownPrice returns the price, or an empty string for free tools.
func (t serverTool) ShownPrice() string {
	if t.Price == 0 {
		return ""
	}
	return t.Price.String()
}

// Needs reports whether a call needs an approval.
func (t serverTool) Needs() bool { return t.NeedsApproval() }

// OwnRules returns the approval rules of the tool that replace those of the server, in words.
func (t serverTool) OwnRules() string {
	own, ok := t.Server.ToolRules[t.Tool.Name]
	if !ok {
		return ""
	}
	return cmp.Or(strings.Join(newRulesForm(own).Shown(), ", "), "no rules")
}

// Destructive reports whether the server says that the tool destroys something.
func (t serverTool) Destructive() bool {
	hints := t.Tool.Annotations
	return hints != nil && hints.DestructiveHint != nil && *hints.DestructiveHint
}

func showToolServer(req *request, s *toolservers.Server) (*view, error) {
	list, mode, err := req.s.ToolServers.Known(req.Context(), s)
	if err != nil {
		return nil, err
	}
	d := toolServerData{Server: s, Approval: s.Approval.Rule(), Rules: newRulesForm(s.Rules), Simulated: mode == accounts.ToolsSimulated, MCP: req.s.PublicURL + "/mcp/" + s.Label,
		Callback: req.toolCallback()}
	for _, t := range list {
		d.Tools = append(d.Tools, serverTool{t, s.Price(t.Tool.Name)})
	}
	return &view{template: "tool", title: s.Label, data: d}, nil
}

func editToolServerPage(_ *request, s *toolservers.Server) (*view, error) {
	return &view{template: "tool_edit", title: "Edit tool server", data: newToolServerForm(s)}, nil
}

// changeToolServer changes the server in the path and redirects to its page.
func (req *request) changeToolServer(notice string, change func(tx *db.Tx, s *toolservers.Server) (toolservers.Change, error)) (*view, error) {
	return req.save(req.to("tools/"+req.id()), notice, func(tx *db.Tx) error {
		var ours error // of the form
		_, err := req.s.ToolServers.Change(req.Context(), tx, toolservers.ServerChange{By: req.decider(), Visibility: req.principal.Visibility(), ID: req.id(),
			Decide: func(s *toolservers.Server) (c toolservers.Change, err error) {
				c, ours = change(tx, s)
				return c, ours
			}})
		if ours != nil {
			return ours
		}
		return rulesErrors(err, toolservers.RulesParam)
	})
}

func editToolServer(req *request) (*view, error) {
	return req.changeToolServer("Tool server saved.", func(tx *db.Tx, s *toolservers.Server) (toolservers.Change, error) {
		c, invalid := req.readToolServer()
		changed := *s
		c.Apply(&changed)
		if invalid != nil {
			return c, rulesErrors(errors.Join(invalid, req.s.ToolServers.Check(req.Context(), tx, &changed, c.Credentials)), toolservers.RulesParam)
		}
		return c, req.checkEditConflict(toolServerFingerprint(s), toolServerFingerprint(&changed))
	})
}

// setTools sets the approval and the price of each tool.
func setTools(req *request) (*view, error) {
	return req.changeToolServer("Tools saved.", func(_ *db.Tx, s *toolservers.Server) (toolservers.Change, error) {
		prices := map[string]credits.Micro{}
		var always, never []string
		var invalid []error
		for _, name := range req.R.PostForm["tool"] {
			price, err := req.formCredits("price_" + name)
			invalid = append(invalid, err)
			if price != nil && *price > 0 {
				prices[name] = *price
			}
			if slices.Contains(req.R.PostForm["approval"], name) {
				always = append(always, name)
			} else {
				never = append(never, name)
			}
		}
		changed := &toolservers.Server{Prices: prices, Approval: tools.ApproveTools(always, never)}
		return toolservers.Change{Apply: func(s *toolservers.Server) { s.Prices, s.Approval = changed.Prices, changed.Approval }},
			errors.Join(append(invalid, req.checkEditConflict(toolsFingerprint(s), toolsFingerprint(changed)))...)
	})
}

func refreshToolServer(req *request) (*view, error) {
	s, err := req.toolServer()
	if err != nil {
		return nil, err
	}
	if err := req.s.ToolServers.Refresh(req.Context(), s); err != nil {
		return nil, err
	}
	notice := "Tools read."
	if s.Problem != "" {
		notice = "The tools could not be read."
	}
	return req.redirect(req.to("tools/"+s.ID), flash{Notice: notice})
}

// toolCallback is the page of a workspace that authorization servers redirect to.
const toolCallback = "tools/callback"

func (req *request) toolCallback() string { return req.s.PublicURL + req.to(toolCallback) }

// connectToolServer sends the member to the authorization server of a tool server.
func connectToolServer(req *request) (*view, error) {
	if req.origin() != req.s.public {
		// The authorization server redirects there, without this session.
		return nil, fault.New(fault.InvalidState, "Connecting a server only works at %s. Open the dashboard there.", req.s.public)
	}
	s, err := req.toolServer()
	if err != nil {
		return nil, err
	}
	address, err := req.s.ToolServers.StartAuthorization(req.Context(), s, toolservers.Authorization{SessionID: req.session.ID, RedirectURL: req.toolCallback()})
	if err != nil {
		return nil, err
	}
	return req.sendToProvider("Connect "+s.Label, "the authorization server", address), nil
}

// finishToolConnection handles the redirect of an authorization server. It is a GET that stores tokens: the state
// must be one that this session has started, and works once.
func finishToolConnection(req *request) (*view, error) {
	s, err := req.s.ToolServers.CompleteAuthorization(req.Context(), req.principal.Visibility(), req.actor(),
		toolservers.Callback{SessionID: req.session.ID, State: req.query("state"), Code: req.query("code"), Issuer: req.query("iss")})
	if f, ok := fault.As(err); ok && f.Code == fault.InvalidState {
		to := "tools"
		if s != nil {
			to += "/" + s.ID
		}
		return req.redirect(req.to(to), flash{Note: f.Message})
	}
	if err != nil {
		return nil, err
	}
	notice := "Tool server connected."
	if err := req.s.ToolServers.Refresh(req.Context(), s); err != nil || s.Problem != "" {
		notice = "Tool server connected. Its tools were not read."
	}
	return req.redirect(req.to("tools/"+s.ID), flash{Notice: notice})
}

func disconnectToolServer(req *request) (*view, error) {
	return req.save(req.to("tools/"+req.id()), "Tool server disconnected.", func(tx *db.Tx) error {
		s, err := req.s.ToolServers.GetLocked(req.Context(), tx, req.principal.Visibility(), req.id())
		if err != nil {
			return err
		}
		return req.s.ToolServers.Disconnect(req.Context(), tx, req.actor(), s)
	})
}

func deleteToolServer(req *request) (*view, error) {
	return req.save(req.to("tools"), "Tool server deleted.", func(tx *db.Tx) error {
		s, err := req.s.ToolServers.GetLocked(req.Context(), tx, req.principal.Visibility(), req.id())
		if err != nil {
			return err
		}
		return req.s.ToolServers.Delete(req.Context(), tx, req.actor(), s)
	})
}
