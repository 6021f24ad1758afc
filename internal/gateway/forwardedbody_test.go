package gateway

import (
	stdjson "encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"turnpike/internal/providers"
	"turnpike/internal/providers/openai"
	"turnpike/internal/providers/wire"
)

// These are the fields on which price, limits and routing depend.
type (
	forwardedChat struct {
		forwardedModel
		MaxTokens           any                `json:"max_tokens"`
		MaxCompletionTokens any                `json:"max_completion_tokens"`
		Predict             any                `json:"n_predict"`
		N                   any                `json:"n"`
		Stream              any                `json:"stream"`
		StreamOptions       any                `json:"stream_options"`
		ServiceTier         any                `json:"service_tier"`
		Tools               any                `json:"tools"`
		Functions           any                `json:"functions"`
		ResponseFormat      any                `json:"response_format"`
		Messages            []forwardedMessage `json:"messages"`
	}
	forwardedMessage struct {
		Role    any `json:"role"`
		Content []struct {
			Type       any `json:"type"`
			Image      any `json:"image"`
			ImageURL   any `json:"image_url"`
			InputAudio any `json:"input_audio"`
		} `json:"content"`
	}
	forwardedEmbedding struct {
		forwardedModel
		Input any `json:"input"`
	}
	forwardedImages struct {
		forwardedModel
		Prompt         any `json:"prompt"`
		N              any `json:"n"`
		Size           any `json:"size"`
		Stream         any `json:"stream"`
		ResponseFormat any `json:"response_format"`
	}
	forwardedSpeech struct {
		forwardedModel
		Input          any `json:"input"`
		Voice          any `json:"voice"`
		Speed          any `json:"speed"`
		ResponseFormat any `json:"response_format"`
		StreamFormat   any `json:"stream_format"`
	}
	forwardedModel struct {
		Model  any `json:"model"`
		Models any `json:"models"`
	}
)

func (m *forwardedModel) models() (model, models any) { return m.Model, m.Models }

const forwardedName = "the-model"

// wantSameReading checks that encoding/json, as a provider in Go may use it, reads a body as the
// gateway does.
func wantSameReading[T any](t *testing.T, body []byte) {
	t.Helper()
	var exact, folded T
	exactErr, foldedErr := json.Unmarshal(body, &exact), stdjson.Unmarshal(body, &folded)
	if (exactErr == nil) != (foldedErr == nil) || exactErr == nil && !reflect.DeepEqual(exact, folded) {
		t.Errorf("%q:\nencoding/json reads %+v, %v\nwant %+v, %v", body, folded, foldedErr, exact, exactErr)
	}
	if model, models := any(&folded).(interface{ models() (model, models any) }).models(); model != forwardedName || models != nil {
		t.Errorf("%q: encoding/json reads the model as %v and the models as %v", body, model, models)
	}
}

// FuzzForward sends accepted bodies to a provider that decodes with encoding/json, and checks that
// it reads the same as the gateway.
func FuzzForward(f *testing.F) {
	for i, seed := range []string{
		`{"model":"m","max_tokens":5,"n":2,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}],"stream":true,"stream_options":{}}`,
		`{"model":"m","Model":"x"}`,
		`{"model":"m","messages":[{"content":[{"Image_URL":1}]}]}`,
		"{\"model\":\"m\",\"max_to\u212aens\":1,\"ſtream\":true}",
		`{"model":"m","input":["a"],"models":["b"]}`,
		`{"prompt":"a","n":3,"size":"256x256","Size":"1x1"}`,
		`{"model":"m","input":"a","voice":{"id":"v"},"speed":1}`,
	} {
		for kind := range uint8(5) {
			f.Add(kind, []byte(seed), int64(i))
		}
	}
	sent := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent <- body
		w.WriteHeader(http.StatusBadRequest)
	}))
	f.Cleanup(server.Close)
	client := wire.NewClient(wire.Timeouts{Connect: time.Minute, FirstByte: time.Minute, Idle: time.Minute})
	plain := openai.New(openai.Options{Name: "go", BaseURL: server.URL, Client: client})
	old := openai.New(openai.Options{Name: "max_tokens only", BaseURL: server.URL, Client: client, MaxTokensOnly: true, NoStreamOptions: true})
	const model = forwardedName
	f.Fuzz(func(t *testing.T, kind uint8, body []byte, maxOutput int64) {
		var err error
		check := wantSameReading[forwardedChat]
		switch kind % 5 {
		case 0, 1:
			r, refused := readChat(body)
			if refused != nil {
				return
			}
			p := plain
			if kind%5 == 1 {
				p = old
			}
			_, err = p.Chat(t.Context(), &providers.ChatRequest{Model: model, ID: model, Body: body, Stream: r.stream, MaxOutput: maxOutput})
		case 2:
			check = wantSameReading[forwardedEmbedding]
			if _, refused := readEmbeddings(body); refused != nil {
				return
			}
			_, err = plain.Embeddings(t.Context(), model, body)
		case 3:
			check = wantSameReading[forwardedImages]
			if _, refused := ParseImageRequest(body, 0); refused != nil {
				return
			}
			_, err = plain.Images(t.Context(), &providers.ImageRequest{Model: model, Body: body})
		case 4:
			check = wantSameReading[forwardedSpeech]
			_, req, refused := readSpeech(body)
			if refused != nil {
				return
			}
			req.Model = model
			_, err = plain.Speech(t.Context(), req)
		}
		select {
		case got := <-sent:
			check(t, got)
		default:
			t.Errorf("%q was not forwarded: %v", body, err)
		}
	})
}
