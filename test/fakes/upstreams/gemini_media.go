package upstreams

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// GeminiMedia describes the response to a media request. The zero value is a small
// valid file.
type GeminiMedia struct {
	File     []byte // instead of the default file
	Type     string // instead of its type
	Block    string // promptFeedback.blockReason
	Finish   string // finishReason of a response without a file
	Thought  []byte // a file among the thoughts
	Filtered string // why Imagen's first image is missing, or Veo's video
	Together int    // respond only when this many media requests are in progress

	// For a video, set in the reply to the request that starts it:

	Polls int    // polls until it has ended; default: 2
	Error string // the error object of a failed video
	URI   string // instead of the server's own URL
	Empty bool   // it ends without a video
}

type geminiRender struct {
	GeminiMedia
	polled int
}

// Wait waits for n requests.
func (g *Gemini) Wait(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.requests) < n {
		g.arrived.Wait()
	}
}

// MaxConcurrent returns the maximum number of concurrent media requests so far.
func (g *Gemini) MaxConcurrent() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

// media responds to a request for images, speech or a video, and reports whether
// it is one.
func (g *Gemini) media(r *http.Request, body []byte, reply *GeminiReply) (GeminiReply, bool) {
	path := r.URL.EscapedPath()
	model, method, _ := strings.Cut(strings.TrimPrefix(path, "/v1beta/models/"), ":")
	var m GeminiMedia
	if reply != nil {
		m = reply.Media
	}
	var answer func() (GeminiReply, error)
	switch {
	case strings.Contains(path, "/operations/"):
		answer = func() (GeminiReply, error) { return g.operation(r) }
	case strings.Contains(path, "/files/"):
		answer = func() (GeminiReply, error) { return g.file(r, m) }
	case method == "predict":
		answer = func() (GeminiReply, error) { return imagen(body, m) }
	case method == "predictLongRunning":
		answer = func() (GeminiReply, error) { return g.veo(model, body, m) }
	case method == "generateContent" && strings.Contains(string(body), `"responseModalities"`):
		answer = func() (GeminiReply, error) { return generateMedia(model, body, m) }
	default:
		return GeminiReply{}, false
	}
	g.join(r, m.Together)
	defer g.leave()
	out, err := answer()
	if err != nil {
		return GeminiReply{Status: 400, Body: GeminiError(400, "INVALID_ARGUMENT", err.Error(), "")}, true
	}
	if reply == nil {
		return out, true
	}
	// The test sets the whole reply, or how the default reply fails.
	if reply.Body != "" || reply.Status != 0 {
		return *reply, true
	}
	out.Cut, out.Stall = reply.Cut, reply.Stall
	if out.Cut || out.Stall {
		out.Body = out.Body[:len(out.Body)/2]
	}
	return out, true
}

// join counts a request and waits for others.
func (g *Gemini) join(r *http.Request, together int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running++
	g.most = max(g.most, g.running)
	g.arrived.Broadcast()
	for g.most < together && r.Context().Err() == nil {
		g.arrived.Wait()
	}
}

func (g *Gemini) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
}

// decodeStrict rejects unknown fields, as Google does.
func decodeStrict(body []byte, into any) error {
	if err := json.Unmarshal(body, into, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("invalid JSON payload received: %w", err)
	}
	return nil
}

// geminiMediaRequest is a request for images or speech.
type geminiMediaRequest struct {
	Contents         []geminiContent `json:"contents"`
	GenerationConfig struct {
		ResponseModalities []string `json:"responseModalities"`
		ImageConfig        *struct {
			AspectRatio string `json:"aspectRatio"`
			ImageSize   string `json:"imageSize"`
		} `json:"imageConfig"`
		SpeechConfig *struct {
			VoiceConfig struct {
				PrebuiltVoiceConfig struct {
					VoiceName string `json:"voiceName"`
				} `json:"prebuiltVoiceConfig"`
			} `json:"voiceConfig"`
		} `json:"speechConfig"`
	} `json:"generationConfig"`
}

var (
	geminiRatios = []string{"", "1:1", "2:3", "3:2", "3:4", "4:3", "4:5", "5:4", "9:16", "16:9", "21:9"}
	geminiSizes  = []string{"", "1K", "2K", "4K"}
	geminiVoices = []string{"Zephyr", "Puck", "Charon", "Kore", "Fenrir", "Leda", "Orus", "Aoede"}
)

func generateMedia(model string, body []byte, m GeminiMedia) (GeminiReply, error) {
	var in geminiMediaRequest
	if err := decodeStrict(body, &in); err != nil {
		return GeminiReply{}, err
	}
	content := geminiGenerate{Contents: in.Contents}
	if _, err := content.check(); err != nil {
		return GeminiReply{}, err
	}
	kind, file := "image/png", PNG()
	if config := in.GenerationConfig; slices.Contains(config.ResponseModalities, "AUDIO") {
		if !strings.Contains(model, "tts") || config.ImageConfig != nil {
			return GeminiReply{}, fmt.Errorf("the requested combination of response modalities (AUDIO) is not supported by the model")
		}
		if config.SpeechConfig != nil && !slices.Contains(geminiVoices, config.SpeechConfig.VoiceConfig.PrebuiltVoiceConfig.VoiceName) {
			return GeminiReply{}, fmt.Errorf("voice name %s is not supported. Allowed voice names are: %s", config.SpeechConfig.VoiceConfig.PrebuiltVoiceConfig.VoiceName, strings.ToLower(strings.Join(geminiVoices, ", ")))
		}
		kind, file = "audio/L16;codec=pcm;rate=24000", pcm()
	} else if c := config.ImageConfig; !strings.Contains(model, "image") || config.SpeechConfig != nil {
		return GeminiReply{}, fmt.Errorf("the requested combination of response modalities (IMAGE) is not supported by the model")
	} else if c != nil && (!slices.Contains(geminiRatios, c.AspectRatio) || !slices.Contains(geminiSizes, c.ImageSize) || c.ImageSize != "" && !strings.HasPrefix(model, "gemini-3")) {
		return GeminiReply{}, fmt.Errorf("* GenerateContentRequest.generation_config.image_config: aspect_ratio or image_size is not supported")
	}
	return GeminiReply{Body: m.generated(kind, file)}, nil
}

// generated returns a GenerateContentResponse with a file.
func (m GeminiMedia) generated(kind string, file []byte) string {
	const usage = `"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":1290,"totalTokenCount":1298},"modelVersion":"gemini-test"`
	if m.Block != "" {
		return fmt.Sprintf(`{"promptFeedback":{"blockReason":%q},%s}`, m.Block, usage)
	}
	if m.Finish != "" {
		return fmt.Sprintf(`{"candidates":[{"content":{"parts":[{"text":"I cannot."}],"role":"model"},"finishReason":%q,"index":0}],%s}`, m.Finish, usage)
	}
	if m.File != nil {
		file = m.File
	}
	part := func(file []byte, more string) string {
		return fmt.Sprintf(`{"inlineData":{"mimeType":%q,"data":"%s"}%s}`, cmp.Or(m.Type, kind), base64.StdEncoding.EncodeToString(file), more)
	}
	parts := part(file, "")
	if m.Thought != nil {
		parts = part(m.Thought, `,"thought":true`) + `,{"text":"Here it is."},` + parts
	}
	return fmt.Sprintf(`{"candidates":[{"content":{"parts":[%s],"role":"model"},"finishReason":"STOP","index":0}],%s}`, parts, usage)
}

func imagen(body []byte, m GeminiMedia) (GeminiReply, error) {
	var in struct {
		Instances []struct {
			Prompt string `json:"prompt"`
		} `json:"instances"`
		Parameters struct {
			SampleCount      int    `json:"sampleCount"`
			AspectRatio      string `json:"aspectRatio"`
			SampleImageSize  string `json:"sampleImageSize"`
			PersonGeneration string `json:"personGeneration"`
			IncludeRaiReason bool   `json:"includeRaiReason"`
			OutputOptions    struct {
				MimeType           string `json:"mimeType"`
				CompressionQuality int    `json:"compressionQuality"`
			} `json:"outputOptions"`
		} `json:"parameters"`
	}
	if err := decodeStrict(body, &in); err != nil {
		return GeminiReply{}, err
	}
	switch p := in.Parameters; {
	case len(in.Instances) != 1 || in.Instances[0].Prompt == "":
		return GeminiReply{}, fmt.Errorf("text prompt must not be empty")
	case p.SampleCount < 1 || p.SampleCount > 4:
		return GeminiReply{}, fmt.Errorf("sampleCount must be between 1 and 4")
	case !slices.Contains([]string{"", "1:1", "3:4", "4:3", "9:16", "16:9"}, p.AspectRatio):
		return GeminiReply{}, fmt.Errorf("aspectRatio is not supported")
	case !slices.Contains([]string{"", "1K", "2K"}, p.SampleImageSize):
		return GeminiReply{}, fmt.Errorf("sampleImageSize is not supported")
	}
	file := m.File
	if file == nil {
		file = PNG()
	}
	predictions := make([]string, in.Parameters.SampleCount)
	for i := range predictions {
		predictions[i] = `{"mimeType":"image/png","bytesBase64Encoded":"` + base64.StdEncoding.EncodeToString(file) + `"}`
	}
	if m.Filtered != "" {
		predictions[0] = fmt.Sprintf(`{"raiFilteredReason":%q}`, m.Filtered)
	}
	return GeminiReply{Body: `{"predictions":[` + strings.Join(predictions, ",") + `]}`}, nil
}

func (g *Gemini) veo(model string, body []byte, m GeminiMedia) (GeminiReply, error) {
	var in struct {
		Instances []struct {
			Prompt string `json:"prompt"`
			Image  *struct {
				BytesBase64Encoded []byte `json:"bytesBase64Encoded"`
				MimeType           string `json:"mimeType"`
			} `json:"image"`
		} `json:"instances"`
		Parameters struct {
			AspectRatio     string `json:"aspectRatio"`
			Resolution      string `json:"resolution"`
			DurationSeconds int    `json:"durationSeconds"`
			SampleCount     int    `json:"sampleCount"`
		} `json:"parameters"`
	}
	if err := decodeStrict(body, &in); err != nil {
		return GeminiReply{}, err
	}
	old := strings.HasPrefix(model, "veo-2")
	switch p := in.Parameters; {
	case len(in.Instances) != 1 || in.Instances[0].Prompt == "":
		return GeminiReply{}, fmt.Errorf("the prompt must not be empty")
	case in.Instances[0].Image != nil && !strings.HasPrefix(in.Instances[0].Image.MimeType, "image/"):
		return GeminiReply{}, fmt.Errorf("unsupported mime type of the image")
	case !slices.Contains([]string{"", "16:9", "9:16"}, p.AspectRatio):
		return GeminiReply{}, fmt.Errorf("`aspectRatio` is not supported by this model")
	case old && p.Resolution != "" || !slices.Contains([]string{"", "720p", "1080p", "4k"}, p.Resolution):
		return GeminiReply{}, fmt.Errorf("`resolution` isn't supported by this model")
	case p.SampleCount != 0 && !old:
		return GeminiReply{}, fmt.Errorf("`numberOfVideos` isn't supported by this model")
	case p.DurationSeconds != 0 && (p.DurationSeconds < 4 || p.DurationSeconds > 8):
		return GeminiReply{}, fmt.Errorf("the number value for `durationSeconds` is out of bound. Please provide a value between 4 and 8, inclusive")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.renders == nil {
		g.renders = map[string]*geminiRender{}
	}
	name := fmt.Sprintf("models/%s/operations/render%d", model, len(g.renders)+1)
	g.renders[name] = &geminiRender{GeminiMedia: m}
	return GeminiReply{Body: fmt.Sprintf(`{"name":%q}`, name)}, nil
}

// operation returns the state of a video.
func (g *Gemini) operation(r *http.Request) (GeminiReply, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := strings.TrimPrefix(r.URL.EscapedPath(), "/v1beta/")
	render := g.renders[name]
	if render == nil || r.Method != http.MethodGet {
		return GeminiReply{Status: 404, Body: GeminiError(404, "NOT_FOUND", "Operation not found.", "")}, nil
	}
	render.polled++
	if render.polled < cmp.Or(render.Polls, 2) {
		return GeminiReply{Body: fmt.Sprintf(`{"name":%q}`, name)}, nil
	}
	ended := `"response":{"@type":"type.googleapis.com/google.ai.generativelanguage.v1beta.PredictLongRunningResponse","generateVideoResponse":{`
	switch {
	case render.Error != "":
		ended = `"error":` + render.Error
	case render.Filtered != "":
		ended += fmt.Sprintf(`"raiMediaFilteredCount":1,"raiMediaFilteredReasons":[%q]}}`, render.Filtered)
	case render.Empty:
		ended += `}}`
	default:
		ended += fmt.Sprintf(`"generatedSamples":[{"video":{"uri":%q}}]}}`, cmp.Or(render.URI, g.BaseURL()+"/files/video1:download?alt=media"))
	}
	return GeminiReply{Body: fmt.Sprintf(`{"name":%q,"done":true,%s}`, name, ended)}, nil
}

// file serves a video, after a redirect as Google does.
func (g *Gemini) file(r *http.Request, m GeminiMedia) (GeminiReply, error) {
	if r.Method != http.MethodGet || r.URL.Query().Get("alt") != "media" {
		return GeminiReply{Status: 404, Body: GeminiError(404, "NOT_FOUND", "File not found.", "")}, nil
	}
	if !strings.HasPrefix(r.URL.Path, "/download/") {
		return GeminiReply{Status: 302, Header: http.Header{"Location": {"/download" + r.URL.RequestURI()}}}, nil
	}
	file := m.File
	if file == nil {
		file = MP4()
	}
	return GeminiReply{Header: http.Header{"Content-Type": {cmp.Or(m.Type, "video/mp4")}}, Body: string(file)}, nil
}
