package gemini

import (
	"context"
	"strings"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// predictRequest is a call of Imagen or Veo.
type predictRequest struct {
	Instances  []predictInstance `json:"instances"`
	Parameters any               `json:"parameters,omitzero"`
}

type predictInstance struct {
	Prompt string        `json:"prompt"`
	Image  *predictImage `json:"image,omitzero"`
}

type predictImage struct {
	Data     string `json:"bytesBase64Encoded"`
	MimeType string `json:"mimeType"`
}

type imagenParameters struct {
	SampleCount      int            `json:"sampleCount"`
	AspectRatio      string         `json:"aspectRatio,omitempty"`
	SampleImageSize  string         `json:"sampleImageSize,omitempty"`
	IncludeRaiReason bool           `json:"includeRaiReason"` // or a blocked picture is just missing
	OutputOptions    *outputOptions `json:"outputOptions,omitzero"`
}

type outputOptions struct {
	MimeType string `json:"mimeType"`
}

type predictResponse struct {
	Predictions []struct {
		Data              wire.Base64 `json:"bytesBase64Encoded"`
		RaiFilteredReason string      `json:"raiFilteredReason"`
	} `json:"predictions"`
	Error *apiError `json:"error"`
}

// predict makes up to four pictures by Imagen, which counts no tokens.
func (p *Provider) predict(ctx context.Context, model string, in *imagesRequest, n int) (*providers.ImageAnswer, error) {
	parameters := imagenParameters{SampleCount: n, AspectRatio: in.size.aspectRatio(imagenRatios), IncludeRaiReason: true}
	if in.size.grade() != "" && strings.Contains(model, "imagen-4") && !strings.Contains(model, "fast") {
		parameters.SampleImageSize = "2K" // there is no 4K, and the others have no choice
	}
	if in.OutputFormat == "jpeg" {
		parameters.OutputOptions = &outputOptions{"image/jpeg"}
	}
	var r predictResponse
	err := p.postMedia(ctx, model, "predict", predictRequest{[]predictInstance{{Prompt: in.Prompt}}, parameters}, &r)
	if err != nil {
		return nil, err
	}
	return p.readPredictions(&r)
}

func (p *Provider) readPredictions(r *predictResponse) (*providers.ImageAnswer, error) {
	if r.Error != nil {
		return nil, r.Error.mediaFailure(p.key)
	}
	answer := new(providers.ImageAnswer)
	var blocked *providers.Failure
	for _, prediction := range r.Predictions {
		if len(prediction.Data) == 0 {
			if reason := prediction.RaiFilteredReason; reason != "" {
				blocked = p.blocked(filterVerdict(reason), reason)
			}
			continue
		}
		picture, err := wire.NewPicture(prediction.Data, "")
		if err != nil {
			return nil, err
		}
		answer.Images = append(answer.Images, picture)
	}
	switch {
	case len(answer.Images) > 0:
		return answer, nil
	case blocked != nil:
		return nil, blocked
	}
	return nil, protocolFailure("an answer without images")
}
