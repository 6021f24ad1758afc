package api

import (
	"github.com/go-json-experiment/json"

	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/media"
)

func createTranscription(c *Call) error { return c.transcribe(false) }

func createTranslation(c *Call) error { return c.transcribe(true) }

func (c *Call) transcribe(translate bool) error {
	form, _, err := c.readTranscriptionForm()
	if err != nil {
		return err
	}
	form.Translate = translate
	out := &eventWriter{c: c, batch: true, endless: true}
	call := c.modelCall(nil)
	call.BeforeWait = out.beforeWait
	response, err := c.s.Gateway.Transcribe(c.Context(), call, form)
	if err != nil {
		return err
	}
	if response.Stream != nil {
		c.nameModel(response)
		return c.stream(response.Stream, out)
	}
	c.sendModelResponse(response, response.Body)
	return nil
}

// readTranscriptionForm reads a form with an audio file. It also returns the form itself.
func (c *Call) readTranscriptionForm() (*gateway.TranscriptionForm, *form, error) {
	if !c.isForm() {
		return nil, nil, fault.Param(fault.UnsupportedMediaType, "Content-Type", "Send the audio file as a form, with Content-Type: multipart/form-data.")
	}
	f, err := c.readForm()
	if err != nil {
		return nil, nil, err
	}
	if err := f.onlyFiles("file"); err != nil {
		return nil, nil, err
	}
	out := &gateway.TranscriptionForm{Fields: f.fields}
	switch list := f.files["file"]; len(list) {
	case 0:
	case 1:
		out.File = list[0]
	default:
		return nil, nil, fault.Invalid("file", "Send only one file.")
	}
	return out, f, nil
}

// tasks of a transcription job.
const (
	taskTranscribe = "transcribe"
	taskTranslate  = "translate"
)

// createTranscriptionJob accepts the same form, with task and metadata.
func createTranscriptionJob(c *Call) error {
	in, f, err := c.readTranscriptionForm()
	if err != nil {
		return err
	}
	order := &media.TranscriptRequest{TranscriptionForm: *in}
	order.Fields = nil
	for _, field := range in.Fields {
		switch field.Name {
		case "task":
			if order.Translate = field.Value == taskTranslate; !order.Translate && field.Value != taskTranscribe {
				return fault.Invalid("task", "task must be %s or %s.", taskTranscribe, taskTranslate)
			}
		case "metadata":
			if err := json.Unmarshal([]byte(field.Value), &order.Metadata); err != nil {
				return fault.Invalid("metadata", "metadata must be a JSON object of strings.").Because(err)
			}
		default:
			order.Fields = append(order.Fields, field)
		}
	}
	identity, err := f.identity()
	if err != nil {
		return err
	}
	return c.createJob(identity, func() (*media.Draft, error) { return c.s.Media.DraftTranscript(c.Context(), c.requester(), order) })
}
