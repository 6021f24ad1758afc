package media

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"turnpike/internal/audio"
)

// sound is a piece of a render: samples, and silence after them.
type sound struct {
	file   madeFile
	format audio.Format
	pause  time.Duration
}

// stitch makes one file of all pieces. Nothing of it is held in memory: pieces
// are read, and the whole is written, as a stream.
func (s *Service) stitch(ctx context.Context, j *Job, t *task, in voiceInput) *result {
	pieces, err := s.pieces(ctx, j)
	if err != nil {
		return failedResult(t, err)
	}
	whole := &joined{ctx: ctx, service: s, job: j, pieces: pieces, format: finest(pieces)}
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
	began := s.now()
	f, err := s.files.Put(ctx, j.Owner(), j.ID, audio.Types[in.Format], from)
	if err != nil {
		return failedResult(t, err)
	}
	out := made{Files: []madeFile{s.keptSince(f, began)}, Milliseconds: whole.format.Duration(size).Milliseconds()}
	return &result{task: t, status: taskCompleted, output: out}
}

// pieces are what the job's tasks have made, in their order.
func (s *Service) pieces(ctx context.Context, j *Job) ([]sound, error) {
	tasks, err := tasksOf(ctx, s.db, j.ID)
	if err != nil {
		return nil, err
	}
	list := make([]sound, 0, j.Total)
	for _, t := range tasks[:min(int64(len(tasks)), j.Total)] {
		m, err := readMade(t.Output)
		if err != nil {
			return nil, err
		}
		if t.Status != taskCompleted || len(m.Files) != 1 {
			return nil, fmt.Errorf("media: piece %d of %s is not there", t.Position, j.ID)
		}
		list = append(list, sound{m.Files[0], audio.Format{Rate: m.Rate, Channels: m.Channels}, time.Duration(m.PauseMS) * time.Millisecond})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("media: %s has no pieces", j.ID)
	}
	return list, nil
}

// finest is a format in which no piece loses anything: a voice of a telephone's
// quality must not make one of all others.
func finest(pieces []sound) (f audio.Format) {
	for _, p := range pieces {
		f.Rate, f.Channels = max(f.Rate, p.format.Rate), max(f.Channels, p.format.Channels)
	}
	return f
}

// joined reads pieces one after the other, all in one format.
type joined struct {
	ctx     context.Context
	service *Service
	job     *Job
	pieces  []sound
	format  audio.Format

	next int // piece
	open io.Closer
	from io.Reader
}

// measure is how many bytes it comes to. A piece in another format is
// converted for it once more than for the file.
func (w *joined) measure() (size int64, err error) {
	for _, p := range w.pieces {
		n := p.file.Bytes
		if p.format != w.format {
			file, err := w.service.files.Read(w.ctx, w.job.Owner(), p.file.SHA256)
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
		file, err := w.service.files.Read(w.ctx, w.job.Owner(), piece.file.SHA256)
		if err != nil {
			return 0, err
		}
		w.open = file
		w.from = io.MultiReader(audio.Convert(w.format, piece.format, file), io.LimitReader(silence{}, w.format.Bytes(piece.pause)))
	}
}

// Close closes the piece that is being read.
func (w *joined) Close() error {
	if w.open == nil {
		return nil
	}
	err := w.open.Close()
	w.open, w.from = nil, nil
	return err
}

// silence is PCM without end.
type silence struct{}

func (silence) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
