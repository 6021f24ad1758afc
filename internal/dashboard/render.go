package dashboard

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

//go:embed templates
var templateFiles embed.FS

// view is what a page shows: a template of its own inside of the layout.
type view struct {
	template string // the file's name, without .html
	title    string
	data     any
	status   int  // 0 is 200
	wide     bool // outside of a workspace: it is more than a small form
	live     bool // keep it up to date: its data-live parts are sent again when they change
}

// pages parses templates when they are first shown: a server that nobody looks
// at does not pay for them.
type pages struct {
	mu     sync.Mutex
	shared *template.Template // layout and parts
	parsed map[string]*template.Template
}

func newPages() *pages { return &pages{parsed: map[string]*template.Template{}} }

func (p *pages) get(name string) (*template.Template, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.parsed[name]; t != nil {
		return t, nil
	}
	if p.shared == nil {
		shared, err := template.New("").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/parts/*.html")
		if err != nil {
			return nil, err
		}
		p.shared = shared
	}
	t, err := p.shared.Clone()
	if err != nil {
		return nil, err
	}
	if t, err = t.ParseFS(templateFiles, "templates/"+name+".html"); err != nil {
		return nil, err
	}
	p.parsed[name] = t
	return t, nil
}

// shell is what templates see: the data of the page, and what surrounds it.
type shell struct {
	v     *visit
	Title string
	Data  any
	Wide  bool
	Live  bool

	Person     *people.Person
	Workspace  *accounts.Workspace
	Workspaces []*accounts.Workspace // that the person can change to
	Role       accounts.Role
	Env        accounts.Environment
	Problem    *fault.Error // of the form that is shown again
	Notice     string
	RequestID  string
}

// URL is the path of another page of this workspace and environment.
func (s *shell) URL(parts ...string) string {
	out := s.v.base()
	for _, p := range parts {
		out += p
	}
	return out
}

// InEnv is this place in the other environment: the list that the page belongs
// to, as the thing itself is not there.
func (s *shell) InEnv(env string) string {
	section := s.Section()
	if section == "home" {
		section = ""
	}
	return "/dashboard/w/" + s.Workspace.ID + "/" + env + "/" + section
}

// Section is the part of the dashboard that the page belongs to.
func (s *shell) Section() string {
	if s.Workspace == nil {
		return ""
	}
	rest := s.v.r.URL.Path[len(s.v.base()):]
	for i, c := range rest {
		if c == '/' {
			rest = rest[:i]
			break
		}
	}
	switch rest {
	case "":
		return "home"
	case "events": // they are looked at beside what became of them
		return "deliveries"
	}
	return rest
}

// May reports whether the person's role has a scope, so that a page offers only
// what can be done. The server checks again.
func (s *shell) May(scope string) bool {
	return s.v.principal != nil && s.v.principal.Grant.Allows(access.Scope(scope))
}

// Manages reports whether the person manages members.
func (s *shell) Manages() bool { return access.ManagesMembers(s.Role) }

// typed is the form that is shown again: it was refused, or had to wait for a
// proof of who somebody is. It is nil for one that is new.
func (s *shell) typed() url.Values {
	if s.Problem != nil {
		return s.v.r.PostForm
	}
	return s.v.typed
}

// Typed is what a form's field begins with: what was typed before the form is
// shown again, or the fallback.
func (s *shell) Typed(name string, fallback any) string {
	if typed := s.typed(); typed.Has(name) {
		return typed.Get(name)
	}
	return text(fallback)
}

// Chosen reports whether a box or option is ticked, as Typed does.
func (s *shell) Chosen(name, value string, fallback bool) bool {
	typed := s.typed()
	if typed == nil {
		return fallback
	}
	return slices.Contains(typed[name], value)
}

// Wrong reports whether the field is why the form was refused.
func (s *shell) Wrong(name string) bool { return s.Problem != nil && s.Problem.Param == name }

// Query is a parameter of the page's address, for filters.
func (s *shell) Query(name string) string { return s.v.query(name) }

// With is the page's address with one parameter changed; an empty value takes
// it out. Whatever is filtered, paging begins anew.
func (s *shell) With(name, value string) string {
	q := s.v.r.URL.Query()
	q.Del("after")
	if value == "" {
		q.Del(name)
	} else {
		q.Set(name, value)
	}
	return s.v.r.URL.Path + "?" + q.Encode()
}

// show renders a view. Nothing is sent before all of it is there, so that a
// problem becomes a page of its own and not half of one.
func (v *visit) show(shown *view) {
	body, err := v.render(shown)
	if err != nil {
		v.cause = err
		if shown.template != "problem" {
			v.fail(fault.New(fault.Internal, "something went wrong on our side").Because(err))
			return
		}
		body, shown.status = []byte("something went wrong on our side\n"), http.StatusInternalServerError
	}
	h := v.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if shown.status == 0 {
		shown.status = http.StatusOK
	}
	v.WriteHeader(shown.status)
	if v.r.Method != http.MethodHead {
		_, _ = v.w.Write(body) // a browser that left is no fault of ours
	}
}

func (v *visit) render(shown *view) ([]byte, error) {
	t, err := v.s.pages.get(shown.template)
	if err != nil {
		return nil, err
	}
	s := &shell{v: v, Title: shown.title, Data: shown.data, Wide: shown.wide, Live: shown.live, Workspace: v.workspace, Role: v.role, Env: v.env, Problem: v.problem,
		RequestID: v.id}
	if v.flash != nil {
		s.Notice = v.flash.Notice
	}
	if v.session != nil {
		s.Person = v.session.Person
	}
	if v.workspace != nil {
		if s.Workspaces, err = v.otherWorkspaces(); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, "layout", s); err != nil {
		return nil, fmt.Errorf("template %s: %w", shown.template, err)
	}
	return out.Bytes(), nil
}

func (v *visit) otherWorkspaces() ([]*accounts.Workspace, error) {
	all, err := accounts.WorkspacesOf(v.ctx(), v.s.DB, v.session.UserID)
	if err != nil || len(all) < 2 {
		return nil, err
	}
	return all, nil
}

var errNoDict = errors.New("dict: names and values must come in pairs, and names must be texts")

// dict hands several values to a part.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, errNoDict
	}
	out := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, errNoDict
		}
		out[name] = pairs[i+1]
	}
	return out, nil
}
