package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/gateway"
	"turnpike/internal/media"
	"turnpike/internal/providers"
)

const (
	maxSources = 16
	// imageLink is for how long the link to a picture is good.
	imageLink = 24 * time.Hour
)

func createImage(c *Call) error {
	body, err := c.readJSON(c.s.Limits.ModelBody)
	if err != nil {
		return err
	}
	if err := c.still(); err != nil {
		return err
	}
	return c.images(body, nil, nil)
}

// editImage changes pictures, which come as a form.
func editImage(c *Call) error {
	if !c.isForm() {
		return fault.Param(fault.UnsupportedMediaType, "Content-Type", "pictures to be edited come as a form: send Content-Type: multipart/form-data")
	}
	f, err := c.readForm()
	if err != nil {
		return err
	}
	if err := f.onlyFiles("image", "mask"); err != nil {
		return err
	}
	sources := f.files["image"]
	switch {
	case len(sources) == 0:
		return fault.Missing("image", "image must be the file with the picture to be edited")
	case len(sources) > maxSources:
		return fault.Invalid("image", "there may be at most %d pictures", maxSources)
	}
	for _, s := range sources {
		if !isPicture(s) {
			return fault.Invalid("image", "image must be a PNG, JPEG, GIF or WebP file, and %q is none", s.Name)
		}
	}
	var mask *providers.Upload
	if list := f.files["mask"]; len(list) > 0 {
		if mask = &list[0]; !isPicture(*mask) || len(list) > 1 {
			return fault.Invalid("mask", "mask must be one file with a picture")
		}
	}
	body, err := f.asJSON()
	if err != nil {
		return err
	}
	return c.images(body, sources, mask)
}

func isPicture(u providers.Upload) bool {
	switch u.ContentType {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return true
	}
	return false
}

func (c *Call) images(body []byte, sources []providers.Upload, mask *providers.Upload) error {
	params, err := gateway.ParseImageRequest(body, len(sources))
	if err != nil {
		return err
	}
	input := gateway.ImageInput{Sources: sources, Mask: mask}
	var links []string
	if params.AsURL {
		input.Store = func(ctx context.Context, made *providers.ImageAnswer) (err error) {
			links, err = c.storeImages(ctx, made.Images)
			return err
		}
	}
	answer, made, err := c.s.Gateway.Images(c.Context(), c.modelCall(body), input)
	if err != nil {
		return err
	}
	c.success = append(c.success, headerLine{"Service-Model", answer.Model}, headerLine{"Service-Provider", answer.Provider},
		headerLine{"Service-Credits", answer.Credits.String()})
	out := imagesObject{Created: c.s.Now().Unix(), Data: make([]imageObject, len(made.Images))}
	for i, p := range made.Images {
		out.Data[i].RevisedPrompt = p.RevisedPrompt
		if params.AsURL {
			out.Data[i].URL = links[i]
		} else {
			out.Data[i].B64JSON = base64.StdEncoding.EncodeToString(p.Data)
		}
	}
	if u := made.Usage; u.InputTokens+u.OutputTokens > 0 {
		out.Usage = &imageUsage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, TotalTokens: u.InputTokens + u.OutputTokens}
	}
	text, err := json.Marshal(out)
	if err != nil {
		return err
	}
	c.send(http.StatusOK, jsonType, text)
	return nil
}

// storeImages keeps pictures under the request's name and links to them. Where
// they cannot be stored they are not sent in another form instead: who asked
// for links reads nothing else, and what costs nothing can be asked for again.
func (c *Call) storeImages(ctx context.Context, pictures []providers.Picture) ([]string, error) {
	owner := files.Owner{WorkspaceID: c.Principal.WorkspaceID, Environment: string(c.Principal.Environment)}
	links := make([]string, len(pictures))
	for i, p := range pictures {
		f, err := c.s.Files.PutBytes(ctx, owner, c.id, p.ContentType, p.Data)
		if err != nil {
			return nil, media.Unstored(err)
		}
		name := fmt.Sprintf("%s-%d%s", c.id, i, media.Extension(p.ContentType))
		links[i] = c.s.Files.URL(owner, f, name, c.s.Now().Add(imageLink))
	}
	return links, nil
}

// imagesObject is the answer in OpenAI's form.
type imagesObject struct {
	Created int64         `json:"created"`
	Data    []imageObject `json:"data"`
	Usage   *imageUsage   `json:"usage,omitzero"`
}

type imageObject struct {
	B64JSON       string `json:"b64_json,omitzero"`
	URL           string `json:"url,omitzero"`
	RevisedPrompt string `json:"revised_prompt,omitzero"`
}

type imageUsage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	TotalTokens  int64 `json:"total_tokens"`
}
