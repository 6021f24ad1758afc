package gateway

import (
	"time"

	"turnpike/internal/credits"
)

// Observation describes a finished model call for telemetry. It holds no secrets and no content.
type Observation struct {
	Operation      string // "chat", "embeddings", "image" or "speech"
	Environment    string
	Provider       string
	Requested      string // the model as the client named it
	RequestedKnown bool   // the name belongs to the router, the catalog or the operator
	Model          string // the model that ran, or was tried last
	ModelKnown     bool   // the catalog or the operator lists it, so clients didn't invent its name
	Started        time.Time
	FirstByte      time.Duration // zero without a response
	Duration       time.Duration
	Input          int64
	Output         int64
	Credits        credits.Micro
	Failure        string // a fault's code, or empty
	Attempts       []Attempt
	TraceParent    string // the client's traceparent header
}
