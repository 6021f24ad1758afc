package dashboard

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/modelroutes"
)

type routesData struct {
	Routes     []routeRow
	Projects   []string
	Strategies []modelroutes.Strategy
}

type routeRow struct {
	*modelroutes.Route
	Shadowed bool // the operator has a route with the same name
}

// Seen returns the fingerprint of the form's values.
func (r routeRow) Seen() string { return routeFingerprint(r.Route) }

func routeFingerprint(r *modelroutes.Route) string {
	return fingerprint(r.Name, r.Models, r.Strategy, r.Weights, r.Timeout)
}

// WeightText returns the weights as the form shows them.
func (r routeRow) WeightText() string {
	words := make([]string, len(r.Weights))
	for i, w := range r.Weights {
		words[i] = strconv.Itoa(w)
	}
	return strings.Join(words, " ")
}

// ModelText returns the models as the form shows them.
func (r routeRow) ModelText() string { return strings.Join(r.Models, "\n") }

// Milliseconds returns the timeout, or an empty string if there is none.
func (r routeRow) Milliseconds() string {
	if r.Timeout == 0 {
		return ""
	}
	return strconv.FormatInt(r.Timeout.Milliseconds(), 10)
}

func (req *request) routeRow(r *modelroutes.Route) routeRow {
	return routeRow{r, req.s.Routes.IsTaken(r.Name)}
}

func modelRoutesPage(req *request) (*view, error) {
	list, err := req.s.Routes.List(req.Context(), req.s.DB, req.principal.Visibility())
	if err != nil {
		return nil, err
	}
	d := routesData{Strategies: modelroutes.Strategies}
	for _, r := range list {
		d.Routes = append(d.Routes, req.routeRow(r))
	}
	projects, _, err := accounts.ListProjects(req.Context(), req.s.DB, req.workspace.In(req.env), db.Page{Limit: accounts.MaxProjects})
	if err != nil {
		return nil, err
	}
	for _, p := range projects {
		if p.ArchivedAt == nil {
			d.Projects = append(d.Projects, p.ID)
		}
	}
	return &view{template: "routes", title: "Routes", data: d, live: true}, nil
}

// readRoute reads the form and returns the errors of all its fields.
func (req *request) readRoute(r *modelroutes.Route) error {
	r.Name, r.Models, r.Strategy = req.form("name"), words(req.form("models")), modelroutes.Strategy(req.form("strategy"))
	var invalid [2]error
	r.Weights, invalid[0] = parseWeights(req.form("weights"))
	r.Timeout, invalid[1] = req.readTimeout()
	return errors.Join(append(invalid[:], req.s.Routes.Check(r), req.s.Gateway.CheckRouteModels(req.principal, r.Models))...)
}

func parseWeights(text string) (list []int, err error) {
	for _, word := range words(text) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, fault.Invalid("weights", "Enter whole numbers from 1 to 1000, one for each model.")
		}
		list = append(list, n)
	}
	return list, nil
}

func (req *request) readTimeout() (time.Duration, error) {
	const most = int64(time.Hour / time.Millisecond)
	ms, err := req.formNumber("timeout_ms")
	if err != nil || ms != nil && (*ms < 1 || *ms > most) {
		return 0, fault.Invalid("timeout_ms", "Enter a whole number from 100 to %d, or nothing.", most)
	}
	if ms == nil {
		return 0, nil
	}
	return time.Duration(*ms) * time.Millisecond, nil
}

func createModelRoute(req *request) (*view, error) {
	r := &modelroutes.Route{Tenant: req.workspace.In(req.env), Project: req.form("project")}
	if err := req.readRoute(r); err != nil {
		return nil, err
	}
	return req.save(req.to("routes"), "Route created.", func(tx *db.Tx) error {
		return req.s.Routes.Create(req.Context(), tx, req.actor(), r)
	})
}

func (req *request) modelRoute() (*modelroutes.Route, error) {
	return req.s.Routes.Get(req.Context(), req.s.DB, req.principal.Visibility(), req.id())
}

type routeData struct {
	Route      routeRow
	Strategies []modelroutes.Strategy
}

func showModelRoute(req *request, r *modelroutes.Route) (*view, error) {
	return &view{template: "route", title: r.Name, data: routeData{req.routeRow(r), modelroutes.Strategies}}, nil
}

func updateModelRoute(req *request) (*view, error) {
	return req.save(req.to("routes/"+req.id()), "Route saved.", func(tx *db.Tx) error {
		_, err := req.s.Routes.Change(req.Context(), tx, recordChange(req, func(r *modelroutes.Route) error {
			before := routeFingerprint(r)
			if err := req.readRoute(r); err != nil {
				return err
			}
			return req.checkEditConflict(before, routeFingerprint(r))
		}))
		return err
	})
}

func deleteModelRoute(req *request) (*view, error) {
	return req.save(req.to("routes"), "Route deleted.", func(tx *db.Tx) error {
		r, err := req.s.Routes.GetLocked(req.Context(), tx, req.principal.Visibility(), req.id())
		if err != nil {
			return err
		}
		return req.s.Routes.Delete(req.Context(), tx, req.actor(), r)
	})
}
