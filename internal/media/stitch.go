package media

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"turnpike/internal/audio"
)

// segment is a piece of a render: samples, and the pause after them.
type segment struct {
	file   outputFile
	format audio.Format
	pause  time.Duration
}

// stitch joins all pieces into one file. It streams: nothing is held in memory.
func (s *Service) stitch(ctx context.Context, j *Job, t *task, in voiceInput) *result {
	pieces, err := s.pieces(ctx, j)
	if err != nil {
		return failedResult(t, err)
	}
	whole := &joined{ctx: ctx, service: s, job: j, pieces: pieces, format: bestFormat(pieces)}
	if in.Format == "pcm" {
		whole.format = audio.RawPCM
	}
	defer whole.Close()
	size, err := whole.measure()
	if err != nil {
		return failedResult(t, err)
	}
	var from io.Reader = whole
	if in.Format != "pcm" {
		from = io.MultiReader(bytes.NewReader(audio.Header(whole.format, size)), whole)
	}
	if in.Format != "pcm" && in.Format != "wav" {
		encoded, err := audio.Encode(ctx, io.NopCloser(from), in.Format)
		if err != nil {
			return failedResult(t, err)
		}
		defer encoded.Close()
		from = encoded
		if in.Format == "flac" {
			if from, err = audio.WithLength(encoded, whole.format, size); err != nil {
				return failedResult(t, err)
			}
		}
	}
	began := s.Now()
	f, err := s.Files.Put(ctx, j.Tenant, j.ID, audio.Types[in.Format], from)
	if err != nil {
		return failedResult(t, err)
	}
	out := taskOutput{Files: []outputFile{s.withExpiry(f, began)}, Milliseconds: whole.format.Duration(size).Milliseconds()}
	return &result{task: t, status: taskCompleted, output: out}
}

// pieces returns the outputs of the job's tasks in order.
func (s *Service) pieces(ctx context.Context, j *Job) ([]segment, error) {
	tasks, err := tasksOf(ctx, s.DB, j.ID)
	if err != nil {
		return nil, err
	}
	list := make([]segment, 0, j.Total)
	for _, t := range tasks[:min(int64(len(tasks)), j.Total)] {
		m, err := readOutput(t.Output)
		if err != nil {
			return nil, err
		}
		if t.Status != taskCompleted || len(m.Files) != 1 {
			return nil, fmt.Errorf("media: piece %d of %s is not there", t.Position, j.ID)
		}
		list = append(list, segment{m.Files[0], audio.Format{Rate: m.Rate, Channels: m.Channels}, time.Duration(m.PauseMS) * time.Millisecond})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("media: %s has no pieces", j.ID)
	}
	return list, nil
}

// bestFormat returns a format in which no piece loses quality.
func bestFormat(pieces []segment) (f audio.Format) {
	for _, p := range pieces {
		f.Rate, f.Channels = max(f.Rate, p.format.Rate), max(f.Channels, p.format.Channels)
	}
	return f
}

// joined reads pieces one after the other in one format.
type joined struct {
	ctx     context.Context
	service *Service
	job     *Job
	pieces  []segment
	format  audio.Format

	next int // piece
	open io.Closer
	from io.Reader
}

// measure returns the total size. It converts pieces in other formats an extra time.
func (w *joined) measure() (size int64, err error) {
	for _, p := range w.pieces {
		n := p.file.Bytes
		if p.format != w.format {
			file, err := w.service.Files.Read(w.ctx, w.job.Tenant, p.file.SHA256)
			if err != nil {
				return 0, err
			}
			n, err = io.Copy(io.Discard, audio.Convert(w.format, p.format, file))
			file.Close()
			if err != nil {
				return 0, err
			}
		}
		size += n + w.format.Bytes(p.pause)
	}
	return size, nil
}

func (w *joined) Read(p []byte) (int, error) {
	for {
		if w.from != nil {
			n, err := w.from.Read(p)
			if err != io.EOF {
				return n, err
			}
			if err := w.Close(); err != nil {
				return n, err
			}
			if n > 0 {
				return n, nil
			}
		}
		if w.next == len(w.pieces) {
			return 0, io.EOF
		}
		piece := w.pieces[w.next]
		w.next++
		file, err := w.service.Files.Read(w.ctx, w.job.Tenant, piece.file.SHA256)
		if err != nil {
			return 0, err
		}
		w.open = file
		w.from = io.MultiReader(audio.Convert(w.format, piece.format, file), io.LimitReader(silence{}, w.format.Bytes(piece.pause)))
	}
}

// Close closes the current piece.
func (w *joined) Close() error {
	if w.open == nil {
		return nil
	}
	err := w.open.Close()
	w.open, w.from = nil, nil
	return err
}

// silence is endless silent PCM.
type silence struct{}

func (silence) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
