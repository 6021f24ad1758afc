package app

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/audit"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/operators"
)

// Create stores a definition.
func (m *Definitions) Create(ctx context.Context, by audit.Actor, kind operators.Kind, document []byte) (*operators.Definition, error) {
	fields, err := decodeFields(kind, document)
	if err != nil {
		return nil, err
	}
	d := &operators.Stored{Kind: kind}
	_ = json.Unmarshal(fields["name"], &d.Name) // parsing reports another type
	if isConfigured(m.file(), operators.Ref{Kind: kind, Name: d.Name}) {
		return nil, errConfigured(operators.Ref{Kind: kind, Name: d.Name})
	}
	if d.Document, err = encodeFields(fields); err != nil {
		return nil, err
	}
	return m.store(ctx, by, d, nil)
}

// maxChangeAttempts limits how often a change starts again. Each time, someone else's change was stored.
const maxChangeAttempts = 5

// Update changes the fields of a stored definition that are in the document. It may ask the provider, for which no
// transaction stays open. So if the definition has changed meanwhile, it starts again.
func (m *Definitions) Update(ctx context.Context, by audit.Actor, ref operators.Ref, document []byte) (d *operators.Definition, err error) {
	for range maxChangeAttempts {
		if d, err = m.update(ctx, by, ref, document); !fault.Is(err, fault.Conflict) {
			break
		}
	}
	return d, err
}

func (m *Definitions) update(ctx context.Context, by audit.Actor, ref operators.Ref, document []byte) (*operators.Definition, error) {
	changes, err := decodeFields(ref.Kind, document)
	if err != nil {
		return nil, err
	}
	d, err := m.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if isConfigured(m.file(), ref) {
		return nil, errConfigured(ref)
	}
	if name, given := changes["name"]; given && string(name) != fmt.Sprintf("%q", ref.Name) {
		return nil, fault.Invalid("name", "name cannot be changed. Create another %s, and delete this one.", ref.Kind)
	}
	fields, err := decodeFields(ref.Kind, d.Document)
	if err != nil {
		return nil, err
	}
	before := *d
	maps.Copy(fields, changes)
	if d.Document, err = encodeFields(fields); err != nil {
		return nil, err
	}
	if err := keepsSecretsAtHome(&before, d, changes); err != nil {
		return nil, err
	}
	return m.store(ctx, by, d, &before)
}

// find returns a stored definition. One that only the configuration has can't be changed.
func (m *Definitions) find(ctx context.Context, ref operators.Ref) (*operators.Stored, error) {
	d, err := m.records.Get(ctx, m.db, ref.Kind, ref.Name)
	if err != nil {
		return nil, err
	}
	if d == nil && isConfigured(m.file(), ref) {
		return nil, errConfigured(ref)
	}
	if d == nil {
		return nil, noSuchDefinition(ref.Kind, ref.Name)
	}
	return d, nil
}

// Delete deletes a stored definition.
func (m *Definitions) Delete(ctx context.Context, by audit.Actor, ref operators.Ref) error {
	d, err := m.find(ctx, ref)
	if err != nil {
		return err
	}
	if err := m.db.Write(ctx, func(tx *db.Tx) error { return m.records.Delete(ctx, tx, by, d) }); err != nil {
		return err
	}
	return m.applied(ctx)
}

// decodeFields reads the fields of a document and rejects unknown ones.
func decodeFields(kind operators.Kind, document []byte) (map[string]jsontext.Value, error) {
	fields := map[string]jsontext.Value{}
	if err := jsonbody.DecodeStrict(document, &fields); err != nil {
		return nil, err
	}
	known := config.StoredProviderKeys()
	switch kind {
	case operators.Route:
		known = config.StoredRouteKeys()
	case operators.Pricing:
		known = config.StoredPricingKeys()
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, name) {
			return nil, fault.Param(fault.UnknownParameter, name, "Unknown field %q. Allowed fields: %s.", name, strings.Join(known, ", "))
		}
	}
	return fields, nil
}

// encodeFields returns a document without the fields that are null.
func encodeFields(fields map[string]jsontext.Value) ([]byte, error) {
	maps.DeleteFunc(fields, func(_ string, value jsontext.Value) bool { return value.Kind() == jsontext.KindNull })
	return json.Marshal(fields, json.Deterministic(true))
}

// keepsSecretsAtHome rejects a new address without new secrets: the old ones must not be sent to another server
// unnoticed.
func keepsSecretsAtHome(before, after *operators.Stored, changes map[string]jsontext.Value) error {
	was, err := parseStored(before)
	if err != nil || was.provider == nil {
		return nil // nothing can use its secrets
	}
	is, err := parseStored(after)
	if err != nil {
		return err
	}
	old, next := was.provider, is.provider
	if origin(string(old.BaseURL)) == origin(string(next.BaseURL)) {
		return nil
	}
	for name, has := range map[string]bool{"api_key": old.APIKey != "", "api_keys": len(old.APIKeys) > 0, "headers": len(old.Headers) > 0} {
		if _, given := changes[name]; has && !given {
			return fault.Missing(name, "The provider has %s, which must not be sent to another server unnoticed. Set it again or remove it in the same change.", name)
		}
	}
	return nil
}

func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

// store checks a definition and stores it. A nil before means that it is new.
func (m *Definitions) store(ctx context.Context, by audit.Actor, d, before *operators.Stored) (*operators.Definition, error) {
	parsed, err := parseStored(d)
	if err != nil {
		return nil, err
	}
	e, err := m.checkTogether(ctx, d)
	if err != nil {
		return nil, err
	}
	if parsed.provider != nil {
		err = checkKey(ctx, parsed.provider, before)
	} else if parsed.route != nil {
		err = checkRoute(e, *parsed.route)
	}
	if err != nil {
		return nil, err
	}
	err = m.db.Write(ctx, func(tx *db.Tx) error {
		if before == nil {
			return m.records.Create(ctx, tx, by, d, parsed.fields())
		}
		return m.records.Update(ctx, tx, by, d, parsed.fields())
	})
	if err != nil {
		return nil, err
	}
	return e.define(d), m.applied(ctx)
}

// applied applies the change to this process, so that the next request sees it.
func (m *Definitions) applied(ctx context.Context) error {
	if m.refresh == nil {
		return nil
	}
	return m.refresh(ctx)
}
