package mail

import (
	"embed"
	"fmt"
	"reflect"
	"strings"
	"text/template"
	"time"
	"unicode"
)

//go:embed templates/*.txt
var templateFiles embed.FS

// Data fills a template. Its texts may be a customer's: each is made one line
// before it reaches the template, so it can begin neither a header nor a
// paragraph of its own.
type Data interface {
	kind() string // the template's name
}

// EndpointPaused tells that a webhook endpoint takes no events any more.
type EndpointPaused struct {
	Workspace   string // its name
	WorkspaceID string
	Environment string
	EndpointID  string
	URL         string
	Description string
	LastError   string
	Attempts    int
	PausedAt    time.Time
}

func (EndpointPaused) kind() string { return "endpoint_paused" }

// HeldExpiring tells that what is held for a paused endpoint will soon go.
type HeldExpiring struct {
	Workspace   string // its name
	WorkspaceID string
	Environment string
	EndpointID  string
	URL         string
	Held        int64 // deliveries
	OldestAt    time.Time
	ExpiresAt   time.Time // when the oldest goes
}

func (HeldExpiring) kind() string { return "held_expiring" }

// KeyRevoked tells that a key was leaked and is dead.
type KeyRevoked struct {
	Workspace   string // its name
	Environment string
	KeyID       string
	KeyName     string
	KeyHint     string // of the secret that was found
	Found       string // by whom: "by GitHub's secret scanning"
	URL         string // where, as the finder says; empty leaves it out
	Previous    bool   // it was the old secret of a rotated key, which lives on
	DetectedAt  time.Time
	// Descendants are the keys that were revoked with it, a line each.
	Descendants          []string
	DescendantsTruncated bool
}

func (KeyRevoked) kind() string { return "key_revoked" }

// KeySeen tells that a key stood in a request's body, and still works.
type KeySeen struct {
	Workspace   string // its name
	Environment string
	KeyID       string
	KeyName     string
	KeyHint     string // of the secret that was seen
	DetectedAt  time.Time
}

func (KeySeen) kind() string { return "key_seen" }

// Test shows that mail arrives.
type Test struct {
	Workspace string // its name
	AskedBy   string // a name or an e-mail address
	At        time.Time
}

func (Test) kind() string { return "test" }

const (
	maxText    = 2048 // an endpoint's address can be as long
	maxSubject = 200
	subjectTag = "Subject: "
)

// parseTemplates reads the templates, whose links begin with the public URL.
func parseTemplates(publicURL string) *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"publicURL": func() string { return publicURL },
		"when":      func(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04 UTC") },
		"day":       func(t time.Time) string { return t.UTC().Format("2 January 2006") },
	}).ParseFS(templateFiles, "templates/*.txt"))
}

// render gives a mail's subject, which is the template's first line, and its text.
func render(templates *template.Template, data Data) (subject, text string, err error) {
	var out strings.Builder
	if err := templates.ExecuteTemplate(&out, data.kind()+".txt", oneLineEach(data)); err != nil {
		return "", "", fmt.Errorf("render mail: %w", err)
	}
	first, text, _ := strings.Cut(out.String(), "\n")
	subject, ok := strings.CutPrefix(first, subjectTag)
	if !ok {
		return "", "", fmt.Errorf("render mail: %s.txt does not begin with %q", data.kind(), subjectTag)
	}
	return oneLine(subject, maxSubject), strings.TrimSpace(text) + "\n", nil
}

// oneLineEach copies the data and makes each of its texts one line.
func oneLineEach(data Data) any {
	value := reflect.Indirect(reflect.ValueOf(data))
	out := reflect.New(value.Type()).Elem()
	out.Set(value)
	for i := range out.NumField() {
		switch f := out.Field(i); v := f.Interface().(type) {
		case string:
			f.SetString(oneLine(v, maxText))
		case []string:
			lines := make([]string, len(v))
			for i, s := range v {
				lines[i] = oneLine(s, maxText)
			}
			f.Set(reflect.ValueOf(lines))
		}
	}
	return out.Interface()
}

// oneLine replaces what is no visible character (line ends, controls, marks
// that turn the direction of writing) by a space, and cuts.
func oneLine(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return s
}
