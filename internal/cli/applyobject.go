package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math/big"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"

	"turnpike/internal/accounts"
	"turnpike/internal/api"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/visibility"
)

// declaredObject is an object in the file.
type declaredObject struct {
	node     *yaml.Node
	resource api.Resource
	tenant   accounts.Tenant
	id       string // of an object other than a project, if the file has it
	fields   map[string]json.RawMessage
	order    []string          // of the fields
	headers  map[string]string // of an endpoint; nil if the file has none
	key      string            // of a federation rule: an external ID or a name
	path     string            // of the file for its secret
}

// name returns how people know the object.
func (d *declaredObject) name() string {
	return stateObject(d.fields).text(identities[d.resource])
}

// identities are the fields by which people know objects.
var identities = map[api.Resource]string{api.ProjectResource: "id", api.KeyResource: "name", api.FederationResource: "name", api.EndpointResource: "url", api.RouteResource: "name"}

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
		case field == "key" && d.resource == api.FederationResource:
			d.key, err = a.file.text(n, field)
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

// findKey sets the key of a federation rule that names it. The rule may be in the file of the key.
func (a *applier) findKey(ctx context.Context, tx *db.Tx, d *declaredObject) error {
	if d.key == "" {
		return nil
	}
	at := nodeAt(d.node, "key")
	if _, given := d.fields["key_id"]; given {
		return a.file.fail(at, "key", "give either key or key_id")
	}
	list, err := a.list(ctx, tx, objectList{d.tenant, api.KeyResource})
	if err != nil {
		return err
	}
	for _, field := range []string{"external_id", "name"} {
		found := slices.DeleteFunc(slices.Clone(list), func(k stateObject) bool { return k.text(field) != d.key })
		if len(found) > 1 {
			return a.file.fail(at, "key", "%d keys have this %s, such as %s and %s; give the key_id of the one that you mean", len(found), field, found[0].text("id"), found[1].text("id"))
		}
		if len(found) == 1 {
			d.fields["key_id"] = found[0]["id"]
			d.order = append(d.order, "key_id")
			return nil
		}
	}
	return a.file.fail(at, "key", "no active key in this workspace and environment has the external_id or name %q", d.key)
}

func (a *applier) applyObject(ctx context.Context, tx *db.Tx, w *accounts.Workspace, d *declaredObject) error {
	if err := a.readObject(w, d); err != nil {
		return err
	}
	if err := a.findKey(ctx, tx, d); err != nil {
		return err
	}
	before, err := a.find(ctx, tx, d)
	if err != nil {
		return err
	}
	change := stateChange{Action: "create", Kind: string(d.resource), Workspace: w.Name, Environment: d.tenant.Environment, Name: d.name()}
	var after stateObject
	if before == nil {
		if after, err = a.create(ctx, tx, d, &change); err == nil {
			list := objectList{d.tenant, d.resource}
			a.objects[list] = append(a.objects[list], after)
		}
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
	v, err := a.content(path)
	if err != nil {
		return "", fault.Invalid("value_file", "The file can't be read: %v.", err)
	}
	return v, nil
}

// content returns the content of a file with secrets before anything was applied, or "" if it didn't exist.
func (a *applier) content(path string) (string, error) {
	if v, ok := a.values[path]; ok {
		return v, nil
	}
	v, err := readSecretFile(path)
	if err != nil {
		return "", err
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

// updateHeaders adds changed headers of an endpoint to the body, and returns the names of the current ones. A new
// URL needs all headers again.
func (a *applier) updateHeaders(ctx context.Context, tx *db.Tx, d *declaredObject, id string, body map[string]json.RawMessage) (before json.RawMessage, err error) {
	if d.headers == nil {
		return nil, nil
	}
	endpoint, err := a.hooks.Get(ctx, tx, visibility.Filter{Tenant: d.tenant}, id)
	if err != nil {
		return nil, err
	}
	same, err := a.hooks.HasHeaders(endpoint, d.headers)
	if _, moves := body["url"]; err != nil || same && !moves {
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

// sameJSON compares settings. Numbers are compared exactly, and a missing value is null.
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
		if !ok {
			return false
		}
		names := maps.Clone(x)
		maps.Copy(names, y)
		for name := range names {
			if !sameValue(x[name], y[name]) {
				return false
			}
		}
		return true
	}
	return a == b
}
