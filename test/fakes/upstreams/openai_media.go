package upstreams

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// OpenAIMedia describes the response to a media request. The zero value is a small
// valid file.
type OpenAIMedia struct {
	File   []byte // instead of the default file
	Type   string // instead of its type; "none": no type
	AsURL  bool   // return a URL although the request asks for base64
	URL    string // instead of the server's own URL
	Prompt string // the revised prompt

	// For a video, set in the reply to the request that starts it:

	Polls  int    // polls until it has ended; default: 2
	Status string // the final status; default: completed
	Error  string // the error object of a failed video
}

// OpenAIBlocked returns the error of OpenAI's filter. The stage is input, output or
// empty if unknown.
func OpenAIBlocked(code, stage string) OpenAIReply {
	return OpenAIReply{Status: http.StatusBadRequest, Body: `{"error":` + OpenAIBlockedError(code, stage) + `}`}
}

// OpenAIBlockedError returns its error object.
func OpenAIBlockedError(code, stage string) string {
	details := ""
	if stage != "" {
		details = fmt.Sprintf(`,"moderation_details":{"moderation_stage":%q,"categories":["violence"]}`, stage)
	}
	return fmt.Sprintf(`{"message":"Your request was rejected by the safety system. safety_violations=[violence].","type":"image_generation_user_error","param":null,"code":%q%s}`, code, details)
}

type openAIVideo struct {
	OpenAIMedia
	id, model, prompt, seconds, size string
	polled                           int
}

type openAIFile struct {
	kind   string
	status int
	body   string
}

// mediaPaths are the paths of media requests. Azure adds a prefix.
var mediaPaths = []string{"/images/generations", "/images/edits", "/audio/speech", "/audio/transcriptions", "/audio/translations"}

func isOpenAIMedia(path string) bool {
	return path == "/videos" || strings.HasPrefix(path, "/videos/") ||
		slices.ContainsFunc(mediaPaths, func(end string) bool { return strings.HasSuffix(path, end) })
}

// media responds to a request for images, speech or videos.
func (o *OpenAI) media(req *OpenAIRequest, m OpenAIMedia) openAIFile {
	if rest, ok := strings.CutPrefix(req.Path, "/videos"); ok {
		return o.video(req, m, strings.TrimPrefix(rest, "/"))
	}
	if req.Method != http.MethodPost {
		return reject(http.StatusMethodNotAllowed, "", "", "Not allowed to "+req.Method+" on "+req.Path)
	}
	switch {
	case strings.HasSuffix(req.Path, "/images/generations"):
		return o.generation(req, m)
	case strings.HasSuffix(req.Path, "/images/edits"):
		return o.edit(req, m)
	case strings.HasSuffix(req.Path, "/audio/speech"):
		return speech(req, m)
	}
	return transcription(req)
}

// reject returns an error of OpenAI.
func reject(status int, code, param, message string) openAIFile {
	return openAIFile{"application/json", status, openAIError(OpenAIReply{Status: status, Code: code, Param: param, Message: message})}
}

func unknown(param string) openAIFile {
	return reject(http.StatusBadRequest, "unknown_parameter", param, "Unknown parameter: '"+param+"'.")
}

func invalid(param string) openAIFile {
	return reject(http.StatusBadRequest, "invalid_value", param, "Invalid value for '"+param+"'.")
}

type fields map[string]jsontext.Value

func readFields(req *OpenAIRequest) (fields, *openAIFile) {
	in := fields{}
	if kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type")); kind != "application/json" {
		answer := reject(http.StatusBadRequest, "unsupported_content_type", "", "Invalid Content-Type header ("+kind+"), expected application/json.")
		return nil, &answer
	}
	if err := json.Unmarshal(req.Body, &in); err != nil {
		answer := reject(http.StatusBadRequest, "", "", "We could not parse the JSON body of your request.")
		return nil, &answer
	}
	return in, nil
}

// check finds a missing or unknown field, or one with a wrong type.
func (in fields) check(known map[string]string, required ...string) *openAIFile {
	for _, name := range required {
		if in[name] == nil {
			answer := reject(http.StatusBadRequest, "missing_required_parameter", name, "Missing required parameter: '"+name+"'.")
			return &answer
		}
	}
	for name, value := range in {
		kinds, ok := known[name]
		if !ok {
			answer := unknown(name)
			return &answer
		}
		if !strings.ContainsRune(kinds, rune(value.Kind())) {
			answer := reject(http.StatusBadRequest, "invalid_type", name, "Invalid type for '"+name+"'.")
			return &answer
		}
	}
	return nil
}

func (in fields) text(name string) string {
	var s string
	_ = json.Unmarshal(in[name], &s)
	return s
}

// imageFields returns the fields that a model accepts, with the kinds of their values.
func imageFields(model string, edit bool) map[string]string {
	known := map[string]string{"model": `"`, "prompt": `"`, "n": "0n", "size": `"n`, "user": `"`, "quality": `"n`}
	switch {
	case strings.HasPrefix(model, "gpt-image"), strings.HasPrefix(model, "chatgpt-image"):
		for _, name := range []string{"background", "moderation", "output_format"} {
			known[name] = `"n`
		}
		known["output_compression"] = "0n"
		if edit {
			known["input_fidelity"] = `"n`
		}
	default:
		known["response_format"] = `"n`
		if model == "dall-e-3" {
			known["style"] = `"n`
		}
		if !strings.HasPrefix(model, "dall-e") { // other servers accept more
			known["seed"], known["negative_prompt"] = "0", `"`
		}
	}
	return known
}

func (o *OpenAI) generation(req *OpenAIRequest, m OpenAIMedia) openAIFile {
	in, rejected := readFields(req)
	if rejected == nil {
		rejected = in.check(imageFields(in.text("model"), false), "model", "prompt")
	}
	if rejected != nil {
		return *rejected
	}
	n, _ := strconv.Atoi(string(in["n"]))
	return o.images(m, in.text("model"), cmp.Or(n, 1), in.text("response_format"))
}

func (o *OpenAI) edit(req *OpenAIRequest, m OpenAIMedia) openAIFile {
	form, rejected := readForm(req)
	if rejected != nil {
		return *rejected
	}
	values := func(name string) string { return strings.Join(form.Value[name], "") }
	known := imageFields(values("model"), true)
	for name := range form.Value {
		if known[name] == "" {
			return unknown(name)
		}
	}
	images := append(slices.Clone(form.File["image"]), form.File["image[]"]...)
	if len(images) == 0 || values("prompt") == "" {
		return reject(http.StatusBadRequest, "missing_required_parameter", "image", "Missing required parameter: 'image'.")
	}
	if len(form.File["image"]) > 1 {
		return reject(http.StatusBadRequest, "duplicate_parameter", "image", "Duplicate parameter: 'image'. You provided multiple values for this parameter, whereas only one is allowed.")
	}
	for name, files := range form.File {
		if name != "image" && name != "image[]" && name != "mask" {
			return unknown(name)
		}
		for _, file := range files {
			if !strings.HasPrefix(file.Header.Get("Content-Type"), "image/") {
				return reject(http.StatusBadRequest, "unsupported_file_mimetype", name, "Invalid file '"+name+"': unsupported mimetype.")
			}
		}
	}
	n, _ := strconv.Atoi(values("n"))
	return o.images(m, values("model"), cmp.Or(n, 1), values("response_format"))
}

func readForm(req *OpenAIRequest) (*multipart.Form, *openAIFile) {
	_, params, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
	form, err := multipart.NewReader(bytes.NewReader(req.Body), params["boundary"]).ReadForm(64 << 20)
	if err != nil {
		answer := reject(http.StatusBadRequest, "", "", "Could not parse multipart form")
		return nil, &answer
	}
	return form, nil
}

// images returns base64 or URLs, as the model does.
func (o *OpenAI) images(m OpenAIMedia, model string, n int, format string) openAIFile {
	if n < 1 || n > 10 || n > 1 && model == "dall-e-3" {
		return invalid("n")
	}
	file := m.File
	if file == nil {
		file = PNG()
	}
	newer := strings.HasPrefix(model, "gpt-image") || strings.HasPrefix(model, "chatgpt-image")
	data := make([]string, n)
	for i := range data {
		if m.AsURL || !newer && format != "b64_json" {
			data[i] = `{"url":` + openAIString(cmp.Or(m.URL, o.server.URL+"/files/picture.png?sig=signed"))
		} else {
			data[i] = `{"b64_json":"` + base64.StdEncoding.EncodeToString(file) + `"`
		}
		if m.Prompt != "" {
			data[i] += `,"revised_prompt":` + openAIString(m.Prompt)
		}
		data[i] += "}"
	}
	usage := ""
	if newer {
		usage = fmt.Sprintf(`,"output_format":"png","usage":{"total_tokens":%d,"input_tokens":50,"output_tokens":%d,"input_tokens_details":{"text_tokens":10,"image_tokens":40}}`, 50+100*n, 100*n)
	}
	return openAIFile{"application/json", http.StatusOK, `{"created":1713833628,"data":[` + strings.Join(data, ",") + `]` + usage + `}`}
}

// serveFile serves the URL of an image. As object stores do, it rejects a key in
// addition to the signature.
func (o *OpenAI) serveFile(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, "/files/") {
		return false
	}
	if r.Header.Get("Authorization") != "" || r.Header.Get("Api-Key") != "" || r.URL.Query().Get("sig") == "" {
		http.Error(w, "<Error><Code>InvalidAuthenticationInfo</Code></Error>", http.StatusBadRequest)
		return true
	}
	_, _ = w.Write(PNG())
	return true
}

// speechFormats are the formats with their types and first bytes.
var speechFormats = map[string][2]string{
	"mp3":  {"audio/mpeg", "ID3\x04\x00"},
	"opus": {"audio/opus", "OggS\x00"},
	"aac":  {"audio/aac", "\xff\xf1"},
	"flac": {"audio/flac", "fLaC"},
	"wav":  {"audio/wav", ""},
	"pcm":  {"audio/pcm", ""},
}

func speech(req *OpenAIRequest, m OpenAIMedia) openAIFile {
	in, rejected := readFields(req)
	if rejected == nil {
		rejected = in.check(map[string]string{"model": `"`, "input": `"`, "voice": `"{`, "instructions": `"n`, "response_format": `"`, "speed": "0"}, "model", "input", "voice")
	}
	if rejected != nil {
		return *rejected
	}
	speed, err := strconv.ParseFloat(cmp.Or(string(in["speed"]), "1"), 64)
	if err != nil || speed < 0.25 || speed > 4 {
		return invalid("speed")
	}
	if input := in.text("input"); input == "" || len([]rune(input)) > 4096 {
		return reject(http.StatusBadRequest, "string_above_max_length", "input", "Invalid 'input': string too long.")
	}
	name := cmp.Or(in.text("response_format"), "mp3")
	format, ok := speechFormats[name]
	if !ok {
		return invalid("response_format")
	}
	file := append([]byte(format[1]), pcm()...)
	if name == "wav" {
		file = wav()
	}
	return m.file(format[0], file)
}

// file returns a file, unless the test sets another.
func (m OpenAIMedia) file(kind string, file []byte) openAIFile {
	if m.File != nil {
		file = m.File
	}
	kind = cmp.Or(m.Type, kind)
	if kind == "none" {
		kind = ""
	}
	return openAIFile{kind, http.StatusOK, string(file)}
}

// video serves the Videos API. rest is the path after /videos/.
func (o *OpenAI) video(req *OpenAIRequest, m OpenAIMedia, rest string) openAIFile {
	o.mu.Lock()
	defer o.mu.Unlock()
	if rest == "" {
		return o.startVideo(req, m)
	}
	id, wantsContent := strings.CutSuffix(rest, "/content")
	v := o.videos[id]
	switch {
	case v == nil:
		return reject(http.StatusNotFound, "", "", "Video with id '"+id+"' not found.")
	case wantsContent:
		return v.content(req, m)
	case req.Method == http.MethodDelete:
		delete(o.videos, id)
		return openAIFile{"application/json", http.StatusOK, fmt.Sprintf(`{"id":%q,"object":"video.deleted","deleted":true}`, id)}
	case req.Method != http.MethodGet:
		return reject(http.StatusMethodNotAllowed, "", "", "Not allowed to "+req.Method)
	}
	v.polled++
	return openAIFile{"application/json", http.StatusOK, v.json()}
}

var (
	videoSeconds = []string{"", "4", "8", "12"}
	videoSizes   = []string{"", "720x1280", "1280x720", "1024x1792", "1792x1024"}
)

func (o *OpenAI) startVideo(req *OpenAIRequest, m OpenAIMedia) openAIFile {
	if req.Method != http.MethodPost {
		return reject(http.StatusMethodNotAllowed, "", "", "Not allowed to "+req.Method)
	}
	in := map[string]string{}
	known := map[string]string{"model": `"`, "prompt": `"`, "seconds": `"`, "size": `"`}
	if strings.HasPrefix(req.Header.Get("Content-Type"), "multipart/form-data") {
		form, rejected := readForm(req)
		if rejected != nil {
			return *rejected
		}
		for name, values := range form.Value {
			if known[name] == "" {
				return unknown(name)
			}
			in[name] = strings.Join(values, "")
		}
		if len(form.File["input_reference"]) != 1 || len(form.File) != 1 {
			return invalid("input_reference")
		}
	} else {
		values, rejected := readFields(req)
		if rejected == nil {
			rejected = values.check(known, "prompt")
		}
		if rejected != nil {
			return *rejected
		}
		for name := range values {
			in[name] = values.text(name)
		}
	}
	switch {
	case in["prompt"] == "":
		return reject(http.StatusBadRequest, "missing_required_parameter", "prompt", "Missing required parameter: 'prompt'.")
	case !slices.Contains(videoSeconds, in["seconds"]):
		return invalid("seconds")
	case !slices.Contains(videoSizes, in["size"]):
		return invalid("size")
	}
	v := &openAIVideo{OpenAIMedia: m, id: fmt.Sprintf("video_%032d", len(o.videos)+1), model: in["model"], prompt: in["prompt"],
		seconds: cmp.Or(in["seconds"], "4"), size: cmp.Or(in["size"], "720x1280")}
	if o.videos == nil {
		o.videos = map[string]*openAIVideo{}
	}
	o.videos[v.id] = v
	return openAIFile{"application/json", http.StatusOK, v.json()}
}

func (v *openAIVideo) polls() int { return cmp.Or(v.Polls, 2) }

// status goes from queued to in_progress to the final status.
func (v *openAIVideo) status() string {
	switch {
	case v.polled >= v.polls():
		return cmp.Or(v.Status, "completed")
	case v.polled == 0:
		return "queued"
	}
	return "in_progress"
}

func (v *openAIVideo) json() string {
	failure := "null"
	if v.status() == "failed" {
		failure = cmp.Or(v.Error, `{"code":"video_generation_failed","message":"Video generation failed"}`)
	}
	return fmt.Sprintf(`{"id":%q,"object":"video","created_at":1759864000,"completed_at":null,"expires_at":null,"status":%q,"model":%q,"progress":%d,"prompt":%s,"remixed_from_video_id":null,"seconds":%q,"size":%q,"error":%s}`,
		v.id, v.status(), v.model, 100*min(v.polled, v.polls())/v.polls(), openAIString(v.prompt), v.seconds, v.size, failure)
}

func (v *openAIVideo) content(req *OpenAIRequest, now OpenAIMedia) openAIFile {
	if req.Method != http.MethodGet {
		return reject(http.StatusMethodNotAllowed, "", "", "Not allowed to "+req.Method)
	}
	if v.status() != "completed" {
		return reject(http.StatusBadRequest, "invalid_request_error", "", "Video is not ready yet, use GET /v1/videos/{video_id} to check status.")
	}
	query, _ := url.ParseQuery(req.Query)
	switch query.Get("variant") {
	case "", "video":
		return now.file("video/mp4", MP4())
	case "thumbnail":
		return now.file("image/webp", []byte("RIFF\x10\x00\x00\x00WEBPVP8 "))
	case "spritesheet":
		return now.file("image/jpeg", []byte("\xff\xd8\xff\xe0"))
	}
	return invalid("variant")
}

// FormOf decodes a form: its fields, and its files by "field name (type)".
func FormOf(header http.Header, body []byte) (values map[string]string, files map[string]string) {
	values, files = map[string]string{}, map[string]string{}
	_, params, _ := mime.ParseMediaType(header.Get("Content-Type"))
	reader := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for {
		part, err := reader.NextPart()
		if err != nil {
			return values, files
		}
		data, _ := io.ReadAll(part)
		if part.FileName() == "" {
			values[part.FormName()] = string(data)
		} else {
			files[fmt.Sprintf("%s %s (%s)", part.FormName(), part.FileName(), part.Header.Get("Content-Type"))] = string(data)
		}
	}
}
