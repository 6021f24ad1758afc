package openai

import (
	"strconv"
	"strings"

	"turnpike/internal/fault"
)

// RenameField replaces the name of a chat field in an error by the name in the client's format.
// Other errors are returned unchanged.
func RenameField(err error, name func(chat string) string) error {
	f, ok := fault.As(err)
	if !ok || f.Param == "" {
		return err
	}
	renamed := *f
	renamed.Param = name(f.Param)
	if renamed.Param == f.Param {
		return err
	}
	renamed.Message = strings.ReplaceAll(f.Message, f.Param, renamed.Param)
	return &renamed
}

// SplitIndex splits list[3].rest.
func SplitIndex(name, list string) (i int, rest string, ok bool) {
	inner, ok := strings.CutPrefix(name, list+"[")
	if !ok {
		return 0, "", false
	}
	number, rest, ok := strings.Cut(inner, "]")
	i, err := strconv.Atoi(number)
	return i, rest, ok && err == nil && i >= 0
}
