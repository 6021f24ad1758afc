package batches

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/credits"
	"turnpike/internal/db"
)

// The states of a line.
const (
	lineWaiting   = "waiting"
	lineStarted   = "started"  // a request is in progress, or was interrupted
	lineReserved  = "reserved" // the provider's batch API makes the request, or will
	lineCompleted = "completed"
	lineFailed    = "failed"
	lineCancelled = "cancelled"
	lineExpired   = "expired"
)

// line is a request of a batch. The line at position 0 is the work on the batch itself.
type line struct {
	BatchID   string
	Position  int64
	Lane      string
	Status    string
	DueAt     *time.Time
	Attempts  int64 // how often it was started; fences concurrent workers
	Tries     int64 // consecutive failures
	CustomID  string
	StartAt   int64
	Length    int64
	RequestID string
	Output    string
	Reserved  credits.Micro // that the line's lease holds
	MaxOutput int64         // output tokens that those pay for; 0 if they set no limit
	Accounts  string        // that those are charged to; empty if the previous version reserved them
}

func (l *line) waits() bool {
	return l.Status == lineWaiting || l.Status == lineStarted || l.Status == lineReserved
}

// place binds the encrypted output to its row.
func (l *line) place() string { return fmt.Sprintf("batch/%s/%d", l.BatchID, l.Position) }

const lineColumns = "batch_id, position, lane, status, due_at, attempts, tries, custom_id, start_at, length, request_id, output, reserved, max_output, accounts"

func (l *line) fields() []any {
	return []any{&l.BatchID, &l.Position, &l.Lane, &l.Status, &l.DueAt, &l.Attempts, &l.Tries, &l.CustomID, &l.StartAt, &l.Length, &l.RequestID, &l.Output, &l.Reserved, &l.MaxOutput, &l.Accounts}
}

var (
	scanLine    = db.Scanner((*line).fields)
	insertLines = db.NewBulk("batch_lines", "ON CONFLICT (batch_id, position) DO NOTHING", "batch_id text", "position bigint", "lane text", "status text", "due_at bigint",
		"attempts bigint", "tries bigint", "custom_id text", "start_at bigint", "length bigint")
	updateLines = db.NewBulkUpdate("batch_lines", "status = v.status, due_at = v.due_at, tries = v.tries, request_id = v.request_id, output = v.output",
		"batch_lines.batch_id = v.batch_id AND batch_lines.position = v.position",
		"batch_id text", "position bigint", "status text", "due_at bigint", "tries bigint", "request_id text", "output text")
)

func (l *line) row() []any {
	return []any{l.BatchID, l.Position, l.Lane, l.Status, db.Micros(l.DueAt), l.Attempts, l.Tries, l.CustomID, l.StartAt, l.Length}
}

// lineOutput is the encrypted result of a line.
type lineOutput struct {
	Status    int            `json:"status,omitzero"` // of HTTP; 0 without a response
	RequestID string         `json:"request_id,omitzero"`
	Body      jsontext.Value `json:"body,omitzero"`
	Error     *lineError     `json:"error,omitzero"`
}

type lineError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (s *Service) seal(l *line, o lineOutput) (string, error) {
	plain, err := json.Marshal(o, lenient)
	if err != nil {
		return "", err
	}
	return s.Ring.Seal(plain, l.place()), nil
}

// unseal returns the output of a line, which may be empty.
func (s *Service) unseal(l *line) (o lineOutput, err error) {
	if l.Output == "" {
		return o, nil
	}
	plain, err := s.Ring.Open(l.Output, l.place())
	if err == nil {
		err = json.Unmarshal(plain, &o, lenient)
	}
	if err != nil {
		return o, fmt.Errorf("line %d of %s: %w", l.Position, l.BatchID, err)
	}
	return o, nil
}

// lenient is for JSON of providers.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
