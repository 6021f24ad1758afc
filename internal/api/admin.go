package api

import (
	"cmp"
	"errors"
	"maps"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/access"
	"turnpike/internal/audit"
	"turnpike/internal/connlimit"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/limits"
	"turnpike/internal/operators"
	"turnpike/internal/web"
)

// adminPath is where operators manage the server. Its credentials belong to no workspace, and the keys of workspaces
// don't work here.
const adminPath = "/admin"

// AdminRoute is an endpoint that needs a credential of an operator with a scope.
type AdminRoute struct {
	Method string
	Path   string
	Scope  operators.Scope
	handle handler
}

// AdminRoutes returns every endpoint that needs a credential of an operator.
func AdminRoutes() []AdminRoute {
	routes := []AdminRoute{
		{"POST", "/admin/providers/{name}/test", operators.ProvidersWrite, testProvider}, // it costs money
		{"GET", "/admin/providers/{name}/models", operators.ProvidersRead, discoverModels},
		{"GET", "/admin/pricing", operators.PricesRead, getPrices},
		{"PATCH", "/admin/pricing", operators.PricesWrite, setPrices},
	}
	for path, kind := range map[string]operators.Kind{"/admin/providers": operators.Provider, "/admin/routes": operators.Route} {
		routes = append(routes,
			AdminRoute{"GET", path, operators.ProvidersRead, listDefinitions(kind)},
			AdminRoute{"POST", path, operators.ProvidersWrite, createDefinition(kind)},
			AdminRoute{"GET", path + "/{name}", operators.ProvidersRead, getDefinition(kind)},
			AdminRoute{"PATCH", path + "/{name}", operators.ProvidersWrite, updateDefinition(kind)},
			AdminRoute{"DELETE", path + "/{name}", operators.ProvidersWrite, deleteDefinition(kind)})
	}
	return routes
}

// adminRoutes returns AdminRoutes as the server serves them: each checks its scope itself.
func adminRoutes() (routes []Route) {
	for _, rt := range AdminRoutes() {
		routes = append(routes, Route{rt.Method, rt.Path, "", func(c *Call) error {
			if err := c.operator.Require(rt.Scope); err != nil {
				return err
			}
			return rt.handle(c)
		}})
	}
	return routes
}

// handleAdmin requires a credential of an operator before it looks at the route. Browsers have no access: they would
// need CORS.
func (c *Call) handleAdmin() error {
	c.W.Header().Set("Cache-Control", "no-store")
	value, hasValue := bearerOf(c.R)
	leaked, err := c.revokeKeysInURL()
	if err == nil {
		err = c.authenticateOperator(value, hasValue)
	}
	if leaked {
		err = keyInURLFault(err)
	}
	if err != nil {
		return err
	}
	if !c.operator.AllowsIP(c.IP) {
		return ipNotAllowed(c.IP)
	}
	if err := c.limitOperator(); err != nil {
		return err
	}
	if c.R.ContentLength == 0 {
		connlimit.Authenticated(c.Context())
	}
	return c.route.handle(c)
}

// authenticateOperator finds the credential. Rejected ones count like rejected keys.
func (c *Call) authenticateOperator(value string, hasValue bool) error {
	rejected := c.s.Refused
	if wait := rejected.LookupWait(c.IP); hasValue && wait > 0 {
		rejected.Add(c.IP, false)
		return retryAfter(wait, tooManyRejected)
	}
	found, err := c.s.Operators.Authenticate(c.Context(), c.s.DB, value)
	if err == nil {
		c.operator = found
		c.budget.SetOwner("operators")
		return nil
	}
	if !fault.Is(err, fault.Authentication) || !hasValue {
		return err
	}
	_, lookedUp := access.ParseSecret(value)
	return cmp.Or(retryAfter(rejected.Add(c.IP, lookedUp), tooManyRejected), err)
}

// limitOperator counts the request toward the rate limit of its credential, on all nodes.
func (c *Call) limitOperator() error {
	subject := limits.Subject{ID: c.operator.ID + "/admin", Limits: limits.Limits{RequestsPerMinute: c.operator.RateLimit}}
	ticket, err := c.s.Limiter.BeginAll([]limits.Subject{subject}, 0, c.s.Now())
	if refusal, ok := errors.AsType[*limits.Refusal](err); ok {
		return rateFault(refusal, kindOf(c.R.Method), "This admin key")
	}
	if err != nil {
		return err
	}
	ticket.End()
	return nil
}

// operatorActor returns who acts, for the admin log.
func (c *Call) operatorActor() audit.Actor {
	return audit.Actor{Name: c.operator.ID, IP: c.IP.String(), RequestID: c.ID}
}

// DefinitionObject returns a provider or a route with the keys of the configuration file, and where it comes from.
func DefinitionObject(d *operators.Definition) map[string]any {
	o := map[string]any{"object": d.Kind, "source": d.Source, "problem": orNil(d.Problem), "created_at": unix(d.CreatedAt), "updated_at": unix(d.UpdatedAt),
		"updated_by": orNil(d.UpdatedBy)}
	maps.Copy(o, d.Fields)
	return o
}

func listDefinitions(kind operators.Kind) handler {
	return func(c *Call) error {
		list, err := c.s.Definitions.List(c.Context(), kind)
		if err != nil {
			return err
		}
		return c.sendJSON(map[string]any{"object": "list", "data": web.Map(list, DefinitionObject)})
	}
}

func createDefinition(kind operators.Kind) handler {
	return func(c *Call) error {
		body, err := c.readJSON(c.Limits.Body)
		if err != nil {
			return err
		}
		d, err := c.s.Definitions.Create(c.Context(), c.operatorActor(), kind, body)
		if err != nil {
			return err
		}
		return c.sendJSON(DefinitionObject(d))
	}
}

func getDefinition(kind operators.Kind) handler {
	return func(c *Call) error {
		d, err := c.s.Definitions.Get(c.Context(), kind, c.R.PathValue("name"))
		if err != nil {
			return err
		}
		return c.sendJSON(DefinitionObject(d))
	}
}

func updateDefinition(kind operators.Kind) handler {
	return func(c *Call) error {
		body, err := c.readJSON(c.Limits.Body)
		if err != nil {
			return err
		}
		d, err := c.s.Definitions.Update(c.Context(), c.operatorActor(), operators.Ref{Kind: kind, Name: c.R.PathValue("name")}, body)
		if err != nil {
			return err
		}
		return c.sendJSON(DefinitionObject(d))
	}
}

func deleteDefinition(kind operators.Kind) handler {
	return func(c *Call) error {
		name := c.R.PathValue("name")
		if err := c.s.Definitions.Delete(c.Context(), c.operatorActor(), operators.Ref{Kind: kind, Name: name}); err != nil {
			return err
		}
		return c.sendJSON(map[string]any{"object": kind, "name": name, "deleted": true})
	}
}

func testProvider(c *Call) error {
	body, err := c.readJSON(c.Limits.Body)
	if err != nil {
		return err
	}
	var in struct {
		Model string `json:"model"`
	}
	if err := jsonbody.DecodeStrict(body, &in); err != nil {
		return err
	}
	test, err := c.s.Definitions.TestProvider(c.Context(), c.R.PathValue("name"), in.Model)
	if err != nil {
		return err
	}
	return c.sendJSON(TestObject(test))
}

// TestObject returns the result of a test.
func TestObject(t *operators.Test) map[string]any {
	return map[string]any{"object": "provider.test", "ok": t.OK, "model": orNil(t.Model), "latency_ms": t.Latency.Milliseconds(), "problem": orNil(t.Problem)}
}

func discoverModels(c *Call) error {
	list, err := c.s.Definitions.DiscoverModels(c.Context(), c.R.PathValue("name"))
	if err != nil {
		return err
	}
	return c.sendJSON(map[string]any{"object": "list", "data": web.Map(list, DiscoveredModelObject)})
}

// DiscoveredModelObject returns a model in the list of a provider.
func DiscoveredModelObject(m operators.DiscoveredModel) map[string]any {
	return map[string]any{"id": m.ID, "object": "provider.model", "known": m.Known, "priced": m.Priced}
}

func getPrices(c *Call) error {
	p, err := c.s.Definitions.Prices(c.Context())
	if err != nil {
		return err
	}
	return c.sendJSON(PricesObject(p))
}

func setPrices(c *Call) error {
	body, err := c.readJSON(c.Limits.Body)
	if err != nil {
		return err
	}
	p, err := c.s.Definitions.SetPrices(c.Context(), c.operatorActor(), body)
	if err != nil {
		return err
	}
	return c.sendJSON(PricesObject(p))
}

// PricesObject returns how the server prices models.
func PricesObject(p *operators.Prices) map[string]any {
	return map[string]any{"object": "pricing", "markup_percent": jsontext.Value(p.MarkupPercent), "markup_source": p.Source, "price_version": p.Version,
		"catalog": map[string]any{"as_of": p.TableAsOf.Format(time.DateOnly), "source": p.TableSource}}
}
