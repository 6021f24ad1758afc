package audio

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
)

// ffmpegFormats are ffmpeg's options by OpenAI's names of the formats. By default, LAME uses 32
// kbit/s for the output of most models and 8 for telephone quality, which is audibly worse.
var ffmpegFormats = map[string][]string{
	"wav":  {"-c:a", "pcm_s16le", "-f", "wav"},
	"mp3":  {"-c:a", "libmp3lame", "-b:a", "128k", "-f", "mp3"},
	"opus": {"-c:a", "libopus", "-f", "ogg"},
	"aac":  {"-c:a", "aac", "-f", "adts"},
	"flac": {"-c:a", "flac", "-f", "flac"},
	"pcm":  {"-c:a", "pcm_s16le", "-f", "s16le"},
}

// CanTranscode reports whether ffmpeg is installed.
func CanTranscode() bool {
	_, err := exec.LookPath("ffmpeg")
	return err == nil
}

// Content returns samples as a file of a speech format, and the file's size. size is that of the
// samples. Both are -1 if unknown. The samples are closed with the file, or if there is an error.
func Content(ctx context.Context, f Format, samples io.ReadCloser, size int64, format string) (io.ReadCloser, int64, error) {
	if format == "pcm" {
		if f != RawPCM {
			size = -1
		}
		return content{Convert(RawPCM, f, samples), samples}, size, nil
	}
	header := Header(f, size)
	wav := content{io.MultiReader(bytes.NewReader(header), samples), samples}
	if format == "wav" {
		if size >= 0 {
			size += int64(len(header))
		}
		return wav, size, nil
	}
	out, err := Encode(ctx, wav, format)
	if err != nil || format != "flac" || size < 0 {
		return out, -1, err
	}
	flac, err := WithLength(out, f, size)
	if err != nil {
		out.Close()
		return nil, -1, err
	}
	return content{flac, out}, -1, nil
}

type content struct {
	io.Reader
	io.Closer
}

// Encode converts a WAV stream to another format with ffmpeg. It closes the WAV stream
// when its output is closed, or immediately if ffmpeg cannot start.
func Encode(ctx context.Context, wav io.ReadCloser, format string) (io.ReadCloser, error) {
	options, ok := ffmpegFormats[format]
	if !ok {
		wav.Close()
		return nil, fmt.Errorf("audio: no format %q", format)
	}
	out, err := ffmpeg(ctx, wav, options)
	if err != nil {
		wav.Close()
		return nil, err
	}
	return out, nil
}

// ffmpeg starts ffmpeg. It reads every input as WAV, because other demuxers may open further files.
func ffmpeg(ctx context.Context, wav io.Reader, options []string) (io.ReadCloser, error) {
	path, err := exec.LookPath("ffmpeg")
	if err != nil {
		return nil, fmt.Errorf("audio: %w", err)
	}
	args := []string{"-v", "error", "-nostdin", "-protocol_whitelist", "pipe", "-f", "wav", "-i", "pipe:0",
		"-map", "0:a:0", "-map_metadata", "-1", "-fflags", "+bitexact", "-flags:a", "+bitexact", "-threads", "1"}
	args = append(args, options...)
	return Program(ctx, wav, path, append(args, "pipe:1")...)
}
