package dashboard

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/audit"
	"turnpike/internal/fault"
	"turnpike/internal/operators"
)

// serverPath is where operators manage the whole server.
const serverPath = Home + "server"

// requireOperator hides the pages of operators from everyone else.
func (req *request) requireOperator() error {
	is, err := req.isOperator()
	if err == nil && !is {
		return errNoSuchPage
	}
	return err
}

// IsOperator reports whether the person manages the server.
func (s *shell) IsOperator() (bool, error) { return s.req.isOperator() }

func (req *request) isOperator() (bool, error) {
	if req.session == nil {
		return false, nil
	}
	return req.operator.get(func() (bool, error) { return operators.Is(req.Context(), req.s.DB, req.session.UserID) })
}

const serverActionsShown = 20

type serverData struct {
	Providers []*operators.Definition
	Routes    []*operators.Definition
	Prices    *operators.Prices
	Actions   []*audit.Action
	Names     map[string]string // of people
}

func serverPage(req *request) (*view, error) {
	ctx := req.Context()
	d := serverData{}
	var err error
	if d.Providers, err = req.s.Definitions.List(ctx, operators.Provider); err != nil {
		return nil, err
	}
	if d.Routes, err = req.s.Definitions.List(ctx, operators.Route); err != nil {
		return nil, err
	}
	if d.Prices, err = req.s.Definitions.Prices(ctx); err != nil {
		return nil, err
	}
	if d.Actions, err = audit.ServerActions(ctx, req.s.DB, serverActionsShown); err != nil {
		return nil, err
	}
	var people []string
	for _, a := range d.Actions {
		people = append(people, a.Actor)
	}
	if d.Names, err = req.s.People.Names(ctx, req.s.DB, people); err != nil {
		return nil, err
	}
	return &view{template: "server", title: "Server", wide: true, data: d}, nil
}

// formProviderFields are the fields of a provider with their own input. The others are JSON.
var formProviderFields = []string{"name", "type", "base_url", "catalog", "weight", "local"}

type providerForm struct {
	New    bool
	Fields map[string]any
	More   string // the other fields, as JSON
	Hint   string // of the current key
	Seen   string // the fingerprint of the form's values
}

func newProviderPage(*request) (*view, error) {
	return &view{template: "server_provider_edit", title: "New provider", wide: true, data: providerForm{New: true, Fields: map[string]any{"type": "openai", "weight": 1}}}, nil
}

func (req *request) provider() (*operators.Definition, error) {
	return req.s.Definitions.Get(req.Context(), operators.Provider, req.R.PathValue("name"))
}

func providerPath(name string) string { return serverPath + "/providers/" + url.PathEscape(name) }

func showProvider(_ *request, d *operators.Definition) (*view, error) {
	return &view{template: "server_provider", title: d.Name, wide: true, data: d}, nil
}

func editProviderPage(_ *request, d *operators.Definition) (*view, error) {
	form := providerForm{Fields: d.Fields, Seen: providerFingerprint(d)}
	form.Hint, _ = d.Fields["api_key_hint"].(string)
	more := otherFields(d)
	if len(more) > 0 {
		text, err := json.Marshal(more, json.Deterministic(true), jsontext.WithIndent("  "))
		if err != nil {
			return nil, err
		}
		form.More = string(text)
	}
	return &view{template: "server_provider_edit", title: "Edit provider", wide: true, data: form}, nil
}

// otherFields returns the fields of a provider without an input, and without secrets.
func otherFields(d *operators.Definition) map[string]any {
	more := maps.Clone(d.Fields)
	maps.DeleteFunc(more, func(name string, _ any) bool {
		return name == "api_key_hint" || name == "api_keys" || name == "headers" || slices.Contains(formProviderFields, name)
	})
	return more
}

// readProvider returns the fields of the form. An empty one is null, which removes it. A field that can't be
// read gets a value that is rejected, so that the others are checked, too.
func (req *request) readProvider() (fields map[string]any, invalid error) {
	fields = map[string]any{}
	if text := req.form("more"); text != "" {
		var more map[string]jsontext.Value // which keeps prices as written
		if err := json.Unmarshal([]byte(text), &more); err != nil {
			invalid = fault.Invalid("more", "The other fields must be a JSON object, as in {\"models\": [{\"id\": \"my-model\", \"price\": {\"input\": 0.15, \"output\": 0.6}}]}.").Because(err)
			fields["models"] = []string{}
		}
		for name, value := range more {
			fields[name] = value
		}
	}
	for _, name := range formProviderFields {
		value := req.form(name)
		switch {
		case value == "":
			fields[name] = nil
		case name == "local":
			fields[name] = true
		case name == "weight":
			n, err := strconv.Atoi(value)
			if err != nil {
				invalid = errors.Join(invalid, fault.Invalid(name, "Enter a whole number from 1 to 1000."))
			}
			fields[name] = n // 0 if it isn't a number
		default:
			fields[name] = value
		}
	}
	if key := req.form("api_key_secret"); key != "" {
		fields["api_key"] = key
	} else if req.form("remove_secret") != "" {
		fields["api_key"] = nil
	}
	return fields, invalid
}

// underField returns the errors of a form in which the errors of fields without an input belong to one of
// the inputs.
func underField(err error, field string, inputs ...string) error {
	var errs []error
	var others []string
	for _, f := range fault.All(err) {
		if f.Param == "" || f.Param == field || slices.Contains(inputs, f.Param) {
			errs = append(errs, f)
		} else {
			others = append(others, f.Message)
		}
	}
	if others != nil {
		errs = append(errs, fault.Invalid(field, "%s", strings.Join(others, " ")))
	}
	if errs == nil {
		return err
	}
	return errors.Join(errs...)
}

func providerErrors(invalid, err error) error {
	if len(fault.All(err)) == 0 {
		return err
	}
	return underField(errors.Join(invalid, err), "more", slices.Concat(formProviderFields, []string{"api_key"})...)
}

func createProvider(req *request) (*view, error) {
	fields, invalid := req.readProvider()
	document, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	d, err := req.s.Definitions.Create(req.Context(), req.actor(), operators.Provider, document)
	if err != nil {
		return nil, providerErrors(invalid, err)
	}
	return req.redirect(providerPath(d.Name), flash{Notice: "Provider added. All nodes use it within a second."})
}

func editProvider(req *request) (*view, error) {
	d, err := req.provider()
	if err != nil {
		return nil, err
	}
	fields, invalid := req.readProvider()
	fields["name"] = d.Name
	for name := range otherFields(d) { // those that were deleted from the JSON
		if _, kept := fields[name]; !kept {
			fields[name] = nil
		}
	}
	if err := req.checkEditConflict(providerFingerprint(d), ""); err != nil {
		return nil, err
	}
	document, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	if _, err := req.s.Definitions.Update(req.Context(), req.actor(), operators.Ref{Kind: operators.Provider, Name: d.Name}, document); err != nil {
		return nil, providerErrors(invalid, err)
	}
	return req.redirect(providerPath(d.Name), flash{Notice: "Provider saved. All nodes use it within a second."})
}

func providerFingerprint(d *operators.Definition) string { return fingerprint(d.Fields) }

// providerTestTimeout is longer than that of a page, because a model may take a while.
const providerTestTimeout = 20 * time.Second

func testProvider(req *request) (*view, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), providerTestTimeout)
	defer cancel()
	name := req.R.PathValue("name")
	test, err := req.s.Definitions.TestProvider(ctx, name, req.form("model"))
	if err != nil {
		return nil, err
	}
	if !test.OK {
		return nil, fault.New(fault.InvalidState, "The test failed. %s", test.Problem)
	}
	notice := "The provider listed its models"
	if test.Model != "" {
		notice = "The test succeeded: " + test.Model + " responded"
	}
	return req.redirect(providerPath(name), flash{Notice: notice + " after " + strconv.FormatInt(test.Latency.Milliseconds(), 10) + " ms."})
}

type discoveredModels struct {
	Name   string
	Models []operators.DiscoveredModel
}

func discoveredModelsPage(req *request) (*view, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), providerTestTimeout)
	defer cancel()
	name := req.R.PathValue("name")
	list, err := req.s.Definitions.DiscoverModels(ctx, name)
	if err != nil {
		return nil, err
	}
	return &view{template: "server_models", title: "Models at " + name, wide: true, data: discoveredModels{name, list}}, nil
}

func setMarkup(req *request) (*view, error) {
	fields := map[string]any{"markup_percent": nil}
	if percent := req.form("markup_percent"); percent != "" {
		fields["markup_percent"] = percent
	}
	document, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	if _, err := req.s.Definitions.SetPrices(req.Context(), req.actor(), document); err != nil {
		return nil, err
	}
	return req.redirect(serverPath+"#prices", flash{Notice: "Markup saved. All nodes use it within a second."})
}

func deleteProvider(req *request) (*view, error) {
	return req.deleteDefinition(operators.Provider, "Provider deleted.")
}

func deleteRoute(req *request) (*view, error) {
	return req.deleteDefinition(operators.Route, "Route deleted.")
}

func (req *request) deleteDefinition(kind operators.Kind, notice string) (*view, error) {
	if err := req.s.Definitions.Delete(req.Context(), req.actor(), operators.Ref{Kind: kind, Name: req.R.PathValue("name")}); err != nil {
		return nil, err
	}
	return req.redirect(serverPath, flash{Notice: notice})
}

func createRoute(req *request) (*view, error) {
	document, err := json.Marshal(map[string]any{"name": req.form("name"), "models": strings.Fields(req.form("models"))})
	if err != nil {
		return nil, err
	}
	if _, err := req.s.Definitions.Create(req.Context(), req.actor(), operators.Route, document); err != nil {
		return nil, underField(err, "models", "name")
	}
	return req.redirect(serverPath+"#routes", flash{Notice: "Route added."})
}
