package simulator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/draw"
	"io"
	"slices"
	"strings"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/providers/simulator/mp4"
)

var _ providers.VideoGenerator = (*Simulator)(nil)

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

// PollVideo returns the progress, which depends on the time since the start.
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
	file, err := imageFormats["jpeg"].file(m)
	if err != nil {
		return nil, err
	}
	return content(file.ContentType, file.Data), nil
}

func content(contentType string, data []byte) *providers.Content {
	return &providers.Content{ContentType: contentType, Body: io.NopCloser(bytes.NewReader(data)), Size: int64(len(data))}
}

type videoSpec struct {
	started time.Time
	delay   time.Duration
	fail    failureCode
	seconds int
	size    size
	seed    [sha256.Size]byte
}

const videoIDPrefix = "simvideo_"

// failureCodes are numbered by their position in IDs. Append new ones.
var failureCodes = []failureCode{
	"moderation_blocked_input", "moderation_blocked_output", "invalid_input", "upstream_error", "upstream_timeout", "capacity",
}

// id encodes a spec. The checksum detects invalid IDs, not forged ones.
func (r *videoSpec) id() string {
	out := binary.BigEndian.AppendUint64(nil, uint64(r.started.UnixMilli()))
	out = binary.BigEndian.AppendUint32(out, uint32(r.delay.Milliseconds()))
	out = append(out, byte(slices.Index(failureCodes, r.fail)+1), byte(r.seconds))
	out = binary.BigEndian.AppendUint16(out, uint16(r.size.width))
	out = binary.BigEndian.AppendUint16(out, uint16(r.size.height))
	out = append(out, r.seed[:]...)
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
	return videoIDPrefix + base64.RawURLEncoding.EncodeToString(out)
}

func parseVideoID(id string) (*videoSpec, error) {
	r := new(videoSpec)
	const length = 8 + 4 + 1 + 1 + 2 + 2 + len(r.seed) + 4
	text, ok := strings.CutPrefix(id, videoIDPrefix)
	data, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil || len(data) != length || crc32.ChecksumIEEE(data[:length-4]) != binary.BigEndian.Uint32(data[length-4:]) {
		return nil, &providers.Failure{Kind: providers.KindInvalid, Status: 404, Err: errors.New("simulator: no such video")}
	}
	r.started = time.UnixMilli(int64(binary.BigEndian.Uint64(data)))
	r.delay = time.Duration(binary.BigEndian.Uint32(data[8:])) * time.Millisecond
	if code := int(data[12]); code > 0 && code <= len(failureCodes) {
		r.fail = failureCodes[code-1]
	}
	r.seconds = int(data[13])
	r.size = size{int(binary.BigEndian.Uint16(data[14:])), int(binary.BigEndian.Uint16(data[16:]))}
	copy(r.seed[:], data[18:])
	return r, nil
}
