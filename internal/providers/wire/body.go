package wire

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"turnpike/internal/budget"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

const (
	// maxResponse limits a response. Several images may come inside JSON.
	maxResponse = 64 << 20
)

// body is the body of a response. Its reads have a timeout and return failures.
// It exists before the response, and also has the timeout for the headers.
type body struct {
	ctx     context.Context // the caller's
	callCtx context.Context
	cancel  context.CancelCauseFunc
	source  io.ReadCloser
	conn    *conn                        // from which an HTTP/1 response is read; nil if it isn't known
	waiting func() error                 // called before a read waits; may be nil
	request *http.Request                // as it was sent
	idle    *timeoutError                // of a read
	current atomic.Pointer[timeoutError] // of the running timer
	timer   *time.Timer
}

// startTimer cancels the request after a timeout, until stopTimer is called.
func (b *body) startTimer(timeout *timeoutError) {
	if timeout.after == 0 {
		return
	}
	b.current.Store(timeout)
	if b.timer == nil {
		b.timer = time.AfterFunc(timeout.after, func() { b.cancel(b.current.Load()) })
		return
	}
	b.timer.Reset(timeout.after)
}

func (b *body) stopTimer() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.read(p)
	if b.stopTimer(); err != nil {
		b.conn = nil // another request may use it
	}
	if err != nil && err != io.EOF {
		err = failure(b.ctx, b.callCtx, providers.KindCut, err)
	}
	return n, err
}

func (b *body) read(p []byte) (int, error) {
	if b.conn == nil {
		if err := b.beforeWait(); err != nil {
			return 0, err
		}
		return b.source.Read(p)
	}
	b.conn.reader.Store(b)
	defer b.conn.unsetReader(b)
	return b.source.Read(p)
}

// BeforeWait makes the body of a response call a function before a read that has to wait, and before each read if that
// can't be known. Its error ends the read.
func BeforeWait(resp *http.Response, do func() error) {
	if b, ok := resp.Body.(*body); ok {
		b.waiting = do
	}
}

func (b *body) beforeWait() error {
	if b.waiting != nil {
		if err := b.waiting(); err != nil {
			return err
		}
	}
	b.startTimer(b.idle)
	return nil
}

// Close ends the request. If the body wasn't read to its end, it closes the connection.
func (b *body) Close() error {
	b.stopTimer()
	err := b.source.Close()
	b.cancel(nil)
	return err
}

func (b *body) readWithin(timeout time.Duration, limit int64) ([]byte, error) {
	timer := time.AfterFunc(timeout, func() { b.cancel(idleError(timeout)) })
	defer timer.Stop()
	return io.ReadAll(io.LimitReader(b, limit)) //budget:own at most 64 KiB
}

// ReadAll reads and closes the body of a response, which is JSON.
func ReadAll(resp *http.Response) ([]byte, error) {
	return read(resp, budget.Source{Limit: maxResponse, JSON: true})
}

// ReadAtMost reads and closes a body that isn't JSON. It fails if the body has more than limit bytes.
func ReadAtMost(resp *http.Response, limit int64) ([]byte, error) {
	return read(resp, budget.Source{Limit: limit})
}

func read(resp *http.Response, source budget.Source) ([]byte, error) {
	defer resp.Body.Close()
	source.From, source.Expected = resp.Body, resp.ContentLength
	all, err := budgetOf(resp.Body).ReadAll(source)
	if err != nil {
		return nil, cut(err)
	}
	return all, nil
}

// budgetOf returns the budget of the request whose response has the body.
func budgetOf(source io.Reader) *budget.Budget {
	if b, ok := source.(*body); ok {
		return budget.Of(b.ctx)
	}
	return budget.Of(context.Background())
}

// cut returns the failure of a body that can't be read to its end.
func cut(err error) error {
	return cmp.Or(knownFailure(err), error(&providers.Failure{Kind: providers.KindCut, Err: err}))
}

// knownFailure returns the failure that an error contains, or nil.
func knownFailure(err error) error {
	var known *providers.Failure
	var tooLong *budget.TooLargeError
	full, refused := fault.As(err) // the memory of all requests is in use
	switch {
	case refused:
		return full
	case errors.As(err, &known):
		return known
	case errors.As(err, &tooLong):
		return ProtocolFailure("the response has more than %d bytes", tooLong.Limit)
	case errors.Is(err, context.Canceled):
		return context.Canceled
	}
	return nil
}

// EachLine calls use for each line that isn't empty. Its bytes are valid until use returns.
func EachLine(from io.Reader, use func(line []byte) error) error {
	var line []byte
	of, reserved := budgetOf(from), int64(0)
	defer func() { of.Return(reserved) }()
	for buffered := bufio.NewReader(from); ; {
		part, err := buffered.ReadSlice('\n')
		if more := int64(len(line)+len(part)) - reserved; more > 0 {
			if err := of.Reserve(more); err != nil {
				return err
			}
			reserved += more
		}
		if line = append(line, part...); len(line) > maxResponse {
			return ProtocolFailure("a line has more than %d bytes", int64(maxResponse))
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && err != io.EOF {
			return cut(err)
		}
		if text := bytes.TrimSpace(line); len(text) > 0 {
			if err := useJSON(of, text, use); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		line = line[:0]
	}
}

// useJSON calls use, which decodes the text.
func useJSON(of *budget.Budget, text []byte, use func([]byte) error) error {
	decoded := budget.Decoded(text)
	if err := of.Reserve(decoded); err != nil {
		return err
	}
	defer of.Return(decoded)
	return use(text)
}
