package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/config"
	"turnpike/internal/fault"
	"turnpike/internal/minisign"
	"turnpike/internal/operators"
)

var (
	pricingRef = operators.Ref{Kind: operators.Pricing, Name: operators.PricingName}
	catalogRef = operators.Ref{Kind: operators.Catalog, Name: operators.CatalogName}
)

// Prices returns how the server prices models.
func (m *Definitions) Prices(ctx context.Context) (*operators.Prices, error) {
	e, _, err := m.effective(ctx)
	if err != nil {
		return nil, err
	}
	p := &operators.Prices{MarkupPercent: number(e.config.MarkupPercent), Source: operators.FromDatabase,
		Version: e.catalog.PriceVersion(), TableAsOf: e.catalog.AsOf, TableSource: operators.FromBinary}
	switch {
	case m.file().MarkupPercent != "":
		p.Source = operators.FromConfiguration
	case e.config.MarkupPercent == "":
		p.Source = operators.FromDefault
	}
	if e.table != nil {
		p.TableSource = operators.FromDatabase
	}
	return p, nil
}

// number returns a decimal as a JSON number, which has no zeros before it.
func number(d config.Decimal) string {
	text := strings.TrimLeft(string(d), "0")
	if text == "" || text[0] == '.' {
		return "0" + text
	}
	return text
}

// SetPrices stores the markup, or removes it if it is null.
func (m *Definitions) SetPrices(ctx context.Context, by audit.Actor, document []byte) (*operators.Prices, error) {
	changes, err := decodeFields(operators.Pricing, document)
	if err != nil {
		return nil, err
	}
	if isConfigured(m.file(), pricingRef) {
		return nil, errConfigured(pricingRef)
	}
	if len(changes) == 0 {
		return m.Prices(ctx)
	}
	before, err := m.records.Get(ctx, m.db, pricingRef.Kind, pricingRef.Name)
	if err != nil && before == nil {
		return nil, err
	}
	d := &operators.Stored{Kind: pricingRef.Kind, Name: pricingRef.Name}
	if before != nil {
		*d = *before
	}
	if d.Document, err = encodeFields(changes); err != nil {
		return nil, err
	}
	switch {
	case len(changes) > 0:
		_, err = m.store(ctx, by, d, before)
	case before != nil:
		err = m.Delete(ctx, by, pricingRef)
	}
	if err != nil {
		return nil, err
	}
	return m.Prices(ctx)
}

// TableUpdate is a model table that can replace the current one.
type TableUpdate struct {
	From, To time.Time // the dates of the tables
	Changes  []catalog.Change

	stored, before *operators.Stored // before is nil if no table is stored
}

// CheckTable verifies the signature of a model table, and that the server works with it. It changes nothing.
func (m *Definitions) CheckTable(ctx context.Context, content, signature []byte) (*TableUpdate, error) {
	if m.file().CatalogKey == "" {
		return nil, errors.New("no public key for model tables; set catalog_public_key to the minisign key of whom you trust with prices")
	}
	key, err := minisign.ParsePublicKey(m.file().CatalogKey)
	if err != nil {
		return nil, fmt.Errorf("catalog_public_key: %w", err)
	}
	if err := key.Verify(content, signature); err != nil {
		return nil, fmt.Errorf("%w; nothing was changed", err)
	}
	next, err := catalog.ParseTable(content)
	if err != nil {
		return nil, fmt.Errorf("model table: %w", err)
	}
	e, _, err := m.effective(ctx)
	if err != nil {
		return nil, err
	}
	current := e.table
	if current == nil {
		if current, err = catalog.Embedded(); err != nil {
			return nil, err
		}
	}
	if !next.AsOf.After(current.AsOf) {
		return nil, fmt.Errorf("the table of %s is not newer than the current one of %s; nothing was changed", next.AsOf.Format(time.DateOnly), current.AsOf.Format(time.DateOnly))
	}
	if next.AsOf.After(m.records.Now().AddDate(0, 0, 1)) { // a table of a wrong date would block all later ones
		return nil, fmt.Errorf("the date of the table, %s, is in the future; nothing was changed", next.AsOf.Format(time.DateOnly))
	}
	u := &TableUpdate{From: current.AsOf, To: next.AsOf, Changes: current.Changes(next), stored: &operators.Stored{Kind: catalogRef.Kind, Name: catalogRef.Name}}
	u.before, err = m.records.Get(ctx, m.db, catalogRef.Kind, catalogRef.Name)
	if err != nil && u.before == nil {
		return nil, err
	}
	if u.before != nil {
		*u.stored = *u.before
	}
	u.stored.Document = content
	after, err := m.checkTogether(ctx, u.stored)
	if err != nil {
		return nil, fmt.Errorf("%s; nothing was changed", messageOf(err))
	}
	for ref, problem := range after.problems {
		if e.problems[ref] == "" {
			return nil, fmt.Errorf("%s %s would no longer work: %s; nothing was changed", ref.Kind, ref.Name, problem)
		}
	}
	return u, nil
}

// ApplyTable stores a table that CheckTable has returned, unless someone else has stored another one since.
func (m *Definitions) ApplyTable(ctx context.Context, by audit.Actor, u *TableUpdate) error {
	_, err := m.store(ctx, by, u.stored, u.before)
	return err
}

// ResetTable removes the stored table, so that servers use the one in the binary.
func (m *Definitions) ResetTable(ctx context.Context, by audit.Actor) error {
	err := m.Delete(ctx, by, catalogRef)
	if fault.Is(err, fault.NotFound) {
		return errors.New("no model table is stored; servers already use the built-in one")
	}
	return err
}
