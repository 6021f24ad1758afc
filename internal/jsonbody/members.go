package jsonbody

import (
	"bytes"
	"iter"
)

// Member is a member of an object. Its value is at object[Start:End].
type Member struct {
	Name       []byte // unquoted
	Start, End int
}

// Members returns the members of an object, which must be valid JSON. Skipping values takes a fraction of the time of
// parsing them. Anything but an object has no members.
func Members(object []byte) iter.Seq[Member] {
	return func(yield func(Member) bool) {
		c := nameCheck{text: object}
		if c.peek() != '{' {
			return
		}
		c.at++
		for c.peek() == '"' {
			m := Member{Name: c.name()}
			c.peek()
			m.Start = min(c.at, len(object))
			c.skip()
			m.End = m.Start + len(bytes.TrimRight(object[m.Start:min(c.at, len(object))], " \t\r\n")) // after a number
			if !yield(m) {
				return
			}
			if c.peek() == ',' {
				c.at++
			}
		}
	}
}

// FindMember returns the first member with a name.
func FindMember(object []byte, name string) (m Member, found bool) {
	for m := range Members(object) {
		if string(m.Name) == name {
			return m, true
		}
	}
	return Member{}, false
}
