package app

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"turnpike/internal/catalog"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/operators"
)

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
