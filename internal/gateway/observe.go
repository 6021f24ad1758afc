package gateway

import (
	"time"

	"turnpike/internal/credits"
)

// Observation is a model call that has ended, for whoever watches the server.
// It holds no secrets and nothing of what was said.
type Observation struct {
	Operation   string // "chat" or "embeddings"
	Environment string
	Provider    string
	Requested   string // the caller's name of the model
	Named       bool   // that is one of the router's, the table's or the operator's
	Model       string // what ran, or was tried last
	Known       bool   // the table or the operator has it, so that its name is no caller's invention
	Started     time.Time
	FirstByte   time.Duration // zero without an answer
	Duration    time.Duration
	Input       int64
	Output      int64
	Credits     credits.Micro
	Failure     string // a fault's code, or empty
	Attempts    []Attempt
	TraceParent string // of the caller, as in the header of that name
}
