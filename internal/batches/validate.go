package batches

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/jsonbody"
)

const (
	// maxInputErrors is how many problems a failed batch lists.
	maxInputErrors = 100
	maxCustomID    = 512
	// A provider's batch API gets batches with so many models, and names of so many bytes.
	maxModels = 100
	maxModel  = 512
	// loadChunk is how many lines a transaction stores.
	loadChunk = 1000
	// lineOverhead is how many bytes a line may have besides its body.
	lineOverhead = 4 << 10
)

// Line is a line of the input, in OpenAI's format.
type Line struct {
	CustomID string         `json:"custom_id"`
	Method   string         `json:"method"`
	URL      string         `json:"url"`
	Body     jsontext.Value `json:"body"`
}

// eachLine calls use for every line that isn't empty, with its number and where it is. A line of
// more than limit bytes has no text.
func eachLine(r io.Reader, limit int64, use func(n, offset int64, text []byte) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var text []byte
	offset := int64(0)
	for n := int64(1); ; n++ {
		text = text[:0]
		length, tooLong := int64(0), false
		var err error
		for {
			var part []byte
			part, err = in.ReadSlice('\n')
			length += int64(len(part))
			if tooLong = tooLong || length > limit+1; !tooLong {
				text = append(text, part...)
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				break
			}
		}
		if err != nil && err != io.EOF {
			return err
		}
		trimmed := bytes.TrimRight(text, "\r\n")
		switch {
		case tooLong:
			trimmed = nil
		case len(bytes.TrimSpace(trimmed)) == 0:
			offset += length
			if err == io.EOF {
				return nil
			}
			continue
		}
		if failed := use(n, offset, trimmed); failed != nil {
			return failed
		}
		offset += length
		if err == io.EOF {
			return nil
		}
	}
}

// inputErrors are the problems that a validation has found.
type inputErrors struct {
	list []InputError
	seen map[string]int64 // custom IDs and their lines

	models  map[string]bool
	dynamic bool // a line lets the router choose its model
}

// distinctModels returns the models that the lines name, or none if the router chooses some.
func (e *inputErrors) distinctModels() []string {
	if e.dynamic {
		return nil
	}
	return slices.Sorted(maps.Keys(e.models))
}

var errTooMany = errors.New("too many problems")

// add notes a problem of a line.
func (e *inputErrors) add(n int64, code fault.Code, param, message string, args ...any) error {
	problem := InputError{Code: string(code), Line: &n, Message: fmt.Sprintf("Line %d: ", n) + fmt.Sprintf(message, args...)}
	if param != "" {
		problem.Param = &param
	}
	if e.list = append(e.list, problem); len(e.list) >= maxInputErrors {
		return errTooMany
	}
	return nil
}

// check checks a line of the input.
func (e *inputErrors) check(b *Batch, limits Limits, n int64, text []byte) error {
	values := limits.JSONValues
	if b.Endpoint == Embeddings {
		values *= embeddingValues
	}
	var in Line
	var fields struct {
		Stream     bool           `json:"stream"`
		Background bool           `json:"background"`
		Model      string         `json:"model"`
		Models     jsontext.Value `json:"models"`
	}
	switch {
	case text == nil:
		return e.add(n, fault.RequestTooLarge, "", "The line is longer than the limit of %d bytes.", limits.LineBytes+lineOverhead)
	case !utf8.Valid(text):
		return e.add(n, fault.InvalidJSON, "", "The line is not valid UTF-8.")
	}
	if _, err := jsonbody.CheckShape(text, limits.JSONDepth, values); err != nil {
		return e.addFault(n, err)
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return e.add(n, fault.InvalidJSON, "", "The line must be a JSON object with custom_id, method, url and body.")
	}
	first, twice := e.seen[in.CustomID]
	switch {
	case in.CustomID == "":
		return e.add(n, fault.MissingParameter, "custom_id", "custom_id is required: your own ID of the request.")
	case len(in.CustomID) > maxCustomID || strings.IndexByte(in.CustomID, 0) >= 0: // PostgreSQL rejects NUL
		return e.add(n, fault.InvalidParameter, "custom_id", "custom_id must have at most %d bytes.", maxCustomID)
	case twice:
		return e.add(n, fault.InvalidParameter, "custom_id", "custom_id %q duplicates line %d. Each must be unique.", in.CustomID, first)
	}
	e.seen[in.CustomID] = n
	switch {
	case in.Method != "POST":
		return e.add(n, fault.InvalidParameter, "method", "method must be \"POST\".")
	case in.URL != string(b.Endpoint):
		return e.add(n, fault.InvalidParameter, "url", "url must be %q, the endpoint of the batch.", b.Endpoint)
	case in.Body.Kind() != '{':
		return e.add(n, fault.MissingParameter, "body", "body is required: an object.")
	}
	invalid := json.Unmarshal(in.Body, &fields, lenient) != nil // other types fail when the request is made
	e.dynamic = e.dynamic || invalid || fields.Model == "" || fields.Models != nil || len(fields.Model) > maxModel || len(e.models) > maxModels
	if !e.dynamic {
		e.models[fields.Model] = true
	}
	switch {
	case fields.Stream:
		return e.add(n, fault.InvalidParameter, "body.stream", "Requests of a batch can't be streamed. Omit stream.")
	case fields.Background:
		return e.add(n, fault.InvalidParameter, "body.background", "Requests of a batch can't be background responses. Omit background.")
	}
	return nil
}

// embeddingValues multiplies the limit on JSON values, for arrays of tokens.
const embeddingValues = 5

func (e *inputErrors) addFault(n int64, err error) error {
	f, ok := fault.As(err)
	if !ok {
		return err
	}
	return e.add(n, f.Code, f.Param, "%s", f.Message)
}

// validate checks the whole input before a line of it runs, and returns the number of requests, and
// their problems and models.
func (s *Service) validate(ctx context.Context, b *Batch) (total int64, e *inputErrors, err error) {
	if err := s.awaitLines(ctx, b); err != nil {
		return 0, nil, err
	}
	e = &inputErrors{seen: map[string]int64{}, models: map[string]bool{}}
	content, err := s.Files.Open(ctx, b.input(), 0)
	if errors.Is(err, files.ErrGone) {
		e.list = []InputError{{Code: string(fault.NotFound), Message: "The input file was deleted."}}
		return 0, e, nil
	}
	if err != nil {
		return 0, nil, err
	}
	defer content.Close()
	limits := s.Limits()
	err = eachLine(content, limits.LineBytes+lineOverhead, func(n, _ int64, text []byte) error {
		if total++; total > int64(limits.Lines) {
			return e.tooMany(limits.Lines)
		}
		return e.check(b, limits, n, text)
	})
	if err != nil && !errors.Is(err, errTooMany) {
		return 0, nil, err
	}
	if total == 0 {
		e.list = append(e.list, InputError{Code: "empty_file", Message: "The input file has no requests. Each line must be a JSON object with custom_id, method, url and body."})
	}
	return total, e, nil
}

func (e *inputErrors) tooMany(limit int) error {
	e.list = append(e.list, InputError{Code: string(fault.LimitReached), Message: fmt.Sprintf("The input file has more than %d requests, which is the limit. Split it into several batches.", limit)})
	return errTooMany
}

// load stores the lines, due immediately. It may be repeated.
func (s *Service) load(ctx context.Context, b *Batch) error {
	if err := s.awaitLines(ctx, b); err != nil {
		return err
	}
	content, err := s.Files.Open(ctx, b.input(), 0)
	if err != nil {
		return err
	}
	defer content.Close()
	now := s.Now()
	due := &now
	if b.Provider != "" {
		due = nil // the work on the batch itself ends its lines
	}
	var rows [][]any
	flush := func() error {
		err := s.DB.Write(ctx, func(tx *db.Tx) error {
			if _, err := insertLines.Write(ctx, tx, rows); err != nil {
				return fmt.Errorf("store lines: %w", err)
			}
			return s.wake(ctx, tx, b, now)
		})
		rows = nil
		return err
	}
	err = eachLine(content, s.Limits().LineBytes+lineOverhead, func(n, offset int64, text []byte) error {
		var in Line
		if err := json.Unmarshal(text, &in); err != nil {
			return err
		}
		rows = append(rows, (&line{BatchID: b.ID, Position: n, Lane: b.Lane, Status: lineWaiting, DueAt: due, CustomID: in.CustomID, StartAt: offset, Length: int64(len(text))}).row())
		if len(rows) == loadChunk {
			return flush()
		}
		return nil
	})
	if err == nil && len(rows) > 0 {
		err = flush()
	}
	return err
}

// change changes a batch in a transaction, unless it is in another state by now.
func (s *Service) change(ctx context.Context, was *Batch, fn func(tx *db.Tx, b *Batch, now time.Time) error) error {
	return s.DB.Write(ctx, func(tx *db.Tx) error {
		list, err := lock(ctx, tx, was.ID)
		if err != nil || len(list) == 0 || list[0].Status != was.Status {
			return err
		}
		return fn(tx, list[0], s.Now())
	})
}
