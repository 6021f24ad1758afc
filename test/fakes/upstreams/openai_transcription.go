package upstreams

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"turnpike/internal/audio/duration"
)

// Transcript is what every recording says.
const Transcript = "The ferry to the islands leaves at seven."

// transcriptFormats are the formats by model. Other servers support those of whisper.
var transcriptFormats = map[string][]string{
	"whisper":                   {"json", "text", "srt", "verbose_json", "vtt"},
	"gpt-4o-transcribe":         {"json", "text"},
	"gpt-4o-transcribe-diarize": {"json", "text", "diarized_json"},
}

var transcriptionFields = []string{"model", "language", "prompt", "response_format", "temperature", "stream", "timestamp_granularities[]", "include[]", "chunking_strategy",
	"known_speaker_names[]", "known_speaker_references[]"}

// transcription serves OpenAI's transcriptions and translations. It counts seconds for models named
// whisper, nothing for those named silent, and tokens for others: ten for a second.
func transcription(req *OpenAIRequest) openAIFile {
	form, rejected := readForm(req)
	if rejected != nil {
		return *rejected
	}
	value := func(name string) string { return strings.Join(form.Value[name], "") }
	for name, values := range form.Value {
		if !slices.Contains(transcriptionFields, name) && !strings.HasPrefix(name, "x_") {
			return unknown(name)
		}
		if len(values) > 1 && !strings.HasSuffix(name, "[]") {
			return reject(http.StatusBadRequest, "duplicate_parameter", name, "Duplicate parameter.")
		}
	}
	model := value("model")
	if len(form.File["file"]) != 1 || model == "" {
		return reject(http.StatusBadRequest, "missing_required_parameter", "file", "Missing required parameter: 'file'.")
	}
	upload := form.File["file"][0]
	if !slices.Contains([]string{".flac", ".mp3", ".mp4", ".mpeg", ".mpga", ".m4a", ".ogg", ".wav", ".webm"}, filepath.Ext(upload.Filename)) {
		return reject(http.StatusBadRequest, "", "file", "Invalid file format.")
	}
	file, err := upload.Open()
	if err != nil {
		return invalid("file")
	}
	defer file.Close()
	data := make([]byte, upload.Size)
	if _, err := file.Read(data); err != nil {
		return invalid("file")
	}
	length, err := duration.Measure(context.Background(), data)
	if err != nil {
		return reject(http.StatusBadRequest, "", "file", "Audio file might be corrupted or unsupported")
	}
	formats := transcriptFormats[model]
	if formats == nil {
		formats = transcriptFormats["whisper"]
	}
	format := cmp.Or(value("response_format"), "json")
	if !slices.Contains(formats, format) {
		return invalid("response_format")
	}
	seconds := length.Seconds()
	usage := fmt.Sprintf(`,"usage":{"type":"tokens","input_tokens":%d,"input_token_details":{"text_tokens":0,"audio_tokens":%[1]d},"output_tokens":12,"total_tokens":%d}`, int(seconds*10), int(seconds*10)+12)
	switch {
	case strings.Contains(model, "whisper"):
		usage = fmt.Sprintf(`,"usage":{"type":"duration","seconds":%d}`, int(seconds+0.999))
	case strings.Contains(model, "silent"):
		usage = ""
	case value("stream") == "true":
		events := ""
		for _, word := range strings.SplitAfter(Transcript, " ") {
			events += `data: {"type":"transcript.text.delta","delta":` + openAIString(word) + "}\n\n"
		}
		return openAIFile{"text/event-stream; charset=utf-8", http.StatusOK, events + `data: {"type":"transcript.text.done","text":` + openAIString(Transcript) + usage + "}\n\n"}
	}
	const plain = "text/plain; charset=utf-8"
	switch format {
	case "text":
		return openAIFile{plain, http.StatusOK, Transcript + "\n"}
	case "srt":
		return openAIFile{plain, http.StatusOK, "1\n00:00:00,000 --> 00:00:02,000\n" + Transcript + "\n\n"}
	case "vtt":
		return openAIFile{plain, http.StatusOK, "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\n" + Transcript + "\n\n"}
	}
	more := ""
	switch format {
	case "verbose_json":
		more = fmt.Sprintf(`"task":"transcribe","language":"english","duration":%.2f,"segments":[],`, seconds)
	case "diarized_json":
		more = fmt.Sprintf(`"task":"transcribe","duration":%.2f,"segments":[{"type":"transcript.text.segment","id":"seg_001","start":0,"end":2,"speaker":"A","text":%s}],`, seconds, openAIString(Transcript))
	}
	return openAIFile{"application/json", http.StatusOK, "{" + more + `"text":` + openAIString(Transcript) + usage + "}"}
}
