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

// Data fills a template. Its strings may come from customers, so each is reduced to
// one line first: it can start neither a header nor a paragraph.
type Data interface {
	kind() string // the template's name
}

// EndpointPaused reports a paused webhook endpoint.
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

// HeldExpiring reports that deliveries on hold for a paused endpoint expire soon.
type HeldExpiring struct {
	Workspace   string // its name
	WorkspaceID string
	Environment string
	EndpointID  string
	URL         string
	Held        int64 // deliveries, counted up to MaxHeld
	OldestAt    time.Time
	ExpiresAt   time.Time // of the oldest
}

// MaxHeld is where counting held deliveries stops.
const MaxHeld = 10_000

func (HeldExpiring) kind() string { return "held_expiring" }

// KeyRevoked reports that a leaked key was revoked.
type KeyRevoked struct {
	Workspace   string // its name
	Environment string
	KeyID       string
	KeyName     string
	KeyHint     string // of the secret that was found
	Found       string // by whom: "by GitHub's secret scanning"
	URL         string // where it was found; may be empty
	Location    string // in the repository or the log; may be empty
	Previous    bool   // only the old secret of a rotated key was revoked
	DetectedAt  time.Time
	// Descendants are the keys that were revoked with it.
	Descendants          []string
	DescendantsTruncated bool
}

func (KeyRevoked) kind() string { return "key_revoked" }

// KeySeen reports that a request body contained a key that still works.
type KeySeen struct {
	Workspace   string // its name
	Environment string
	KeyID       string
	KeyName     string
	KeyHint     string // of the secret that was seen
	DetectedAt  time.Time
}

func (KeySeen) kind() string { return "key_seen" }

// SecretLeaked reports a leaked secret of another kind than an API key.
type SecretLeaked struct {
	Subject    string
	Summary    string // what leaked, and what Turnpike did
	Facts      []string
	Found      string // by whom: "by GitHub's secret scanning"
	URL        string // where it was found; may be empty
	Location   string // in the repository or the log; may be empty
	DetectedAt time.Time
	Steps      []string // what to do
	Because    string   // why the reader gets the email
}

func (SecretLeaked) kind() string { return "secret_leaked" }

// Invitation invites a person to a workspace. URL is a secret that accepts it.
type Invitation struct {
	Workspace string // its name
	InvitedBy string // a name or an email address
	Role      string
	URL       string
	ExpiresAt time.Time
}

func (Invitation) kind() string { return "invitation" }

// PasswordReset has the link to set a new password. URL is a secret.
type PasswordReset struct {
	Email     string
	IP        string // of the person who asked for it; may be empty
	URL       string
	ExpiresAt time.Time
}

func (PasswordReset) kind() string { return "password_reset" }

// BudgetAlert reports that a budget is used up, or that spending has reached a threshold.
type BudgetAlert struct {
	Workspace string // its name
	Level     string // of the budget: workspace, project, key, user
	ID        string // of its owner
	Name      string
	Budget    string
	Spent     string
	Threshold int64 // percent; 0 if the budget is used up
	Period    string
	ResetsAt  time.Time
	Page      string // in the dashboard
}

func (BudgetAlert) kind() string { return "budget_alert" }

// Subject names the budget's owner, such as Key "production".
func (b BudgetAlert) Subject() string {
	if b.Level == "workspace" {
		return "The workspace"
	}
	return strings.ToUpper(b.Level[:1]) + b.Level[1:] + " \"" + b.Name + "\""
}

// CreditsLow reports that a workspace's credits of the month run low.
type CreditsLow struct {
	Workspace      string // its name
	Remaining      string
	Threshold      string
	MonthlyCredits string
	ResetsAt       time.Time
	Page           string // in the dashboard
}

func (CreditsLow) kind() string { return "credits_low" }

// UnbilledLimit reports to operators that a workspace is stopped, because it has used too much without a charge.
type UnbilledLimit struct {
	Workspace   string // its name
	WorkspaceID string
	Unbilled    string
	Limit       string
	ResetsAt    time.Time
}

func (UnbilledLimit) kind() string { return "unbilled_limit" }

// ApprovalRequested asks for a decision about tool calls.
type ApprovalRequested struct {
	Workspace   string // its name
	Environment string
	By          string   // the run or the MCP server
	Tools       string   // their names
	Calls       []string // each with its arguments
	Reminder    bool
	ExpiresAt   time.Time
	Page        string // in the dashboard
}

func (ApprovalRequested) kind() string { return "approval_requested" }

// Test is a test email.
type Test struct {
	Workspace string // its name
	AskedBy   string // a name or an email address
	At        time.Time
}

func (Test) kind() string { return "test" }

const (
	maxText    = 2048 // the longest URL of an endpoint
	maxSubject = 200
	subjectTag = "Subject: "
)

// parseTemplates parses the templates. Their links begin with the public URL.
func parseTemplates(publicURL string) *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"publicURL": func() string { return publicURL },
		"when":      func(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04 UTC") },
		"day":       func(t time.Time) string { return t.UTC().Format("2 January 2006") },
	}).ParseFS(templateFiles, "templates/*.txt"))
}

// render returns the subject, which is the template's first line, and the text.
func render(templates *template.Template, data Data) (subject, text string, err error) {
	var out strings.Builder
	if err := templates.ExecuteTemplate(&out, data.kind()+".txt", oneLineEach(data)); err != nil {
		return "", "", fmt.Errorf("render email: %w", err)
	}
	first, text, _ := strings.Cut(out.String(), "\n")
	subject, ok := strings.CutPrefix(first, subjectTag)
	if !ok {
		return "", "", fmt.Errorf("render email: %s.txt does not begin with %q", data.kind(), subjectTag)
	}
	return oneLine(subject, maxSubject), strings.TrimSpace(text) + "\n", nil
}

// oneLineEach returns a copy of the data with each string reduced to one line.
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
				lines[i] = oneLine(s, maxText+maxSubject)
			}
			f.Set(reflect.ValueOf(lines))
		}
	}
	return out.Interface()
}

// oneLine replaces invisible characters (line ends, controls, direction marks) with
// spaces and shortens the string.
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
