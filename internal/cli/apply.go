package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
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
	"turnpike/internal/fault"
	"turnpike/internal/mail"
	"turnpike/internal/modelroutes"
	"turnpike/internal/safehttp"
	"turnpike/internal/visibility"
	"turnpike/internal/webhooks"
)

func newApply(e *env) *cobra.Command {
	var o applyOptions
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create and update what a YAML file describes",
		Long: `Creates and updates the workspaces, projects, keys, webhook endpoints and routes
that a YAML file describes, and prints the changes. Fields that the file omits stay as
they are, and nothing is deleted. Either everything is applied or nothing. A
second run changes nothing.

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

	values  map[string]string // of the value files, as they were before the first transaction
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

// stateObject is an object as the API shows it.
type stateObject map[string]json.RawMessage

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
	cfg := e.loaded.Webhooks
	group := db.NewGroup(s.DB)
	hooks := webhooks.New(webhooks.Options{DB: s.DB, Group: group, Ring: s.Ring, Publisher: events.NewPublisher(time.Now), Now: time.Now,
		Outbox: mail.New(s.DB, s.Ring, nil, "", time.Now), Guard: safehttp.New(safehttp.Policy{AllowCIDRs: cfg.AllowCIDRs, AllowHTTP: cfg.AllowHTTP}), PerEndpoint: 1, Slots: 1})
	keys := access.NewKeys(s.Ring, time.Now)
	keys.Max.Store(int64(e.loaded.Limits.Keys))
	return &applier{applyOptions: o, e: e, db: s.DB, group: group, file: file, keys: keys, hooks: hooks,
		local: api.NewLocal(api.Deps{DB: s.DB, Keys: keys, Webhooks: hooks, Gateway: models, Now: time.Now,
			Routes: &modelroutes.Service{DB: s.DB, Now: time.Now, IsTaken: models.HasRoute}}), values: map[string]string{}}, nil
}

func (a *applier) close() { a.group.Stop() }

var errDryRun = errors.New("nothing was changed")

// apply makes all changes in one transaction, which a dry run rolls back. The secrets are written before the
// commit: a file without its key is harmless, and a key without its value is not.
func (a *applier) apply(ctx context.Context) error {
	var written []string
	err := a.db.Write(ctx, func(tx *db.Tx) error {
		a.changes, a.made, a.objects, a.seen = nil, nil, map[objectList][]stateObject{}, map[string]bool{}
		if err := a.applyAll(ctx, tx); err != nil {
			return err
		}
		if a.dryRun {
			return errDryRun
		}
		var err error
		written, err = a.writeSecrets()
		return err
	})
	if err == nil || a.dryRun && errors.Is(err, errDryRun) {
		return nil
	}
	for _, path := range written {
		if path != a.secrets {
			_ = os.Remove(path)
		}
	}
	return err
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
var parts = []part{{"projects", api.ProjectResource}, {"keys", api.KeyResource}, {"webhooks", api.EndpointResource}, {"routes", api.RouteResource}}

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

// declaredObject is an object in the file.
type declaredObject struct {
	node     *yaml.Node
	resource api.Resource
	tenant   accounts.Tenant
	id       string // of a key or an endpoint, if the file has it
	fields   map[string]json.RawMessage
	order    []string          // of the fields
	headers  map[string]string // of an endpoint; nil if the file has none
	path     string            // of the file for its secret
}

// name returns how people know the object.
func (d *declaredObject) name() string {
	return stateObject(d.fields).text(identities[d.resource])
}

// identities are the fields by which people know objects.
var identities = map[api.Resource]string{api.ProjectResource: "id", api.KeyResource: "name", api.EndpointResource: "url", api.RouteResource: "name"}

func (a *applier) readObject(w *accounts.Workspace, d *declaredObject) error {
	names, fields, err := a.file.mapping(d.node, "a "+string(d.resource))
	if err != nil {
		return err
	}
	d.tenant, d.fields = w.In(accounts.Live), map[string]json.RawMessage{}
	for _, field := range names {
		n := fields[field]
		switch {
		case field == "environment":
			text, err := a.file.text(n, field)
			if err != nil {
				return err
			}
			env, err := accounts.ParseEnvironment(text)
			if err != nil {
				return a.file.explain(d.node, err)
			}
			d.tenant = w.In(env)
		case field == "id" && d.resource != api.ProjectResource:
			d.id, err = a.file.text(n, field)
		case field == "value_file" && d.resource == api.KeyResource, field == "secret_file" && d.resource == api.EndpointResource:
			d.path, err = a.file.path(n, field)
		case field == "headers" && d.resource == api.EndpointResource:
			d.headers, err = a.readHeaders(n)
		default:
			d.fields[field], err = a.file.json(n)
			d.order = append(d.order, field)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readHeaders reads headers with their values, or with the file or the variable that has them.
func (a *applier) readHeaders(n *yaml.Node) (map[string]string, error) {
	names, fields, err := a.file.mapping(n, "headers")
	headers := map[string]string{}
	for _, name := range names {
		value := resolve(fields[name])
		if value.Kind == yaml.ScalarNode {
			if headers[name], err = a.file.text(value, "headers."+name); err != nil {
				return nil, err
			}
			continue
		}
		_, from, err := a.file.mapping(value, "headers."+name, "file", "env")
		if err != nil {
			return nil, err
		}
		path, err := a.file.path(from["file"], "file")
		if err != nil {
			return nil, err
		}
		variable, err := a.file.text(from["env"], "env")
		if err != nil {
			return nil, err
		}
		switch {
		case path != "" && variable == "":
			headers[name], err = readSecretFile(path)
		case path == "" && variable != "":
			headers[name] = os.Getenv(variable)
		default:
			return nil, a.file.fail(value, "headers."+name, "give either file or env")
		}
		if err != nil {
			return nil, a.file.fail(value, "headers."+name, "%v", err)
		}
		if headers[name] == "" {
			return nil, a.file.fail(value, "headers."+name, "%s is empty or missing", cmp.Or(path, variable))
		}
	}
	return headers, err
}

// list returns the objects that exist, and that this transaction has created.
func (a *applier) list(ctx context.Context, tx *db.Tx, key objectList) ([]stateObject, error) {
	if list, ok := a.objects[key]; ok {
		return list, nil
	}
	texts, err := a.local.List(ctx, tx, key.resource, key.Tenant)
	if err != nil {
		return nil, err
	}
	list := make([]stateObject, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal(text, &list[i]); err != nil {
			return nil, err
		}
	}
	a.objects[key] = list
	return list, nil
}

// find returns the object that the file describes, or nil if it doesn't exist. Keys are found by external_id
// or by name, and endpoints by url, unless the file has an ID.
func (a *applier) find(ctx context.Context, tx *db.Tx, d *declaredObject) (stateObject, error) {
	list, err := a.list(ctx, tx, objectList{d.tenant, d.resource})
	if err != nil {
		return nil, err
	}
	want := stateObject(d.fields)
	by := []string{identities[d.resource]}
	if d.resource == api.KeyResource {
		by = []string{"external_id", "name"}
	}
	field, value := "id", d.id
	for _, name := range by {
		if value == "" {
			field, value = name, want.text(name)
		}
	}
	var found []stateObject
	for _, o := range list {
		if d.resource == api.RouteResource && o.text("project") != want.text("project") {
			continue // a project's route may have the name of the workspace's
		}
		if value != "" && o.text(field) == value {
			found = append(found, o)
		}
	}
	switch {
	case len(found) == 0 && d.id != "":
		return nil, a.file.fail(nodeAt(d.node, "id"), "id", "there is no active %s %s in this workspace and environment", d.resource, d.id)
	case len(found) == 0:
		return nil, nil
	case len(found) > 1:
		return nil, a.file.fail(nodeAt(d.node, field), field, "%d objects of this kind have it, such as %s and %s; add the id of the one that you mean", len(found), found[0].text("id"), found[1].text("id"))
	case a.seen[d.tenant.Path()+found[0].text("id")]:
		return nil, a.file.fail(resolve(d.node), field, "the %s is described twice", d.resource)
	}
	return found[0], nil
}

func (a *applier) applyObject(ctx context.Context, tx *db.Tx, w *accounts.Workspace, d *declaredObject) error {
	if err := a.readObject(w, d); err != nil {
		return err
	}
	before, err := a.find(ctx, tx, d)
	if err != nil {
		return err
	}
	change := stateChange{Action: "create", Kind: string(d.resource), Workspace: w.Name, Environment: d.tenant.Environment, Name: d.name()}
	var after stateObject
	if before == nil {
		after, err = a.create(ctx, tx, d, &change)
	} else {
		change.Action, after = "update", before
		err = a.update(ctx, tx, d, before, &change)
	}
	if err != nil {
		return a.file.explain(d.node, err)
	}
	a.seen[d.tenant.Path()+after.text("id")] = true
	if change.Action == "create" || len(change.Fields) > 0 {
		a.changes = append(a.changes, change)
	}
	return nil
}

func (a *applier) create(ctx context.Context, tx *db.Tx, d *declaredObject, change *stateChange) (stateObject, error) {
	for _, field := range d.order {
		change.Fields = append(change.Fields, fieldChange{Field: field, After: d.fields[field]})
	}
	if len(d.headers) > 0 {
		d.fields["headers"], _ = json.Marshal(d.headers) // strings: cannot fail
		change.Fields = append(change.Fields, fieldChange{Field: "headers", After: headerNames(d.headers)})
	}
	body, err := json.Marshal(d.fields)
	if err != nil {
		return nil, err
	}
	text, err := a.local.Create(ctx, tx, d.resource, d.tenant, body)
	if err != nil {
		return nil, err
	}
	var o stateObject
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	secret := newSecret{Kind: string(d.resource), Workspace: change.Workspace, Environment: d.tenant.Environment, Name: change.Name, ID: o.text("id"),
		Value: cmp.Or(o.text("value"), o.text("secret")), path: d.path}
	if old, ok := a.oldKeys[o.text("external_id")]; ok && d.resource == api.KeyResource {
		secret.Old = &old
	}
	if d.resource == api.KeyResource && d.path != "" {
		stored, err := a.value(d.path)
		if err != nil {
			return nil, err
		}
		if stored != "" {
			k, err := a.keys.FindLocked(ctx, tx, secret.ID)
			if err != nil {
				return nil, err
			}
			return o, a.keys.UseValue(ctx, tx, k, stored)
		}
	}
	if secret.Value != "" {
		a.made = append(a.made, secret)
	}
	return o, nil
}

// value returns the content of a value file before anything was applied.
func (a *applier) value(path string) (string, error) {
	if v, ok := a.values[path]; ok {
		return v, nil
	}
	v, err := readSecretFile(path)
	if err != nil {
		return "", fault.Invalid("value_file", "The file can't be read: %v.", err)
	}
	a.values[path] = v
	return v, nil
}

// update changes the fields that differ. The API may store a value in another form, so the stored ones are
// compared again.
func (a *applier) update(ctx context.Context, tx *db.Tx, d *declaredObject, before stateObject, change *stateChange) error {
	body := map[string]json.RawMessage{}
	for _, field := range d.order {
		if field == "id" || sameJSON(before[field], d.fields[field]) {
			continue
		}
		body[field] = d.fields[field]
	}
	id := before.text("id")
	headersBefore, err := a.updateHeaders(ctx, tx, d, id, body)
	if err != nil {
		return err
	}
	if d.resource == api.KeyResource && d.path != "" {
		if err := a.checkValue(ctx, tx, d, id); err != nil {
			return err
		}
	}
	if len(body) == 0 {
		return nil
	}
	request, err := json.Marshal(body)
	if err != nil {
		return err
	}
	text, err := a.local.Update(ctx, tx, api.Target{Tenant: d.tenant, Resource: d.resource, ID: id}, request)
	if err != nil {
		return err
	}
	var after stateObject
	if err := json.Unmarshal(text, &after); err != nil {
		return err
	}
	for _, field := range d.order {
		if _, changed := body[field]; changed && !sameJSON(before[field], after[field]) {
			change.Fields = append(change.Fields, fieldChange{field, before[field], after[field]})
		}
	}
	if _, changed := body["headers"]; changed {
		change.Fields = append(change.Fields, fieldChange{"headers", headersBefore, headerNames(d.headers)})
	}
	return nil
}

// updateHeaders adds changed headers of an endpoint to the body, and returns the names of the current ones.
func (a *applier) updateHeaders(ctx context.Context, tx *db.Tx, d *declaredObject, id string, body map[string]json.RawMessage) (before json.RawMessage, err error) {
	if d.headers == nil {
		return nil, nil
	}
	endpoint, err := a.hooks.Get(ctx, tx, visibility.Filter{Tenant: d.tenant}, id)
	if err != nil {
		return nil, err
	}
	same, err := a.hooks.HasHeaders(endpoint, d.headers)
	if err != nil || same {
		return nil, err
	}
	if body["headers"], err = json.Marshal(endpoint.ReplaceHeaders(d.headers)); err != nil {
		return nil, err
	}
	return json.Marshal(endpoint.HeaderNames())
}

// checkValue checks that the value file of an existing key has its value.
func (a *applier) checkValue(ctx context.Context, tx *db.Tx, d *declaredObject, id string) error {
	stored, err := a.value(d.path)
	if err != nil {
		return err
	}
	if stored == "" {
		return fault.Invalid("value_file", "The key exists, but this file doesn't, and Turnpike can't show the value again. Remove value_file, or rotate the key (turnpike keys rotate %s) and write the new value to the file.", id)
	}
	same, err := a.keys.HasValue(ctx, tx, id, stored)
	if err == nil && !same {
		err = fault.Invalid("value_file", "The file has another value than the key %s. Write the current value to the file, or rotate the key.", id)
	}
	return err
}

// headerNames returns names with hidden values.
func headerNames(headers map[string]string) json.RawMessage {
	names := []string{}
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names)
	text, _ := json.Marshal(names) // strings: cannot fail
	return text
}

// sameJSON compares values. Numbers are compared exactly, and a missing value is null.
func sameJSON(a, b json.RawMessage) bool {
	read := func(text json.RawMessage) (v any) {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		_ = decoder.Decode(&v) // missing: null
		return v
	}
	return sameValue(read(a), read(b))
}

func sameValue(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		first, valid := new(big.Rat).SetString(string(x))
		second, alsoValid := new(big.Rat).SetString(string(y))
		return ok && valid && alsoValid && first.Cmp(second) == 0
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, sameValue)
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for name, v := range x {
			other, exists := y[name]
			if !exists || !sameValue(v, other) {
				return false
			}
		}
		return true
	}
	return a == b
}

// writeSecrets writes the new secrets and returns the files.
func (a *applier) writeSecrets() (written []string, err error) {
	var others []newSecret
	for _, secret := range a.made {
		if secret.path == "" {
			others = append(others, secret)
		}
	}
	if len(others) > 0 && a.secrets == "" {
		return nil, fmt.Errorf("%s %s is new and has a secret, which is shown only once: pass --secrets-file FILE, or set value_file or secret_file", others[0].Kind, others[0].Name)
	}
	for _, secret := range a.made {
		if secret.path == "" {
			continue
		}
		if err := writeSecretFile(secret.path, []byte(secret.Value+"\n")); err != nil {
			return written, err
		}
		written = append(written, secret.path)
	}
	if len(others) == 0 {
		return written, nil
	}
	var all []newSecret
	if text, err := readSecretFile(a.secrets); err != nil {
		return written, err
	} else if text != "" {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return written, fmt.Errorf("%s isn't a file of secrets that turnpike apply has written: %w", a.secrets, err)
		}
	}
	text, err := json.MarshalIndent(append(all, others...), "", "  ")
	if err != nil {
		return written, err
	}
	return append(written, a.secrets), writeSecretFile(a.secrets, append(text, '\n'))
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

// keyFields returns the fields of a key that can be set.
func (a *applier) keyFields() []string { return a.local.Fields(api.KeyResource) }

// fieldList joins names for an error.
func fieldList(names []string) string { return strings.Join(names, ", ") }
