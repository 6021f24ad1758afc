package events

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/credits"
	"turnpike/internal/ids"
)

// Sample returns realistic data for an event type.
func Sample(t Type, now time.Time) Payload {
	at := func(ago time.Duration) int64 { return now.Add(-ago).Unix() }
	ago := func(d time.Duration) *int64 { s := at(d); return &s }
	done := at(0)
	expires := now.Add(48 * time.Hour).Unix()
	gone := now.Add(30 * 24 * time.Hour).Unix()
	none := map[string]string{}
	switch t {
	case ImageBatchCompleted:
		id := ids.New("imgbatch_")
		sum := sha256.Sum256([]byte(id))
		return ImageBatch{ID: id, Object: "image.batch", Status: "completed", Model: "gpt-image-1", Progress: 100,
			RequestCounts: ImageCounts{Total: 2, Completed: 1, Failed: 1},
			Results: []ImageResult{
				{CustomID: "cover", Status: "completed", Images: []Image{{URL: sampleURL("image.png"), URLExpiresAt: expires,
					ContentType: "image/png", Bytes: 184_213, SHA256: hex.EncodeToString(sum[:])}}},
				{CustomID: "back", Status: "failed", Images: []Image{}, Error: &JobError{Code: "moderation_blocked_output",
					Message: "the provider's moderation blocked the image"}},
			},
			Cost: 42 * credits.Credit, Metadata: map[string]string{"book": "42"}, CreatedAt: at(90 * time.Second), StartedAt: ago(89 * time.Second), CompletedAt: &done, ExpiresAt: &gone}
	case VideoRenderCompleted:
		url := sampleURL("video.mp4")
		return VideoRender{ID: ids.New("video_"), Object: "video", Status: "completed", Model: "sora-2", Progress: 100,
			Prompt: "A ferry leaves the harbour in the morning fog.", Seconds: "8", Size: "1280x720", URL: &url, URLExpiresAt: &expires,
			Cost: 800 * credits.Credit, Metadata: none, CreatedAt: at(4 * time.Minute), CompletedAt: &done, ExpiresAt: &gone}
	case VoiceRenderCompleted:
		url := sampleURL("speech.wav")
		return VoiceRender{ID: ids.New("voice_"), Object: "voice.render", Status: "completed", Model: "gpt-4o-mini-tts", Voice: "alloy",
			Progress: 100, Segments: VoiceSegments{Total: 12, Completed: 12}, Characters: 8_431, DurationSeconds: 541.2, ContentType: "audio/wav",
			URL: &url, URLExpiresAt: &expires, Cost: 126 * credits.Credit, Metadata: none, CreatedAt: at(2 * time.Minute),
			StartedAt: ago(119 * time.Second), CompletedAt: &done, ExpiresAt: &gone}
	case VoiceTranscriptCompleted:
		url, kind := sampleURL("transcript.json"), "application/json"
		return VoiceTranscription{ID: ids.New("transcript_"), Object: "voice.transcription", Status: "completed", Model: "whisper-1", Task: "transcribe",
			ResponseFormat: "verbose_json", Progress: 100, DurationSeconds: 2714.2, ContentType: &kind, URL: &url, URLExpiresAt: &expires, Cost: 271_500_000,
			Metadata: none, CreatedAt: at(2 * time.Minute), StartedAt: ago(119 * time.Second), CompletedAt: &done, ExpiresAt: &gone}
	case ResponseCompleted, ResponseIncomplete, ResponseFailed, ResponseCancelled:
		return Response{ID: ids.New(ids.Response), Type: t}
	case AgentRunAwaitingApproval:
		arguments := `{"order":"A-1042","amount":49.9}`
		sum := sha256.Sum256([]byte(arguments))
		r := sampleRun("awaiting_approval", at(30*time.Second))
		r.RequiredActions = []RequiredAction{{Type: "approval", ID: ids.New("appr_"), CallID: "call_1", Tool: "refund_order",
			Arguments: arguments, ArgumentsHash: hex.EncodeToString(sum[:]), ExpiresAt: now.Add(24 * time.Hour).Unix()}}
		return r
	case AgentRunCompleted:
		verified := true
		r := sampleRun("completed", at(time.Minute))
		r.Result = &AgentResult{OutputText: `{"refunded":true}`, Output: jsontext.Value(`{"refunded":true}`), Verified: &verified,
			Verification: &Verification{Checks: []VerificationCheck{{Type: "schema", Passed: true}}}}
		r.CompletedAt = &done
		return r
	case AgentRunFailed:
		partial := "The order was found, its payment was not."
		r := sampleRun("failed", at(3*time.Minute))
		r.StepsUsed = r.MaxSteps
		r.PartialResult = &partial
		r.Error = &AgentError{Code: "max_steps_exceeded", Message: "The run used all of its 20 steps without a result."}
		r.CompletedAt = &done
		return r
	case BatchCompleted, BatchFailed, BatchExpired, BatchCancelled:
		return Batch{ID: ids.New(ids.Batch), Status: strings.TrimPrefix(string(t), "batch.")}
	case BillingCreditsLow:
		return CreditsLow{Remaining: 1_950 * credits.Credit, Threshold: 2_000 * credits.Credit, MonthlyCredits: 10_000 * credits.Credit,
			Period: now.UTC().Format("2006-01")}
	case BillingUnbilledLimit:
		resets := time.Date(now.UTC().Year(), now.UTC().Month()+1, 1, 0, 0, 0, 0, time.UTC)
		return UnbilledLimitReached{Unbilled: 512 * credits.Credit, Limit: 500 * credits.Credit, Period: now.UTC().Format("2006-01"), ResetsAt: resets.Unix()}
	case BudgetThresholdReached:
		return BudgetThreshold{BudgetAlert: sampleBudget(4_012*credits.Credit, now), Threshold: 80}
	case BudgetWasExceeded:
		return BudgetExceeded{BudgetAlert: sampleBudget(5_000*credits.Credit, now)}
	case KeyAutoRevoked:
		url := "https://example.com/octocat/app/blob/main/.env"
		return KeyRevoked{KeyID: ids.New(ids.Key), KeyHint: "tp_live_…x7Qm", Source: "report", URL: &url, DetectedAt: done,
			Descendants: []RevokedKey{{KeyID: ids.New(ids.Key), KeyHint: "tp_live_…b3Zk", Name: "nightly import"}}}
	case EndpointFailing, EndpointPaused:
		problem, delivery := sampleDeliveryError, ids.New(ids.Delivery)
		return EndpointState{EndpointID: ids.New(ids.Endpoint), URL: "https://example.com/hooks/turnpike", Description: "order service",
			Status: strings.TrimPrefix(string(t), "endpoint."), Reason: "delivery_failed", Since: done, LastError: &problem, DeliveryID: &delivery}
	case EndpointSecretLeaked:
		url := "https://example.com/octocat/app"
		location := ".env:3 in commit 1f3c5a7b9d2e"
		return LeakedSecret{EndpointID: ids.New(ids.Endpoint), URL: "https://example.com/hooks/turnpike", Description: "order service", SecretHint: "whsec_…x7Qm",
			Source: "server_scan", LeakURL: &url, Location: &location, DetectedAt: done}
	case DeliveryFailed:
		status := int64(503)
		return FailedDelivery{DeliveryID: ids.New(ids.Delivery), EndpointID: ids.New(ids.Endpoint), URL: "https://example.com/hooks/turnpike",
			EventID: ids.New(ids.Event), EventType: AgentRunCompleted, Attempts: 6, LastStatus: &status, LastError: sampleDeliveryError}
	}
	panic("events: no sample for " + string(t))
}

func sampleBudget(spent credits.Micro, now time.Time) BudgetAlert {
	now = now.UTC()
	resets := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	return BudgetAlert{LimitSource: "key", ID: ids.New(ids.Key), Name: "production", Budget: 5_000 * credits.Credit, Spent: spent,
		Period: now.Format("2006-01"), ResetsAt: Unix(&resets)}
}

func sampleRun(status string, created int64) AgentRun {
	return AgentRun{ID: ids.New("run_"), Object: "agent.run", Status: status, Model: "gpt-4o", MaxSteps: 20, StepsUsed: 3,
		Usage: AgentUsage{InputTokens: 4_210, OutputTokens: 388, Credits: 14 * credits.Credit}, RequiredActions: []RequiredAction{},
		Metadata: map[string]string{"customer": "c_17"}, CreatedAt: created, StartedAt: &created}
}

const sampleDeliveryError = "the endpoint returned 503 Service Unavailable instead of a 2xx status"

// sampleURL returns a URL on a reserved domain.
func sampleURL(name string) string { return "https://files.example.com/" + name + "?signature=sample" }
