package dashboard

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

//go:embed templates
var templateFiles embed.FS

// view is the content of a page: a template inside the layout.
type view struct {
	template string // the file's name, without .html
	title    string
	data     any
	status   int    // 0 is 200
	wide     bool   // outside of a workspace: more than a small form, with the menu of the last workspace
	live     bool   // its data-live parts are kept up to date
	script   string // a module of staticAssets, for pages that need one of their own
}

// pages parses templates when they are first shown, which saves memory on servers
// whose dashboard isn't used.
type pages struct {
	mu     sync.Mutex
	parsed map[string]*template.Template
}

var sharedTemplates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/parts/*.html"))
})

func (p *pages) get(name string) *template.Template {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.parsed[name] == nil {
		p.parsed[name] = template.Must(template.Must(sharedTemplates().Clone()).ParseFS(templateFiles, "templates/"+name+".html"))
	}
	return p.parsed[name]
}

// shell is the templates' data: that of the page, and that of the layout.
type shell struct {
	req     *request
	page    *template.Template
	shown   map[*fault.Error]bool // errors below their fields
	focused bool                  // a field with an error has the focus
	Title   string
	Data    any
	Wide    bool
	Live    bool
	Script  string

	Person     *people.Person
	Workspace  *accounts.Workspace
	Workspaces []*accounts.Workspace // that the person can switch to
	Role       accounts.Role
	Env        accounts.Environment
	Problem    formErrors // why the form that is shown again was rejected
	Notice     string
	Note       string // that nothing has changed yet
	RequestID  string
	Now        time.Time
}

// URL returns the path of another page of this workspace and environment.
func (s *shell) URL(parts ...string) string {
	return s.req.base() + strings.Join(parts, "")
}

// InEnv returns the page's section in another environment. The resource itself
// doesn't exist there.
func (s *shell) InEnv(env string) string {
	return "/dashboard/w/" + s.Workspace.ID + "/" + env + "/" + s.Section()
}

// Path returns where the person is, to return there: the page, or Home if a form was
// rejected, whose address may have no page.
func (s *shell) Path() string {
	if s.req.R.Method == http.MethodPost {
		return Home
	}
	return s.req.R.URL.RequestURI()
}

// Initial returns the first letter of the person's name.
func (s *shell) Initial() string {
	first, _ := utf8.DecodeRuneInString(cmp.Or(s.Person.Name, s.Person.Email))
	return string(first)
}

// InWorkspace reports whether the page belongs to the workspace. Others show its menu beside them.
func (s *shell) InWorkspace() bool {
	return s.Workspace != nil && strings.HasPrefix(s.req.R.URL.Path, s.req.base())
}

// Section returns the path of the menu entry that the page belongs to.
func (s *shell) Section() string {
	if !s.InWorkspace() {
		return ""
	}
	section, _, _ := strings.Cut(s.req.R.URL.Path[len(s.req.base()):], "/")
	if section == "events" {
		return "deliveries"
	}
	return section
}

// May reports whether the person's role has a scope. Pages offer only permitted
// actions; the server checks again.
func (s *shell) May(scope access.Scope) bool {
	return s.req.principal != nil && s.req.principal.Grant.Allows(scope)
}

// Manages reports whether the person manages members.
func (s *shell) Manages() bool { return access.ManagesMembers(s.Role) }

// typed returns the values of a form that is shown again, because it was rejected or
// because the person had to confirm. It is nil for a new form.
func (s *shell) typed() url.Values {
	if s.Problem != nil && s.req.R.Method == http.MethodPost {
		return s.req.R.PostForm
	}
	return s.req.restored
}

// Typed returns the initial value of a form field: the submitted one if the form is
// shown again, or the fallback.
func (s *shell) Typed(name string, fallback any) string {
	if typed := s.typed(); typed.Has(name) {
		return typed.Get(name)
	}
	return text(fallback)
}

// Chosen reports whether a checkbox or option is selected, as Typed does.
func (s *shell) Chosen(name, value string, fallback bool) bool {
	typed := s.typed()
	if typed == nil {
		return fallback
	}
	return slices.Contains(typed[name], value)
}

// Main renders the page's own part. The layout calls it first, because Summary depends on the fields in it.
func (s *shell) Main() (template.HTML, error) {
	var out bytes.Buffer
	err := s.page.ExecuteTemplate(&out, "main", s)
	return template.HTML(out.String()), err
}

// Query returns a query parameter, for filters.
func (s *shell) Query(name string) string { return s.req.query(name) }

// With returns the page's URL with one parameter changed, or removed if the value is
// empty. Paging starts over.
func (s *shell) With(name, value string) string {
	q := s.req.R.URL.Query()
	q.Del("after")
	if value == "" {
		q.Del(name)
	} else {
		q.Set(name, value)
	}
	return s.req.R.URL.Path + "?" + q.Encode()
}

// show renders a view. It sends nothing before all of it is rendered, so that an
// error becomes a page of its own.
func (req *request) show(shown *view) {
	body, err := req.render(shown)
	if err != nil {
		req.Cause = err
		if shown.template != "problem" {
			req.fail(err)
			return
		}
		body, shown.status = []byte("Something went wrong on the server.\n"), http.StatusInternalServerError
	}
	h := req.W.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if shown.status == 0 {
		shown.status = http.StatusOK
	}
	req.WriteHeader(shown.status)
	if req.R.Method != http.MethodHead {
		_, _ = req.W.Write(body) // the browser may have disconnected
	}
}

func (req *request) render(shown *view) ([]byte, error) {
	if shown.wide && req.workspace == nil && req.session != nil {
		if err := req.enterLastWorkspace(); err != nil {
			return nil, err
		}
	}
	s := &shell{req: req, page: req.s.pages.get(shown.template), shown: map[*fault.Error]bool{}, Title: shown.title, Data: shown.data, Wide: shown.wide, Live: shown.live, Script: shown.script, Workspace: req.workspace, Role: req.role, Env: req.env, Problem: req.problem,
		RequestID: req.ID, Now: req.now(), Notice: req.flash.Notice, Note: req.flash.Note}
	if req.session != nil {
		s.Person = req.session.Person
	}
	if req.workspace != nil {
		all, err := accounts.WorkspacesOf(req.Context(), req.s.DB, req.session.UserID)
		if err != nil {
			return nil, err
		}
		if len(all) > 1 {
			s.Workspaces = all
		}
	}
	var out bytes.Buffer
	if err := s.page.ExecuteTemplate(&out, "layout", s); err != nil {
		return nil, fmt.Errorf("template %s: %w", shown.template, err)
	}
	return out.Bytes(), nil
}

// dict passes several values to a template part, each after its name.
func dict(pairs ...any) map[string]any {
	out := map[string]any{}
	for pair := range slices.Chunk(pairs, 2) {
		out[pair[0].(string)] = pair[1] // templates report a panic as an error
	}
	return out
}
