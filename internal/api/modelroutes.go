package api

import (
	"context"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/modelroutes"
)

// routeObject is a route of a workspace or a project.
type routeObject struct {
	ID          string               `json:"id"`
	Object      string               `json:"object"`
	Name        string               `json:"name"`
	Model       string               `json:"model"` // as requests name it
	Models      []string             `json:"models"`
	Strategy    modelroutes.Strategy `json:"strategy"`
	Weights     *[]int               `json:"weights"`
	TimeoutMS   *int64               `json:"timeout_ms"`
	Shadowed    bool                 `json:"shadowed"` // the operator has a route with the same name
	Project     *string              `json:"project"`
	Environment accounts.Environment `json:"environment"`
	CreatedAt   int64                `json:"created_at"`
}

func (c *Call) modelRoute(r *modelroutes.Route) *routeObject {
	o := &routeObject{ID: r.ID, Object: "route", Name: r.Name, Model: modelroutes.Prefix + r.Name, Models: r.Models, Strategy: r.Strategy, TimeoutMS: orNil(r.Timeout.Milliseconds()),
		Shadowed: c.s.Routes.IsTaken(r.Name), Project: orNil(r.Project), Environment: r.Environment, CreatedAt: r.CreatedAt.Unix()}
	if r.Weights != nil {
		o.Weights = &r.Weights
	}
	return o
}

type createRouteRequest struct {
	Name      string               `json:"name"`
	Models    []string             `json:"models"`
	Strategy  modelroutes.Strategy `json:"strategy"`
	Weights   *[]int               `json:"weights"`
	TimeoutMS *int64               `json:"timeout_ms"`
	Project   *string              `json:"project"`
}

func createModelRoute(ctx context.Context, c *Call, tx *db.Tx, in createRouteRequest) (any, error) {
	r := &modelroutes.Route{Tenant: c.Principal.Tenant, Project: c.Principal.Project, Name: in.Name, Spec: modelroutes.Spec{Models: in.Models, Strategy: in.Strategy}}
	if in.Project != nil {
		if c.Principal.Project != "" && *in.Project != c.Principal.Project {
			return nil, fault.Invalid("project", "This key is pinned to the project %q. Omit project, or send that one.", c.Principal.Project)
		}
		r.Project = *in.Project
	}
	if in.Weights != nil {
		r.Weights = *in.Weights
	}
	if err := setTimeout(&r.Spec, in.TimeoutMS); err != nil {
		return nil, err
	}
	if err := c.s.Gateway.CheckRouteChange(ctx, c.Principal, r.Name); err != nil {
		return nil, err
	}
	if err := c.s.Routes.Create(ctx, tx, c.Actor(), r); err != nil {
		return nil, err
	}
	return c.showRoute(r)
}

// setTimeout sets the timeout of a route; nil removes it.
func setTimeout(s *modelroutes.Spec, ms *int64) error {
	if s.Timeout = 0; ms == nil {
		return nil
	}
	const most = int64(time.Hour / time.Millisecond)
	if *ms < 1 || *ms > most { // 0 would mean none
		return fault.Invalid("timeout_ms", "timeout_ms must be from 100 to %d.", most)
	}
	s.Timeout = time.Duration(*ms) * time.Millisecond
	return nil
}

// showRoute returns the response for a route that was stored. Its models must be callable; otherwise
// the transaction is rolled back.
func (c *Call) showRoute(r *modelroutes.Route) (any, error) {
	if err := c.s.Gateway.CheckRouteModels(c.Principal, r.Models); err != nil {
		return nil, err
	}
	return c.modelRoute(r), nil
}

func listModelRoutes(ctx context.Context, c *Call) (any, error) {
	list, err := c.s.Routes.List(ctx, c.s.DB, c.Principal.Visibility())
	if err != nil {
		return nil, err
	}
	data := make([]*routeObject, len(list))
	for i, r := range list {
		data[i] = c.modelRoute(r)
	}
	return newList(data, func(o *routeObject) string { return o.ID }, false), nil
}

func getModelRoute(ctx context.Context, c *Call) (any, error) {
	r, err := c.s.Routes.Get(ctx, c.s.DB, c.Principal.Visibility(), c.id())
	return show(r, err, c.modelRoute)
}

type updateRouteRequest struct {
	Name      jsonbody.Optional[string]               `json:"name"`
	Models    jsonbody.Optional[[]string]             `json:"models"`
	Strategy  jsonbody.Optional[modelroutes.Strategy] `json:"strategy"`
	Weights   jsonbody.Optional[[]int]                `json:"weights"`
	TimeoutMS jsonbody.Optional[int64]                `json:"timeout_ms"`
}

// routeToChange returns the route in the path, locked.
func (c *Call) routeToChange(ctx context.Context, tx *db.Tx) (*modelroutes.Route, error) {
	r, err := c.s.Routes.GetLocked(ctx, tx, c.Principal.Visibility(), c.id())
	if err != nil {
		return nil, err
	}
	return r, c.s.Gateway.CheckRouteChange(ctx, c.Principal, r.Name)
}

func updateModelRoute(ctx context.Context, c *Call, tx *db.Tx, in updateRouteRequest) (any, error) {
	r, err := c.s.Routes.Change(ctx, tx, changeOf(c, func(r *modelroutes.Route) error {
		if err := c.s.Gateway.CheckRouteChange(ctx, c.Principal, r.Name); err != nil {
			return err
		}
		set(&r.Name, in.Name)
		set(&r.Models, in.Models)
		set(&r.Strategy, in.Strategy)
		set(&r.Weights, in.Weights)
		if in.TimeoutMS.Set {
			if err := setTimeout(&r.Spec, in.TimeoutMS.Pointer()); err != nil {
				return err
			}
		}
		return c.s.Gateway.CheckRouteChange(ctx, c.Principal, r.Name) // its new name
	}))
	if err != nil {
		return nil, err
	}
	return c.showRoute(r)
}

func deleteModelRoute(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	r, err := c.routeToChange(ctx, tx)
	if err != nil {
		return nil, err
	}
	if err := c.s.Routes.Delete(ctx, tx, c.Actor(), r); err != nil {
		return nil, err
	}
	return deletedObject{r.ID, "route", true}, nil
}
