package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"turnpike/internal/providers"
)

// maxAnswer bounds a plain answer. Images come inside JSON, several at a time.
const maxAnswer = 64 << 20

// usualAnswer is more than almost all have.
const usualAnswer = 1 << 20

// body is an answer's body whose reads end in time and fail by kind. It is
// there before the answer is, and waits for that, too.
type body struct {
	ctx     context.Context // the caller's
	callCtx context.Context
	cancel  context.CancelCauseFunc
	from    io.ReadCloser
	noMore  *tooSlow                // for a read
	slow    atomic.Pointer[tooSlow] // for what is waited for now
	timer   *time.Timer             // runs while something is
}

// wait begins to wait for as long as is granted, or for ever, and rest ends it.
func (b *body) wait(granted *tooSlow) {
	if granted.after == 0 {
		return
	}
	b.slow.Store(granted)
	if b.timer == nil {
		b.timer = time.AfterFunc(granted.after, b.giveUp)
		return
	}
	b.timer.Reset(granted.after)
}

func (b *body) rest() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

func (b *body) giveUp() { b.cancel(b.slow.Load()) }

func (b *body) Read(p []byte) (int, error) {
	b.wait(b.noMore)
	n, err := b.from.Read(p)
	b.rest()
	if err != nil && err != io.EOF {
		err = failure(b.ctx, b.callCtx, providers.KindCut, err)
	}
	return n, err
}

// Close ends the call. A body that was not read to its end takes its
// connection with it.
func (b *body) Close() error {
	b.rest()
	err := b.from.Close()
	b.cancel(nil)
	return err
}

// readFor reads what comes within a time, however slowly.
func (b *body) readFor(patience time.Duration, limit int64) ([]byte, error) {
	timer := time.AfterFunc(patience, func() { b.cancel(noMoreWithin(patience)) })
	defer timer.Stop()
	return io.ReadAll(io.LimitReader(b, limit))
}

// ReadAll reads and closes the body of a plain answer.
func ReadAll(resp *http.Response) ([]byte, error) { return ReadAtMost(resp, maxAnswer) }

// ReadAtMost reads and closes a body that has no more than limit bytes. A
// longer one is a failure.
func ReadAtMost(resp *http.Response, limit int64) ([]byte, error) {
	defer resp.Body.Close()
	from := &limited{resp.Body, limit, limit}
	var all bytes.Buffer
	if announced := min(resp.ContentLength, limit); announced > 0 {
		// No more than is usual: a header alone must not cost us much. What is
		// really that long is not copied again and again while it grows.
		all.Grow(int(min(announced, usualAnswer)) + bytes.MinRead)
		if announced > usualAnswer {
			if _, err := io.CopyN(&all, from, usualAnswer); err != nil && err != io.EOF {
				return nil, cut(err)
			}
			all.Grow(int(announced) - all.Len() + bytes.MinRead)
		}
	}
	if _, err := all.ReadFrom(from); err != nil {
		return nil, cut(err)
	}
	return all.Bytes(), nil
}

// limited fails where a body goes on beyond its limit.
type limited struct {
	from        io.Reader
	left, limit int64
}

func (l *limited) Read(p []byte) (int, error) {
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.from.Read(p)
	if int64(n) > l.left {
		return 0, &providers.Failure{Kind: providers.KindProtocol, Err: fmt.Errorf("the answer has more than %d bytes", l.limit)}
	}
	l.left -= int64(n)
	return n, err
}

// cut gives an error of a body that is not ours its kind.
func cut(err error) error {
	var known *providers.Failure
	if errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	return &providers.Failure{Kind: providers.KindCut, Err: err}
}
