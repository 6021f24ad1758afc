package simulator

import (
	"io"
	"strings"
	"testing"

	"turnpike/internal/providers"
)

func BenchmarkImages(b *testing.B) {
	for name, fields := range map[string]string{"256": `"size":"256x256"`, "1024": `"size":"1024x1024"`, "1024-jpeg": `"size":"1024x1024","output_format":"jpeg"`} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				a, err := newSimulator().Images(b.Context(), &providers.ImageRequest{Body: []byte(`{"prompt":"a quiet bay",` + fields + `}`)})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(a.Images[0].Data)), "bytes/picture")
			}
		})
	}
}

func BenchmarkSpeech(b *testing.B) {
	for b.Loop() {
		c, err := newSimulator().Speech(b.Context(), &providers.SpeechRequest{Input: strings.Repeat("words and more ", 273), Format: "wav"})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(c.Size)
		if _, err := io.Copy(io.Discard, c.Body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVideo(b *testing.B) {
	s := newSimulator()
	id, err := s.StartVideo(b.Context(), &providers.VideoRequest{Prompt: "a quiet bay", Seconds: 8, Size: "1280x720"})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c, err := s.FetchVideo(b.Context(), id, "video")
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(c.Size), "bytes/video")
	}
}
