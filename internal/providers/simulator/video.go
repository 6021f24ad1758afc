package simulator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"image"
	"image/draw"
	"io"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/providers/simulator/mp4"
)

var _ providers.VideoMaker = (*Simulator)(nil)

const maxSeconds = 60

// StartVideo checks a request. The ID it returns describes the whole video, so
// that every process can serve it.
func (s *Simulator) StartVideo(ctx context.Context, req *providers.VideoRequest) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if req.Seconds < 1 || req.Seconds > maxSeconds {
		return "", fault.Invalid("seconds", "seconds must be from 1 to %d.", maxSeconds)
	}
	size, ok := parseSize(req.Size, 2)
	if !ok {
		return "", fault.Invalid("size", "size must be WIDTHxHEIGHT such as 1280x720, each from %d to %d and even.", minSide, maxSide)
	}
	m, prompt, err := extractMediaMagic("prompt", req.Prompt)
	if err != nil {
		return "", err
	}
	seed := sha256.New()
	seed.Write([]byte(prompt))
	if req.Source != nil {
		if _, err := decodeImage(req.Source.Data); err != nil {
			return "", fault.Invalid("input_reference", "input_reference cannot be used: %v.", err)
		}
		seed.Write([]byte{0})
		seed.Write(req.Source.Data)
	}
	if m.status != 0 {
		return "", m.requestedFault()
	}
	r := &videoSpec{started: s.now(), delay: m.delay, fail: m.fail, seconds: req.Seconds, size: size}
	seed.Sum(r.seed[:0])
	return r.id(), nil
}

// PollVideo returns the progress, which follows from the time since the start.
func (s *Simulator) PollVideo(_ context.Context, id string) (*providers.VideoState, error) {
	r, err := parseVideoID(id)
	if err != nil {
		return nil, err
	}
	elapsed := max(0, s.now().Sub(r.started))
	switch {
	case elapsed < r.delay:
		return &providers.VideoState{Progress: int(elapsed * 100 / r.delay)}, nil
	case r.fail != "":
		return &providers.VideoState{Failure: (&magic{param: "prompt", fail: r.fail}).failure()}, nil
	}
	return &providers.VideoState{Done: true, Progress: 100}, nil
}

// FetchVideo returns the video, a thumbnail, or a sprite sheet with one image per second.
func (s *Simulator) FetchVideo(ctx context.Context, id, variant string) (*providers.Content, error) {
	state, err := s.PollVideo(ctx, id)
	if err != nil {
		return nil, err
	}
	if !state.Done {
		return nil, &providers.Failure{Kind: providers.KindInvalid, Status: 409, Err: errors.New("simulator: the video is not ready")}
	}
	r, err := parseVideoID(id)
	if err != nil {
		return nil, err
	}
	switch variant {
	case "video":
		return content("video/mp4", mp4.Encode(r.size.width, r.size.height, r.seconds)), nil
	case "thumbnail":
		return jpegContent(gradient(r.seed, r.size.width, r.size.height))
	case "spritesheet":
		return jpegContent(spriteSheet(r))
	}
	return nil, fault.Invalid("variant", "variant must be video, thumbnail or spritesheet.")
}

// DropVideo only checks the ID.
func (s *Simulator) DropVideo(_ context.Context, id string) error {
	_, err := parseVideoID(id)
	return err
}

const (
	sheetColumns = 4
	tileSide     = 160 // of the longer side
)

// spriteSheet draws one tile for each second.
func spriteSheet(r *videoSpec) image.Image {
	longer := max(r.size.width, r.size.height)
	width, height := tileSide*r.size.width/longer, tileSide*r.size.height/longer
	rows := (r.seconds + sheetColumns - 1) / sheetColumns
	out := image.NewRGBA(image.Rect(0, 0, width*sheetColumns, height*rows))
	for i := range r.seconds {
		at := image.Pt(i%sheetColumns*width, i/sheetColumns*height)
		tile := gradient(sha256.Sum256(append(r.seed[:], byte(i))), width, height)
		draw.Draw(out, tile.Bounds().Add(at), tile, image.Point{}, draw.Src)
	}
	return out
}

func jpegContent(m image.Image) (*providers.Content, error) {
	picture, err := formatJPEG.file(m)
	if err != nil {
		return nil, err
	}
	return content(picture.ContentType, picture.Data), nil
}

func content(contentType string, data []byte) *providers.Content {
	return &providers.Content{ContentType: contentType, Body: io.NopCloser(bytes.NewReader(data)), Size: int64(len(data))}
}
