package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"turnpike/internal/accounts"
	"turnpike/internal/api"
	"turnpike/internal/app"
)

func newExport(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print workspaces as a YAML file for turnpike apply",
		Long: `Prints the workspaces with their projects, keys, federation rules, webhook endpoints
and routes as a YAML file that turnpike apply accepts. Applied to the same database, it
changes nothing.

The file has no secrets: no values of keys, secrets of endpoints or headers. It
leaves out archived projects, revoked and expired keys, keys that keys created,
and tunnels.`,
	}
	workspace := cmd.Flags().String("workspace", "", "only this workspace, by ID or name")
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, _ []string) error {
		all, err := accounts.ListWorkspaces(ctx, s.DB)
		if err != nil {
			return err
		}
		if *workspace != "" {
			w, err := accounts.FindWorkspace(ctx, s.DB, *workspace)
			if err != nil {
				return err
			}
			all = []*accounts.Workspace{w}
		}
		a, err := e.newApplier(ctx, s, nil, applyOptions{})
		if err != nil {
			return err
		}
		defer a.close()
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, w := range all {
			n, err := a.export(ctx, s, w)
			if err != nil {
				return err
			}
			list.Content = append(list.Content, n)
		}
		encoder := yaml.NewEncoder(e.out)
		encoder.SetIndent(2)
		root := &yaml.Node{Kind: yaml.MappingNode}
		addField(root, "workspaces", list)
		if err := encoder.Encode(root); err != nil {
			return err
		}
		return encoder.Close()
	})
}

func addField(to *yaml.Node, name string, value *yaml.Node) {
	key := &yaml.Node{}
	key.SetString(name)
	to.Content = append(to.Content, key, value)
}

// restrictions are fields whose empty list allows nothing.
var restrictions = []string{"allowed_tools", "allowed_models", "allowed_providers"}

// addJSON adds fields that aren't null or empty.
func addJSON(to *yaml.Node, o stateObject, fields ...string) error {
	for _, field := range fields {
		isRestriction := slices.Contains(restrictions, field) && string(o[field]) == "[]"
		if slices.Contains([]string{"", "null", `""`, "{}", "[]"}, string(o[field])) && !isRestriction {
			continue
		}
		n, err := yamlOf(o[field])
		if err != nil {
			return err
		}
		addField(to, field, n)
	}
	return nil
}

// yamlOf returns JSON as YAML in its usual style. Numbers stay as written.
func yamlOf(text json.RawMessage) (*yaml.Node, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil { // JSON is YAML
		return nil, err
	}
	tidy(document.Content[0])
	return document.Content[0], nil
}

// tidy removes the style of JSON and fields that are null. Lists of texts stay on one line.
func tidy(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		var set []*yaml.Node
		for field := range slices.Chunk(n.Content, 2) {
			if field[1].Tag != "!!null" {
				set = append(set, field...)
			}
		}
		n.Content = set
	}
	if n.Kind == yaml.SequenceNode && !slices.ContainsFunc(n.Content, func(one *yaml.Node) bool { return one.Kind != yaml.ScalarNode }) {
		n.Style = yaml.FlowStyle
	} else {
		n.Style = 0
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		n.SetString(n.Value)
	}
	for _, one := range n.Content {
		tidy(one)
	}
}

// export returns a workspace as the file has it.
func (a *applier) export(ctx context.Context, s *app.Store, w *accounts.Workspace) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	state, err := workspaceState(w)
	if err != nil {
		return nil, err
	}
	if err := addJSON(n, state, slices.Concat([]string{"name"}, workspaceFields, a.local.Fields(api.BillingResource))...); err != nil {
		return nil, err
	}
	for _, p := range parts {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, env := range []accounts.Environment{accounts.Live, accounts.Test} {
			texts, err := a.local.List(ctx, s.DB, p.resource, w.In(env))
			if err != nil {
				return nil, err
			}
			if p.resource == api.FederationResource {
				if texts, err = a.nameKeys(ctx, s, w.In(env), texts); err != nil {
					return nil, err
				}
			}
			objects, err := a.exportAll(p.resource, texts)
			if err != nil {
				return nil, err
			}
			list.Content = append(list.Content, objects...)
		}
		if len(list.Content) > 0 {
			addField(n, p.field, list)
		}
	}
	return n, nil
}

// fixedFields are fields of new objects that an update can't change.
var fixedFields = map[api.Resource][]string{api.RouteResource: {"project"}, api.FederationResource: {"key"}}

// nameKeys returns federation rules with the names of their keys in place of the IDs, which another database
// doesn't have.
func (a *applier) nameKeys(ctx context.Context, s *app.Store, t accounts.Tenant, rules [][]byte) ([][]byte, error) {
	keys, err := a.local.List(ctx, s.DB, api.KeyResource, t)
	if err != nil {
		return nil, err
	}
	uses, names := map[string]int{}, map[string][]string{}
	for _, text := range keys {
		var k stateObject
		if err := json.Unmarshal(text, &k); err != nil {
			return nil, err
		}
		names[k.text("id")] = []string{k.text("external_id"), k.text("name")}
		uses[k.text("external_id")]++
		if k.text("name") != k.text("external_id") {
			uses[k.text("name")]++
		}
	}
	out := make([][]byte, len(rules))
	for i, text := range rules {
		var r stateObject
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, err
		}
		for _, name := range names[r.text("key_id")] {
			if name != "" && uses[name] == 1 {
				r["key"], _ = json.Marshal(name) // a string: cannot fail
				delete(r, "key_id")
				break
			}
		}
		if r.text("user_claim") == "" {
			delete(r, "user_limits") // they have no values
		}
		if out[i], err = json.Marshal(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// exportAll returns objects with the fields that an update can change. They have an ID only if they can't be
// distinguished otherwise.
func (a *applier) exportAll(r api.Resource, texts [][]byte) ([]*yaml.Node, error) {
	identity := identities[r]
	objects, uses := make([]stateObject, len(texts)), map[string]int{}
	for i, text := range texts {
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(&objects[i]); err != nil {
			return nil, err
		}
		uses[identity+objects[i].text(identity)]++
		uses["external_id"+objects[i].text("external_id")]++
	}
	fields := slices.DeleteFunc(a.local.Fields(r), func(f string) bool { return f == "status" || f == "headers" || f == identity })
	var out []*yaml.Node
	for _, o := range objects {
		n := &yaml.Node{Kind: yaml.MappingNode}
		external := o.text("external_id")
		if r != api.RouteResource && external == "" && uses[identity+o.text(identity)] > 1 || external != "" && uses["external_id"+external] > 1 {
			if err := addJSON(n, o, "id"); err != nil {
				return nil, err
			}
		}
		if err := addJSON(n, o, slices.Concat([]string{identity, "environment"}, fixedFields[r], fields)...); err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}
