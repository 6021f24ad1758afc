package simulator

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"turnpike/internal/providers"
)

// videoSpec is the content of a video ID.
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
