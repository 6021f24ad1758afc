package duration

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// encode returns seconds of audio in a format of ffmpeg.
func encode(t testing.TB, seconds float64, name string, options ...string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	args := []string{"-v", "error", "-nostdin", "-f", "lavfi", "-i", fmt.Sprintf("anoisesrc=d=%g:r=44100:a=0.2:seed=1", seconds)}
	args = append(append(args, options...), out)
	if text, err := exec.Command("ffmpeg", args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var encodings = []struct {
	name    string
	options []string
}{
	{"mono.wav", []string{"-ar", "16000"}},
	{"stereo.wav", []string{"-ac", "2", "-c:a", "pcm_s24le"}},
	{"float.wav", []string{"-c:a", "pcm_f32le"}},
	{"mulaw.wav", []string{"-ar", "8000", "-c:a", "pcm_mulaw"}},
	{"cbr.mp3", []string{"-b:a", "64k"}},
	{"vbr.mp3", []string{"-q:a", "7", "-metadata", "title=A title"}},
	{"mpeg2.mp3", []string{"-ar", "16000", "-b:a", "16k"}},
	{"mpeg25.mp3", []string{"-ar", "8000", "-b:a", "8k"}},
	{"lc.m4a", []string{"-c:a", "aac", "-b:a", "48k"}},
	{"high.m4a", []string{"-c:a", "aac", "-b:a", "320k", "-ac", "2"}},
	{"fast.m4a", []string{"-c:a", "aac", "-movflags", "+faststart"}},
	{"fragments.mp4", []string{"-c:a", "aac", "-movflags", "frag_keyframe+empty_moov+default_base_moof", "-frag_duration", "500000"}},
	{"alac.m4a", []string{"-c:a", "alac"}},
	{"adts.aac", []string{"-c:a", "aac"}},
	{"opus.ogg", []string{"-c:a", "libopus", "-b:a", "24k"}},
	{"long.ogg", []string{"-c:a", "libopus", "-b:a", "12k", "-frame_duration", "60"}},
	{"vorbis.ogg", []string{"-c:a", "libvorbis"}},
	{"opus.webm", []string{"-c:a", "libopus"}},
	{"live.webm", []string{"-c:a", "libopus", "-live", "1"}},
	{"vorbis.webm", []string{"-c:a", "libvorbis"}},
	{"aac.mkv", []string{"-c:a", "aac"}},
	{"plain.flac", nil},
	{"high.flac", []string{"-ar", "96000", "-sample_fmt", "s32"}},
}

func TestDurationOfEveryFormat(t *testing.T) {
	t.Parallel()
	for _, e := range encodings {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			const want = 7300 * time.Millisecond
			got, err := Measure(t.Context(), encode(t, want.Seconds(), e.name, e.options...))
			// Codecs pad the beginning and the end, by up to three frames of 72 ms.
			if diff := got - want; err != nil || diff < -10*time.Millisecond || diff > 230*time.Millisecond {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// replaceAll overwrites every occurrence of a field: what follows a name, at an offset.
func replaceAll(data []byte, name string, offset int, value []byte) []byte {
	out := bytes.Clone(data)
	for at := 0; ; {
		next := bytes.Index(out[at:], []byte(name))
		if next < 0 {
			return out
		}
		at += next + len(name)
		copy(out[min(at+offset, len(out)):], value)
	}
}

// TestFalseHeadersDoNotShortenAFile: a client could pay for a second and send a minute.
func TestFalseHeadersDoNotShortenAFile(t *testing.T) {
	t.Parallel()
	const seconds = 20
	wav := encode(t, seconds, "a.wav", "-ar", "8000")
	mp3 := encode(t, seconds, "a.mp3", "-q:a", "9")
	ogg := encode(t, seconds, "a.ogg", "-c:a", "libopus", "-b:a", "16k")
	vorbis := encode(t, seconds, "b.ogg", "-c:a", "libvorbis")
	webm := encode(t, seconds, "a.webm", "-c:a", "libopus", "-b:a", "16k")
	m4a := encode(t, seconds, "a.m4a", "-c:a", "aac", "-b:a", "24k", "-ar", "16000")
	flac := encode(t, seconds, "a.flac", "-ar", "8000")
	one := binary.BigEndian.AppendUint32(nil, 1)

	shortFLAC := bytes.Clone(flac)
	copy(shortFLAC[21:26], []byte{shortFLAC[21] & 0xF0, 0, 0, 0, 9})
	// A tag that claims to contain all of the file.
	tagged := append([]byte("ID3\x04\x00\x00\x7f\x7f\x7f\x7f"), mp3...)
	for name, file := range map[string][]byte{
		"wav: empty data chunk":      replaceAll(wav, "data", 0, []byte{0, 0, 0, 0}),
		"wav: short data chunk":      replaceAll(wav, "data", 0, []byte{16, 0, 0, 0}),
		"wav: byte rate":             replaceAll(wav, "fmt ", 12, []byte{0, 0, 0, 0x70}),
		"mp3: frame count":           replaceAll(mp3, "Xing", 8, []byte{0, 0, 0, 1}),
		"mp3: tag over all":          tagged,
		"ogg: positions of pages":    replaceAll(ogg, "OggS", 2, make([]byte, 8)),
		"vorbis: positions of pages": replaceAll(vorbis, "OggS", 2, make([]byte, 8)),
		"webm: duration":             replaceAll(webm, "\x44\x89\x88", 0, make([]byte, 8)),
		"m4a: times":                 replaceAll(m4a, "stts", 12, one),
		"m4a: duration":              replaceAll(replaceAll(m4a, "mdhd", 16, one), "mvhd", 16, one),
		"flac: samples":              shortFLAC,
	} {
		got, err := Measure(t.Context(), file)
		if err != nil || got < (seconds-1)*time.Second {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestOtherFilesHaveNoDuration(t *testing.T) {
	t.Parallel()
	webm := encode(t, 1, "a.webm", "-c:a", "libopus")
	for name, file := range map[string][]byte{
		"empty":         nil,
		"text":          bytes.Repeat([]byte("not audio "), 100),
		"zeros":         make([]byte, 1000),
		"header only":   encode(t, 1, "a.wav")[:44],
		"compressed":    encode(t, 1, "a.wav", "-c:a", "adpcm_ima_wav"),
		"unknown codec": bytes.Replace(webm, []byte("A_OPUS"), []byte("A_DTS\x00"), 1),
		"speex in ogg":  append([]byte("OggS\x00\x02"), append(make([]byte, 20), "\x01\x08Speex   "...)...),
	} {
		if got, err := Measure(t.Context(), file); err == nil {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// A file of 32 MiB could have millions of tracks. Looking each block up among them took hours (N4).
func TestFilesWithManyTracksAreRejected(t *testing.T) {
	t.Parallel()
	page := func(serial byte) []byte {
		head := append([]byte("OggS\x00\x02"), make([]byte, 21)...)
		head[14], head[26] = serial, 1
		return append(append(head, 8), "OpusHead"...)
	}
	var ogg []byte
	for serial := range byte(maxTracks + 1) {
		ogg = append(ogg, page(serial)...)
	}
	for name, file := range map[string][]byte{
		"webm": append([]byte{0x1A, 0x45, 0xDF, 0xA3, 0x80}, bytes.Repeat([]byte{idTrackEntry, 0x80}, maxTracks+1)...),
		"mp4":  append([]byte("\x00\x00\x00\x0cftypisom"), bytes.Repeat([]byte("\x00\x00\x00\x08trak"), maxTracks+1)...),
		"ogg":  ogg,
	} {
		if got, err := Measure(t.Context(), file); !errors.Is(err, errTracks) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, errTracks)
		}
	}
}

// Recursion into each box would use up the stack, which ends the process.
func TestNestedBoxesAreNotEntered(t *testing.T) {
	t.Parallel()
	const levels = 1 << 20
	entry := make([]byte, 28, 28+8*levels)
	for i := range levels {
		entry = append(binary.BigEndian.AppendUint32(entry, uint32(8*(levels-i))), "wave"...)
	}
	description := append(binary.BigEndian.AppendUint32(make([]byte, 8), uint32(8+len(entry))), append([]byte("mp4a"), entry...)...)
	track := new(mp4Track)
	track.readDescriptions(description)
	if !track.unsupported {
		t.Error("a description without a codec was accepted")
	}
}

func TestMeasuringEndsWithTheRequest(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(ctx, encode(t, 1, "a.mp3")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func FuzzMeasure(f *testing.F) {
	for _, e := range encodings {
		if flag.Lookup("test.fuzz").Value.String() == "" {
			break // its seeds are files of the other tests
		}
		f.Add(encode(f, 0.1, e.name, e.options...))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		if d, err := Measure(t.Context(), file); err == nil && d <= 0 {
			t.Errorf("got %v", d)
		}
	})
}
