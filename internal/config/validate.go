package config

import (
	"fmt"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/keyring"
)

// Problem is an invalid setting.
type Problem struct {
	Setting string // tls.cert
	Message string // the fault and the expectation, without secrets
	Origin  string // the source of the value, if known
}

func (p Problem) String() string {
	out := p.Setting + ": " + p.Message
	if p.Origin != "" {
		out += " (" + p.Origin + ")"
	}
	return out
}

// Problems are all problems of a configuration.
type Problems []Problem

// Error lists the problems, one per line if there are several.
func (ps Problems) Error() string {
	if len(ps) == 1 {
		return "configuration: " + ps[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "configuration: %d problems", len(ps))
	for _, p := range ps {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// Validate reports every invalid setting, as Problems. It doesn't access files
// or the network.
func (c Config) Validate() error {
	var ps Problems
	for _, s := range c.settings() {
		if message := s.fault(); message != "" {
			ps = append(ps, Problem{Setting: s.name, Message: message})
		}
	}
	for _, check := range []struct{ setting, message string }{
		{"listen", listenFault(c.Listen)},
		{"data", dataFault(c.Data)},
		{"database_url", databaseFault(c.DatabaseURL)},
		{"public_url", publicURLFault(c.PublicURL)},
		{"master_key", masterKeyFault(c)},
		{"tls.cert", pairFault(c.TLS.Cert, c.TLS.Key, "tls.key is set, so its certificate file is expected here too")},
		{"tls.key", pairFault(c.TLS.Key, c.TLS.Cert, "tls.cert is set, so its key file is expected here too")},
		{"metrics_listen", metricsFault(c)},
		{"webhooks.retry_schedule", scheduleFault(c.Webhooks.RetrySchedule)},
		{"files.url", bucketFault(string(c.Files.URL))},
		{"files.from_bucket", fromBucketFault(c.Files)},
		{"files.retention", retentionFault(c)},
		{"leaks.github_keys_url", keysURLFault(c.Leaks.GitHubKeysURL)},
		{"leaks.gitlab_token", gitLabTokenFault(c.Leaks.GitLabToken)},
		{"smtp.url", smtpFault(c.SMTP.URL)},
		{"mail.from", senderFault(c.Mail.From, c.SMTP.URL)},
		{"oidc.issuer", issuerFault(c.OIDC.Issuer)},
		{"oidc.client_id", clientIDFault(c.OIDC)},
		{"oidc.name", providerNameFault(c.OIDC)},
	} {
		if check.message != "" {
			ps = append(ps, Problem{Setting: check.setting, Message: check.message})
		}
	}
	for _, o := range c.AllowedOrigins {
		if message := originFault(o); message != "" {
			ps = append(ps, Problem{Setting: "allowed_origins", Message: message})
		}
	}
	for _, host := range c.Agents.UnlimitedHosts {
		if !isHost(host) {
			ps = append(ps, Problem{Setting: "agents.unlimited_hosts", Message: fmt.Sprintf("%q is not a host; expected a name or an address without scheme and port, such as api.example.com", host)})
		}
	}
	ps = append(ps, providerProblems(c.Providers)...)
	ps = append(ps, routeProblems(c.Routes)...)
	if len(ps) > 0 {
		return ps
	}
	return nil
}

// isHost reports whether text is the host of a URL and nothing else.
func isHost(text string) bool {
	if _, err := netip.ParseAddr(text); err == nil {
		return true
	}
	u, err := url.Parse("https://" + text)
	return err == nil && text != "" && u.Hostname() == text && !strings.Contains(text, "*")
}

// Validate is Config.Validate with the origin of each problem.
func (l Loaded) Validate() error {
	ps, _ := l.Config.Validate().(Problems)
	if len(ps) == 0 {
		return nil
	}
	for i := range ps {
		if o := l.origin(ps[i].Setting); o != "default" {
			ps[i].Origin = o
		}
	}
	return ps
}

// origin returns the origin of a setting, or of its closest parent that has
// one.
func (l Loaded) origin(name string) string {
	for {
		if o, ok := l.Origin[name]; ok {
			return o
		}
		if name, _ = splitName(name); name == "" {
			return ""
		}
	}
}

// fault checks a setting against its tags.
func (s setting) fault() string {
	if len(s.oneof) > 0 && !slices.Contains(s.oneof, notation(s.value)) {
		return fmt.Sprintf("%q is not one of %s", notation(s.value), strings.Join(s.oneof, ", "))
	}
	n, ok := number(s.value)
	if !ok || s.min == "" || n >= s.bound(s.min) && n <= s.bound(s.max) {
		return ""
	}
	return fmt.Sprintf("%s is out of range; expected %s to %s", notation(s.value), s.min, s.max)
}

// bound parses a limit in the notation of the setting.
func (s setting) bound(limit string) int64 {
	value := reflect.New(reflect.TypeOf(s.value).Elem()).Interface()
	if err := setText(value, limit); err != nil {
		panic("config: bounds of " + s.name + ": " + err.Error())
	}
	n, _ := number(value)
	return n
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

func listenFault(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err == nil && validPort(port) {
		if _, err := netip.ParseAddr(host); host == "" || err == nil || hostName.MatchString(host) {
			return ""
		}
	}
	return fmt.Sprintf("%q is not an address with a port; expected such as 127.0.0.1:8080, [::1]:8080, or :8080 for all interfaces", address)
}

func validHost(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || hostName.MatchString(host)
}

func validPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}

func dataFault(folder string) string {
	if folder == "" {
		return "is empty; expected a folder"
	}
	return ""
}

func databaseFault(u SecretURL) string {
	if u == "" {
		return ""
	}
	return u.fault()
}

func masterKeyFault(c Config) string {
	if c.MasterKey == "" {
		// Each node would generate a different key and couldn't read the others'
		// secrets.
		if c.DatabaseURL != "" {
			return "is required with database_url, the same on every node: 32 bytes in base64 or hex, such as openssl rand -base64 32 prints"
		}
		return ""
	}
	if _, err := keyring.ParseMaster(string(c.MasterKey)); err != nil {
		return err.Error()
	}
	return ""
}

func pairFault(value, other, message string) string {
	if value == "" && other != "" {
		return message
	}
	return ""
}

func publicURLFault(raw string) string {
	if raw == "" {
		return ""
	}
	o, fault := parseOrigin(raw)
	if fault == "" && o.Scheme != "http" && o.Scheme != "https" {
		fault = "is neither http nor https"
	}
	if fault == "" {
		return ""
	}
	return fault + "; expected an absolute address without path and query, such as https://api.example.com"
}

// smtpFault describes what is wrong with a mail server's URL, without quoting
// it. mail.NewSMTP parses the same URLs.
func smtpFault(address SecretURL) string {
	const expected = "; expected smtp://user:password@host:587 or smtps://user:password@host:465, with special characters in the password percent-encoded (# is %23, / is %2F, ? is %3F, @ is %40)"
	if address == "" {
		return ""
	}
	u, err := url.Parse(string(address))
	if err != nil {
		return "is not a URL" + expected
	}
	query, err := url.ParseQuery(u.RawQuery)
	tls := query.Get("tls")
	delete(query, "tls")
	password, _ := u.User.Password()
	switch {
	case u.Scheme != "smtp" && u.Scheme != "smtps":
		return "does not start with smtp:// or smtps://" + expected
	case !validHost(u.Hostname()):
		return "names no host" + expected
	case strings.HasSuffix(u.Host, ":") || u.Port() != "" && (!validPort(u.Port()) || u.Port() == "0"):
		return "has a bad port" + expected
	case strings.Trim(u.Path, "/") != "" || u.Fragment != "":
		return "has a path or a fragment" + expected
	case u.User != nil && (u.User.Username() == "" || password == ""):
		return "has a user name or a password, but not both" + expected
	case err != nil || len(query) > 0:
		return "has a query other than tls" + expected
	case u.Scheme == "smtps" && tls != "":
		return "has a tls query, which is for smtp:// alone: smtps:// is always encrypted"
	case tls != "" && tls != "starttls" && tls != "insecure-plaintext":
		return "has an unknown tls query; expected ?tls=starttls or ?tls=insecure-plaintext"
	}
	return ""
}

func senderFault(from string, server SecretURL) string {
	const expected = "expected an address such as turnpike@example.com or Turnpike <turnpike@example.com>"
	if from == "" {
		if server != "" {
			return "is required with smtp.url; " + expected
		}
		return ""
	}
	if _, err := mail.ParseAddress(from); err != nil {
		return fmt.Sprintf("%q is not an e-mail address; %s", from, expected)
	}
	return ""
}

// originFault requires an origin exactly as browsers send it, because it is
// compared byte by byte.
func originFault(raw string) string {
	o, fault := parseOrigin(raw)
	if fault != "" {
		if !strings.Contains(raw, "@") { // it may have a password
			fault = fmt.Sprintf("%q %s", raw, fault)
		}
		return fault + "; expected an origin, such as https://app.example.com"
	}
	host := strings.ToLower(o.Host)
	switch o.Scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	if sent := o.Scheme + "://" + host; sent != raw {
		return fmt.Sprintf("%q is not how a browser sends it; expected %s", raw, sent)
	}
	return ""
}

// parseOrigin parses scheme://host[:port], or returns a fault. The fault
// doesn't quote raw, which may have a password.
func parseOrigin(raw string) (*url.URL, string) {
	u, err := url.Parse(raw)
	switch {
	case strings.Contains(raw, "*"):
		return nil, "has a wildcard"
	case err != nil || u.Scheme == "" || u.Hostname() == "":
		return nil, "is not an absolute address"
	case u.User != nil:
		return nil, "has a user name in it"
	case u.Path != "":
		return nil, "has a path"
	case strings.ContainsAny(raw, "?#"):
		return nil, "has a query or a fragment"
	case strings.HasSuffix(u.Host, ":") || u.Port() != "" && (!validPort(u.Port()) || u.Port() == "0"):
		return nil, "has a bad port"
	}
	if _, err := netip.ParseAddr(u.Hostname()); err != nil && !hostName.MatchString(u.Hostname()) {
		return nil, "has a bad host name (international names are written as xn--…)"
	}
	return u, ""
}

// metricsFault is listenFault for the optional metrics listener.
func metricsFault(c Config) string {
	_, port, _ := net.SplitHostPort(c.MetricsListen)
	switch {
	case c.MetricsListen == "":
		return ""
	case c.MetricsListen == c.Listen && port != "0":
		return "is the address of listen, too; expected another port"
	}
	return listenFault(c.MetricsListen)
}

// bucketFault describes what is wrong with a bucket's URL, without quoting it.
func bucketFault(address string) string {
	const expected = "; expected such as s3://name?region=eu-central-1"
	if address == "" {
		return ""
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return "is not a URL" + expected
	case u.Scheme != "s3":
		return "does not start with s3://" + expected
	case u.User != nil:
		return "has credentials in it, which belong into the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)" + expected
	case u.Host == "":
		return "names no bucket" + expected
	case strings.Trim(u.Path, "/") != "" || u.Fragment != "":
		return "has a path or a fragment" + expected
	}
	return ""
}

func fromBucketFault(f Files) string {
	if f.FromBucket && f.URL == "" {
		return "needs a bucket in files.url: a directory cannot send files itself"
	}
	return ""
}

// longestSchedule is six days. Events can be replayed for 30 days and are kept
// for 37, so a last retry still has a day to spare.
const longestSchedule = 144 * time.Hour

// retentionFault requires that the first files of a job still exist when it
// ends.
func retentionFault(c Config) string {
	if c.Files.Retention < c.Media.Deadline {
		return fmt.Sprintf("%v is less than media.deadline: parts of a job could be gone before its end; expected at least %v", c.Files.Retention, c.Media.Deadline)
	}
	return ""
}

// scheduleFault limits the retries. An empty schedule pauses the endpoint after
// the first failure.
func scheduleFault(schedule []time.Duration) string {
	if len(schedule) > 20 {
		return "at most 20 retries are possible"
	}
	var together time.Duration
	for _, d := range schedule {
		if d < time.Millisecond || d > longestSchedule {
			return fmt.Sprintf("%v is no delay between 1ms and 144h", d)
		}
		together += d
	}
	if together > longestSchedule {
		return fmt.Sprintf("its delays are %v together; at most 144h are possible, as events are kept for 37 days and can be replayed for 30", together)
	}
	return ""
}

// keysURLFault requires HTTPS: anyone who can change the list in transit could
// revoke keys.
func keysURLFault(address string) string {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http":
		return "is not a web address; expected https://…"
	case u.Scheme == "http" && !isLocal(u.Hostname()):
		return "must be https://, except on this machine"
	}
	return ""
}

func isLocal(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func gitLabTokenFault(token Secret) string {
	if token != "" && len(token) < 16 {
		return "is shorter than 16 characters, which can be guessed; openssl rand -hex 24 makes a good one"
	}
	return ""
}

// issuerFault requires HTTPS: anyone who can change the provider's responses in
// transit could sign in as any user.
func issuerFault(address string) string {
	const expected = "; expected such as https://accounts.example.com"
	if address == "" {
		return ""
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http":
		return "is not a web address" + expected
	case strings.ContainsAny(address, "?#"):
		return "has a query or a fragment" + expected
	case u.Scheme == "http" && !isLocal(u.Hostname()):
		return "must be https://, except on this machine"
	}
	return ""
}

func clientIDFault(o OIDC) string {
	switch {
	case o.Issuer != "" && o.ClientID == "":
		return "is required with oidc.issuer; expected what the provider calls this server"
	case o.Issuer == "" && (o.ClientID != "" || o.ClientSecret != ""):
		return "is of no use without oidc.issuer"
	}
	return ""
}

func providerNameFault(o OIDC) string {
	if o.Issuer != "" && (strings.TrimSpace(o.Name) == "" || len(o.Name) > 60) {
		return "must have from 1 to 60 bytes, because it is on a button"
	}
	return ""
}
