package gemini

import (
	"math"
	"strconv"
	"strings"

	"turnpike/internal/fault"
)

// size is a picture's size in pixels; a zero one is left to the model.
type size struct{ width, height int }

// maxSide is twice the longest side that any model makes.
const maxSide = 16384

func parseSize(text string) (size, error) {
	if text == "" || text == "auto" {
		return size{}, nil
	}
	w, h, _ := strings.Cut(text, "x")
	width, err1 := strconv.Atoi(w)
	height, err2 := strconv.Atoi(h)
	if err1 != nil || err2 != nil || width < 1 || height < 1 || width > maxSide || height > maxSide {
		return size{}, fault.Invalid("size", "size must be auto or a width and a height, such as 1024x1024")
	}
	return size{width, height}, nil
}

// The aspect ratios that Google documents.
var (
	imagenRatios = []string{"1:1", "3:4", "4:3", "9:16", "16:9"}
	geminiRatios = []string{"1:1", "2:3", "3:2", "3:4", "4:3", "4:5", "5:4", "9:16", "16:9", "21:9"}
	veoRatios    = []string{"16:9", "9:16"}
)

// aspectRatio is the nearest of those given, or nothing for a size that is
// left to the model. Twice as wide is as far off as twice as high.
func (s size) aspectRatio(known []string) string {
	if s.width == 0 {
		return ""
	}
	best, distance := "", math.Inf(1)
	for _, ratio := range known {
		w, h, _ := strings.Cut(ratio, ":")
		width, _ := strconv.ParseFloat(w, 64)
		height, _ := strconv.ParseFloat(h, 64)
		if d := math.Abs(math.Log(float64(s.width) / float64(s.height) * height / width)); d < distance {
			best, distance = ratio, d
		}
	}
	return best
}

// grade is the nearest of the grades that pictures come in: 1K has a million
// pixels, 2K four times as many, 4K sixteen times. 1K is what the models make
// unasked.
func (s size) grade() string {
	switch pixels := s.width * s.height; {
	case pixels > 8_000_000:
		return "4K"
	case pixels > 2_000_000:
		return "2K"
	}
	return ""
}

// resolution is the nearest of those that videos come in, by the shorter side.
func (s size) resolution() string {
	switch shorter := min(s.width, s.height); {
	case shorter == 0:
		return ""
	case shorter > 1620:
		return "4k"
	case shorter > 900:
		return "1080p"
	}
	return "720p"
}
