package media

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"turnpike/internal/audio"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/media/sentences"
	"turnpike/internal/providers"
)

// VoiceRequest is the body of a request to convert a long text to speech.
type VoiceRequest struct {
	Model    string            `json:"model"`
	Voice    string            `json:"voice"`
	Input    string            `json:"input"`
	Segments []VoiceSegment    `json:"segments"`
	Format   string            `json:"response_format"`
	Speed    *float64          `json:"speed"`
	Metadata map[string]string `json:"metadata"`
}

// VoiceSegment is a part of the text with its voice and the pause after it.
type VoiceSegment struct {
	Text    string `json:"text"`
	Voice   string `json:"voice"`
	PauseMS int64  `json:"pause_ms"`
}

const (
	maxCharacters = 1_000_000
	maxSegments   = 10_000
	maxPause      = 60_000 // milliseconds
	// pieceLength is how many characters a provider call has. All providers accept
	// that many, and a crash repeats no more.
	pieceLength = 1500
	// maxPieceFile is ten minutes of WAV in the best quality on offer.
	maxPieceFile = 128 << 20
)

// voiceInput is the stored part of the request.
type voiceInput struct {
	Voice      string          `json:"voice"`
	Format     string          `json:"format"`
	Characters int64           `json:"characters"`
	Body       json.RawMessage `json:"body"` // for the provider, without the text
}

type pieceInput struct {
	Text    string `json:"text"`
	Voice   string `json:"voice"`
	PauseMS int64  `json:"pause_ms,omitzero"`
}

// DraftVoice validates a request for a voice render.
func (s *Service) DraftVoice(ctx context.Context, from Caller, in VoiceRequest) (*Draft, error) {
	in.Format = cmp.Or(in.Format, "wav")
	if err := gateway.CheckSpeechFormat(in.Format); err != nil {
		return nil, err
	}
	if in.Format != "wav" && in.Format != "pcm" && !audio.CanTranscode() {
		return nil, fault.Invalid("response_format", "response_format must be wav or pcm on this server. Other formats need ffmpeg, which is not installed.")
	}
	if in.Speed != nil && (*in.Speed < 0.25 || *in.Speed > 4) {
		return nil, fault.Invalid("speed", "speed must be from 0.25 to 4.")
	}
	segments, characters, err := in.segments()
	if err != nil {
		return nil, err
	}
	body := map[string]any{}
	if in.Speed != nil {
		body["speed"] = *in.Speed
	}
	rest, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	var length int64
	for _, seg := range segments {
		length += int64(len(seg.Text))
	}
	most := gateway.SpeechUnits(characters, length)
	o, err := s.newDraft(ctx, from, draftParams{kind: Voice, model: in.Model, of: catalog.Speech, most: most,
		input: voiceInput{in.Voice, in.Format, characters, rest}, text: segments[0].Text, metadata: in.Metadata})
	if err != nil {
		return nil, err
	}
	for _, seg := range segments {
		pieces := sentences.Split(seg.Text, pieceLength)
		for i, text := range pieces {
			p := pieceInput{Text: text, Voice: seg.Voice}
			if i == len(pieces)-1 {
				p.PauseMS = seg.PauseMS
			}
			if err := o.addTask("", p); err != nil {
				return nil, err
			}
		}
	}
	o.Job.Total = int64(len(o.tasks))
	// The last task stitches the pieces together.
	if err := o.addTask("stitch", struct{}{}); err != nil {
		return nil, err
	}
	last := o.tasks[len(o.tasks)-1]
	last.Status, last.DueAt = taskBlocked, nil
	return o, nil
}

// segments validates the text and returns its parts with their voices.
func (in *VoiceRequest) segments() ([]VoiceSegment, int64, error) {
	switch {
	case in.Input == "" && len(in.Segments) == 0:
		return nil, 0, fault.Missing("input", "Set input to the text, or segments to its parts.")
	case in.Input != "" && len(in.Segments) > 0:
		return nil, 0, fault.Invalid("segments", "Set either input or segments, not both.")
	}
	list := in.Segments
	if in.Input != "" {
		list = []VoiceSegment{{Text: in.Input}}
	}
	if len(list) > maxSegments {
		return nil, 0, fault.Invalid("segments", "segments must have 1 to %d entries, and has %d", maxSegments, len(list))
	}
	var characters int64
	list = slices.Clone(list)
	for i := range list {
		seg := &list[i]
		param := "input"
		if in.Input == "" {
			param = paramAt("segments", i) + ".text"
		}
		if strings.TrimSpace(seg.Text) == "" {
			return nil, 0, fault.Missing(param, "%s must be the text to read aloud", param)
		}
		characters += int64(utf8.RuneCountInString(seg.Text))
		if seg.PauseMS < 0 || seg.PauseMS > maxPause {
			return nil, 0, fault.Invalid(paramAt("segments", i)+".pause_ms", "pause_ms must be from 0 to %d.", maxPause)
		}
		switch {
		case seg.Voice == "" && in.Voice == "":
			return nil, 0, fault.Missing("voice", "voice is required, such as alloy.")
		case seg.Voice == "":
			seg.Voice = in.Voice
		default:
			if err := gateway.CheckVoice(paramAt("segments", i)+".voice", seg.Voice); err != nil {
				return nil, 0, err
			}
		}
	}
	if in.Voice != "" {
		if err := gateway.CheckVoice("voice", in.Voice); err != nil {
			return nil, 0, err
		}
	}
	if characters > maxCharacters {
		param := "segments"
		if in.Input != "" {
			param = "input"
		}
		return nil, 0, fault.Invalid(param, "The text must have at most %d characters, and has %d.", maxCharacters, characters)
	}
	return list, characters, nil
}

func paramAt(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// workVoice converts one piece to speech, or stitches all of them together.
func (s *Service) workVoice(ctx context.Context, o gateway.Owner, j *Job, t *task) *result {
	var in voiceInput
	if err := json.Unmarshal(j.Input, &in); err != nil {
		return failedResult(t, err)
	}
	if t.Position == j.Total {
		return s.stitch(ctx, j, t, in)
	}
	var piece pieceInput
	if err := json.Unmarshal(t.Input, &piece); err != nil {
		return failedResult(t, err)
	}
	content, by, err := s.Gateway.GenerateSpeech(ctx, o, j.Models, providers.SpeechRequest{Input: piece.Text, Voice: piece.Voice, Format: "wav", Body: in.Body})
	if err != nil {
		return failedResult(t, err)
	}
	defer content.Body.Close()
	format, pcm, err := audio.ReadWAV(&limitedReader{content.Body, maxPieceFile})
	if err != nil {
		return failedResult(t, &providers.Failure{Kind: providers.KindProtocol, Err: err})
	}
	f, err := s.Files.Put(ctx, j.Tenant, workHolder(j), "audio/pcm", pcm)
	if err == nil && f.Bytes == 0 {
		err = &providers.Failure{Kind: providers.KindProtocol, Err: errors.New("the audio is empty")}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = &providers.Failure{Kind: providers.KindProtocol, Err: err} // the file is shorter than its header says
	}
	if err != nil {
		return failedResult(t, err)
	}
	out := taskOutput{Files: []outputFile{newOutputFile(f)}, Rate: format.Rate, Channels: format.Channels, PauseMS: piece.PauseMS,
		Milliseconds: format.Duration(f.Bytes).Milliseconds()}
	used := providers.Usage{Characters: int64(utf8.RuneCountInString(piece.Text)), Milliseconds: out.Milliseconds, InputTokens: int64(len(piece.Text)+3) / 4}
	return &result{task: t, status: taskCompleted, output: out, cost: by.SpeechCost(used), model: by.Model, provider: by.Provider}
}

// workHolder is the holder of files that a job needs only until it ends: the pieces of a voice
// render, and the file to transcribe.
func workHolder(j *Job) string { return j.ID + "/segments" }

// usesWorkFiles reports whether jobs of the kind have such files.
func (k Kind) usesWorkFiles() bool { return k == Voice || k == Transcript }
