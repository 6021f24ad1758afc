package clouds

import (
	"fmt"
	"net/http"
	"testing"
)

// Google is what Google's token server expects.
type Google struct {
	Account string // the service account's email
	Key     *Key
	// Audience and Subject are those of a workload identity, which has a token of another platform.
	Audience, Subject string
}

// GoogleBase is the path of the project's location.
const GoogleBase = "/v1/projects/p/locations/us-east5"

// NewGoogle starts Google's token server and Vertex AI.
func NewGoogle(t testing.TB, g Google) *Server {
	return start(t, func(s *Server, mux *http.ServeMux) {
		token := func(check func(r *http.Request) error) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if err := check(r); err != nil {
					s.refuse(w, http.StatusUnauthorized, err)
					return
				}
				s.issue(w)
			}
		}
		mux.HandleFunc("POST /token", token(func(r *http.Request) error {
			if grant := r.PostFormValue("grant_type"); grant != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
				return fmt.Errorf("grant_type %q", grant)
			}
			claims, err := g.Key.verify(r.PostFormValue("assertion"))
			if err == nil && (claims["iss"] != g.Account || claims["aud"] != s.URL+"/token" || claims["scope"] != "https://www.googleapis.com/auth/cloud-platform") {
				err = fmt.Errorf("claims %v", claims)
			}
			return err
		}))
		mux.HandleFunc("POST /sts", token(func(r *http.Request) error {
			if grant := r.PostFormValue("grant_type"); grant != "urn:ietf:params:oauth:grant-type:token-exchange" || r.PostFormValue("audience") != g.Audience {
				return fmt.Errorf("grant_type %q for %q", grant, r.PostFormValue("audience"))
			}
			claims, err := g.Key.verify(r.PostFormValue("subject_token"))
			if err == nil && claims["sub"] != g.Subject {
				err = fmt.Errorf("subject %v", claims["sub"])
			}
			return err
		}))
		mux.HandleFunc("POST "+GoogleBase+"/publishers/google/models/{call}", s.authenticated(func(w http.ResponseWriter, _ Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"candidates":[{"content":{"role":"model","parts":[{"text":"Hello from Gemini"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":3,"totalTokenCount":8}}`)
		}))
		mux.HandleFunc("POST "+GoogleBase+"/publishers/anthropic/models/{call}", s.authenticated(func(w http.ResponseWriter, r Request) {
			if r.Body["anthropic_version"] != "vertex-2023-10-16" || r.Header.Get("Anthropic-Version") != "" {
				s.refuse(w, http.StatusBadRequest, fmt.Errorf("anthropic_version %v", r.Body["anthropic_version"]))
				return
			}
			if r.Path == GoogleBase+"/publishers/anthropic/models/count-tokens:rawPredict" {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"input_tokens":7}`)
				return
			}
			if r.Body["model"] != nil {
				s.refuse(w, http.StatusBadRequest, fmt.Errorf("the body names the model %v", r.Body["model"]))
				return
			}
			answerClaude(w, r.Body["stream"] == true)
		}))
	})
}

// claudeEvents are the events of a message.
var claudeEvents = []string{
	`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"usage":{"input_tokens":5,"output_tokens":1}}}`,
	`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello from Claude"}}`,
	`{"type":"content_block_stop","index":0}`,
	`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":3}}`,
	`{"type":"message_stop"}`,
}

const claudeMessage = `{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"Hello from Claude"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":3}}`

func answerClaude(w http.ResponseWriter, stream bool) {
	if !stream {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, claudeMessage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range claudeEvents {
		fmt.Fprintf(w, "data: %s\n\n", event)
	}
}
