// Package logsearch parses the search language of lists: terms such as
//
//	model:gpt* status:4xx key:"Shop" >2s
//
// A Language binds each field to a filter, as package flag binds flags to variables. A
// mistake in one term doesn't affect the others.
package logsearch

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Op is how a term compares a field with its value.
type Op string

// The operators.
const (
	Equal   Op = ":"
	Above   Op = ">"
	AtLeast Op = ">="
	Below   Op = "<"
	AtMost  Op = "<="
)

// comparisons lists the operators that are written before a value, the longest first.
var comparisons = []Op{AtLeast, AtMost, Above, Below}

// Field is a field that terms can name.
type Field struct {
	Name   string
	Label  string   // for people; empty for fields without a picker
	Help   string   // an example value
	Values []string // known values, for suggestions
	Only   bool     // a picker offers only Values, and no other text
	// Set reads a value into a filter. Its error says what is wrong with the value.
	Set func(op Op, value string) error
}

// Language is the fields of a list.
type Language struct {
	Fields []Field
	// Compared is the field of a comparison that names none, such as >2s.
	Compared string
	// Word returns the field that a word without a field belongs to, such as status for
	// 404. It is empty for other words.
	Word func(word string) (field string)
}

// Term is a condition.
type Term struct {
	Field string
	Op    Op
	Value string
}

// String returns the term as it is typed.
func (t Term) String() string {
	op := string(t.Op)
	if t.Op != Equal {
		op = string(Equal) + op
	}
	return t.Field + op + quote(t.Value)
}

// Mistake is a term that isn't part of the search, and why.
type Mistake struct {
	Term    string // as it was typed
	Message string
}

// Query is a parsed search.
type Query struct {
	Terms    []Term // those without a mistake
	Mistakes []Mistake
	parts    []part
}

// part is a term as it was typed, with its field if it has a known one.
type part struct {
	text  string
	field string
}

// Parse reads a search and sets the filters of its fields.
func (l *Language) Parse(text string) *Query {
	q := &Query{}
	for rest := strings.TrimSpace(printable(text)); rest != ""; rest = strings.TrimSpace(rest) {
		n := termEnd(rest)
		typed := rest[:n]
		rest = rest[n:]
		t, err := l.read(typed)
		q.parts = append(q.parts, part{typed, t.Field})
		if err == nil {
			err = l.set(q, t)
		}
		if err != nil {
			q.Mistakes = append(q.Mistakes, Mistake{typed, err.Error()})
			continue
		}
		q.Terms = append(q.Terms, t)
	}
	return q
}

// printable replaces invalid UTF-8 and control characters, which no record has and
// PostgreSQL refuses.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && !unicode.IsSpace(r) {
			return utf8.RuneError
		}
		return r
	}, text)
}

func (l *Language) field(name string) *Field {
	i := slices.IndexFunc(l.Fields, func(f Field) bool { return strings.EqualFold(f.Name, name) })
	if i < 0 {
		return nil
	}
	return &l.Fields[i]
}

// names lists the fields, for errors.
func (l *Language) names() string {
	names := make([]string, len(l.Fields))
	for i, f := range l.Fields {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

// isSame reports whether two terms exclude each other. A field may have a lower and an
// upper bound.
func (t Term) isSame(other Term) bool {
	return t.Field == other.Field && (t.Op == Equal || other.Op == Equal || t.Op[0] == other.Op[0])
}

func (l *Language) set(q *Query, t Term) error {
	if slices.ContainsFunc(q.Terms, t.isSame) {
		return invalid("There is more than one term for %s. Only the first one counts.", t.Field)
	}
	return l.field(t.Field).Set(t.Op, t.Value)
}

// read splits a term. It returns an empty field if there is none.
func (l *Language) read(typed string) (Term, error) {
	n := strings.IndexFunc(typed, func(r rune) bool { return !unicode.IsLetter(r) && r != '_' && r != '-' })
	if n < 0 {
		return l.word(typed)
	}
	name, rest := typed[:n], typed[n:]
	op, rest := cutOp(rest)
	if op == "" {
		return l.word(typed)
	}
	if name == "" {
		if op == Equal || l.Compared == "" {
			return l.word(typed)
		}
		name = l.Compared
	}
	f := l.field(name)
	if f == nil {
		if t, err := l.word(typed); err == nil {
			return t, nil
		}
		return Term{}, invalid("Unknown field %q. Known fields: %s.", name, l.names())
	}
	value, err := unquote(rest)
	if err != nil {
		return Term{Field: f.Name}, err
	}
	if value == "" {
		return Term{Field: f.Name}, invalid("Enter a value for %s, such as %s.", f.Name, f.Help)
	}
	return Term{f.Name, op, value}, nil
}

// word reads a term without a field.
func (l *Language) word(typed string) (Term, error) {
	value, err := unquote(typed)
	if err != nil {
		return Term{}, err
	}
	if l.Word != nil {
		if f := l.field(l.Word(value)); f != nil {
			return Term{f.Name, Equal, value}, nil
		}
	}
	return Term{}, invalid("Name a field for %q. Known fields: %s.", value, l.names())
}

// cutOp reads an operator: a colon, a comparison, or both.
func cutOp(s string) (Op, string) {
	op := Op("")
	if s != "" && (s[0] == ':' || s[0] == '=') {
		op, s = Equal, s[1:]
	}
	for _, c := range comparisons {
		if rest, ok := strings.CutPrefix(s, string(c)); ok {
			return c, rest
		}
	}
	return op, s
}

// isQuote reports whether a character quotes a value. Phones type curly ones.
func isQuote(r rune) bool { return r == '"' || r == '“' || r == '”' }

// termEnd returns the length of the first term: until a space that isn't quoted.
func termEnd(s string) int {
	quoted, start := false, true // start: a quote would open here
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case quoted && r == '\\' && i+size < len(s):
			_, next := utf8.DecodeRuneInString(s[i+size:])
			size += next
		case quoted && isQuote(r):
			quoted = false
		case quoted:
		case unicode.IsSpace(r):
			return i
		case start && isQuote(r):
			quoted = true
		}
		start = strings.ContainsRune(":=<>", r)
		i += size
	}
	return len(s)
}

// unquote returns a value without its quotes and escapes.
func unquote(s string) (string, error) {
	first, size := utf8.DecodeRuneInString(s)
	if !isQuote(first) {
		return s, nil
	}
	var out strings.Builder
	escaped := false
	for i, r := range s[size:] {
		switch {
		case escaped:
			escaped = false
			out.WriteRune(r)
		case r == '\\':
			escaped = true
		case isQuote(r):
			if rest := s[size+i+utf8.RuneLen(r):]; rest != "" {
				return "", invalid("Put a space between the closing quotation mark and %q.", rest)
			}
			return out.String(), nil
		default:
			out.WriteRune(r)
		}
	}
	return "", invalid("Close the quotation marks.")
}

// quote quotes a value that wouldn't be read as it is.
func quote(s string) string {
	first, _ := utf8.DecodeRuneInString(s)
	if s != "" && strings.IndexFunc(s, unicode.IsSpace) < 0 && !strings.ContainsFunc(s, isQuote) && !strings.ContainsRune(":=<>", first) {
		return s
	}
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range s {
		if r == '\\' || isQuote(r) {
			out.WriteByte('\\')
		}
		out.WriteRune(r)
	}
	out.WriteByte('"')
	return out.String()
}

// Value returns what the search says about a field: a value, with its comparison if it has
// one. It is empty if the search doesn't name the field.
func (q *Query) Value(field string) string {
	for _, t := range q.Terms {
		if t.Field == field {
			return strings.TrimPrefix(string(t.Op), string(Equal)) + t.Value
		}
	}
	return ""
}

// Has reports whether the search names a field.
func (q *Query) Has(field string) bool {
	return slices.ContainsFunc(q.Terms, func(t Term) bool { return t.Field == field })
}

// String returns the search as it was typed, with single spaces.
func (q *Query) String() string {
	return q.With()
}

// With returns the search with other terms: each replaces those of its field. A term
// without a value only removes them.
func (q *Query) With(terms ...Term) string {
	var out []string
	for _, p := range q.parts {
		i := slices.IndexFunc(terms, func(t Term) bool { return t.Field == p.field && p.field != "" })
		switch {
		case i < 0:
			out = append(out, p.text)
		case terms[i].Value != "":
			out = append(out, terms[i].String())
			terms = slices.Delete(slices.Clone(terms), i, i+1)
			// Further parts of the field are removed.
			terms = append(terms, Term{Field: p.field})
		}
	}
	for _, t := range terms {
		if t.Value != "" {
			out = append(out, t.String())
		}
	}
	return strings.Join(out, " ")
}

// Of returns the term for a field and the value of a picker, which may begin with a
// comparison.
func Of(field, value string) Term {
	if op, rest := cutOp(value); op != "" && op != Equal && rest != "" {
		return Term{field, op, rest}
	}
	return Term{field, Equal, value}
}
