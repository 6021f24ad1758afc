package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/operators"
	"turnpike/internal/providers"
)

// effective is the configuration together with the definitions in the database.
type effective struct {
	config   config.Config
	table    *catalog.Table // nil for the embedded one
	catalog  *catalog.Catalog
	problems map[operators.Ref]string // why a stored definition isn't used
}

// mergeStored adds the stored definitions to the configuration. An invalid one is left out, because it must not keep
// the server from starting: a newer file or version may contradict what was valid once.
func mergeStored(file config.Config, stored []*operators.Stored) (*effective, error) {
	all := newEffective(file, stored)
	models, err := loadCatalog(all.config, all.table)
	if err == nil {
		all.catalog = models
		return all, nil
	}
	var valid []*operators.Stored
	problems := all.problems
	for _, d := range stored {
		next := newEffective(file, append(slices.Clip(valid), d))
		if _, err := loadCatalog(next.config, next.table); err != nil {
			problems[operators.Ref{Kind: d.Kind, Name: d.Name}] = messageOf(err)
			continue
		}
		valid = append(valid, d)
	}
	out := newEffective(file, valid)
	maps.Copy(problems, out.problems)
	out.problems = problems
	out.catalog, err = loadCatalog(out.config, out.table)
	return out, err
}

func newEffective(file config.Config, stored []*operators.Stored) *effective {
	e := &effective{problems: map[operators.Ref]string{}}
	var list []config.Provider
	var routes []config.Route
	var prices config.Pricing
	for _, d := range stored {
		ref := operators.Ref{Kind: d.Kind, Name: d.Name}
		parsed, err := parseStored(d)
		switch {
		case isConfigured(file, ref):
			e.problems[ref] = fmt.Sprintf("The configuration also defines %s, and wins.", d.Name)
		case err != nil:
			e.problems[ref] = messageOf(err)
		case parsed.provider != nil:
			list = append(list, *parsed.provider)
		case parsed.route != nil:
			routes = append(routes, *parsed.route)
		case parsed.prices != nil:
			prices = *parsed.prices
		case parsed.table != nil:
			if problem := outdated(parsed.table); problem != "" {
				e.problems[ref] = problem
				continue
			}
			e.table = parsed.table
		}
	}
	e.config = file.WithStored(list, routes, prices)
	return e
}

// outdated returns why a stored table isn't used: a new version of Turnpike can have a newer one.
func outdated(t *catalog.Table) string {
	if builtIn, err := catalog.Embedded(); err == nil && builtIn.AsOf.After(t.AsOf) {
		return fmt.Sprintf("The built-in table of %s is newer than the stored one of %s, and is used.", builtIn.AsOf.Format(time.DateOnly), t.AsOf.Format(time.DateOnly))
	}
	return ""
}

func messageOf(err error) string {
	if f, ok := fault.As(err); ok {
		return f.Message
	}
	return err.Error()
}

func isConfigured(file config.Config, ref operators.Ref) bool {
	switch ref.Kind {
	case operators.Provider:
		return file.HasProvider(ref.Name)
	case operators.Route:
		return file.HasRoute(ref.Name)
	case operators.Pricing:
		return file.MarkupPercent != ""
	}
	return false
}

// parsedDefinition has what a stored definition defines.
type parsedDefinition struct {
	provider *config.Provider
	route    *config.Route
	prices   *config.Pricing
	table    *catalog.Table
}

// fields returns the definition without secrets.
func (p parsedDefinition) fields() map[string]any {
	switch {
	case p.provider != nil:
		return describeProvider(*p.provider)
	case p.route != nil:
		return config.Describe(*p.route)
	case p.prices != nil:
		return config.Describe(*p.prices)
	case p.table != nil:
		return map[string]any{"as_of": p.table.AsOf.Format(time.DateOnly)}
	}
	return map[string]any{}
}

func parseStored(d *operators.Stored) (parsedDefinition, error) {
	if d.Document == nil {
		return parsedDefinition{}, fault.New(fault.InvalidState, "It cannot be decrypted with this master key.")
	}
	switch d.Kind {
	case operators.Provider:
		p, err := config.ParseProvider(d.Document)
		return parsedDefinition{provider: &p}, documentFault(err)
	case operators.Route:
		r, err := config.ParseRoute(d.Document)
		return parsedDefinition{route: &r}, documentFault(err)
	case operators.Pricing:
		p, err := config.ParsePricing(d.Document)
		return parsedDefinition{prices: &p}, documentFault(err)
	case operators.Catalog:
		t, err := catalog.ParseTable(d.Document)
		return parsedDefinition{table: t}, err
	}
	return parsedDefinition{}, fault.New(fault.InvalidState, "This version does not know the kind %q.", d.Kind)
}

// documentFault makes the problems of a document errors of the API.
func documentFault(err error) error {
	problems, ok := errors.AsType[config.Problems](err)
	if !ok {
		return err
	}
	errs := make([]error, len(problems))
	for i, p := range problems {
		if p.Setting == "" {
			return fault.New(fault.InvalidJSON, "The body must be a JSON object.")
		}
		errs[i] = fault.Invalid(p.Setting, "%s %s.", p.Setting, p.Message)
	}
	return errors.Join(errs...)
}

// Definitions manages the providers and routes that are stored in the database. It implements operators.Manager.
type Definitions struct {
	db      *db.DB
	records operators.Definitions
	file    func() config.Config            // without what is stored
	refresh func(ctx context.Context) error // applies a change to this process; nil without a server

	mu     sync.Mutex
	merged mergedDefinitions // the last ones: pricing the whole table takes a while
}

type mergedDefinitions struct {
	file   config.Config
	stored []*operators.Stored
	result *effective
}

var _ operators.Manager = (*Definitions)(nil)

// NewDefinitions is for commands. The servers get a signal.
func NewDefinitions(s *Store, file config.Config) *Definitions {
	return &Definitions{db: s.DB, records: operators.Definitions{Ring: s.Ring, Now: time.Now}, file: func() config.Config { return file }}
}

func (m *Definitions) effective(ctx context.Context) (*effective, []*operators.Stored, error) {
	stored, err := m.records.All(ctx, m.db)
	if err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	file := m.file()
	if last := m.merged; last.result != nil && slices.EqualFunc(last.stored, stored, (*operators.Stored).Equal) && reflect.DeepEqual(last.file, file) {
		return last.result, stored, nil
	}
	e, err := mergeStored(file, stored)
	if err == nil {
		m.merged = mergedDefinitions{file, stored, e}
	}
	return e, stored, err
}

// List returns the configuration's definitions and then the stored ones.
func (m *Definitions) List(ctx context.Context, kind operators.Kind) ([]*operators.Definition, error) {
	e, stored, err := m.effective(ctx)
	if err != nil {
		return nil, err
	}
	list := configured(m.file(), kind)
	for _, d := range stored {
		if d.Kind == kind {
			list = append(list, e.define(d))
		}
	}
	return list, nil
}

// configured returns the definitions of the file and the environment.
func configured(file config.Config, kind operators.Kind) (list []*operators.Definition) {
	add := func(name string, fields map[string]any) {
		list = append(list, &operators.Definition{Kind: kind, Name: name, Source: operators.FromConfiguration, Fields: fields})
	}
	if kind == operators.Provider {
		for _, p := range file.Providers {
			add(p.Name, describeProvider(p))
		}
		return list
	}
	for _, r := range file.Routes {
		add(r.Name, config.Describe(r))
	}
	return list
}

// describeProvider returns a provider without secrets. The end of a key tells operators which one it is.
func describeProvider(p config.Provider) map[string]any {
	fields := config.Describe(p)
	// How the configuration gets a key, such as the arguments of a command, isn't for the API.
	maps.DeleteFunc(fields, func(name string, _ any) bool {
		return name == "api_key" || name != "api_key_env" && !slices.Contains(config.StoredProviderKeys(), name)
	})
	if p.APIKey != "" {
		fields["api_key_hint"] = keyHint(string(p.APIKey))
	}
	if len(p.APIKeys) > 0 {
		keys := make([]any, len(p.APIKeys))
		for i, k := range p.APIKeys {
			keys[i] = map[string]any{"api_key_hint": keyHint(string(k.APIKey)), "weight": k.Weight}
		}
		fields["api_keys"] = keys
	}
	return fields
}

// keyHint returns the last characters of a key that is long enough to stay a secret.
func keyHint(key string) string {
	if len(key) < 20 {
		return "…"
	}
	return "…" + key[len(key)-4:]
}

func (e *effective) define(d *operators.Stored) *operators.Definition {
	out := &operators.Definition{Kind: d.Kind, Name: d.Name, Source: operators.FromDatabase, Fields: map[string]any{"name": d.Name},
		Problem: e.problems[operators.Ref{Kind: d.Kind, Name: d.Name}], CreatedAt: &d.CreatedAt, UpdatedAt: &d.UpdatedAt, UpdatedBy: d.UpdatedBy}
	if parsed, err := parseStored(d); err == nil {
		out.Fields = parsed.fields()
	}
	return out
}

// Get returns a definition. The configuration's wins over a stored one.
func (m *Definitions) Get(ctx context.Context, kind operators.Kind, name string) (*operators.Definition, error) {
	list, err := m.List(ctx, kind)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(d *operators.Definition) bool { return d.Name == name })
	if i < 0 {
		return nil, noSuchDefinition(kind, name)
	}
	return list[i], nil
}

func noSuchDefinition(kind operators.Kind, name string) error {
	return fault.New(fault.NotFound, "No %s has the name %q.", kind, name)
}

func errConfigured(ref operators.Ref) error {
	if ref.Kind == operators.Pricing {
		return fault.Param(fault.InvalidState, "markup_percent", "The server's configuration defines markup_percent. Change it in the configuration file or the environment.")
	}
	return fault.Param(fault.InvalidState, "name", "The server's configuration defines the %s %q. Change it in the configuration file or the environment, or choose another name.", ref.Kind, ref.Name)
}

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

// Update changes the fields of a stored definition that are in the document.
func (m *Definitions) Update(ctx context.Context, by audit.Actor, ref operators.Ref, document []byte) (*operators.Definition, error) {
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
			return fault.Missing(name, "The provider has %s, which must not be sent to another server unnoticed. Send it together with the new base_url, or null to remove it.", name)
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

// checkTogether returns the configuration with the definition, or why it isn't possible.
func (m *Definitions) checkTogether(ctx context.Context, d *operators.Stored) (*effective, error) {
	stored, err := m.records.All(ctx, m.db)
	if err != nil {
		return nil, err
	}
	stored = slices.DeleteFunc(stored, func(other *operators.Stored) bool { return other.Kind == d.Kind && other.Name == d.Name })
	e, err := mergeStored(m.file(), append(stored, d))
	if err != nil {
		return nil, err
	}
	if problem := e.problems[operators.Ref{Kind: d.Kind, Name: d.Name}]; problem != "" {
		return nil, fault.Invalid(catalogParam(d.Kind, problem), "%s%s.", strings.ToUpper(problem[:1]), strings.TrimSuffix(problem[1:], "."))
	}
	return e, nil
}

// catalogParam returns the field that a problem of the catalog is about.
func catalogParam(kind operators.Kind, problem string) string {
	if kind == operators.Pricing {
		return "markup_percent"
	}
	for _, about := range [][2]string{{"unknown table", "catalog"}, {"default price", "default_price"}, {"tool prices", "tool_prices"}} {
		if strings.Contains(problem, about[0]) {
			return about[1]
		}
	}
	return "models"
}

// checkRoute rejects a route to models that no provider has at a known price.
func checkRoute(e *effective, r config.Route) error {
	for i, model := range r.Models {
		offered := slices.ContainsFunc(e.config.Providers, func(p config.Provider) bool { o := e.catalog.Offer(p.Name, model); return o != nil && o.Priced })
		if !offered {
			return fault.Invalid(fmt.Sprintf("models[%d]", i), "No provider offers the model %q at a known price. Add a provider or a price first.", model)
		}
	}
	return nil
}

// applied applies the change to this process, so that the next request sees it.
func (m *Definitions) applied(ctx context.Context) error {
	if m.refresh == nil {
		return nil
	}
	return m.refresh(ctx)
}

// checkKeyTimeout is how long a provider may take to list its models.
const checkKeyTimeout = 5 * time.Second

// checkKey rejects a key that the provider rejects. Everything else, such as a server that isn't reachable yet, is up
// to the test of the provider.
func checkKey(ctx context.Context, p *config.Provider, before *operators.Stored) error {
	if before != nil {
		was, err := parseStored(before)
		if old := was.provider; err == nil && old.APIKey == p.APIKey && slices.Equal(old.APIKeys, p.APIKeys) && old.BaseURL == p.BaseURL && old.Type == p.Type {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, checkKeyTimeout)
	defer cancel()
	single := *p
	single.APIKeys = nil
	keys := map[string]config.Secret{"api_key": p.APIKey}
	for i, k := range p.APIKeys {
		keys[fmt.Sprintf("api_keys[%d].api_key", i)] = k.APIKey
	}
	for param, key := range keys {
		if single.APIKey = key; key == "" {
			continue
		}
		_, err := listModels(ctx, single)
		if f, ok := errors.AsType[*providers.Failure](err); ok && f.Kind == providers.KindAuth && (f.Status == http.StatusUnauthorized || f.Status == http.StatusBadRequest) {
			return fault.Invalid(param, "The provider rejects this key (%d). Check %s and base_url.", f.Status, param)
		}
	}
	return nil
}

// Merged is the configuration with the definitions in the database.
type Merged struct {
	Config   config.Config
	Catalog  *catalog.Catalog
	Problems map[operators.Ref]string // why stored definitions aren't used
}

// WithStored adds the definitions in the database to the configuration.
func WithStored(ctx context.Context, s *Store, file config.Config) (*Merged, error) {
	e, _, err := NewDefinitions(s, file).effective(ctx)
	if err != nil {
		return nil, err
	}
	return &Merged{e.config, e.catalog, e.problems}, nil
}
