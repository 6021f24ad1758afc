package providers

import (
	"context"
	"encoding/json"
	"io"
	"strings"

	"turnpike/internal/audio"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// ImageGenerator generates and edits images.
type ImageGenerator interface {
	// Images returns as many images as requested. If a filter rejects the request, the
	// error is a *Failure of KindBlockedInput or KindBlockedOutput.
	Images(ctx context.Context, req *ImageRequest) (*ImageResult, error)
}

// ImageRequest is a request for images.
type ImageRequest struct {
	Model string // the provider's name for the model
	// Body is the client's JSON object in OpenAI's format: prompt, n, size, quality, background,
	// output_format and so on, also those of a form. It must not be changed.
	Body []byte
	// Sources are the images to edit, and Mask says where. Both are empty for a new image.
	Sources []Upload
	Mask    *Upload
	// Files are other files of the form, by their fields.
	Files map[string][]Upload
	// Partial, if set, asks for PartialImages unfinished images on the way, and gets them. Not every
	// provider has them. If it fails, the request fails.
	Partial       func(index int, image Image) error
	PartialImages int
}

// MaxImages is OpenAI's limit for the images of a request.
const MaxImages = 10

// ImageFields are the fields of a request that not only OpenAI's models have.
type ImageFields struct {
	Prompt       string `json:"prompt"`
	N            *int64 `json:"n"`
	Size         string `json:"size"`
	OutputFormat string `json:"output_format"`
}

// Fields decodes the body. N is 1 by default.
func (r *ImageRequest) Fields() (*ImageFields, error) {
	in := new(ImageFields)
	if err := jsonbody.DecodeLenient(r.Body, in); err != nil {
		return nil, err
	}
	if in.N == nil {
		in.N = new(int64(1))
	}
	if strings.TrimSpace(in.Prompt) == "" {
		return nil, fault.Missing("prompt", "prompt is required: a description of the image.")
	}
	if *in.N < 1 || *in.N > MaxImages {
		return nil, fault.Invalid("n", "n must be a whole number from 1 to %d.", MaxImages)
	}
	return in, nil
}

// Upload is a file from the client.
type Upload struct {
	Name        string
	ContentType string
	Data        []byte
}

// ImageResult is the result of an ImageRequest.
type ImageResult struct {
	Images []Image
	Usage  Usage // Images is always set, tokens if the provider counts them
	// Ignored are the fields of the request that the provider's format can't express.
	Ignored []string
}

// Image is an image file.
type Image struct {
	ContentType   string // image/png, image/jpeg, image/webp
	Data          []byte
	RevisedPrompt string // the prompt as the provider changed it, if it says so
}

// SpeechGenerator turns text into speech.
type SpeechGenerator interface {
	// Speech returns an audio file in the requested format, while it is generated.
	Speech(ctx context.Context, req *SpeechRequest) (*Content, error)
}

// SpeechRequest is a request for speech.
type SpeechRequest struct {
	Model  string
	Input  string
	Voice  string
	Format string // wav, mp3, opus, aac, flac, pcm
	// Body is the client's JSON object in OpenAI's format, for other fields (speed,
	// instructions). The fields above take precedence. It may be nil.
	Body []byte
}

// Content is a file that is still arriving. The receiver closes Body.
type Content struct {
	ContentType string
	Body        io.ReadCloser
	Size        int64 // -1 if unknown
}

// VideoGenerator renders videos, which takes minutes: a render is started, polled and fetched.
type VideoGenerator interface {
	// StartVideo returns the provider's ID of the render.
	StartVideo(ctx context.Context, req *VideoRequest) (id string, err error)
	PollVideo(ctx context.Context, id string) (*VideoState, error)
	// FetchVideo returns a file of a finished render. variant is video, thumbnail or spritesheet.
	FetchVideo(ctx context.Context, id, variant string) (*Content, error)
	// DeleteVideo stops or deletes a render, as far as the provider can.
	DeleteVideo(ctx context.Context, id string) error
}

// VideoRemixer renders new versions of videos.
type VideoRemixer interface {
	// RemixVideo starts a render that changes a finished one as the prompt says, and returns its ID.
	RemixVideo(ctx context.Context, id string, req *VideoRequest) (string, error)
}

// VideoRequest is a request for a video.
type VideoRequest struct {
	Model   string
	Prompt  string
	Seconds int
	Size    string // such as 1280x720
	Source  *Upload
	// Extra are other fields of the request, which only providers with OpenAI's API get.
	Extra map[string]json.RawMessage
	// Key identifies the render, for providers that start it only once per key.
	Key string
}

// VideoState is the state of a render.
type VideoState struct {
	Done     bool
	Progress int // 0 to 100
	// Failure is set if the render ended without a video.
	Failure *Failure
}

type speechFields struct {
	Speed *float64 `json:"speed"`
}

// ReadSpeed returns the speed, which is 1 by default.
func (r *SpeechRequest) ReadSpeed() (float64, error) {
	var in speechFields
	if len(r.Body) > 0 {
		if err := jsonbody.DecodeLenient(r.Body, &in); err != nil {
			return 0, err
		}
	}
	if in.Speed == nil {
		return 1, nil
	}
	if !(*in.Speed >= 0.25 && *in.Speed <= 4) {
		return 0, fault.Invalid("speed", "speed must be from 0.25 to 4.")
	}
	return *in.Speed, nil
}

// ContentType returns the media type of the format, if this server can encode it.
func (r *SpeechRequest) ContentType() (string, error) {
	contentType, ok := audio.Types[r.Format]
	if !ok {
		return "", fault.Invalid("response_format", "response_format must be wav, mp3, opus, aac, flac or pcm.")
	}
	if r.Format != "wav" && r.Format != "pcm" && !audio.CanTranscode() {
		return "", fault.Invalid("response_format", "response_format must be wav or pcm. For %s the server needs ffmpeg, which is not installed.", r.Format)
	}
	return contentType, nil
}
