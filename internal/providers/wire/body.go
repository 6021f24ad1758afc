package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"turnpike/internal/providers"
)

// maxAnswer bounds a plain answer. Images come inside JSON, several at a time.
const maxAnswer = 64 << 20

// body is an answer's body whose reads end in time and fail by kind.
type body struct {
	ctx     context.Context // the caller's
	callCtx context.Context
	cancel  context.CancelCauseFunc
	from    io.ReadCloser
	idle    time.Duration
	timer   *time.Timer // runs while a read waits
}

func newBody(ctx, callCtx context.Context, cancel context.CancelCauseFunc, from io.ReadCloser, idle time.Duration) *body {
	timer := time.AfterFunc(idle, func() { cancel(&tooSlow{"no more of the answer", idle}) })
	timer.Stop()
	return &body{ctx: ctx, callCtx: callCtx, cancel: cancel, from: from, idle: idle, timer: timer}
}

func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(b.idle)
	n, err := b.from.Read(p)
	b.timer.Stop()
	if err != nil && err != io.EOF {
		err = failure(b.ctx, b.callCtx, providers.KindCut, err)
	}
	return n, err
}

// Close ends the call. A body that was not read to its end takes its
// connection with it.
func (b *body) Close() error {
	b.timer.Stop()
	err := b.from.Close()
	b.cancel(nil)
	return err
}

// readFor reads what comes within a time, however slowly.
func (b *body) readFor(patience time.Duration, limit int64) ([]byte, error) {
	timer := time.AfterFunc(patience, func() { b.cancel(&tooSlow{"no more of the answer", patience}) })
	defer timer.Stop()
	return io.ReadAll(io.LimitReader(b, limit))
}

// ReadAll reads and closes the body of a plain answer.
func ReadAll(resp *http.Response) ([]byte, error) { return ReadAtMost(resp, maxAnswer) }

// ReadAtMost reads and closes a body that has no more than limit bytes. A
// longer one is a failure.
func ReadAtMost(resp *http.Response, limit int64) ([]byte, error) {
	defer resp.Body.Close()
	var all bytes.Buffer
	if resp.ContentLength > 0 {
		// No more than is usual: a header alone must not cost us much.
		all.Grow(int(min(resp.ContentLength, 1<<20)) + bytes.MinRead)
	}
	if _, err := all.ReadFrom(&limited{resp.Body, limit, limit}); err != nil {
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
