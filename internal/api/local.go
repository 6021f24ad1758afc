package api

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/federation"
	"turnpike/internal/jsonbody"
	"turnpike/internal/modelroutes"
	"turnpike/internal/visibility"
	"turnpike/internal/web"
)

// Resource is a kind of object that commands on the server manage with the types and rules of the API.
type Resource string

// The resources.
const (
	ProjectResource    Resource = "project"
	KeyResource        Resource = "key"
	FederationResource Resource = "federation_rule"
	EndpointResource   Resource = "webhook"
	RouteResource      Resource = "route"
	BillingResource    Resource = "billing" // which each workspace has, in its live environment
)

// Local performs requests of the API in the transactions of a command on the server, without HTTP. It
// needs only DB, Keys, Federation, Webhooks, Routes, Gateway and Now.
type Local struct {
	server   *Server
	declared map[accounts.Tenant][]DeclaredRoute
}

// NewLocal returns a Local.
func NewLocal(d Deps) *Local {
	return &Local{&Server{Deps: d}, map[accounts.Tenant][]DeclaredRoute{}}
}

// DeclaredRoute is a route that the transaction of a command creates later.
type DeclaredRoute struct{ Project, Name string }

// Declare lets keys, projects and rules name a route before it exists. The command creates it in the same
// transaction.
func (l *Local) Declare(t accounts.Tenant, r DeclaredRoute) {
	l.declared[t] = append(l.declared[t], r)
}

// localAction is a request that changes something.
type localAction struct {
	fields []string // that its body can have
	do     func(ctx context.Context, c *Call, tx *db.Tx, body []byte) ([]byte, error)
}

func localActionOf[In any](fn func(context.Context, *Call, *db.Tx, In) (any, error)) localAction {
	return localAction{fieldsOf(reflect.TypeFor[In]()), func(ctx context.Context, c *Call, tx *db.Tx, body []byte) ([]byte, error) {
		var in In
		if err := jsonbody.DecodeStrict(body, &in); err != nil {
			return nil, err
		}
		out, err := fn(ctx, c, tx, in)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	}}
}

func fieldsOf(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous {
			names = append(names, fieldsOf(f.Type)...)
		} else {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

var localCreates = map[Resource]localAction{
	ProjectResource:    localActionOf(createProject),
	KeyResource:        localActionOf(createKey),
	FederationResource: localActionOf(createFederationRule),
	EndpointResource:   localActionOf(createEndpoint),
	RouteResource:      localActionOf(createModelRoute),
}

var localUpdates = map[Resource]localAction{
	ProjectResource:    localActionOf(updateProject),
	KeyResource:        localActionOf(updateKey),
	FederationResource: localActionOf(updateFederationRule),
	EndpointResource:   localActionOf(updateEndpoint),
	RouteResource:      localActionOf(updateModelRoute),
	BillingResource:    localActionOf(updateBilling),
}

// Fields returns the fields that an update of the resource can change.
func (l *Local) Fields(r Resource) []string { return slices.Clone(localUpdates[r].fields) }

// Create creates an object and returns it.
func (l *Local) Create(ctx context.Context, tx *db.Tx, r Resource, t accounts.Tenant, body []byte) ([]byte, error) {
	return localCreates[r].do(ctx, l.call(ctx, t, ""), tx, body)
}

// Target is an object to update.
type Target struct {
	accounts.Tenant
	Resource Resource
	ID       string
}

// Update changes the fields in body and returns the object.
func (l *Local) Update(ctx context.Context, tx *db.Tx, o Target, body []byte) ([]byte, error) {
	return localUpdates[o.Resource].do(ctx, l.call(ctx, o.Tenant, o.ID), tx, body)
}

// maxLocal is more objects than any workspace has.
const maxLocal = 1_000_000

// List returns the objects of an environment that can be managed, oldest first: active keys that no key
// created, projects that aren't archived, and endpoints that aren't tunnels.
func (l *Local) List(ctx context.Context, q db.Querier, r Resource, t accounts.Tenant) (list [][]byte, err error) {
	c, all, vis := l.call(ctx, t, ""), db.Page{Limit: maxLocal, Asc: true}, visibility.Filter{Tenant: t}
	var objects []any
	switch r {
	case ProjectResource:
		found, _, err := accounts.ListProjects(ctx, q, t, all)
		if err != nil {
			return nil, err
		}
		active := slices.DeleteFunc(found, func(p *accounts.Project) bool { return p.ArchivedAt != nil })
		objects = web.Map(active, func(p *accounts.Project) any { return newProjectObject(p, l.server.Now()) })
	case KeyResource:
		found, _, err := l.server.Keys.Search(ctx, q, vis, access.KeyFilter{}, all)
		if err != nil {
			return nil, err
		}
		now := l.server.Now()
		managed := slices.DeleteFunc(found, func(k *access.Key) bool {
			return k.ParentID != "" || k.RevokedAt != nil || k.ExpiresAt != nil && !now.Before(*k.ExpiresAt)
		})
		objects = web.Map(managed, func(k *access.Key) any { return NewKeyObject(k, now) })
	case FederationResource:
		found, err := l.server.Federation.List(ctx, q, vis, all)
		if err != nil {
			return nil, err
		}
		objects = web.Map(found.Rows, func(r *federation.Rule) any { return newFederationRuleObject(r) })
	case RouteResource:
		found, err := l.server.Routes.List(ctx, q, vis)
		if err != nil {
			return nil, err
		}
		objects = web.Map(found, func(r *modelroutes.Route) any { return c.modelRoute(r) })
	case EndpointResource:
		found, err := l.server.Webhooks.List(ctx, q, vis, false, all)
		if err != nil {
			return nil, err
		}
		endpoints, err := c.endpoints(ctx, q, found.Rows)
		if err != nil {
			return nil, err
		}
		objects = web.Map(endpoints, func(e *endpointObject) any { return e })
	}
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, nil
}

// call returns a call of the operator, who may do everything.
func (l *Local) call(ctx context.Context, t accounts.Tenant, id string) *Call {
	all := []string{"*", string(access.ContentRead)}
	_, grant, _ := access.ParseScopes(all)
	r := (&http.Request{Header: http.Header{}}).WithContext(ctx)
	r.SetPathValue("id", id)
	return &Call{Exchange: web.Exchange{R: r}, s: l.server, declaredRoutes: l.declared[t], Principal: &access.Principal{Tenant: t, UserID: audit.Operator.Name, Scopes: all, Grant: grant}}
}
