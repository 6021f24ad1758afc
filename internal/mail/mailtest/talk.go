package mailtest

import (
	"crypto/tls"
	"encoding/base64"
	"net"
	"net/textproto"
	"strings"
)

// talk is a conversation with one client, as far as the tests need it.
type talk struct {
	server    *Server
	conn      net.Conn
	text      *textproto.Conn
	encrypted bool
	user      string
	message   Message
}

func (s *Server) talk(conn net.Conn) {
	c := &talk{server: s, conn: conn, text: textproto.NewConn(conn)}
	if s.scheme == "smtps" && !c.encrypt() {
		return
	}
	if !c.unless(Connect, "", func() bool { return c.say(220, "mailtest") }) {
		return
	}
	for {
		line, err := c.text.ReadLine()
		if err != nil {
			return
		}
		verb, argument, _ := strings.Cut(line, " ")
		if !c.answer(strings.ToUpper(verb), argument) {
			return
		}
	}
}

// answer returns false when the conversation is over.
func (c *talk) answer(verb, argument string) bool {
	switch verb {
	case "EHLO", "HELO":
		return c.greet()
	case "STARTTLS":
		return c.say(220, "go ahead") && c.encrypt()
	case "AUTH":
		return c.login(argument)
	case "MAIL":
		return c.sender(argument)
	case "RCPT":
		return c.recipient(argument)
	case "DATA":
		return c.data()
	case "RSET":
		c.message = Message{}
		return c.say(250, "ok")
	case "NOOP":
		return c.say(250, "ok")
	case "QUIT":
		c.say(221, "bye")
		return false
	}
	return c.say(500, "what?")
}

func (c *talk) say(code int, text string) bool {
	return c.text.PrintfLine("%d %s", code, text) == nil
}

func (c *talk) greet() bool {
	lines := []string{"mailtest", "8BITMIME"}
	offered := c.server.startTLS && !c.encrypted
	if offered {
		lines = append(lines, "STARTTLS")
	}
	if c.server.logins != "" && !offered {
		lines = append(lines, "AUTH "+c.server.logins)
	}
	for _, line := range lines {
		if c.text.PrintfLine("250-%s", line) != nil {
			return false
		}
	}
	return c.say(250, "that is all")
}

func (c *talk) encrypt() bool {
	encrypted := tls.Server(c.conn, &tls.Config{Certificates: []tls.Certificate{c.server.certificate}})
	if encrypted.Handshake() != nil {
		return false
	}
	c.text, c.encrypted = textproto.NewConn(encrypted), true
	return true
}

func (c *talk) login(argument string) bool {
	mechanism, first, _ := strings.Cut(argument, " ")
	var user, password string
	switch {
	case !strings.Contains(" "+c.server.logins+" ", " "+mechanism+" "):
		return c.say(504, "not offered")
	case mechanism == "PLAIN":
		if parts := strings.Split(decode(first), "\x00"); len(parts) == 3 {
			user, password = parts[1], parts[2]
		}
	default:
		user, password = c.ask("Username:"), c.ask("Password:")
	}
	if user != c.server.user || password != c.server.password {
		return c.say(535, "wrong user or password")
	}
	c.user = user
	return c.say(235, "welcome")
}

func (c *talk) ask(question string) string {
	if !c.say(334, base64.StdEncoding.EncodeToString([]byte(question))) {
		return ""
	}
	line, _ := c.text.ReadLine() // nothing is no user's name
	return decode(line)
}

func decode(text string) string {
	out, _ := base64.StdEncoding.DecodeString(text) // nonsense is nobody's password
	return string(out)
}

func (c *talk) sender(argument string) bool {
	if c.server.user != "" && c.user == "" {
		return c.say(530, "log in first")
	}
	return c.unless(Mail, "", func() bool {
		c.message = Message{From: address(argument), TLS: c.encrypted, User: c.user}
		return c.say(250, "ok")
	})
}

func (c *talk) recipient(argument string) bool {
	return c.unless(Recipient, address(argument), func() bool {
		c.message.To = append(c.message.To, address(argument))
		return c.say(250, "ok")
	})
}

func (c *talk) data() bool {
	if len(c.message.To) == 0 {
		return c.say(503, "to whom?")
	}
	return c.unless(Data, "", func() bool {
		if !c.say(354, "go ahead") {
			return false
		}
		var err error
		if c.message.Data, err = c.text.ReadDotBytes(); err != nil {
			return false
		}
		return c.unless(Text, "", func() bool {
			c.server.take(c.message)
			c.message = Message{}
			return c.say(250, "taken") && c.server.failing(Taken, "") == nil
		})
	})
}

// unless does what the client wants, or fails it where the test says so.
func (c *talk) unless(at Moment, to string, do func() bool) bool {
	f := c.server.failing(at, to)
	switch {
	case f == nil:
		return do()
	case f.code == 0:
		return false
	}
	return c.say(f.code, f.text)
}

// address is what stands between the angle brackets of FROM:<…> and TO:<…>.
func address(argument string) string {
	_, rest, _ := strings.Cut(argument, "<")
	inner, _, _ := strings.Cut(rest, ">")
	return inner
}
