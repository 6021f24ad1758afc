package simulator

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

func drawn(t *testing.T, body string, sources ...[]byte) []providers.Image {
	t.Helper()
	req := &providers.ImageRequest{Body: []byte(body)}
	for _, s := range sources {
		req.Sources = append(req.Sources, providers.Upload{Data: s})
	}
	a, err := newSimulator().Images(t.Context(), req)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if a.Usage.Images != int64(len(a.Images)) {
		t.Errorf("%d pictures are counted as %d", len(a.Images), a.Usage.Images)
	}
	return a.Images
}

func TestImagesHaveRequestedCountSizeAndFormat(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]struct {
		count, width, height int
		kind                 string
	}{
		``:                          {1, 1024, 1024, "png"},
		`,"size":"auto","n":null`:   {1, 1024, 1024, "png"},
		`,"size":"64x2048"`:         {1, 64, 2048, "png"},
		`,"size":"1536x1024","n":2`: {2, 1536, 1024, "png"},
		`,"size":"256x256","n":10`:  {10, 256, 256, "png"}, // from a form
		`,"size":"256x256","n":3,"output_format":"jpeg","quality":"low"`: {3, 256, 256, "jpeg"},
	} {
		images := drawn(t, `{"prompt":"a house by the sea"`+fields+`}`)
		if len(images) != want.count {
			t.Errorf("%s: %d pictures", fields, len(images))
		}
		seen := map[string]bool{}
		for _, p := range images {
			m, kind, err := image.Decode(bytes.NewReader(p.Data))
			if err != nil || kind != want.kind || p.ContentType != "image/"+want.kind || m.Bounds() != image.Rect(0, 0, want.width, want.height) {
				t.Errorf("%s: %s of %v, %v", fields, p.ContentType, m.Bounds(), err)
			}
			if seen[string(p.Data)] {
				t.Errorf("%s: two pictures are the same", fields)
			}
			seen[string(p.Data)] = true
		}
	}
}

func TestWebPImagesHaveTheRequestedSize(t *testing.T) {
	t.Parallel()
	p := drawn(t, `{"prompt":"a house by the sea","size":"256x128","output_format":"webp"}`)[0]
	// A lossless file has its width and height, each less one, in 14 bits.
	if len(p.Data) < 25 || p.ContentType != "image/webp" || string(p.Data[8:16]) != "WEBPVP8L" || binary.LittleEndian.Uint32(p.Data[21:])&(1<<28-1) != 127<<14|255 {
		t.Errorf("got %s: %x", p.ContentType, p.Data[:min(len(p.Data), 32)])
	}
}

func TestImageFollowsFromThePrompt(t *testing.T) {
	t.Parallel()
	one := drawn(t, `{"prompt":"a house by the sea","size":"256x256","n":2}`)
	again := drawn(t, `{"prompt":"a house by the sea","size":"256x256","n":2}`)
	other := drawn(t, `{"prompt":"a house by the lake","size":"256x256"}`)
	magic := drawn(t, `{"prompt":"a house by the sea[[sim:delay=0s]]","size":"256x256"}`)
	if !bytes.Equal(one[0].Data, again[0].Data) || !bytes.Equal(one[1].Data, again[1].Data) {
		t.Error("the same request has two pictures")
	}
	if !bytes.Equal(one[0].Data, magic[0].Data) {
		t.Error("magic is drawn")
	}
	// The difference must be visible, not just a pixel.
	if n := differ(t, one[0].Data, other[0].Data); n < 0.5 {
		t.Errorf("pictures of two prompts differ in %.0f%% of their pixels", 100*n)
	}
	if n := differ(t, one[0].Data, one[1].Data); n < 0.5 {
		t.Errorf("two pictures of one prompt differ in %.0f%% of their pixels", 100*n)
	}
	if len(one[0].Data) > 10_000 {
		t.Errorf("a small picture takes %d bytes", len(one[0].Data))
	}
}

// differ returns the fraction of pixels in which two images differ.
func differ(t *testing.T, a, b []byte) float64 {
	t.Helper()
	first, err := png.Decode(bytes.NewReader(a))
	if err != nil {
		t.Fatal(err)
	}
	second, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	count, all := 0, first.Bounds()
	for y := range all.Dy() {
		for x := range all.Dx() {
			if color.NRGBAModel.Convert(first.At(x, y)) != color.NRGBAModel.Convert(second.At(x, y)) {
				count++
			}
		}
	}
	return float64(count) / float64(all.Dx()*all.Dy())
}

// red returns an image of one color.
func red(width, height int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for i := range m.Pix {
		m.Pix[i] = [4]uint8{200, 0, 0, 255}[i%4]
	}
	return m
}

func encoded(encode func(*bytes.Buffer) error) []byte {
	var b bytes.Buffer
	if err := encode(&b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func TestEditChangesOnlyPartOfTheSource(t *testing.T) {
	t.Parallel()
	source := red(120, 80)
	asPNG := encoded(func(b *bytes.Buffer) error { return png.Encode(b, source) })
	for name, file := range map[string][]byte{
		"png":  asPNG,
		"jpeg": encoded(func(b *bytes.Buffer) error { return jpeg.Encode(b, source, nil) }),
		"gif":  encoded(func(b *bytes.Buffer) error { return gif.Encode(b, source, nil) }),
	} {
		m, err := png.Decode(bytes.NewReader(drawn(t, `{"prompt":"add a hill"}`, file)[0].Data))
		if err != nil || m.Bounds() != source.Bounds() {
			t.Fatal(name, m.Bounds(), err)
		}
		kept, changed := 0, 0
		for y := range 80 {
			for x := range 120 {
				if r, g, _, _ := m.At(x, y).RGBA(); r>>8 > 190 && g>>8 < 20 {
					kept++
				} else {
					changed++
				}
			}
		}
		if kept < 1000 || changed < 1000 {
			t.Errorf("%s: %d pixels kept, %d changed", name, kept, changed)
		}
	}
	if got := drawn(t, `{"prompt":"add a hill","size":"256x128"}`, asPNG, asPNG); len(got) != 1 {
		t.Errorf("%d pictures", len(got))
	}

	// Opaque parts of the mask stay unchanged.
	req := &providers.ImageRequest{Body: []byte(`{"prompt":"add a hill"}`), Sources: []providers.Upload{{Data: asPNG}}, Mask: &providers.Upload{Data: asPNG}}
	a, err := newSimulator().Images(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if n := differ(t, a.Images[0].Data, asPNG); n != 0 {
		t.Errorf("%.0f%% were changed in spite of the mask", 100*n)
	}
}

func TestInvalidImageRequestIsRejected(t *testing.T) {
	t.Parallel()
	huge := encoded(func(b *bytes.Buffer) error { return png.Encode(b, red(1, 1)) })
	copy(huge[16:], "\x00\x00\xff\xff\x00\x00\xff\xff") // its size and checksum
	binary.BigEndian.PutUint32(huge[29:], crc32.ChecksumIEEE(huge[12:29]))
	for body, param := range map[string]string{
		`{}`: "prompt", `{"prompt":"  "}`: "prompt", `{"prompt":5}`: "prompt",
		`{"prompt":"a","n":0}`: "n", `{"prompt":"a","n":11}`: "n", `{"prompt":"a","n":1.5}`: "n", `{"prompt":"a","n":"x"}`: "n", `{"prompt":"a","n":[]}`: "n",
		`{"prompt":"a","size":"10x10"}`: "size", `{"prompt":"a","size":"2056x64"}`: "size", `{"prompt":"a","size":"100x100"}`: "size", `{"prompt":"a","size":"64"}`: "size", `{"prompt":"a","size":"big"}`: "size",
		`{"prompt":"a","output_format":"gif"}`: "output_format",
	} {
		_, err := newSimulator().Images(t.Context(), &providers.ImageRequest{Body: []byte(body)})
		if f, ok := fault.As(err); !ok || f.Param != param || fault.FamilyOf(f.Code).Status != 400 {
			t.Errorf("%s: %v", body, err)
		}
	}
	good := encoded(func(b *bytes.Buffer) error { return png.Encode(b, red(8, 8)) })
	for name, file := range map[string][]byte{"text": []byte("hello"), "nothing": nil, "half a file": good[:50], "a huge one": huge} {
		for param, req := range map[string]*providers.ImageRequest{
			"image": {Sources: []providers.Upload{{Data: file}, {Data: good}}},
			"mask":  {Sources: []providers.Upload{{Data: good}}, Mask: &providers.Upload{Data: file}},
		} {
			req.Body = []byte(`{"prompt":"a"}`)
			_, err := newSimulator().Images(t.Context(), req)
			if f, ok := fault.As(err); !ok || f.Param != param {
				t.Errorf("%s: %v", name, err)
			} else if name == "a huge one" && !strings.Contains(f.Message, "65535x65535") {
				t.Errorf("%s: %s", name, f.Message)
			}
		}
	}
}
