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

// StartVideo checks a request. There is nothing to start: the id has all that
// is needed to draw the video when it is fetched, by this process or another.
func (s *Simulator) StartVideo(ctx context.Context, req *providers.VideoRequest) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if req.Seconds < 1 || req.Seconds > maxSeconds {
		return "", fault.Invalid("seconds", "seconds must be from 1 to %d", maxSeconds)
	}
	measures, ok := parseSize(req.Size, 2)
	if !ok {
		return "", fault.Invalid("size", "size must be WIDTHxHEIGHT such as 1280x720, each from %d to %d and even", minSide, maxSide)
	}
	m, prompt, err := readMedia("prompt", req.Prompt)
	if err != nil {
		return "", err
	}
	seed := sha256.New()
	seed.Write([]byte(prompt))
	if req.Source != nil {
		if _, err := decodeImage(req.Source.Data); err != nil {
			return "", fault.Invalid("input_reference", "input_reference cannot be used: %v", err)
		}
		seed.Write([]byte{0})
		seed.Write(req.Source.Data)
	}
	if m.status != 0 {
		return "", m.fault()
	}
	r := &render{started: s.now(), delay: m.delay, fail: m.fail, seconds: req.Seconds, size: measures}
	seed.Sum(r.seed[:0])
	return r.id(), nil
}

// PollVideo says how far a render would have come.
func (s *Simulator) PollVideo(_ context.Context, id string) (*providers.VideoState, error) {
	r, err := parseRender(id)
	if err != nil {
		return nil, err
	}
	past := max(0, s.now().Sub(r.started))
	switch {
	case past < r.delay:
		return &providers.VideoState{Progress: int(past * 100 / r.delay)}, nil
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
		return nil, &providers.Failure{Kind: providers.KindInvalid, Status: 409, Err: errors.New("simulator: the video is not there")}
	}
	r, err := parseRender(id)
	if err != nil {
		return nil, err
	}
	switch variant {
	case "video":
		return whole("video/mp4", mp4.Encode(r.size.width, r.size.height, r.seconds)), nil
	case "thumbnail":
		return packed(gradient(r.seed, r.size.width, r.size.height))
	case "spritesheet":
		return packed(sheet(r))
	}
	return nil, fault.Invalid("variant", "variant must be video, thumbnail or spritesheet")
}

// DropVideo has nothing to remove.
func (s *Simulator) DropVideo(_ context.Context, id string) error {
	_, err := parseRender(id)
	return err
}

const (
	sheetColumns = 4
	tileSide     = 160 // the longer one
)

// sheet is small pictures of a video beside and below each other.
func sheet(r *render) image.Image {
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

func packed(m image.Image) (*providers.Content, error) {
	picture, err := asJPEG.pack(m)
	if err != nil {
		return nil, err
	}
	return whole(picture.ContentType, picture.Data), nil
}

// whole is a file that is already there.
func whole(contentType string, data []byte) *providers.Content {
	return &providers.Content{ContentType: contentType, Body: io.NopCloser(bytes.NewReader(data)), Size: int64(len(data))}
}
