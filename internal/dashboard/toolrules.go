package dashboard

import (
	"errors"
	"maps"

	"turnpike/internal/agents/tools"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// ruledTool is a tool of a server, whose approval rules a page shows.
type ruledTool struct {
	Server *toolservers.Server
	Name   string // the server's own
	Listed string // the name that clients see
	Needs  bool   // its calls need an approval
}

// ruledTool returns the tool in the path: one that the server offers, or that has rules.
func (req *request) ruledTool() (*ruledTool, error) {
	s, err := req.toolServer()
	if err != nil {
		return nil, err
	}
	list, _, err := req.s.ToolServers.Known(req.Context(), s)
	if err != nil {
		return nil, err
	}
	listed := req.R.PathValue("tool")
	for _, t := range list {
		if t.Name() == listed {
			return &ruledTool{s, t.Tool.Name, listed, t.NeedsApproval()}, nil
		}
	}
	for name := range s.ToolRules {
		if tools.ListedName(s.Label, name) == listed {
			return &ruledTool{Server: s, Name: name, Listed: listed}, nil
		}
	}
	return nil, fault.New(fault.NotFound, "The server has no tool %q.", listed)
}

type toolRulesForm struct {
	*ruledTool
	Rules rulesForm
}

// Own reports whether the tool has rules that replace those of the server.
func (f toolRulesForm) Own() bool {
	_, own := f.Server.ToolRules[f.Name]
	return own
}

// Seen returns the fingerprint of the tool's rules.
func (f toolRulesForm) Seen() string { return toolRulesFingerprint(f.Server, f.Name) }

func toolRulesFingerprint(s *toolservers.Server, tool string) string {
	rules, own := s.ToolRules[tool]
	return fingerprint(rules, own)
}

func toolRulesPage(_ *request, t *ruledTool) (*view, error) {
	return &view{template: "tool_rules", title: "Approval rules of " + t.Listed, data: toolRulesForm{t, newRulesForm(t.Server.RulesOf(t.Name))}}, nil
}

// setToolRules gives a tool its own approval rules.
func setToolRules(req *request, t *ruledTool) (*view, error) {
	rules, invalid := req.readRules()
	return req.changeToolRules(t, "Approval rules saved.", func(tx *db.Tx, s, changed *toolservers.Server) error {
		changed.ToolRules[t.Name] = rules
		return errors.Join(invalid, changed.CheckRules(req.Context(), tx, s, req.now()))
	})
}

// removeToolRules makes the rules of the server apply to a tool.
func removeToolRules(req *request, t *ruledTool) (*view, error) {
	return req.changeToolRules(t, "The rules of the server apply.", func(_ *db.Tx, _, changed *toolservers.Server) error {
		delete(changed.ToolRules, t.Name)
		return nil
	})
}

func (req *request) changeToolRules(t *ruledTool, notice string, change func(tx *db.Tx, s, changed *toolservers.Server) error) (*view, error) {
	return req.changeToolServer(notice, func(tx *db.Tx, s *toolservers.Server) (c toolservers.Change, err error) {
		changed := *s
		changed.ToolRules = map[string]tools.ApprovalRules{}
		maps.Copy(changed.ToolRules, s.ToolRules)
		if err := change(tx, s, &changed); err != nil {
			return c, rulesErrors(err, toolservers.ToolRulesParam(t.Name))
		}
		c.Apply = func(s *toolservers.Server) { s.ToolRules = changed.ToolRules }
		return c, req.checkEditConflict(toolRulesFingerprint(s, t.Name), toolRulesFingerprint(&changed, t.Name))
	})
}
