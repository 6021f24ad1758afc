package simulator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/draw"
	"io"
	"slices"
	"strings"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/providers/simulator/mp4"
)

var (
	_ providers.VideoGenerator = (*Simulator)(nil)
	_ providers.VideoRemixer   = (*Simulator)(nil)
)

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
		if _, _, err := readConfig("input_reference", req.Source.Data); err != nil {
			return "", err
		}
		seed.Write([]byte{0})
		seed.Write(req.Source.Data)
	}
	if m.status != 0 {
		return "", m.requestedFault()
	}
	r := &videoSpec{
		Started: s.now().UnixMilli(), Delay: uint32(m.delay.Milliseconds()), Fail: uint8(slices.Index(failureCodes, m.fail) + 1),
		Seconds: uint8(req.Seconds), Width: uint16(size.width), Height: uint16(size.height),
	}
	seed.Sum(r.Seed[:0])
	return r.id(), nil
}

// RemixVideo starts a video of the same duration and size, with other colors.
func (s *Simulator) RemixVideo(ctx context.Context, id string, req *providers.VideoRequest) (string, error) {
	from, err := parseVideoID(id)
	if err != nil {
		return "", err
	}
	made, err := s.StartVideo(ctx, &providers.VideoRequest{Prompt: req.Prompt, Seconds: int(from.Seconds), Size: fmt.Sprintf("%dx%d", from.Width, from.Height)})
	if err != nil {
		return "", err
	}
	r, err := parseVideoID(made)
	if err != nil {
		return "", err
	}
	r.Seed = sha256.Sum256(append(r.Seed[:], from.Seed[:]...))
	return r.id(), nil
}

// PollVideo returns the progress, which depends on the time since the start.
func (s *Simulator) PollVideo(_ context.Context, id string) (*providers.VideoState, error) {
	r, err := parseVideoID(id)
	if err != nil {
		return nil, err
	}
	elapsed, delay := max(0, s.now().UnixMilli()-r.Started), int64(r.Delay)
	switch {
	case elapsed < delay:
		return &providers.VideoState{Progress: int(elapsed * 100 / delay)}, nil
	case r.Fail > 0:
		return &providers.VideoState{Failure: (&magic{param: "prompt", fail: failureCodes[r.Fail-1]}).failure()}, nil
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
		return content("video/mp4", mp4.Encode(int(r.Width), int(r.Height), int(r.Seconds))), nil
	case "thumbnail":
		return jpegContent(gradient(r.Seed, int(r.Width), int(r.Height)))
	case "spritesheet":
		return jpegContent(spriteSheet(r))
	}
	return nil, fault.Invalid("variant", "variant must be video, thumbnail or spritesheet.")
}

// DeleteVideo only checks the ID.
func (s *Simulator) DeleteVideo(_ context.Context, id string) error {
	_, err := parseVideoID(id)
	return err
}

const (
	sheetColumns = 4
	tileSide     = 160 // of the longer side
)

func spriteSheet(r *videoSpec) image.Image {
	longer := int(max(r.Width, r.Height))
	width, height := tileSide*int(r.Width)/longer, tileSide*int(r.Height)/longer
	rows := (int(r.Seconds) + sheetColumns - 1) / sheetColumns
	out := image.NewRGBA(image.Rect(0, 0, width*sheetColumns, height*rows))
	for i := range int(r.Seconds) {
		at := image.Pt(i%sheetColumns*width, i/sheetColumns*height)
		tile := gradient(sha256.Sum256(append(r.Seed[:], byte(i))), width, height)
		draw.Draw(out, tile.Bounds().Add(at), tile, image.Point{}, draw.Src)
	}
	return out
}

func jpegContent(m image.Image) (*providers.Content, error) {
	file, err := imageFormats["jpeg"].file(m)
	if err != nil {
		return nil, err
	}
	return content(file.ContentType, file.Data), nil
}

func content(contentType string, data []byte) *providers.Content {
	return &providers.Content{ContentType: contentType, Body: io.NopCloser(bytes.NewReader(data)), Size: int64(len(data))}
}

// videoSpec is encoded in the ID of a video.
type videoSpec struct {
	Started       int64  // Unix time in milliseconds
	Delay         uint32 // in milliseconds
	Fail          uint8  // position in failureCodes, from 1, or 0
	Seconds       uint8
	Width, Height uint16
	Seed          [sha256.Size]byte
}

const videoIDPrefix = "simvideo_"

// failureCodes are numbered by their position in IDs. Append new ones.
var failureCodes = []failureCode{
	"moderation_blocked_input", "moderation_blocked_output", "invalid_input", "upstream_error", "upstream_timeout", "capacity",
}

// id encodes a spec. The checksum detects invalid IDs, not forged ones.
func (r *videoSpec) id() string {
	out, _ := binary.Append(nil, binary.BigEndian, r) // it has a fixed size
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
	return videoIDPrefix + base64.RawURLEncoding.EncodeToString(out)
}

func parseVideoID(id string) (*videoSpec, error) {
	r := new(videoSpec)
	length := binary.Size(r)
	text, ok := strings.CutPrefix(id, videoIDPrefix)
	data, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil || len(data) != length+4 || crc32.ChecksumIEEE(data[:length]) != binary.BigEndian.Uint32(data[length:]) {
		return nil, &providers.Failure{Kind: providers.KindInvalid, Status: 404, Err: errors.New("simulator: no such video")}
	}
	_, _ = binary.Decode(data, binary.BigEndian, r)
	r.Fail = min(r.Fail, uint8(len(failureCodes)))
	return r, nil
}
