//go:build unix

package files

import (
	"errors"
	"syscall"
)

// diskFull reports whether the disk, the user's quota or the file size limit is
// exhausted.
func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
