package mail

import "time"

// Invitation asks somebody into a workspace. URL is a secret: whoever has it can
// accept in their place.
type Invitation struct {
	Workspace string // its name
	InvitedBy string // a name or an e-mail address
	Role      string
	URL       string
	ExpiresAt time.Time
}

func (Invitation) kind() string { return "invitation" }

// PasswordReset is a way to a new password. URL is a secret.
type PasswordReset struct {
	Email     string
	IP        string // whoever asked for it came from here; empty leaves it out
	URL       string
	ExpiresAt time.Time
}

func (PasswordReset) kind() string { return "password_reset" }
