package operators

import (
	"context"
	"time"

	"turnpike/internal/audit"
)

// Source is where a definition comes from.
type Source string

// The sources of definitions.
const (
	FromConfiguration Source = "configuration" // the file or the environment, which only their own editor changes
	FromDatabase      Source = "database"
	FromDefault       Source = "default" // no one has set it
	FromBinary        Source = "built_in"
)

// Prices are how the server prices models.
type Prices struct {
	MarkupPercent string // a decimal number
	Source        Source // of the markup
	Version       string // what charges record
	TableAsOf     time.Time
	TableSource   Source
}

// Definition is a provider or a route as operators see it.
type Definition struct {
	Kind      Kind
	Name      string
	Source    Source
	Fields    map[string]any // with the keys of the configuration file, without secrets
	Problem   string         // why the server doesn't use it, or empty
	CreatedAt *time.Time     // nil for the configuration's
	UpdatedAt *time.Time
	UpdatedBy string
}

// Test is the result of a real call to a provider.
type Test struct {
	OK      bool
	Model   string // that was called, or empty if only the list of models was read
	Latency time.Duration
	Problem string // what is wrong and what to do, or empty
}

// DiscoveredModel is a model in the list of a provider.
type DiscoveredModel struct {
	ID     string
	Known  bool // the table or the provider's models have it
	Priced bool // clients can call it
}

// Manager manages the definitions. The configuration's are read-only.
type Manager interface {
	List(ctx context.Context, kind Kind) ([]*Definition, error)
	Get(ctx context.Context, kind Kind, name string) (*Definition, error)
	// Create stores a definition, and Update changes the fields that are in the document. Null removes one. Both take
	// JSON with the keys of the configuration file, and apply the change to this process before they return.
	Create(ctx context.Context, by audit.Actor, kind Kind, document []byte) (*Definition, error)
	Update(ctx context.Context, by audit.Actor, ref Ref, document []byte) (*Definition, error)
	Delete(ctx context.Context, by audit.Actor, ref Ref) error
	// TestProvider makes a real call. An empty model means a cheap one.
	TestProvider(ctx context.Context, name, model string) (*Test, error)
	// DiscoverModels asks a provider for its models, and returns unknown ones first.
	DiscoverModels(ctx context.Context, name string) ([]DiscoveredModel, error)
	Prices(ctx context.Context) (*Prices, error)
	// SetPrices changes the markup like Update. Null removes it.
	SetPrices(ctx context.Context, by audit.Actor, document []byte) (*Prices, error)
}

// Ref names a definition.
type Ref struct {
	Kind Kind
	Name string
}
