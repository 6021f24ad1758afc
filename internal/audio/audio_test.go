package audio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"
)

var mono = Format{Rate: 8000, Channels: 1}

// pcm is samples as bytes.
func pcm(samples ...int16) []byte {
	var out []byte
	for _, s := range samples {
		out = binary.LittleEndian.AppendUint16(out, uint16(s))
	}
	return out
}

// chunk is a WAV file's.
func chunk(name string, size uint32, data ...byte) []byte {
	return append(binary.LittleEndian.AppendUint32([]byte(name), size), data...)
}

func format(encoding, channels uint16, rate uint32, bits uint16, more ...byte) []byte {
	out := binary.LittleEndian.AppendUint16(nil, encoding)
	out = binary.LittleEndian.AppendUint16(out, channels)
	out = binary.LittleEndian.AppendUint32(out, rate)
	out = binary.LittleEndian.AppendUint32(out, rate*uint32(channels)*uint32(bits)/8)
	out = binary.LittleEndian.AppendUint16(out, channels*bits/8)
	out = append(binary.LittleEndian.AppendUint16(out, bits), more...)
	return chunk("fmt ", uint32(len(out)), out...)
}

func wav(chunks ...[]byte) []byte {
	return append([]byte("RIFF\x00\x00\x00\x00WAVE"), slices.Concat(chunks...)...)
}

func TestEveryWAVEncodingIsRead(t *testing.T) {
	t.Parallel()
	sound := pcm(1, -2, 32767, -32768)
	plain := format(1, 1, 8000, 16)
	floats := binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.5))
	floats = binary.LittleEndian.AppendUint32(floats, math.Float32bits(-7))
	floats = binary.LittleEndian.AppendUint32(floats, math.Float32bits(float32(math.NaN())))
	ds64 := make([]byte, 28)
	binary.LittleEndian.PutUint64(ds64[8:], 8)
	rf64 := slices.Concat([]byte("RF64\xff\xff\xff\xffWAVE"), chunk("ds64", 28, ds64...), plain, chunk("data", math.MaxUint32, sound...), chunk("LIST", 2, 1, 2))
	for name, c := range map[string]struct{ file, want []byte }{
		"plain":               {wav(plain, chunk("data", 8, sound...)), sound},
		"more chunks":         {wav(chunk("LIST", 3, 'a', 'b', 'c', 0), plain, chunk("fact", 4, 0, 0, 0, 0), chunk("data", 8, sound...), chunk("id3 ", 2, 1, 2)), sound},
		"no size":             {wav(plain, chunk("data", 0, sound...)), sound},
		"the highest size":    {wav(plain, chunk("data", math.MaxUint32, sound...)), sound},
		"espeak's size":       {wav(plain, chunk("data", 0x7FFFF000, sound...)), sound},
		"half a sample":       {wav(plain, chunk("data", 0, append(slices.Clone(sound), 9)...)), sound},
		"RF64":                {rf64, sound},
		"nothing to be heard": {wav(plain, chunk("data", 0)), nil},
		"8 bits":              {wav(format(1, 1, 8000, 8), chunk("data", 3, 0, 128, 255)), pcm(-32768, 0, 32512)},
		"24 bits":             {wav(format(1, 1, 8000, 24), chunk("data", 6, 9, 1, 0, 9, 0, 0x80)), pcm(1, -32768)},
		"32 bits":             {wav(format(1, 1, 8000, 32), chunk("data", 4, 9, 9, 2, 0)), pcm(2)},
		"floating point":      {wav(format(3, 1, 8000, 32), chunk("data", 12, floats...)), pcm(16384, -32767, 0)},
		"extensible":          {wav(format(0xFFFE, 1, 8000, 16, 22, 0, 16, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 16, 0), chunk("data", 8, sound...)), sound},
	} {
		for _, r := range []io.Reader{bytes.NewReader(c.file), iotest.OneByteReader(bytes.NewReader(c.file))} {
			f, data, err := ReadWAV(r)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			got, err := io.ReadAll(data)
			if err != nil || f != mono || !bytes.Equal(got, c.want) {
				t.Errorf("%s: %v %v, %v", name, f, got, err)
			}
		}
	}
}

func TestOtherFilesAreRejected(t *testing.T) {
	t.Parallel()
	for name, file := range map[string][]byte{
		"nothing":        nil,
		"a picture":      []byte("\x89PNG\r\n\x1a\n0000"),
		"no sound":       wav(format(1, 1, 8000, 16)),
		"no format":      wav(chunk("data", 2, 1, 2)),
		"another":        wav(format(7, 1, 8000, 8), chunk("data", 2, 1, 2)),
		"12 bits":        wav(format(1, 1, 8000, 12), chunk("data", 2, 1, 2)),
		"no channels":    wav(format(1, 0, 8000, 16), chunk("data", 2, 1, 2)),
		"no rate":        wav(format(1, 1, 0, 16), chunk("data", 2, 1, 2)),
		"a short format": wav(chunk("fmt ", 2, 1, 0), chunk("data", 2, 1, 2)),
		"a huge format":  wav(chunk("fmt ", math.MaxUint32, 1, 0)),
	} {
		if _, _, err := ReadWAV(bytes.NewReader(file)); err == nil {
			t.Errorf("%s was taken for a WAV file", name)
		}
	}
}

func TestTruncatedFileIsAnError(t *testing.T) {
	t.Parallel()
	_, data, err := ReadWAV(bytes.NewReader(wav(format(1, 1, 8000, 16), chunk("data", 100, 1, 2, 3, 4))))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(data); !errors.Is(err, io.ErrUnexpectedEOF) || len(got) != 4 {
		t.Errorf("%d bytes and %v", len(got), err)
	}
}

func TestSilenceIsExact(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		0: 0, time.Second: 44100, 100 * time.Hour: 44100 * 360_000, 10 * time.Microsecond: 0, 12 * time.Microsecond: 1,
	} {
		if got := (Format{44100, 1}).Bytes(d) / 2; got != want {
			t.Errorf("%v is %d samples, want %d", d, got, want)
		}
	}
	if d := (Format{44100, 1}).Duration(2 * 44100 * 360_000); d != 100*time.Hour {
		t.Errorf("a hundred hours are %v", d)
	}
}

// read is what a file says of its samples.
func read(t *testing.T, file []byte) (Format, []byte) {
	t.Helper()
	f, sound, err := ReadWAV(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(sound)
	if err != nil {
		t.Fatal(err)
	}
	return f, got
}

func TestWrittenWAVCanBeRead(t *testing.T) {
	t.Parallel()
	behind := chunk("LIST", 2, 1, 2) // is none of the samples
	for _, f := range []Format{mono, {Rate: 44100, Channels: 2}} {
		sound := pcm(1, 2, 3, -4, 5, 6)
		file := append(Header(f, int64(len(sound))), sound...)
		if size := binary.LittleEndian.Uint32(file[4:]); string(file[:4]) != "RIFF" || int(size) != len(file)-8 {
			t.Errorf("%s with %d of %d bytes", file[:4], size, len(file))
		}
		if got, samples := read(t, append(file, behind...)); got != f || !bytes.Equal(samples, sound) {
			t.Errorf("%v: %v as %v", f, samples, got)
		}
		// A size that was not known ends with the file.
		file = append(Header(f, -1), sound...)
		if got, samples := read(t, file); string(file[:4]) != "RIFF" || got != f || !bytes.Equal(samples, sound) {
			t.Errorf("%v: %v as %v", f, samples, got)
		}
	}
}

func TestLargeFilesAreRF64(t *testing.T) {
	t.Parallel()
	sound := pcm(1, 2, 3, 4)
	// Eight bytes of samples, and a limit for the file instead of 4 GiB.
	const riff = headerSize - 8 + 8
	for limit, want := range map[int64]string{riff: "RIFF", riff - 1: "RF64"} {
		f := Format{Rate: 8000, Channels: 2}
		head := header(f, 8, limit)
		if got, samples := read(t, slices.Concat(head, sound, chunk("LIST", 2, 1, 2))); string(head[:4]) != want || got != f || !bytes.Equal(samples, sound) {
			t.Errorf("%q, and not %q, holds %v as %v", head[:4], want, samples, got)
		}
	}
	// The sizes themselves, where they are really too long.
	for size, want := range map[int64]string{math.MaxUint32 - headerSize + 7: "RIFF", math.MaxUint32 - headerSize + 8: "RF64", 1 << 40: "RF64"} {
		head := Header(mono, size)
		if string(head[:4]) != want {
			t.Errorf("%d bytes are %q", size, head[:4])
		}
		if want == "RIFF" {
			continue
		}
		long := func(at int) int64 { return int64(binary.LittleEndian.Uint64(head[at:])) }
		if string(head[12:16]) != "ds64" || long(20) != size+int64(len(head))-8 || long(28) != size || long(36) != size/2 {
			t.Errorf("%d bytes are said to be %d, %d and %d", size, long(20), long(28), long(36))
		}
		if string(head[len(head)-8:]) != "data\xff\xff\xff\xff" {
			t.Errorf("a header ends with %q", head[len(head)-8:])
		}
	}
}

func TestTruncatedLargeFileIsAnError(t *testing.T) {
	t.Parallel()
	_, sound, err := ReadWAV(bytes.NewReader(append(Header(mono, 1<<40), pcm(1, 2)...)))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(sound); !errors.Is(err, io.ErrUnexpectedEOF) || len(got) != 4 {
		t.Errorf("%d bytes and %v", len(got), err)
	}
}

func convert(t interface{ Fatal(...any) }, dst, src Format, in []byte) []byte {
	got, err := io.ReadAll(Convert(dst, src, iotest.HalfReader(bytes.NewReader(in))))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestConvertChangesRateAndChannels(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dst, src Format
		in, want []byte
	}{
		"the same":       {mono, mono, pcm(1, 2), pcm(1, 2)},
		"twice the rate": {Format{16000, 1}, mono, pcm(0, 100, 50), pcm(0, 50, 100, 75, 50, 50)},
		"half the rate":  {Format{4000, 1}, mono, pcm(0, 100, 50), pcm(0, 50)},
		"two channels":   {Format{8000, 2}, mono, pcm(1, 2), pcm(1, 1, 2, 2)},
		"one channel":    {mono, Format{8000, 2}, pcm(10, 20, -30, -10), pcm(15, -20)},
		"six to two":     {Format{8000, 2}, Format{8000, 6}, pcm(3, 30, 6, 60, 9, 90), pcm(6, 60)},
		"one sample":     {Format{24000, 1}, mono, pcm(7), pcm(7, 7, 7)},
		"no sample":      {Format{24000, 1}, mono, nil, nil},
	} {
		if got := convert(t, c.dst, c.src, c.in); !bytes.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	for _, broken := range []io.Reader{
		io.MultiReader(bytes.NewReader(pcm(1, 2)), iotest.ErrReader(io.ErrUnexpectedEOF)), bytes.NewReader([]byte{1, 2, 3}),
	} {
		if _, err := io.ReadAll(Convert(Format{16000, 1}, mono, broken)); err == nil {
			t.Error("a source that broke off was converted as if it had ended")
		}
	}
}

func TestConvertKeepsTheLength(t *testing.T) {
	t.Parallel()
	rates := rapid.SampledFrom([]int{8000, 11025, 16000, 22050, 24000, 44100, 48000})
	rapid.Check(t, func(t *rapid.T) {
		src := Format{rates.Draw(t, "from"), rapid.IntRange(1, 3).Draw(t, "channels")}
		dst := Format{rates.Draw(t, "to"), rapid.IntRange(1, 3).Draw(t, "channels wanted")}
		frames := rapid.IntRange(0, 5000).Draw(t, "frames")
		in := bytes.Repeat(pcm(-1234), frames*src.Channels)
		want := bytes.Repeat(pcm(-1234), (frames*dst.Rate+src.Rate-1)/src.Rate*dst.Channels)
		if got := convert(t, dst, src, in); !bytes.Equal(got, want) {
			t.Fatalf("%d samples became %d bytes, want %d", frames, len(got), len(want))
		}
	})
}
