package mp4_test

import (
	"bytes"
	"image"
	"image/color"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"turnpike/internal/providers/simulator/mp4"
)

// shades are colours at both ends of the range and between, so that neighbours
// differ by little and by much.
var shades = color.Palette{
	color.RGBA{0, 0, 0, 255}, color.RGBA{255, 255, 255, 255}, color.RGBA{255, 0, 0, 255}, color.RGBA{0, 255, 0, 255}, color.RGBA{0, 0, 255, 255},
	color.RGBA{128, 128, 128, 255}, color.RGBA{129, 128, 128, 255}, color.RGBA{131, 131, 131, 255}, color.RGBA{120, 140, 120, 255}, color.RGBA{255, 255, 0, 255},
	color.RGBA{200, 190, 180, 255}, color.RGBA{202, 188, 183, 255},
}

// noise is a picture in which a part of the squares changes with each frame.
func noise(width, height, frame int) *image.Paletted {
	m := image.NewPaletted(image.Rect(0, 0, width, height), shades)
	for i := range m.Pix {
		r := rand.New(rand.NewPCG(uint64(i), uint64(frame/(1+i%5))))
		m.Pix[i] = uint8(r.IntN(len(shades)))
	}
	return m
}

func ffmpeg(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil || complaints.Len() > 0 {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, complaints.String())
	}
	return out
}

// What a player shows is exactly what was drawn, in every square of every frame.
func TestEveryPixelArrives(t *testing.T) {
	t.Parallel()
	for _, v := range []mp4.Video{
		{Width: 64, Height: 64, Seconds: 2},
		{Width: 176, Height: 98, Seconds: 1}, // not whole squares
		{Width: 16, Height: 16, Seconds: 1},
	} {
		v.Draw = noise
		path := filepath.Join(t.TempDir(), "video.mp4")
		if err := os.WriteFile(path, v.Encode(), 0o600); err != nil {
			t.Fatal(err)
		}
		raw := ffmpeg(t, "ffmpeg", "-v", "error", "-xerror", "-i", path, "-pix_fmt", "yuv420p", "-f", "rawvideo", "-")
		size := v.Width * v.Height * 3 / 2
		if len(raw) != size*v.Seconds*mp4.Rate {
			t.Fatalf("%d bytes, want %d frames of %d", len(raw), v.Seconds*mp4.Rate, size)
		}
		for i := range v.Seconds * mp4.Rate {
			frame := raw[i*size:]
			drawn := noise((v.Width+15)/16, (v.Height+15)/16, i)
			for y := range v.Height {
				for x := range v.Width {
					want := limited(drawn.At(x/16, y/16))
					chroma := v.Width*v.Height + y/2*(v.Width/2) + x/2
					got := [3]uint8{frame[y*v.Width+x], frame[chroma], frame[chroma+v.Width*v.Height/4]}
					if got != want {
						t.Fatalf("frame %d of %dx%d has %v at %d,%d, want %v", i, v.Width, v.Height, got, x, y, want)
					}
				}
			}
		}
	}
}

// limited is a colour as video stores it.
func limited(c color.Color) [3]uint8 {
	r, g, b, _ := c.RGBA()
	y, cb, cr := color.RGBToYCbCr(uint8(r>>8), uint8(g>>8), uint8(b>>8))
	return [3]uint8{uint8(16 + int(y)*219/255), uint8(128 + (int(cb)-128)*224/255), uint8(128 + (int(cr)-128)*224/255)}
}

func TestPlayersKnowWhatItIs(t *testing.T) {
	t.Parallel()
	for _, v := range []mp4.Video{{Width: 1280, Height: 720, Seconds: 4}, {Width: 2048, Height: 2048, Seconds: 1}, {Width: 1920, Height: 1080, Seconds: 1}} {
		v.Draw = func(width, height, _ int) *image.Paletted {
			return image.NewPaletted(image.Rect(0, 0, width, height), shades)
		}
		file := v.Encode()
		path := filepath.Join(t.TempDir(), "video.mp4")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		got := string(ffmpeg(t, "ffprobe", "-v", "error", "-count_frames", "-show_entries",
			"stream=codec_name,profile,width,height,r_frame_rate,duration,nb_read_frames:format=duration,format_name", "-of", "default=nw=1", path))
		for _, want := range []string{"codec_name=h264", "profile=Constrained Baseline", "r_frame_rate=24/1"} {
			if !strings.Contains(got, want+"\n") {
				t.Errorf("%s is not in %s", want, got)
			}
		}
		size := strings.Contains(got, "width="+strconv.Itoa(v.Width)+"\n") && strings.Contains(got, "height="+strconv.Itoa(v.Height)+"\n")
		if seconds := "duration=" + strconv.Itoa(v.Seconds) + ".000000\n"; !size || strings.Count(got, seconds) != 2 || !strings.Contains(got, "nb_read_frames="+strconv.Itoa(v.Seconds*24)+"\n") {
			t.Errorf("%dx%d, %d s: %s", v.Width, v.Height, v.Seconds, got)
		}
		if moov, mdat := bytes.Index(file, []byte("moov")), bytes.Index(file, []byte("mdat")); moov < 0 || moov > mdat {
			t.Errorf("moov is at %d, mdat at %d", moov, mdat)
		}
	}
}
