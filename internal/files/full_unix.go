//go:build unix

package files

import (
	"errors"
	"syscall"
)

// diskFull: no room, or none for this user, or none for so large a file.
func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
