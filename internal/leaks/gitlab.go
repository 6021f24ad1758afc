package leaks

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"turnpike/internal/jsonbody"
)

// GitLabTypes are the kinds of secret that GitLab may send: its name for the
// finding of a rule called turnpike_api_key.
var GitLabTypes = []string{"gitleaks_rule_id_turnpike_api_key"}

// TakesGitLab reports whether the operator has set a token for GitLab.
func (s *Service) TakesGitLab() bool { return s.GitLabToken != "" }

// IsGitLab checks the Authorization header, which is the shared token alone, as
// GitLab sends it, or a bearer.
func (s *Service) IsGitLab(authorization string) bool {
	if scheme, rest, ok := strings.Cut(authorization, " "); ok && strings.EqualFold(scheme, "Bearer") {
		authorization = rest
	}
	// Hashed, so that not even the length takes a different time.
	got, want := sha256.Sum256([]byte(authorization)), sha256.Sum256([]byte(s.GitLabToken))
	return s.TakesGitLab() && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// FromGitLab takes a report in the format of GitLab's token revocation API.
// The types are not looked at: a key of ours is known by its own shape.
func (s *Service) FromGitLab(ctx context.Context, body []byte, from Report) error {
	var list []struct {
		Type     string `json:"type"`
		Token    string `json:"token"`
		Location string `json:"location"`
	}
	if err := jsonbody.DecodeLenient(body, &list); err != nil {
		return err
	}
	for _, found := range list {
		from.Secret, from.Source, from.URL = found.Token, GitLab, found.Location
		if _, err := s.Revoke(ctx, from); err != nil {
			return err
		}
	}
	return nil
}
