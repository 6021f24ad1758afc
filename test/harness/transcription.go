package harness

import (
	"bytes"
	"mime/multipart"
	"net/http"

	"turnpike/internal/audio"
)

// TranscriptionForm returns a form with a second of audio.
func TranscriptionForm(model string) (body string, header http.Header) {
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	_ = form.WriteField("model", model)
	part, _ := form.CreateFormFile("file", "speech.wav")
	_, _ = part.Write(append(audio.Header(audio.Format{Rate: 8000, Channels: 1}, 16_000), make([]byte, 16_000)...))
	_ = form.Close()
	return b.String(), http.Header{"Content-Type": {form.FormDataContentType()}}
}
