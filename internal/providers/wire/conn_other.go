//go:build !unix

package wire

// isEmpty reports whether a read may have to wait.
func (c *conn) isEmpty() bool { return true }
