package providers

import (
	"context"
	"io"
)

// ImageMaker makes pictures.
type ImageMaker interface {
	// Images answers one request for pictures, with as many as were asked for.
	// What was refused by a filter is a *Failure of KindBlockedInput or
	// KindBlockedOutput.
	Images(ctx context.Context, req *ImageRequest) (*ImageAnswer, error)
}

// ImageRequest is one request for pictures.
type ImageRequest struct {
	Model string // the provider's own name for the model
	// Body is the caller's JSON object in OpenAI's format: prompt, n, size,
	// quality, background, output_format and what else there is. The fields of
	// a form are in it, too. Read it, never change it.
	Body []byte
	// Sources are the pictures to be edited, and Mask where; none for a new one.
	Sources []Upload
	Mask    *Upload
}

// Upload is a file of the caller's.
type Upload struct {
	Name        string
	ContentType string
	Data        []byte
}

// ImageAnswer is what came of it.
type ImageAnswer struct {
	Images []Picture
	Usage  Usage // Images is always set, tokens where the provider counts them
}

// Picture is a file with an image. Data is the file itself.
type Picture struct {
	ContentType   string // image/png, image/jpeg, image/webp
	Data          []byte
	RevisedPrompt string // that the provider made of the caller's, if it says so
}

// SpeechMaker reads text aloud.
type SpeechMaker interface {
	// Speech answers with a file in the format that was asked for, as it is made.
	Speech(ctx context.Context, req *SpeechRequest) (*Content, error)
}

// SpeechRequest is a text of at most some thousand characters.
type SpeechRequest struct {
	Model  string
	Input  string
	Voice  string
	Format string // wav, mp3, opus, aac, flac, pcm
	// Body is the caller's JSON object in OpenAI's format, for what else is in
	// it (speed, instructions); the fields above win. It may be nil.
	Body []byte
}

// Content is a file as it arrives. Whoever gets it closes Body.
type Content struct {
	ContentType string
	Body        io.ReadCloser
	Size        int64 // -1 where the provider does not say
}

// VideoMaker renders videos, which takes minutes: a render is started, looked
// after, and fetched.
type VideoMaker interface {
	// StartVideo returns the render's id at the provider.
	StartVideo(ctx context.Context, req *VideoRequest) (id string, err error)
	PollVideo(ctx context.Context, id string) (*VideoState, error)
	// FetchVideo returns a finished render: variant is video, thumbnail or
	// spritesheet.
	FetchVideo(ctx context.Context, id, variant string) (*Content, error)
	// DropVideo stops a render, or removes it, as far as the provider can.
	DropVideo(ctx context.Context, id string) error
}

// VideoRequest is one render.
type VideoRequest struct {
	Model   string
	Prompt  string
	Seconds int
	Size    string // such as 1280x720
	Source  *Upload
	// Key is the same each time this render is started, for providers that
	// know not to start it twice.
	Key string
}

// VideoState is how far a render has come.
type VideoState struct {
	Done     bool
	Progress int // 0 to 100
	// Failure is why a render ended without a video.
	Failure *Failure
}
