package api

import (
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
)

func createTranscription(c *Call) error { return c.transcribe(false) }

func createTranslation(c *Call) error { return c.transcribe(true) }

func (c *Call) transcribe(translate bool) error {
	form, err := c.readTranscriptionForm()
	if err != nil {
		return err
	}
	form.Translate = translate
	out := &eventWriter{c: c, batch: true, endless: true}
	call := c.modelCall(nil)
	call.BeforeWait = out.flush
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

// readTranscriptionForm reads a form with an audio file.
func (c *Call) readTranscriptionForm() (*gateway.TranscriptionForm, error) {
	if !c.isForm() {
		return nil, fault.Param(fault.UnsupportedMediaType, "Content-Type", "Send the audio file as a form, with Content-Type: multipart/form-data.")
	}
	f, err := c.readForm()
	if err != nil {
		return nil, err
	}
	if err := f.onlyFiles("file"); err != nil {
		return nil, err
	}
	out := &gateway.TranscriptionForm{Fields: f.fields}
	switch list := f.files["file"]; len(list) {
	case 0:
	case 1:
		out.File = list[0]
	default:
		return nil, fault.Invalid("file", "Send only one file.")
	}
	return out, nil
}
