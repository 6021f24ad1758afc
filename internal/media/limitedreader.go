package media

import (
	"errors"
	"io"

	"turnpike/internal/providers"
)

// limitedReader fails if a provider's file has more than the allowed bytes, so that it
// can't fill the disk.
type limitedReader struct {
	from io.Reader
	left int64
}

func (b *limitedReader) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one more, to detect a longer file
	}
	n, err := b.from.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, &providers.Failure{Kind: providers.KindProtocol, Err: errors.New("the file is larger than allowed")}
	}
	return n, err
}
