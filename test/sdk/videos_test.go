//go:build clients

//lint:file-ignore SA1019 OpenAI gives up its own videos, and the SDK says so; the form of the API outlives them.

package sdk_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"turnpike/test/fakes/upstreams"
)

// ready polls a video as the SDK does.
func (c mediaClient) ready(v *openai.Video, err error) *openai.Video {
	c.Helper()
	if err != nil {
		c.Fatal(told(err))
	}
	c.whole(v)
	if v.Status != openai.VideoStatusQueued || v.Progress != 0 {
		c.Errorf("a new video is %s", v.RawJSON())
	}
	if v, err = c.Videos.PollStatus(c.Context(), v.ID, 50); err != nil {
		c.Fatal(err)
	}
	c.whole(v)
	return v
}

// whole checks the fields that OpenAI's videos always have, even if null.
func (c mediaClient) whole(v *openai.Video) {
	c.Helper()
	for _, name := range []string{"id", "object", "completed_at", "created_at", "error", "expires_at", "model", "progress", "prompt", "remixed_from_video_id", "seconds", "size", "status"} {
		if !strings.Contains(v.RawJSON(), `"`+name+`":`) {
			c.Errorf("a video has no %s: %s", name, v.RawJSON())
		}
	}
}

func (c mediaClient) download(id string, p openai.VideoDownloadContentParams) []byte {
	c.Helper()
	res, err := c.Videos.DownloadContent(c.Context(), id, p)
	if err != nil {
		c.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || int64(len(data)) != res.ContentLength {
		c.Fatalf("%d of %d bytes, %v", len(data), res.ContentLength, err)
	}
	return data
}

func (c mediaClient) films() {
	p := openai.VideoNewParams{Model: openai.VideoModel(c.video), Prompt: "Carts pass the gate", Seconds: "4", Size: "1280x720"}
	first := c.ready(c.Videos.New(c.Context(), p))
	if first.Status != openai.VideoStatusCompleted || first.Progress != 100 || first.CompletedAt == 0 || first.Seconds != "4" || first.Size != "1280x720" || first.Prompt != p.Prompt {
		c.Fatalf("the video is %s", first.RawJSON())
	}
	video := c.download(first.ID, openai.VideoDownloadContentParams{})
	c.checkMP4(c.T, video)
	again, err := c.Videos.Get(c.Context(), first.ID)
	if err != nil {
		c.Fatal(err)
	}
	var ours struct{ URL string }
	if err := json.Unmarshal([]byte(again.RawJSON()), &ours); err != nil {
		c.Fatal(err)
	}
	if linked := fetch(c.T, ours.URL); sum(linked) != sum(video) {
		c.Errorf("the link has %d bytes, the download %d others", len(linked), len(video))
	}
	if c.plays {
		if thumb := c.download(first.ID, openai.VideoDownloadContentParams{Variant: openai.VideoDownloadContentParamsVariantThumbnail}); len(thumb) == 0 {
			c.Error("the thumbnail is empty")
		}
	}

	// The same in JSON, which other clients send.
	ids := []string{first.ID}
	var others [3]openai.Video
	for i := range others {
		if err := c.Post(c.Context(), "videos", map[string]any{"model": c.video, "prompt": "Carts pass the gate", "seconds": "4"}, &others[i]); err != nil {
			c.Fatal(told(err))
		}
		ids = append(ids, others[i].ID)
	}
	for i := range others {
		if v := c.ready(&others[i], nil); v.Status != openai.VideoStatusCompleted || v.Size != "720x1280" {
			c.Errorf("the video is %s", v.RawJSON())
		}
	}
	var listed []string
	pager := c.Videos.ListAutoPaging(c.Context(), openai.VideoListParams{Limit: openai.Int(2), Order: openai.VideoListParamsOrderAsc})
	for pager.Next() {
		v := pager.Current()
		c.whole(&v)
		if v.Model == openai.VideoModel(c.video) {
			listed = append(listed, v.ID)
		}
	}
	if pager.Err() != nil || !slices.Equal(listed, ids) {
		c.Errorf("listed are %v, made were %v, %v", listed, ids, pager.Err())
	}

	gone, err := c.Videos.Delete(c.Context(), first.ID)
	if err != nil || !gone.Deleted || gone.ID != first.ID || gone.Object != "video.deleted" {
		c.Errorf("deleted: %v, %v", gone, err)
	}
	_, err = c.Videos.Get(c.Context(), first.ID)
	c.wants(err, http.StatusNotFound, "not_found")
	_, err = c.Videos.DownloadContent(c.Context(), first.ID, openai.VideoDownloadContentParams{})
	c.wants(err, http.StatusNotFound, "not_found")
}

func (c mediaClient) filmsFromAPicture() {
	picture := upstreams.PNGOf(64, 64)
	for name, reference := range map[string]openai.VideoNewParamsInputReferenceUnion{
		"a file":     {OfFile: openai.File(bytes.NewReader(picture), "start.png", "image/png")},
		"a data URL": {OfImageInputReference: &openai.ImageInputReferenceParam{ImageURL: openai.String("data:image/png;base64," + base64.StdEncoding.EncodeToString(upstreams.PNGOf(640, 480)))}},
	} {
		v, err := c.Videos.New(c.Context(), openai.VideoNewParams{Model: openai.VideoModel(c.video), Prompt: "It begins to move", InputReference: reference}, option.WithHeader("Idempotency-Key", "from "+name))
		if err != nil {
			c.Errorf("%s: %v", name, told(err))
			continue
		}
		if v = c.ready(v, nil); v.Status != openai.VideoStatusCompleted {
			c.Errorf("%s: the video is %s", name, v.RawJSON())
			continue
		}
		c.checkMP4(c.T, c.download(v.ID, openai.VideoDownloadContentParams{}))
	}
}

func (c mediaClient) failsToFilm() {
	_, err := c.Videos.New(c.Context(), openai.VideoNewParams{Model: openai.VideoModel(c.video), Prompt: "x", Size: "large"})
	c.wants(err, http.StatusBadRequest, "invalid_parameter")
	if c.name != "simulator" {
		return
	}
	v := c.ready(c.Videos.New(c.Context(), openai.VideoNewParams{Model: openai.VideoModel(c.video), Prompt: "[[sim:fail=moderation_blocked_output]]"}))
	if v.Status != openai.VideoStatusFailed || v.Error.Code != "moderation_blocked_output" || v.Error.Message == "" {
		c.Errorf("the video is %s", v.RawJSON())
	}
	_, err = c.Videos.DownloadContent(c.Context(), v.ID, openai.VideoDownloadContentParams{})
	c.wants(err, http.StatusNotFound, "not_found")
}
