package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/api"
	"turnpike/internal/app"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/federation"
	"turnpike/internal/mail"
	"turnpike/internal/modelroutes"
	"turnpike/internal/safehttp"
	"turnpike/internal/webhooks"
)

func newApply(e *env) *cobra.Command {
	var o applyOptions
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create and update what a YAML file describes",
		Long: `Creates and updates the workspaces, projects, keys, federation rules, webhook
endpoints and routes that a YAML file describes, and prints the changes. Fields that
the file omits stay as they are, and nothing is deleted. Either everything is applied
or nothing. A second run changes nothing.

New keys and webhook secrets are written to --secrets-file, or to the value_file
of the key or the secret_file of the endpoint, all with mode 0600. If a key's
value_file exists, the key gets that value.`,
		Example: `  turnpike export > turnpike-state.yaml
  turnpike apply -f turnpike-state.yaml --dry-run
  turnpike apply -f turnpike-state.yaml --secrets-file secrets.json`,
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "file", "f", "", "the file to apply, or - for standard input (required)")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the changes without making them")
	f.StringVar(&o.secrets, "secrets-file", "", "the file for new secrets, which is created or extended")
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, _ []string) error {
		if o.file == "" {
			return wrongUsage(cmd, errors.New("missing file: pass -f FILE"))
		}
		file, err := e.readApplyFile(o.file)
		if err != nil {
			return err
		}
		a, err := e.newApplier(ctx, s, file, o)
		if err != nil {
			return err
		}
		defer a.close()
		if err := a.apply(ctx); err != nil {
			return err
		}
		return a.printChanges()
	})
}

type applyOptions struct {
	file    string
	dryRun  bool
	secrets string // the path for secrets without a file
}

// applier applies a file to the database. What it does in a transaction may be repeated.
type applier struct {
	applyOptions
	e     *env
	db    *db.DB
	group *db.Group
	file  *applyFile
	local *api.Local
	keys  *access.Keys
	hooks *webhooks.Service

	values  map[string]string // the content of files with secrets before the first transaction
	written []string          // files with secrets that the current transaction has written
	oldKeys map[string]oldKey // of an import, by external ID

	// Of the current transaction:
	changes []stateChange
	made    []newSecret
	objects map[objectList][]stateObject
	seen    map[string]bool // IDs of the objects that the file describes
}

type objectList struct {
	accounts.Tenant
	resource api.Resource
}

// stateObject is an object as the API shows it, without what its limits have spent.
type stateObject map[string]json.RawMessage

// UnmarshalJSON reads an object of the API.
func (o *stateObject) UnmarshalJSON(text []byte) (err error) {
	if err := json.Unmarshal(text, (*map[string]json.RawMessage)(o)); err != nil {
		return err
	}
	var limits []map[string]json.RawMessage
	if json.Unmarshal((*o)["limits"], &limits) == nil && len(limits) > 0 {
		for _, l := range limits {
			delete(l, "spent")
		}
		(*o)["limits"], err = json.Marshal(limits)
	}
	return err
}

func (o stateObject) text(field string) (s string) {
	_ = json.Unmarshal(o[field], &s) // null is empty
	return s
}

// stateChange is a change that was made.
type stateChange struct {
	Action      string               `json:"action"` // create or update
	Kind        string               `json:"kind"`
	Workspace   string               `json:"workspace"`
	Environment accounts.Environment `json:"environment,omitzero"`
	Name        string               `json:"name"`
	Fields      []fieldChange        `json:"fields"`
}

type fieldChange struct {
	Field  string          `json:"field"`
	Before json.RawMessage `json:"before,omitzero"`
	After  json.RawMessage `json:"after"`
}

// newSecret is the value of a new key, or the secret of a new endpoint.
type newSecret struct {
	Kind        string               `json:"kind"`
	Workspace   string               `json:"workspace"`
	Environment accounts.Environment `json:"environment"`
	Name        string               `json:"name"`
	ID          string               `json:"id"`
	Value       string               `json:"value"`
	Old         *oldKey              `json:"old,omitzero"` // the key of another gateway that it replaces

	path string // empty for the file of all secrets
}

func (e *env) newApplier(ctx context.Context, s *app.Store, file *applyFile, o applyOptions) (*applier, error) {
	models, err := app.LoadGateway(ctx, s, e.loaded.Config)
	if err != nil {
		return nil, err
	}
	cfg, agents := e.loaded.Webhooks, e.loaded.Agents
	group := db.NewGroup(s.DB)
	hooks := webhooks.New(webhooks.Options{DB: s.DB, Group: group, Ring: s.Ring, Publisher: events.NewPublisher(time.Now), Now: time.Now,
		Outbox: mail.New(s.DB, s.Ring, nil, "", time.Now), Guard: safehttp.New(safehttp.Policy{AllowCIDRs: cfg.AllowCIDRs, AllowHTTP: cfg.AllowHTTP}), PerEndpoint: 1, Slots: 1})
	keys := access.NewKeys(s.Ring, time.Now)
	keys.Max.Store(int64(e.loaded.Limits.Keys))
	return &applier{applyOptions: o, e: e, db: s.DB, group: group, file: file, keys: keys, hooks: hooks,
		local: api.NewLocal(api.Deps{DB: s.DB, Keys: keys, Webhooks: hooks, Gateway: models, Now: time.Now,
			Federation: federation.New(federation.Options{DB: s.DB, Keys: keys, Now: time.Now, Guard: safehttp.New(safehttp.Policy{AllowCIDRs: agents.AllowCIDRs, AllowHTTP: agents.AllowHTTP})}),
			Routes:     &modelroutes.Service{DB: s.DB, Now: time.Now, IsTaken: models.HasRoute}}), values: map[string]string{}}, nil
}

func (a *applier) close() { a.group.Stop() }

var errDryRun = errors.New("nothing was changed")

// apply makes all changes in one transaction, which a dry run rolls back. The secrets are written before the
// commit: a file without its key is harmless, and a key without its value is not.
func (a *applier) apply(ctx context.Context) error {
	return a.finish(a.db.Write(ctx, func(tx *db.Tx) error { return a.attempt(ctx, tx) }))
}

func (a *applier) attempt(ctx context.Context, tx *db.Tx) error {
	if err := a.undoSecrets(); err != nil { // of an attempt that was rolled back
		return err
	}
	a.changes, a.made, a.objects, a.seen = nil, nil, map[objectList][]stateObject{}, map[string]bool{}
	if err := a.applyAll(ctx, tx); err != nil {
		return err
	}
	if a.dryRun {
		return errDryRun
	}
	return a.writeSecrets()
}

// finish removes the secrets of changes that were rolled back.
func (a *applier) finish(err error) error {
	switch {
	case err == nil || a.dryRun && errors.Is(err, errDryRun):
		return nil
	case errors.Is(err, db.ErrInDoubt):
		return fmt.Errorf("%w; the changes may have been made, so their secrets were kept; run the command again", err)
	}
	return errors.Join(err, a.undoSecrets())
}

// undoSecrets restores the files as they were before the transaction.
func (a *applier) undoSecrets() error {
	var failed error
	for _, path := range a.written {
		if before := a.values[path]; before != "" {
			failed = errors.Join(failed, writeSecretFile(path, []byte(before+"\n")))
		} else if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	a.written = nil
	return failed
}

func (a *applier) applyAll(ctx context.Context, tx *db.Tx) error {
	_, fields, err := a.file.mapping(a.file.root, "the file", "workspaces")
	if err != nil {
		return err
	}
	list, err := a.file.list(fields["workspaces"], "workspaces")
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return a.file.fail(a.file.root, "workspaces", "the file must list at least one workspace")
	}
	for _, n := range list {
		if err := a.applyWorkspace(ctx, tx, n); err != nil {
			return err
		}
	}
	return nil
}

// part is a list of a workspace in the file.
type part struct {
	field    string
	resource api.Resource
}

// parts are in the order in which they are applied.
var parts = []part{{"projects", api.ProjectResource}, {"keys", api.KeyResource}, {"federation_rules", api.FederationResource}, {"webhooks", api.EndpointResource}, {"routes", api.RouteResource}}

func (a *applier) applyWorkspace(ctx context.Context, tx *db.Tx, n *yaml.Node) error {
	names, fields, err := a.file.mapping(n, "a workspace")
	if err != nil {
		return err
	}
	name, err := a.file.text(fields["name"], "name")
	if err != nil {
		return err
	}
	if name == "" {
		return a.file.fail(resolve(n), "name", "the workspace needs a name")
	}
	settings := map[string]json.RawMessage{}
	for _, field := range names {
		if field == "name" || slices.ContainsFunc(parts, func(p part) bool { return p.field == field }) {
			continue
		}
		if settings[field], err = a.file.json(fields[field]); err != nil {
			return err
		}
	}
	w, err := a.applySettings(ctx, tx, name, settings)
	if err != nil {
		return a.file.explain(n, err)
	}
	if a.seen[w.ID] {
		return a.file.fail(resolve(n), "name", "the workspace %s is described twice", name)
	}
	a.seen[w.ID] = true
	if err := a.declareRoutes(w, fields["routes"]); err != nil {
		return err
	}
	for _, p := range parts {
		list, err := a.file.list(fields[p.field], p.field)
		if err != nil {
			return err
		}
		for _, one := range list {
			if err := a.applyObject(ctx, tx, w, &declaredObject{node: one, resource: p.resource}); err != nil {
				return err
			}
		}
	}
	return nil
}

// declareRoutes lets the file's projects, keys and rules name its routes, which are created after them.
func (a *applier) declareRoutes(w *accounts.Workspace, n *yaml.Node) error {
	list, err := a.file.list(n, "routes")
	if err != nil {
		return err
	}
	for _, one := range list {
		d := &declaredObject{node: one, resource: api.RouteResource}
		if err := a.readObject(w, d); err != nil {
			return err
		}
		a.local.Declare(d.tenant, api.DeclaredRoute{Project: stateObject(d.fields).text("project"), Name: d.name()})
	}
	return nil
}

// writeSecrets writes the new secrets.
func (a *applier) writeSecrets() error {
	var others []newSecret
	for _, secret := range a.made {
		if secret.path == "" {
			others = append(others, secret)
		}
	}
	if len(others) > 0 && a.secrets == "" {
		return fmt.Errorf("%s %s is new and has a secret, which is shown only once: pass --secrets-file FILE, or set value_file or secret_file", others[0].Kind, others[0].Name)
	}
	for _, secret := range a.made {
		if secret.path == "" {
			continue
		}
		if err := a.writeSecret(secret.path, []byte(secret.Value+"\n")); err != nil {
			return err
		}
	}
	if len(others) == 0 {
		return nil
	}
	var all []newSecret
	if text, err := a.content(a.secrets); err != nil {
		return err
	} else if text != "" {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return fmt.Errorf("%s isn't a file of secrets that turnpike apply has written: %w", a.secrets, err)
		}
	}
	text, err := json.MarshalIndent(append(all, others...), "", "  ")
	if err != nil {
		return err
	}
	return a.writeSecret(a.secrets, append(text, '\n'))
}

// writeSecret writes a file that undoSecrets can restore.
func (a *applier) writeSecret(path string, text []byte) error {
	if _, err := a.content(path); err != nil {
		return err
	}
	if err := writeSecretFile(path, text); err != nil {
		return err
	}
	a.written = append(a.written, path)
	return nil
}

func (a *applier) printChanges() error {
	if a.e.asJSON {
		changes := a.changes
		if changes == nil {
			changes = []stateChange{}
		}
		return a.e.printJSON(map[string]any{"changes": changes, "applied": !a.dryRun})
	}
	for _, c := range a.changes {
		c.print(a.e.out)
	}
	switch n := len(a.changes); {
	case n == 0:
		fmt.Fprintln(a.e.out, "No changes.")
	case a.dryRun:
		fmt.Fprintf(a.e.out, "%d to change. Nothing was changed.\n", n)
	default:
		fmt.Fprintf(a.e.out, "%d changed.\n", n)
	}
	for _, secret := range a.made {
		if !a.dryRun {
			fmt.Fprintf(a.e.err, "The secret of %s is in %s.\n", secret.ID, cmp.Or(secret.path, a.secrets))
		}
	}
	return nil
}

// print prints a change and its fields.
func (c stateChange) print(out io.Writer) {
	sign := map[string]string{"create": "+", "update": "~"}[c.Action]
	where := c.Workspace
	if c.Environment != "" {
		where += ", " + string(c.Environment)
	}
	fmt.Fprintf(out, "%s %s %s (%s)\n", sign, c.Kind, visible(c.Name), visible(where))
	for _, f := range c.Fields {
		if c.Action == "create" {
			fmt.Fprintf(out, "    %s: %s\n", f.Field, visible(string(f.After)))
			continue
		}
		fmt.Fprintf(out, "    %s: %s -> %s\n", f.Field, visible(cmp.Or(string(f.Before), "null")), visible(string(f.After)))
	}
}

// fieldList joins names for an error.
func fieldList(names []string) string { return strings.Join(names, ", ") }
