package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Supplier is a configured provider, as far as models and prices go.
type Supplier struct {
	Name string
	// Table names the table's provider whose models it has. Empty means the
	// one of its own name, else Vendor; a local one then has none.
	Table   string
	Vendor  string
	Local   bool       // costs nothing unless priced
	Default *ListPrice // of models that have no price otherwise
	Models  []Supply   // none: everything the table has for it
}

// Supply is a model that an operator has listed; what it leaves out is the
// table's.
type Supply struct {
	ID              string // what callers write
	Upstream        string // what the supplier calls it; empty is ID
	Kind            Kind   // empty is the table's
	Price           *ListPrice
	ContextWindow   int64
	MaxOutputTokens int64
	Capabilities    []string // nil is the table's
}

// Offer is a model as one supplier has it. The Kind of a model that the table
// does not know is empty: it may be any.
type Offer struct {
	Model
	Supplier string
	Upstream string // what to call it there
	Listed   bool   // by the operator
	Any      bool   // nobody knows it, but the supplier takes any name
}

// stock is a supplier with its models worked out.
type stock struct {
	supplier Supplier
	table    string
	any      *Price // what a model that nobody listed costs; nil: there is none
	byID     map[string]*Offer
}

// Offers lists what a supplier has, by id. Whether it has others too is for
// OffersAny.
func (c *Catalog) Offers(supplier string) []*Offer {
	s := c.stocks[supplier]
	if s == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(s.byID), func(a, b *Offer) int { return strings.Compare(a.ID, b.ID) })
}

// OffersAny reports whether a supplier takes any name: it is local or has a
// default price, and lists no models.
func (c *Catalog) OffersAny(supplier string) bool {
	s := c.stocks[supplier]
	return s != nil && s.any != nil
}

// Offer is a model at a supplier, or nil if it is not to be had there. One
// that is not Priced must not be sold.
func (c *Catalog) Offer(supplier, id string) *Offer {
	s := c.stocks[supplier]
	if s == nil || id == "" {
		return nil
	}
	if o := s.byID[id]; o != nil {
		return o
	}
	if len(s.supplier.Models) > 0 {
		return nil
	}
	if m := c.Find(s.table, id); m != nil { // a snapshot; the rest is in byID
		return s.offer(*m, id)
	}
	if s.any == nil {
		return nil
	}
	o := s.offer(Model{Provider: supplier, Modalities: []string{"text"}}, id)
	o.Any = true
	return o
}

// offer is a model that no operator has listed.
func (s *stock) offer(m Model, id string) *Offer {
	o := &Offer{Model: m, Supplier: s.supplier.Name, Upstream: id}
	o.ID = id
	if s.any != nil && s.supplier.falls(&m) {
		o.Price, o.Priced = *s.any, true
	}
	return o
}

// falls reports whether a model has the fallback's price: it has no other that
// counts here, and is sold by what that one is a price of. Otherwise it would
// be free. One price may be there for several kinds: that of a picture says
// nothing about chats.
func (s Supplier) falls(m *Model) bool {
	if m.Priced && !s.Local {
		return false
	}
	if s.Default == nil {
		return true
	}
	price := *s.Default
	if m.Kind == Chat {
		price.PerImage = nil
	}
	return price.covers(m.Kind)
}

func (c *Catalog) addSupplier(s Supplier, r rate) error {
	if c.stocks[s.Name] != nil {
		return fmt.Errorf("there are two providers named %q", s.Name)
	}
	st := &stock{supplier: s, table: c.tableOf(s), byID: map[string]*Offer{}}
	if s.Table != "" && !c.HasProvider(s.Table) {
		return fmt.Errorf("provider %q: the table of models has no provider %q; expected one of %s", s.Name, s.Table, strings.Join(c.Providers(), ", "))
	}
	fallback, err := s.fallback(r)
	if err != nil {
		return fmt.Errorf("provider %q: default price: %w", s.Name, err)
	}
	if len(s.Models) == 0 {
		st.any = fallback
		for _, m := range c.models {
			if m.Provider == st.table {
				st.byID[m.ID] = st.offer(*m, m.ID)
			}
		}
	}
	for _, listed := range s.Models {
		o, err := c.listed(st, listed, fallback, r)
		if err != nil {
			return fmt.Errorf("provider %q: model %q: %w", s.Name, listed.ID, err)
		}
		st.byID[o.ID] = o
	}
	c.stocks[s.Name] = st
	return nil
}

// listed is a model as an operator has listed it.
func (c *Catalog) listed(st *stock, l Supply, fallback *Price, r rate) (*Offer, error) {
	o := &Offer{Supplier: st.supplier.Name, Upstream: cmp.Or(l.Upstream, l.ID), Listed: true}
	known := c.Find(st.table, o.Upstream)
	if known == nil {
		known = &Model{Provider: st.supplier.Name, Modalities: []string{"text"}}
	}
	o.Model = *known
	o.ID = l.ID
	if l.Kind != "" && l.Kind != known.Kind {
		o.Kind, o.Modalities = l.Kind, modalities(l.Kind, known.Capabilities)
	}
	o.ContextWindow = cmp.Or(l.ContextWindow, known.ContextWindow)
	o.MaxOutputTokens = cmp.Or(l.MaxOutputTokens, known.MaxOutputTokens)
	if l.Capabilities != nil {
		can, err := ParseCapabilities(l.Capabilities)
		if err != nil {
			return nil, err
		}
		o.Kind = cmp.Or(o.Kind, Chat) // only those have any
		o.Capabilities, o.Modalities = can, modalities(o.Kind, can)
	}
	switch {
	case l.Price != nil:
		if o.Kind == "" && (l.Price.PerImage != nil || l.Price.PerSecond != nil || l.Price.PerCharacter != nil) {
			return nil, errors.New("the table does not know it, so its kind is needed for a price by the picture, second or character")
		}
		if !l.Price.covers(o.Kind) { // it would be free
			return nil, fmt.Errorf("its price must be what a model for %s is sold by: %s", o.Kind, soldBy[o.Kind])
		}
		price, err := r.price(*l.Price)
		if err != nil {
			return nil, err
		}
		o.Price, o.Priced = price, true
	case fallback != nil && st.supplier.falls(&o.Model):
		o.Price, o.Priced = *fallback, true
	}
	return o, nil
}

// fallback is the price of models without one: nothing at a local supplier
// that says no other, and none at all elsewhere.
func (s Supplier) fallback(r rate) (*Price, error) {
	if s.Default != nil {
		p, err := r.price(*s.Default)
		return &p, err
	}
	if s.Local {
		return new(Price), nil
	}
	return nil, nil
}

// tableOf names the table's provider for a supplier, or "".
func (c *Catalog) tableOf(s Supplier) string {
	switch {
	case s.Table != "" || s.Local:
		return s.Table
	case c.HasProvider(s.Name):
		return s.Name
	}
	return s.Vendor
}

// changes says, for the hash, in what a supplier's prices are not the table's.
func (s Supplier) changes() string {
	var b strings.Builder
	if s.Local {
		b.WriteString("local\n")
	}
	if s.Table != "" && s.Table != s.Name {
		fmt.Fprintf(&b, "table %q\n", s.Table)
	}
	if s.Default != nil {
		fmt.Fprintf(&b, "default %s\n", s.Default)
	}
	for _, m := range s.Models {
		if m.Price != nil || m.Upstream != "" && m.Upstream != m.ID {
			fmt.Fprintf(&b, "model %q %q", m.ID, m.Upstream)
			if m.Price != nil {
				fmt.Fprintf(&b, " %s", m.Price)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
