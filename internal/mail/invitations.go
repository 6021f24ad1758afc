package mail

import "time"

// Invitation invites a person to a workspace. URL is a secret that accepts it.
type Invitation struct {
	Workspace string // its name
	InvitedBy string // a name or an email address
	Role      string
	URL       string
	ExpiresAt time.Time
}

func (Invitation) kind() string { return "invitation" }

// PasswordReset has the link to set a new password. URL is a secret.
type PasswordReset struct {
	Email     string
	IP        string // of the person who asked for it; may be empty
	URL       string
	ExpiresAt time.Time
}

func (PasswordReset) kind() string { return "password_reset" }
