package config

import (
	"encoding/base64"
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

	"filippo.io/age"

	"turnpike/internal/keyring"
	"turnpike/internal/minisign"
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
	f := &faults{}
	for _, s := range c.settings() {
		f.note(s.name, s.fault())
	}
	f.note("listen", listenFault(c.Listen))
	f.addIf(c.Data == "", "data", "is empty; expected a directory")
	if c.CatalogKey != "" {
		_, err := minisign.ParsePublicKey(c.CatalogKey)
		f.addIf(err != nil, "catalog_public_key", "%v", err)
	}
	if c.DatabaseURL != "" {
		f.note("database_url", c.DatabaseURL.fault())
	}
	if c.ReplicaURL != "" {
		f.note("database_replica_url", c.ReplicaURL.fault())
		f.addIf(c.DatabaseURL == "", "database_replica_url", "needs database_url; the embedded database has no replicas")
	}
	if c.PublicURL != "" {
		f.note("public_url", publicURLFault(c.PublicURL))
	}
	c.checkMasterKey(f)
	f.addIf(c.SetupToken != "" && len(c.SetupToken) < 20, "setup_token",
		"is shorter than 20 characters, which can be guessed; expected at least 20 characters, such as those of: openssl rand -hex 24")
	c.checkTLS(f)
	if c.MetricsListen != "" {
		f.note("metrics_listen", listenFault(c.MetricsListen))
		same := c.MetricsListen == c.Listen && !strings.HasSuffix(c.Listen, ":0")
		f.addIf(same, "metrics_listen", "is the address of listen, too; expected another port")
	}
	f.note("webhooks.retry_schedule", scheduleFault(c.Webhooks.RetrySchedule))
	c.checkFiles(f)
	// Anyone who can change the list in transit could revoke keys.
	f.note("leaks.github_keys_url", webFault(c.Leaks.GitHubKeysURL))
	f.addIf(c.Leaks.GitLabToken != "" && len(c.Leaks.GitLabToken) < 16, "leaks.gitlab_token",
		"is shorter than 16 characters, which can be guessed; openssl rand -hex 24 makes a good one")
	c.checkMail(f)
	f.note("backup.to", BackupFault(string(c.Backup.To)))
	if _, err := c.Backup.AgeRecipients(); err != nil {
		f.note("backup.recipients", "has an invalid key; expected public keys of age, such as age1…")
	}
	c.Audit.check(f)
	c.OIDC.check(f)
	for _, head := range c.SecretPrefixes {
		f.addIf(!keyring.ValidHead(head), "secret_prefixes", "%q can't begin a secret; expected 2 to 16 lowercase letters and digits, such as acme", head)
	}
	for _, o := range c.AllowedOrigins {
		f.note("allowed_origins", originFault(o))
	}
	for _, host := range c.Agents.UnlimitedHosts {
		f.addIf(!isHost(host), "agents.unlimited_hosts",
			"%q is not a host; expected a name or an address without scheme and port, such as api.example.com", host)
	}
	f.all = slices.Concat(f.all, providerProblems(c.Providers), routeProblems(c.Routes), scanProblems(c.Leaks.Scan))
	if len(f.all) > 0 {
		return f.all
	}
	return nil
}

// faults collects problems. The messages about an entry of a section never
// quote a value, which could be a misplaced key.
type faults struct {
	path string // of the entry; empty for settings
	all  Problems
}

func (f *faults) add(key, format string, args ...any) {
	f.all = append(f.all, Problem{Setting: strings.Trim(f.path+"."+key, "."), Message: fmt.Sprintf(format, args...)})
}

func (f *faults) addIf(wrong bool, key, format string, args ...any) {
	if wrong {
		f.add(key, format, args...)
	}
}

// note adds a message, unless it is empty.
func (f *faults) note(key, message string) { f.addIf(message != "", key, "%s", message) }

func (c Config) checkMasterKey(f *faults) {
	if c.MasterKey == "" {
		// Each node would generate a different key and couldn't read the others'
		// secrets.
		f.addIf(c.DatabaseURL != "", "master_key",
			"is required with database_url, the same on every node: 32 bytes in base64 or hex, such as openssl rand -base64 32 prints")
		return
	}
	if _, err := keyring.ParseMaster(string(c.MasterKey)); err != nil {
		f.note("master_key", err.Error())
	}
}

func (c Config) checkTLS(f *faults) {
	f.addIf(c.TLS.Cert == "" && c.TLS.Key != "", "tls.cert", "tls.key is set, so its certificate file is expected here too")
	f.addIf(c.TLS.Key == "" && c.TLS.Cert != "", "tls.key", "tls.cert is set, so its key file is expected here too")
	if a := c.TLS.ACME; len(a.Domains) > 0 {
		f.addIf(c.TLS.Cert != "", "tls.acme.domains", "tls.cert is set, too; expected one of them")
		a.check(f)
		if a.HTTPListen != ListenOff {
			f.note("tls.acme.http_listen", listenFault(a.HTTPListen))
			same := (a.HTTPListen == c.Listen || a.HTTPListen == c.MetricsListen) && !strings.HasSuffix(a.HTTPListen, ":0")
			f.addIf(same, "tls.acme.http_listen", "is the address of another listener, too; expected another port, or off")
		}
	}
}

// maxDomains is far below the limits of Let's Encrypt.
const maxDomains = 100

func (a ACME) check(f *faults) {
	f.addIf(len(a.Domains) > maxDomains, "tls.acme.domains", "has %d names; at most %d are possible", len(a.Domains), maxDomains)
	for i, domain := range a.Domains {
		f.note("tls.acme.domains", domainFault(domain))
		f.addIf(slices.Contains(a.Domains[:i], domain), "tls.acme.domains", "%q is listed twice", domain)
	}
	f.addIf(!a.AcceptTerms, "tls.acme.accept_terms", "is required with tls.acme.domains: read the terms of service of the certificate authority, and set it to true to accept them")
	if _, err := mail.ParseAddress(a.Email); a.Email != "" && (err != nil || strings.ContainsAny(a.Email, "<> ")) {
		f.add("tls.acme.email", "%q is not an email address; expected an address such as ops@example.com", a.Email)
	}
	// Anyone who can change its responses in transit could get this server to sign requests.
	f.note("tls.acme.directory", webFault(a.Directory))
	f.addIf(a.EABKeyID != "" && a.EABKey == "", "tls.acme.eab_key", "is required with tls.acme.eab_key_id")
	f.addIf(a.EABKeyID == "" && a.EABKey != "", "tls.acme.eab_key_id", "is required with tls.acme.eab_key")
	_, err := a.BindingKey()
	f.addIf(err != nil, "tls.acme.eab_key", "is not in base64url; expected the key as the certificate authority shows it")
}

// BindingKey returns the key for external account binding.
func (a ACME) BindingKey() ([]byte, error) {
	return base64.RawURLEncoding.DecodeString(strings.TrimRight(string(a.EABKey), "="))
}

// label matches a part of a domain name in its encoded form.
var label = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

func domainFault(domain string) string {
	_, err := netip.ParseAddr(domain)
	switch parts := strings.Split(domain, "."); {
	case strings.HasPrefix(domain, "*."):
		return fmt.Sprintf("%q is a wildcard, which needs DNS challenges that Turnpike doesn't support; list each name", domain)
	case err == nil:
		return fmt.Sprintf("%q is an address; expected a name such as turnpike.example.com", domain)
	case isLocal(domain), len(domain) > 253, slices.ContainsFunc(parts, func(p string) bool { return !label.MatchString(p) }):
		return fmt.Sprintf("%q is not a public domain name in lower case; expected such as turnpike.example.com, and international names in their xn-- form", domain)
	}
	return ""
}

func (c Config) checkFiles(f *faults) {
	if c.Files.URL != "" {
		f.note("files.url", bucketFault(string(c.Files.URL)))
	}
	f.addIf(c.Files.FromBucket && c.Files.URL == "", "files.from_bucket",
		"needs a bucket in files.url: a directory cannot send files itself")
	// The first files of a job must still exist when it ends.
	f.addIf(c.Files.Retention < c.Media.Deadline, "files.retention",
		"%v is less than media.deadline: parts of a job could be gone before its end; expected at least %v", c.Files.Retention, c.Media.Deadline)
}

func (c Config) checkMail(f *faults) {
	const expected = "expected an address such as turnpike@example.com or Turnpike <turnpike@example.com>"
	if c.SMTP.URL != "" {
		f.note("smtp.url", smtpFault(string(c.SMTP.URL)))
		f.addIf(c.Mail.From == "", "mail.from", "is required with smtp.url; %s", expected)
	}
	if _, err := mail.ParseAddress(c.Mail.From); err != nil && c.Mail.From != "" {
		f.add("mail.from", "%q is not an e-mail address; %s", c.Mail.From, expected)
	}
}

func (o OIDC) check(f *faults) {
	if o.Issuer == "" {
		f.addIf(o.ClientID != "" || o.ClientSecret != "", "oidc.client_id", "is of no use without oidc.issuer")
		return
	}
	// Anyone who can change the provider's responses in transit could sign in as any user.
	f.note("oidc.issuer", webFault(o.Issuer))
	f.addIf(strings.ContainsAny(o.Issuer, "?#"), "oidc.issuer", "has a query or a fragment")
	f.addIf(o.ClientID == "", "oidc.client_id", "is required with oidc.issuer; expected what the provider calls this server")
	f.addIf(strings.TrimSpace(o.Name) == "" || len(o.Name) > 60, "oidc.name", "must have from 1 to 60 bytes, because it is on a button")
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
	if err == nil && validPort(port) && (host == "" || validHost(host)) {
		return ""
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

// hasBadPort reports whether a URL has a port that no server can have.
func hasBadPort(u *url.URL) bool {
	return strings.HasSuffix(u.Host, ":") || u.Port() != "" && (!validPort(u.Port()) || u.Port() == "0")
}

func publicURLFault(raw string) string {
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
func smtpFault(address string) string {
	const expected = "; expected smtp://user:password@host:587 or smtps://user:password@host:465, with special characters in the password percent-encoded (# is %23, / is %2F, ? is %3F, @ is %40)"
	u, err := url.Parse(address)
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
	case hasBadPort(u):
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
	case hasBadPort(u):
		return nil, "has a bad port"
	case !validHost(u.Hostname()):
		return nil, "has a bad host name (international names are written as xn--…)"
	}
	return u, ""
}

// bucketFault describes what is wrong with a bucket's URL, without quoting it.
func bucketFault(address string) string {
	const expected = "; expected such as s3://name?region=eu-central-1"
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

// AgeRecipients returns the recipients of backups.
func (b Backup) AgeRecipients() ([]age.Recipient, error) {
	if len(b.Recipients) == 0 {
		return nil, nil
	}
	return age.ParseRecipients(strings.NewReader(strings.Join(b.Recipients, "\n")))
}

// BackupFault describes what is wrong with a location of backups, without quoting
// it. It is a directory or the URL of a bucket, which may have a path.
func BackupFault(address string) string {
	if !strings.Contains(address, "://") {
		return ""
	}
	const expected = "; expected a directory, or such as s3://name/prefix?region=eu-central-1"
	u, err := url.Parse(address)
	if err != nil {
		return "is neither a directory nor a URL" + expected
	}
	u.Path, u.RawPath = "", ""
	fault, _, _ := strings.Cut(bucketFault(u.String()), "; expected")
	if fault != "" {
		fault += expected
	}
	return fault
}

// longestSchedule is six days. Events can be replayed for 30 days and are kept
// for 37, so a last retry still has a day to spare.
const longestSchedule = 144 * time.Hour

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

// webFault requires HTTPS, except on this machine.
func webFault(address string) string {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http":
		return "is not a web address; expected such as https://accounts.example.com"
	case u.Scheme == "http" && !isLocal(u.Hostname()):
		return "must be https://, except on this machine"
	}
	return ""
}

func isLocal(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
