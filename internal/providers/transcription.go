package providers

import "context"

// Transcriber turns speech into text.
type Transcriber interface {
	// Transcribe returns the transcript as the provider sends it: a body in the requested format, or
	// a stream of events if the request asks for one and the model supports it.
	Transcribe(ctx context.Context, req *TranscriptionRequest) (*Response, error)
}

// TranscriptionRequest is a request for a transcript.
type TranscriptionRequest struct {
	Model string // the provider's name for the model
	File  Upload
	// Fields are the other fields of the client's form, without model and models.
	Fields    []FormField
	Translate bool   // into English
	Stream    bool   // the client asks for a stream
	Format    string // the response format; json if the client has set none
	// Milliseconds is how long the file plays, or 0 if that is unknown.
	Milliseconds int64
	// BeforeWait is that of ChatRequest.
	BeforeWait func() error
}

// Field returns the last value of a field.
func (r *TranscriptionRequest) Field(name string) (value string) {
	for _, f := range r.Fields {
		if f.Name == name {
			value = f.Value
		}
	}
	return value
}

// FormField is a field of a form that isn't a file.
type FormField struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}
