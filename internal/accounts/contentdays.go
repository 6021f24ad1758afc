package accounts

import "turnpike/internal/fault"

// maxContentDays is the longest retention of the content log.
const maxContentDays = 90

// CheckContentDays checks the retention of the content log. Nil means that none is set, and 0 turns the log off.
func CheckContentDays(days *int64) error {
	if days != nil && (*days < 0 || *days > maxContentDays) {
		return fault.Invalid("content_log_days", "content_log_days must be from 1 to %d, 0 to turn the content log off, or null.", maxContentDays)
	}
	return nil
}
