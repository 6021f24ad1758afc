package dashboard

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"turnpike/internal/fault"
)

// A form that needs a confirmation is sealed in a cookie while the person confirms, and then performed.
// If the person has to sign in first, its page shows it again.

const (
	// savedFormLifetime is how long the person may take to confirm or sign in.
	savedFormLifetime = 10 * time.Minute
	// maxSavedForm is the largest form that fits into the cookie, compressed.
	maxSavedForm = 2500
)

// savedForm is a form that was not performed yet.
type savedForm struct {
	ID      string       `json:"i"` // of the confirmation page that performs it
	Session string       `json:"s,omitzero"`
	User    string       `json:"u,omitzero"` // whose session ended; unknown if empty
	Action  string       `json:"a,omitzero"` // where a confirmation sends it
	Page    string       `json:"p"`
	Fields  url.Values   `json:"f"`
	Errors  []savedError `json:"e,omitzero"`
	Stale   bool         `json:"x,omitzero"` // someone else changed the resource meanwhile
}

type savedError struct {
	Code    fault.Code `json:"c"`
	Param   string     `json:"p"`
	Message string     `json:"m"`
}

// neverSaved are fields that prove who someone is.
var neverSaved = []string{"password", "current", "code", "token", "response"}

func isSaved(name string) bool { return !slices.Contains(neverSaved, name) }

// isSecret reports whether a field may hold a secret. Only the action itself needs those.
func isSecret(name string) bool { return strings.Contains(name, "secret") || name == "headers" }

// saveForm saves the form that was sent. It returns false if it is too large.
func (req *request) saveForm(f savedForm) bool {
	f.Fields = maps.Clone(req.R.PostForm)
	maps.DeleteFunc(f.Fields, func(name string, _ []string) bool { return !isSaved(name) || f.Action == "" && isSecret(name) })
	f.Page = req.formPath()
	text, _ := json.Marshal(f) // strings: cannot fail
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, flate.BestCompression) // fails only for unknown levels
	_, _ = w.Write(text)
	_ = w.Close() // writes to memory cannot fail
	if len(f.Fields) == 0 && f.Action == "" || packed.Len() > maxSavedForm {
		req.clearSavedForm() // or the page would show an older form
		return false
	}
	req.setSealed(formCookie, formCookie, packed.Bytes(), savedFormLifetime)
	return true
}

// openForm returns the saved form of this session or person, or nil.
func (req *request) openForm() *savedForm {
	var packed []byte
	if req.session == nil || !req.openSealed(formCookie, formCookie, &packed) {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), maxForm)) //budget:own it was sealed
	f := new(savedForm)
	if err != nil || json.Unmarshal(text, f) != nil || f.Session != "" && f.Session != req.session.ID || f.User != "" && f.User != req.session.UserID {
		return nil
	}
	return f
}

// clearSavedForm deletes the saved form once an action is authorized.
func (req *request) clearSavedForm() {
	if req.cookie(formCookie) != "" {
		req.setCookie(formCookie, "", 0)
	}
}

// formPath returns the path of the page with the form. A rejected form was shown at its
// own path, which redirects to its page.
func (req *request) formPath() string {
	page, _, _ := strings.Cut(refererPath(req.R), "?")
	if hasRoute(req.s.mux, http.MethodGet, page) {
		return page
	}
	return parentPage(req.s.mux, page)
}

// restoreForm fills in the form that was saved for this page, once.
func (req *request) restoreForm() {
	f := req.openForm()
	if f == nil || f.Page != req.R.URL.Path {
		return
	}
	req.clearSavedForm()
	if req.restored = f.Fields; f.Stale {
		req.discarded, req.restored = f.Fields, nil
	}
	for _, e := range f.Errors {
		req.problem = append(req.problem, fault.Param(e.Code, e.Param, "%s", e.Message))
	}
	if req.flash == (flash{}) && len(f.Errors) == 0 {
		req.flash.Note = "Nothing has changed yet. Check the form and send it again."
	}
}

// redirectToConfirm redirects to the page where the person confirms their identity. It then performs
// the action if the form has all it needs, and leads back otherwise.
func (req *request) redirectToConfirm(rt Route) {
	to := "/dashboard/confirm"
	if req.R.Method != http.MethodPost {
		req.clearSavedForm()
		req.detour(to, "")
		return
	}
	f := savedForm{ID: rand.Text(), Session: req.session.ID}
	complete := true
	for name := range req.R.PostForm {
		complete = complete && isSaved(name)
	}
	if complete && rt.formPage != nil {
		f.Action = req.R.URL.RequestURI()
	}
	note := ""
	if !req.saveForm(f) {
		note = "Nothing has changed yet. Confirm your password, then fill in the form again."
	}
	to += "?next=" + url.QueryEscape(refererPath(req.R))
	if f.Action != "" {
		to += "&form=" + f.ID
	}
	req.redirect(to, flash{Note: note})
}

// replayed marks the context of an action that is performed after the confirmation.
type replayed struct{}

func isReplayed(r *http.Request) bool { return r.Context().Value(replayed{}) != nil }

// afterConfirm performs the action that needed the confirmation, or redirects to the next page. The
// session has a new token.
func (req *request) afterConfirm(token, id, next string) (*view, error) {
	req.setSession(token)
	f := req.openForm()
	if f == nil || f.Action == "" || f.ID != id {
		return req.redirect(dashboardPath(next), flash{})
	}
	req.clearSavedForm()
	action, err := url.Parse(f.Action)
	if err != nil {
		return nil, err
	}
	r := req.R.Clone(context.WithValue(req.Context(), replayed{}, true))
	r.Method, r.URL, r.RequestURI, r.Body = http.MethodPost, action, f.Action, http.NoBody
	r.PostForm, r.Form = f.Fields, f.Fields
	r.Header.Set("Referer", "http://"+r.Host+f.Page)
	r.Header.Del("Cookie")
	for _, c := range req.R.Cookies() {
		if c.Name == req.cookieName(sessionCookie) {
			c.Value = token
		}
		if c.Name != req.cookieName(formCookie) {
			r.AddCookie(c)
		}
	}
	req.Started, req.Status = true, http.StatusSeeOther // by the action
	req.s.mux.ServeHTTP(req.W, r)
	return nil, nil
}

// rejectReplayed shows the errors of an action on its form's page, because the browser is on the page
// of the confirmation.
func (req *request) rejectReplayed(err error) {
	f := savedForm{User: req.session.UserID, Stale: errors.Is(err, errEditConflict)}
	for _, e := range req.problem {
		f.Errors = append(f.Errors, savedError{e.Code, e.Param, e.Message})
	}
	message := flash{}
	if !req.saveForm(f) {
		message.Note = "Nothing was changed. " + formMessage(req.problem[0])
	}
	req.redirect(req.formPath(), message)
}
