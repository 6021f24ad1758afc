package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Supplier is the models and prices of a configured provider.
type Supplier struct {
	Name string
	// Table is the table's provider whose models the supplier has. If empty, it is the supplier's
	// own name, else Vendor; a local supplier has none.
	Table   string
	Vendor  string
	Local   bool       // free unless priced
	Default *ListPrice // of models without a price
	Tools   ToolListPrices
	Models  []ListedModel // empty for all that the table has
}

// ListedModel is a model that the operator lists. Empty fields default to the table's.
type ListedModel struct {
	ID              string // the name for clients
	Upstream        string // the supplier's name; empty for ID
	Known           string // the table's name; empty for Upstream
	Kind            Kind   // empty for the table's
	Price           *ListPrice
	ContextWindow   int64
	MaxOutputTokens int64
	Capabilities    []string // nil for the table's
}

// Offer is a model at a supplier. Its Kind is empty if the table doesn't know the model.
type Offer struct {
	Model
	Supplier string
	Upstream string // its name at the supplier
	Listed   bool   // by the operator
	AnyName  bool   // unknown, but the supplier accepts any name
	AliasOf  string // the table's or else the supplier's name, if the operator gave it another one
}

type supplierModels struct {
	supplier Supplier
	table    string
	anyPrice *Price // of unlisted models; nil if they aren't offered
	tools    supplierTools
	byID     map[string]*Offer
}

// Offers returns the known models of a supplier by ID. See OffersAny for others.
func (c *Catalog) Offers(supplier string) []*Offer {
	s := c.suppliers[supplier]
	if s == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(s.byID), func(a, b *Offer) int { return strings.Compare(a.ID, b.ID) })
}

// OffersAny reports whether a supplier accepts any name: it is local or has a default price, and
// lists no models.
func (c *Catalog) OffersAny(supplier string) bool {
	s := c.suppliers[supplier]
	return s != nil && s.anyPrice != nil
}

// Offer returns a model at a supplier, or nil. A model that is not Priced must not be called.
func (c *Catalog) Offer(supplier, id string) *Offer {
	s := c.suppliers[supplier]
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
	if s.anyPrice == nil {
		return nil
	}
	o := s.offer(Model{Provider: supplier, Modalities: []string{"text"}}, id)
	o.AnyName = true
	return o
}

func (s *supplierModels) offer(m Model, id string) *Offer {
	o := &Offer{Model: m, Supplier: s.supplier.Name, Upstream: id}
	o.ID = id
	if s.anyPrice != nil && s.supplier.usesDefaultPrice(&m) {
		o.Price, o.Priced = *s.anyPrice, true
	}
	o.Price.Tools = s.tools.of(&o.Model)
	return o
}

// usesDefaultPrice reports whether the default price applies to a model: it has no other, and the
// default covers its kind. Otherwise it would be free. A default may be for several kinds, so its
// price per image doesn't matter for chats.
func (s Supplier) usesDefaultPrice(m *Model) bool {
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
	if c.suppliers[s.Name] != nil {
		return fmt.Errorf("duplicate provider %q", s.Name)
	}
	st := &supplierModels{supplier: s, table: c.tableOf(s), byID: map[string]*Offer{}}
	if s.Table != "" && !c.HasProvider(s.Table) {
		return fmt.Errorf("provider %q: unknown table %q; want one of %s", s.Name, s.Table, strings.Join(c.Providers(), ", "))
	}
	vendor := st.table
	if s.Local {
		vendor = ""
	}
	var err error
	if st.tools, err = r.tools(vendor, s.Tools); err != nil {
		return fmt.Errorf("provider %q: tool prices: %w", s.Name, err)
	}
	fallback, err := s.fallback(r)
	if err != nil {
		return fmt.Errorf("provider %q: default price: %w", s.Name, err)
	}
	if len(s.Models) == 0 {
		st.anyPrice = fallback
		for _, m := range c.models {
			if m.Provider == st.table {
				st.byID[m.ID] = st.offer(*m, m.ID)
			}
		}
	}
	for _, listed := range s.Models {
		o, err := c.listedOffer(st, listed, fallback, r)
		if err != nil {
			return fmt.Errorf("provider %q: model %q: %w", s.Name, listed.ID, err)
		}
		st.byID[o.ID] = o
	}
	c.suppliers[s.Name] = st
	return nil
}

func (c *Catalog) listedOffer(st *supplierModels, l ListedModel, fallback *Price, r rate) (*Offer, error) {
	o := &Offer{Supplier: st.supplier.Name, Upstream: cmp.Or(l.Upstream, l.ID), Listed: true}
	name := cmp.Or(l.Known, o.Upstream)
	known := c.Find(st.table, name)
	if known == nil {
		known = &Model{Provider: st.supplier.Name, Modalities: []string{"text"}}
	}
	o.Model = *known
	if o.ID = l.ID; name != l.ID {
		o.AliasOf = name
	}
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
		o.Kind = cmp.Or(o.Kind, Chat) // only chat models have capabilities
		o.Capabilities, o.Modalities = can, modalities(o.Kind, can)
	}
	switch {
	case l.Price != nil:
		if o.Kind == "" && (l.Price.PerImage != nil || l.Price.PerSecond != nil || l.Price.PerCharacter != nil || l.Price.PerSearch != nil) {
			return nil, errors.New("set its kind: a price per image, second, character or search needs it, and the table does not know the model")
		}
		if !l.Price.covers(o.Kind) { // else it would be free
			return nil, fmt.Errorf("a %s model needs a price for %s", o.Kind, requiredPrices[o.Kind])
		}
		price, err := r.price(*l.Price)
		if err != nil {
			return nil, err
		}
		o.Price, o.Priced = price, true
	case fallback != nil && st.supplier.usesDefaultPrice(&o.Model):
		o.Price, o.Priced = *fallback, true
	}
	o.Price.Tools = st.tools.of(&o.Model)
	return o, nil
}

// fallback returns the price of models without one: the default, or zero for local suppliers.
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

// tableOf returns the table's provider for a supplier, or "".
func (c *Catalog) tableOf(s Supplier) string {
	switch {
	case s.Table != "" || s.Local:
		return s.Table
	case c.HasProvider(s.Name):
		return s.Name
	}
	return s.Vendor
}

// priceChanges describes for the hash how a supplier's prices differ from the table.
func (s Supplier) priceChanges() string {
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
	b.WriteString(s.Tools.String())
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
