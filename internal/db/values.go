package db

import "time"

// NULL and Go's zero values: an empty text and a nil time are stored as NULL.

// OrNull is the text, or NULL when it is empty.
func OrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// Text is the text, or empty when it was NULL.
func Text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Micros is a time as it is stored.
func Micros(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	us := t.UnixMicro()
	return &us
}

// Time reads what Micros stored.
func Time(us *int64) *time.Time {
	if us == nil {
		return nil
	}
	t := time.UnixMicro(*us)
	return &t
}

// Moment is a time as a row of a Bulk has it: in microseconds, or nil.
func Moment(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UnixMicro()
}
