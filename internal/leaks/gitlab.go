package leaks

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"turnpike/internal/jsonbody"
)

// GitLabTypes are the types of secrets that GitLab may send: its name for findings
// of a rule named turnpike_api_key.
var GitLabTypes = []string{"gitleaks_rule_id_turnpike_api_key"}

// AcceptsGitLab reports whether the operator has configured a token for GitLab.
func (s *Service) AcceptsGitLab() bool { return s.GitLabToken != "" }

// IsGitLab checks the Authorization header: the shared token alone, as GitLab sends
// it, or as a bearer token.
func (s *Service) IsGitLab(authorization string) bool {
	if scheme, rest, ok := strings.Cut(authorization, " "); ok && strings.EqualFold(scheme, "Bearer") {
		authorization = rest
	}
	// Hashed, so that the time does not depend on the length either.
	got, want := sha256.Sum256([]byte(authorization)), sha256.Sum256([]byte(s.GitLabToken))
	return s.AcceptsGitLab() && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// FromGitLab handles a report in the format of GitLab's token revocation API. It
// ignores the types, because keys are recognized by their format.
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
