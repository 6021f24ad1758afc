package mp4

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestVideoHasRequestedSizeAndDuration(t *testing.T) {
	t.Parallel()
	for _, v := range []struct{ width, height, seconds int }{{1280, 720, 2}, {2048, 2048, 1}, {64, 66, 1}} {
		path := filepath.Join(t.TempDir(), "video.mp4")
		file := Encode(v.width, v.height, v.seconds)
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		// -count_frames decodes every frame, and -v error reports any defect.
		out, err := exec.Command("ffprobe", "-v", "error", "-count_frames", "-show_entries",
			"stream=codec_name,profile,width,height,r_frame_rate,duration,nb_read_frames:format=duration", "-of", "default=nw=1", path).CombinedOutput()
		want := fmt.Sprintf("codec_name=h264\nprofile=Constrained Baseline\nwidth=%d\nheight=%d\nr_frame_rate=24/1\nduration=%d.000000\nnb_read_frames=%d\nduration=%d.000000\n",
			v.width, v.height, v.seconds, v.seconds*24, v.seconds)
		if err != nil || string(out) != want {
			t.Errorf("ffprobe reports %s (%v), want %s", out, err, want)
		}
		if moov, mdat := bytes.Index(file, []byte("moov")), bytes.Index(file, []byte("mdat")); moov < 0 || moov > mdat {
			t.Errorf("got moov at %d and mdat at %d, want moov first", moov, mdat)
		}
	}
}

func TestFileOfLongestVideoIsSmall(t *testing.T) {
	t.Parallel()
	if file := Encode(MaxSide, MaxSide, 60); len(file) > 40_000 {
		t.Errorf("got %d bytes, want at most 40000", len(file))
	}
}

func TestSequenceSetNeedsNoEmulationPrevention(t *testing.T) {
	t.Parallel()
	for side := 64; side <= MaxSide; side += 2 {
		for _, other := range []int{64, 1024, 1026, MaxSide} {
			for _, set := range [][]byte{sequenceSet(side, other), sequenceSet(other, side)} {
				if bytes.Contains(set, []byte{0, 0}) {
					t.Fatalf("%d, %d: got %x, want no two zero bytes in a row", side, other, set)
				}
			}
		}
	}
}
