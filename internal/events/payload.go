package events

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
)

// Unix returns a time as payloads have it.
func Unix(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	s := t.Unix()
	return &s
}

// Payload is the data of an event. Each event type has one Go type.
type Payload interface {
	eventType() Type
}

// ImageBatch is the data of image.batch.completed, which fires when a batch ends,
// with any Status.
type ImageBatch struct {
	ID               string            `json:"id"`
	Object           string            `json:"object"`
	Status           string            `json:"status"`
	Model            string            `json:"model"`
	Progress         int64             `json:"progress"`
	RequestCounts    ImageCounts       `json:"request_counts"`
	Results          []ImageResult     `json:"results,omitzero"` // left out of lists
	ResultsTruncated bool              `json:"results_truncated,omitzero"`
	Cost             credits.Micro     `json:"cost"`
	Metadata         map[string]string `json:"metadata"`
	Error            *JobError         `json:"error"`
	CreatedAt        int64             `json:"created_at"`
	StartedAt        *int64            `json:"started_at"`
	CompletedAt      *int64            `json:"completed_at"`
	ExpiresAt        *int64            `json:"expires_at"` // when its files are deleted
}

// ImageCounts counts a batch's requests by result.
type ImageCounts struct {
	Total     int64 `json:"total"`
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
}

// ImageResult is the outcome of one request of a batch.
type ImageResult struct {
	CustomID string    `json:"custom_id"`
	Status   string    `json:"status"`
	Images   []Image   `json:"images"`
	Error    *JobError `json:"error"`
}

// Image is a file behind a signed URL.
type Image struct {
	URL          string `json:"url"`
	URLExpiresAt int64  `json:"url_expires_at"`
	ContentType  string `json:"content_type"`
	Bytes        int64  `json:"bytes"`
	SHA256       string `json:"sha256"`
}

// JobError is the reason why a job or a part of it failed.
type JobError struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
}

func (ImageBatch) eventType() Type { return ImageBatchCompleted }

// VideoRender is the data of video.render.completed: a video with its URL, or the
// reason why there is none. Its fields are those of OpenAI's API.
type VideoRender struct {
	ID            string            `json:"id"`
	Object        string            `json:"object"`
	Status        string            `json:"status"`
	Model         string            `json:"model"`
	Progress      int64             `json:"progress"`
	Prompt        string            `json:"prompt"`
	Seconds       string            `json:"seconds"`
	Size          string            `json:"size"`
	RemixedFrom   *string           `json:"remixed_from_video_id"`
	URL           *string           `json:"url"`
	URLExpiresAt  *int64            `json:"url_expires_at"`
	FailureReason *string           `json:"failure_reason"`
	Error         *JobError         `json:"error"`
	Cost          credits.Micro     `json:"cost"`
	Metadata      map[string]string `json:"metadata"`
	CreatedAt     int64             `json:"created_at"`
	CompletedAt   *int64            `json:"completed_at"`
	ExpiresAt     *int64            `json:"expires_at"`
}

func (VideoRender) eventType() Type { return VideoRenderCompleted }

// VoiceRender is the data of voice.render.completed.
type VoiceRender struct {
	ID              string            `json:"id"`
	Object          string            `json:"object"`
	Status          string            `json:"status"`
	Model           string            `json:"model"`
	Voice           string            `json:"voice"`
	Progress        int64             `json:"progress"`
	Segments        VoiceSegments     `json:"segments"`
	Characters      int64             `json:"characters"`
	DurationSeconds float64           `json:"duration_seconds"`
	ContentType     string            `json:"content_type"`
	URL             *string           `json:"url"`
	URLExpiresAt    *int64            `json:"url_expires_at"`
	Cost            credits.Micro     `json:"cost"`
	Metadata        map[string]string `json:"metadata"`
	Error           *JobError         `json:"error"`
	CreatedAt       int64             `json:"created_at"`
	StartedAt       *int64            `json:"started_at"`
	CompletedAt     *int64            `json:"completed_at"`
	ExpiresAt       *int64            `json:"expires_at"`
}

// VoiceSegments is the progress of a long text.
type VoiceSegments struct {
	Total     int64 `json:"total"`
	Completed int64 `json:"completed"`
}

func (VoiceRender) eventType() Type { return VoiceRenderCompleted }

// VoiceTranscription is the data of voice.transcription.completed.
type VoiceTranscription struct {
	ID              string            `json:"id"`
	Object          string            `json:"object"`
	Status          string            `json:"status"`
	Model           string            `json:"model"`
	Task            string            `json:"task"`
	ResponseFormat  string            `json:"response_format"`
	Progress        int64             `json:"progress"`
	DurationSeconds float64           `json:"duration_seconds"`
	ContentType     *string           `json:"content_type"`
	URL             *string           `json:"url"`
	URLExpiresAt    *int64            `json:"url_expires_at"`
	Cost            credits.Micro     `json:"cost"`
	Metadata        map[string]string `json:"metadata"`
	Error           *JobError         `json:"error"`
	CreatedAt       int64             `json:"created_at"`
	StartedAt       *int64            `json:"started_at"`
	CompletedAt     *int64            `json:"completed_at"`
	ExpiresAt       *int64            `json:"expires_at"`
}

func (VoiceTranscription) eventType() Type { return VoiceTranscriptCompleted }

// AgentRun is the data of the agent.run events. Its status determines the type.
type AgentRun struct {
	ID              string            `json:"id"`
	Object          string            `json:"object"`
	Status          string            `json:"status"`
	Model           string            `json:"model"`
	MaxSteps        int               `json:"max_steps"`
	StepsUsed       int               `json:"steps_used"`
	Usage           AgentUsage        `json:"usage"`
	Budget          *AgentBudget      `json:"budget"`
	RequiredActions []RequiredAction  `json:"required_actions"`
	Result          *AgentResult      `json:"result"`
	PartialResult   *string           `json:"partial_result"`
	Error           *AgentError       `json:"error"`
	Metadata        map[string]string `json:"metadata"`
	CreatedAt       int64             `json:"created_at"`
	StartedAt       *int64            `json:"started_at"`
	CompletedAt     *int64            `json:"completed_at"`
}

// AgentBudget is the maximum cost of a run.
type AgentBudget struct {
	MaxCredits credits.Micro `json:"max_credits"`
}

// AgentUsage is the usage of a run so far.
type AgentUsage struct {
	InputTokens  int64         `json:"input_tokens"`
	OutputTokens int64         `json:"output_tokens"`
	Credits      credits.Micro `json:"credits"`
}

// RequiredAction is an action that a run waits for.
type RequiredAction struct {
	Type          string `json:"type"`
	ID            string `json:"id,omitzero"`
	CallID        string `json:"call_id"`
	Tool          string `json:"tool"`
	Arguments     string `json:"arguments"`
	ArgumentsHash string `json:"arguments_hash,omitzero"`
	Note          string `json:"note,omitzero"` // the reason, unless the tool requires approval
	ExpiresAt     int64  `json:"expires_at"`

	Roles []accounts.Role `json:"roles,omitzero"` // that may decide, if the tool limits them
}

// AgentResult is the result of a run. A truncated one reached the token limit.
// Verified is null if nothing was checked or a check was simulated.
type AgentResult struct {
	OutputText   string         `json:"output_text"`
	Truncated    bool           `json:"truncated"`
	Output       jsontext.Value `json:"output"`
	Verified     *bool          `json:"verified"`
	Verification *Verification  `json:"verification"`
}

// Verification holds the checks of a result.
type Verification struct {
	Checks    []VerificationCheck `json:"checks"`
	Revisions int64               `json:"revisions"`
	Simulated bool                `json:"simulated"` // at least one check was
}

// VerificationCheck is a check of a result. A simulated check always passes.
type VerificationCheck struct {
	Type      string `json:"type"`
	Passed    bool   `json:"passed"`
	Reason    string `json:"reason"`
	Simulated bool   `json:"simulated"`
}

// AgentError is the reason why a run failed.
type AgentError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (r AgentRun) eventType() Type {
	switch r.Status {
	case "awaiting_approval":
		return AgentRunAwaitingApproval
	case "completed":
		return AgentRunCompleted
	}
	return AgentRunFailed // or canceled
}

// Batch is the data of the batch events, as in OpenAI's API. Its status determines the type.
type Batch struct {
	ID     string `json:"id"`
	Status string `json:"-"`
}

func (b Batch) eventType() Type { return Type("batch." + b.Status) }

// CreditsLow is the data of billing.credits.low.
type CreditsLow struct {
	Remaining      credits.Micro `json:"remaining"`
	Threshold      credits.Micro `json:"threshold"`
	MonthlyCredits credits.Micro `json:"monthly_credits"`
	Period         string        `json:"period"`
}

func (CreditsLow) eventType() Type { return BillingCreditsLow }

// UnbilledLimitReached is the data of billing.unbilled_limit_reached.
type UnbilledLimitReached struct {
	Unbilled credits.Micro `json:"unbilled"`
	Limit    credits.Micro `json:"limit"`
	Period   string        `json:"period"`
	ResetsAt int64         `json:"resets_at"`
}

func (UnbilledLimitReached) eventType() Type { return BillingUnbilledLimit }

// BudgetAlert is the data of the events about budgets.
type BudgetAlert struct {
	LimitSource string        `json:"limit_source"`      // workspace, project, key or user
	LimitID     string        `json:"limit_id,omitzero"` // of one of the limits of a key or a project
	ID          string        `json:"id"`
	Name        string        `json:"name"`
	Budget      credits.Micro `json:"budget"`
	Spent       credits.Micro `json:"spent"`
	Period      string        `json:"period"`
	ResetsAt    *int64        `json:"resets_at"` // nil for a budget that never starts again
}

// BudgetThreshold is the data of budget.threshold_reached.
type BudgetThreshold struct {
	BudgetAlert
	Threshold int64 `json:"threshold"` // percent
}

func (BudgetThreshold) eventType() Type { return BudgetThresholdReached }

// BudgetExceeded is the data of budget.exceeded.
type BudgetExceeded struct{ BudgetAlert }

func (BudgetExceeded) eventType() Type { return BudgetWasExceeded }

// KeyRevoked is the data of key.auto_revoked. It doesn't contain the secret.
type KeyRevoked struct {
	KeyID   string  `json:"key_id"`
	KeyHint string  `json:"key_hint"`
	Source  string  `json:"source"`
	URL     *string `json:"url"`
	// Location is where the secret is, in the repository or the log that Turnpike scanned.
	Location   *string `json:"location"`
	DetectedAt int64   `json:"detected_at"`
	// Descendants were revoked with the key. At most MaxDescendants are listed.
	Descendants          []RevokedKey `json:"descendants"`
	DescendantsTruncated bool         `json:"descendants_truncated"`
}

// RevokedKey is a key that was revoked with the one that created it.
type RevokedKey struct {
	KeyID   string `json:"key_id"`
	KeyHint string `json:"key_hint"`
	Name    string `json:"name"`
}

// MaxDescendants limits the size of key.auto_revoked.
const MaxDescendants = 100

func (KeyRevoked) eventType() Type { return KeyAutoRevoked }

// EndpointState is the data of endpoint.failing and endpoint.paused. Its status determines the type.
type EndpointState struct {
	EndpointID  string  `json:"endpoint_id"`
	URL         string  `json:"url"`
	Description string  `json:"description"`
	Status      string  `json:"status"` // failing or paused
	Reason      string  `json:"reason"` // delivery_failed or manual
	Since       int64   `json:"since"`
	LastError   *string `json:"last_error"`
	// DeliveryID is the delivery that failed. It is null if someone paused the endpoint.
	DeliveryID *string `json:"delivery_id"`
}

func (e EndpointState) eventType() Type { return Type("endpoint." + e.Status) }

func (e EndpointState) about() string { return e.EndpointID }

// LeakedSecret is the data of endpoint.secret_leaked. It doesn't contain the secret.
type LeakedSecret struct {
	EndpointID  string `json:"endpoint_id"`
	URL         string `json:"url"` // of the endpoint; empty for a tunnel
	Description string `json:"description"`
	SecretHint  string `json:"secret_hint"`
	// Previous says that it is the old secret of a rotation, in its grace period.
	Previous   bool    `json:"previous"`
	Source     string  `json:"source"`
	LeakURL    *string `json:"leak_url"`
	Location   *string `json:"location"`
	DetectedAt int64   `json:"detected_at"`
}

func (LeakedSecret) eventType() Type { return EndpointSecretLeaked }

func (l LeakedSecret) about() string { return l.EndpointID }

// FailedDelivery is the data of delivery.failed.
type FailedDelivery struct {
	DeliveryID string `json:"delivery_id"`
	EndpointID string `json:"endpoint_id"`
	URL        string `json:"url"`
	EventID    string `json:"event_id"`
	EventType  Type   `json:"event_type"`
	Attempts   int64  `json:"attempts"`
	LastStatus *int64 `json:"last_status"` // null if there was no response
	LastError  string `json:"last_error"`
}

func (FailedDelivery) eventType() Type { return DeliveryFailed }

func (d FailedDelivery) about() string { return d.EndpointID }

// Response is the data of the events about background responses. As in OpenAI's API, it has only the ID.
type Response struct {
	ID   string `json:"id"`
	Type Type   `json:"-"`
}

func (r Response) eventType() Type { return r.Type }
