package operators

import (
	"context"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

// Kind is what a definition defines.
type Kind string

// The kinds of definitions.
const (
	Provider Kind = "provider"
	Route    Kind = "route"
	Pricing  Kind = "pricing" // the markup
	Catalog  Kind = "catalog" // a model table
)

// The names of definitions that exist once.
const (
	PricingName = "markup"
	CatalogName = "models"
)

// SignalDefinitions tells all nodes that a definition has changed.
const SignalDefinitions = "operators.definitions"

// Stored is a definition in the database.
type Stored struct {
	Kind      Kind
	Name      string
	Document  []byte // JSON with the keys of the configuration file, and with secrets; nil if it can't be decrypted
	CreatedAt time.Time
	UpdatedAt time.Time
	UpdatedBy string

	sealed string // as it was read
}

// Equal reports whether two definitions are the same version.
func (d *Stored) Equal(other *Stored) bool {
	return d.Kind == other.Kind && d.Name == other.Name && d.sealed == other.sealed
}

// Definitions reads and writes definitions.
type Definitions struct {
	Ring *keyring.Ring
	Now  func() time.Time
}

const definitionColumns = "kind, name, sealed, created_at, updated_at, updated_by"

var scanDefinition = db.Scanner(func(d *Stored) []any {
	return []any{&d.Kind, &d.Name, &d.sealed, &d.CreatedAt, &d.UpdatedAt, &d.UpdatedBy}
})

// location binds the sealed document to its kind and name.
func (d *Stored) location() string { return "definition " + string(d.Kind) + " " + d.Name }

func (s Definitions) open(d *Stored) (err error) {
	if d.Document, err = s.Ring.Open(d.sealed, d.location()); err != nil {
		return fmt.Errorf("%s %s: %w", d.Kind, d.Name, err)
	}
	return nil
}

// All returns all definitions, by kind and name.
func (s Definitions) All(ctx context.Context, q db.Querier) ([]*Stored, error) {
	list, err := db.List(ctx, q, scanDefinition, "SELECT "+definitionColumns+" FROM definitions ORDER BY kind, name")
	if err != nil {
		return nil, fmt.Errorf("read definitions: %w", err)
	}
	for _, d := range list {
		_ = s.open(d) // one that can't be read must not hide the others
	}
	return list, nil
}

// Get returns a definition, or nil.
func (s Definitions) Get(ctx context.Context, q db.Querier, kind Kind, name string) (*Stored, error) {
	d, err := scanDefinition(q.QueryRow(ctx, "SELECT "+definitionColumns+" FROM definitions WHERE kind = $1 AND name = $2", kind, name))
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read definition: %w", err)
	}
	return d, s.open(d)
}

// Create stores a new definition. Its detail for the admin log has no secrets.
func (s Definitions) Create(ctx context.Context, tx *db.Tx, by audit.Actor, d *Stored, detail map[string]any) error {
	d.CreatedAt, d.UpdatedAt, d.UpdatedBy = s.Now(), s.Now(), by.Name
	_, err := tx.Exec(ctx, db.Insert("definitions", definitionColumns),
		d.Kind, d.Name, s.Ring.Seal(d.Document, d.location()), d.CreatedAt.UnixMicro(), d.UpdatedAt.UnixMicro(), d.UpdatedBy)
	if errors.Is(err, db.ErrExists) {
		return fault.Param(fault.InvalidState, "name", "A %s with the name %q already exists. Change it, or choose another name.", d.Kind, d.Name)
	}
	if err != nil {
		return fmt.Errorf("store definition: %w", err)
	}
	return s.changed(ctx, tx, by, s.entry(d, "created", detail))
}

// Update stores the document of a definition that Get returned, unless someone else has changed it since.
func (s Definitions) Update(ctx context.Context, tx *db.Tx, by audit.Actor, d *Stored, detail map[string]any) error {
	d.UpdatedAt, d.UpdatedBy = s.Now(), by.Name
	n, err := tx.Exec(ctx, "UPDATE definitions SET sealed = $4, updated_at = $5, updated_by = $6 WHERE kind = $1 AND name = $2 AND sealed = $3",
		d.Kind, d.Name, d.sealed, s.Ring.Seal(d.Document, d.location()), d.UpdatedAt.UnixMicro(), d.UpdatedBy)
	if err != nil {
		return fmt.Errorf("store definition: %w", err)
	}
	if n == 0 {
		return fault.New(fault.Conflict, "Someone else changed the %s %q at the same time. Retry the request.", d.Kind, d.Name)
	}
	return s.changed(ctx, tx, by, s.entry(d, "updated", detail))
}

// Delete deletes a definition.
func (s Definitions) Delete(ctx context.Context, tx *db.Tx, by audit.Actor, d *Stored) error {
	n, err := tx.Exec(ctx, "DELETE FROM definitions WHERE kind = $1 AND name = $2", d.Kind, d.Name)
	if err != nil {
		return fmt.Errorf("delete definition: %w", err)
	}
	if n == 0 {
		return fault.NoSuch(string(d.Kind), d.Name)
	}
	return s.changed(ctx, tx, by, s.entry(d, "deleted", map[string]any{}))
}

func (s Definitions) entry(d *Stored, what string, detail map[string]any) entry {
	return entry{string(d.Kind) + "." + what, d.Name, detail, s.Now()}
}

func (s Definitions) changed(ctx context.Context, tx *db.Tx, by audit.Actor, e entry) error {
	tx.Signal(SignalDefinitions, e.target)
	return log(ctx, tx, by, e)
}
