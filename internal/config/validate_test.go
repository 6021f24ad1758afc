package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

const testMasterKey = "3q2+7wABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhs="

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
}

// Reasoning models are silent for minutes, before the first byte or within a
// stream.
func TestDefaultTimeoutsAllowReasoningModels(t *testing.T) {
	t.Parallel()
	if g := Default().Gateway; g.FirstByteTimeout < 10*time.Minute || g.IdleTimeout < 5*time.Minute {
		t.Errorf("an answer may take %s, and pause for %s", g.FirstByteTimeout, g.IdleTimeout)
	}
}

func TestSettingNamesAreUnique(t *testing.T) {
	t.Parallel()
	var c Config
	seen := map[string]string{configFlag: "--config", "TURNPIKE_CONFIG": "TURNPIKE_CONFIG"}
	for _, s := range c.settings() {
		if s.help == "" || strings.HasSuffix(s.name, ".") {
			t.Errorf("%s: name or help is missing", s.name)
		}
		if (s.min == "") != (s.max == "") {
			t.Errorf("%s: one bound without the other", s.name)
		}
		for _, name := range []string{s.env(), "--" + s.flag()} {
			if other, taken := seen[name]; taken {
				t.Errorf("%s is both %s and %s", name, s.name, other)
			}
			seen[name] = s.name
		}
	}
}

func TestValidateRejectsInvalidSettings(t *testing.T) {
	t.Parallel()
	const databaseKey = SecretURL("postgres://turnpike@db/turnpike")
	tests := map[string]struct {
		change func(*Config)
		want   string // part of the one problem; "" for none
	}{
		"listen without a port":     {func(c *Config) { c.Listen = "127.0.0.1" }, "listen: \"127.0.0.1\" is not an address with a port; expected such as 127.0.0.1:8080"},
		"listen empty":              {func(c *Config) { c.Listen = "" }, "listen: "},
		"listen with a large port":  {func(c *Config) { c.Listen = ":65536" }, "listen: "},
		"listen with a named port":  {func(c *Config) { c.Listen = ":http" }, "listen: "},
		"listen with a bad host":    {func(c *Config) { c.Listen = "http://x:80" }, "listen: "},
		"listen on all interfaces":  {func(c *Config) { c.Listen = ":0" }, ""},
		"listen on IPv6":            {func(c *Config) { c.Listen = "[::1]:8080" }, ""},
		"listen on a name":          {func(c *Config) { c.Listen = "localhost:8080" }, ""},
		"data empty":                {func(c *Config) { c.Data = "" }, "data: is empty; expected a directory"},
		"database with another DB":  {func(c *Config) { c.MasterKey, c.DatabaseURL = testMasterKey, "mysql://db/x" }, "database_url: does not start with postgres://"},
		"database without a scheme": {func(c *Config) { c.MasterKey, c.DatabaseURL = testMasterKey, "host=db user=x" }, "database_url: does not start"},
		"database with one slash":   {func(c *Config) { c.MasterKey, c.DatabaseURL = testMasterKey, "postgres:/db/x" }, "database_url: does not start"},
		"database, bad escape":      {func(c *Config) { c.MasterKey, c.DatabaseURL = testMasterKey, "postgres://u:%zz@db/x" }, "database_url: is not a URL"},
		"database, raw slash":       {func(c *Config) { c.MasterKey, c.DatabaseURL = testMasterKey, "postgres://u:1/2@db/x" }, "database_url: has a # or a misplaced @"},
		"database, raw at":          {func(c *Config) { c.MasterKey, c.DatabaseURL = testMasterKey, "postgres://u:1@2@db/x" }, "database_url: has a # or a misplaced @"},
		"metrics where it listens":  {func(c *Config) { c.MetricsListen = c.Listen }, "metrics_listen: is the address of listen, too"},
		"database without a key":    {func(c *Config) { c.DatabaseURL = databaseKey }, "master_key: is required with database_url"},
		"database with a key":       {func(c *Config) { c.MasterKey, c.DatabaseURL = testMasterKey, databaseKey }, ""},
		"database, several hosts":   {func(c *Config) { c.MasterKey, c.DatabaseURL = testMasterKey, "postgresql://u:p@a:1,b:2/x" }, ""},
		"database, a socket":        {func(c *Config) { c.MasterKey, c.DatabaseURL = testMasterKey, "postgres:///x?host=/run" }, ""},
		"master key too short":      {func(c *Config) { c.MasterKey = "c2hvcnQ=" }, "master_key: is not a master key; expected 32 bytes in base64 or hex"},
		"master key masked":         {func(c *Config) { c.MasterKey = mask }, "master_key: "},
		"public_url relative":       {func(c *Config) { c.PublicURL = "api.example.com" }, "public_url: is not an absolute address; expected an absolute address"},
		"public_url another scheme": {func(c *Config) { c.PublicURL = "ftp://api.example.com" }, "public_url: is neither http nor https"},
		"public_url with a path":    {func(c *Config) { c.PublicURL = "https://api.example.com/x" }, "public_url: has a path"},
		"public_url with a query":   {func(c *Config) { c.PublicURL = "https://api.example.com?" }, "public_url: has a query"},
		"public_url with a user":    {func(c *Config) { c.PublicURL = "https://u@api.example.com" }, "public_url: has a user name"},
		"public_url with bad port":  {func(c *Config) { c.PublicURL = "https://api.example.com:99999" }, "public_url: has a bad port"},
		"public_url with no host":   {func(c *Config) { c.PublicURL = "https://:80" }, "public_url: is not an absolute"},
		"public_url":                {func(c *Config) { c.PublicURL = "https://[::1]:8443" }, ""},
		"cert without key":          {func(c *Config) { c.TLS.Cert = "a" }, "tls.key: tls.cert is set"},
		"key without cert":          {func(c *Config) { c.TLS.Key = "a" }, "tls.cert: tls.key is set"},
		"cert and key":              {func(c *Config) { c.TLS = TLS{Cert: "a", Key: "b"} }, ""},
		"acme":                      {func(c *Config) { *c = acmeConfig("a.example.com", "b.example.com") }, ""},
		"acme without terms":        {func(c *Config) { *c = acmeConfig("a.example.com"); c.TLS.ACME.AcceptTerms = false }, "tls.acme.accept_terms: is required"},
		"acme and files":            {func(c *Config) { *c = acmeConfig("a.example.com"); c.TLS.Cert, c.TLS.Key = "a", "b" }, "tls.acme.domains: tls.cert is set, too"},
		"acme with a wildcard":      {func(c *Config) { *c = acmeConfig("*.example.com") }, "is a wildcard"},
		"acme with an address":      {func(c *Config) { *c = acmeConfig("192.0.2.1") }, "is an address; expected a name"},
		"acme with a port":          {func(c *Config) { *c = acmeConfig("example.com:443") }, "is not a public domain name"},
		"acme in upper case":        {func(c *Config) { *c = acmeConfig("Example.com") }, "is not a public domain name"},
		"acme for this machine":     {func(c *Config) { *c = acmeConfig("localhost") }, "is not a public domain name"},
		"acme with a repeated name": {func(c *Config) { *c = acmeConfig("example.com", "example.com") }, `"example.com" is listed twice`},
		"acme over plain HTTP":      {func(c *Config) { *c = acmeConfig("example.com"); c.TLS.ACME.Directory = "http://ca.example" }, "tls.acme.directory: must be https://"},
		"acme without HTTP-01":      {func(c *Config) { *c = acmeConfig("example.com"); c.TLS.ACME.HTTPListen = "off" }, ""},
		"acme where it listens":     {func(c *Config) { *c = acmeConfig("example.com"); c.TLS.ACME.HTTPListen = c.Listen }, "is the address of another listener"},
		"acme with a bad address":   {func(c *Config) { *c = acmeConfig("example.com"); c.TLS.ACME.HTTPListen = "80" }, "tls.acme.http_listen: "},
		"acme with a bad email":     {func(c *Config) { *c = acmeConfig("example.com"); c.TLS.ACME.Email = "Ops <ops@example.com>" }, "is not an email address"},
		"acme with half a binding":  {func(c *Config) { *c = acmeConfig("example.com"); c.TLS.ACME.EABKeyID = "kid-1" }, "tls.acme.eab_key: is required with tls.acme.eab_key_id"},
		"acme with a bad binding": {func(c *Config) {
			*c = acmeConfig("example.com")
			c.TLS.ACME.EABKeyID, c.TLS.ACME.EABKey = "kid-1", "not base64!"
		}, "tls.acme.eab_key: is not in base64url"},
		"log format":                {func(c *Config) { c.Log.Format = "xml" }, `log.format: "xml" is not one of auto, text, json`},
		"body too small":            {func(c *Config) { c.Limits.BodyBytes = 1 }, "limits.body_bytes: 1 is out of range; expected 1KiB to 1GiB"},
		"body unlimited":            {func(c *Config) { c.Limits.BodyBytes = 0 }, "limits.body_bytes: 0 is out of range"},
		"model body too large":      {func(c *Config) { c.Limits.ModelBodyBytes = 2 << 30 }, "limits.model_body_bytes: 2GiB is out"},
		"json depth":                {func(c *Config) { c.Limits.JSONDepth = 0 }, "limits.json_depth: 0 is out of range; expected 1 to 10000"},
		"header":                    {func(c *Config) { c.Limits.HeaderBytes = 100 }, "limits.header_bytes: 100 is out"},
		"refused keys negative":     {func(c *Config) { c.Limits.RefusedKeys = -1 }, "limits.refused_keys: -1 is out"},
		"refused keys off":          {func(c *Config) { c.Limits.RefusedKeys = 0 }, ""},
		"no retries":                {func(c *Config) { c.Webhooks.RetrySchedule = nil }, ""},
		"retries for six days":      {func(c *Config) { c.Webhooks.RetrySchedule = slices.Repeat([]time.Duration{24 * time.Hour}, 6) }, ""},
		"retries beyond their rows": {func(c *Config) { c.Webhooks.RetrySchedule = slices.Repeat([]time.Duration{144 * time.Hour}, 6) }, "webhooks.retry_schedule: its delays are 864h0m0s together; at most 144h are possible"},
		"a little beyond six days":  {func(c *Config) { c.Webhooks.RetrySchedule = []time.Duration{144 * time.Hour, time.Millisecond} }, "webhooks.retry_schedule: its delays are 144h0m0.001s together"},
		"a retry at once":           {func(c *Config) { c.Webhooks.RetrySchedule = []time.Duration{0} }, "webhooks.retry_schedule: 0s is no delay between 1ms and 144h"},
		"too many retries":          {func(c *Config) { c.Webhooks.RetrySchedule = slices.Repeat([]time.Duration{time.Second}, 21) }, "webhooks.retry_schedule: at most 20 retries"},
		"retention":                 {func(c *Config) { c.Audit.RetentionDays = 0 }, "audit.retention_days: 0 is out"},
		"archive in a directory":    {func(c *Config) { c.Audit.Archive.To = "/srv/log" }, ""},
		"archive in a bucket":       {func(c *Config) { c.Audit.Archive.To = "s3://logs/turnpike?region=eu-central-1" }, ""},
		"archive with bad scheme":   {func(c *Config) { c.Audit.Archive.To = "ftp://logs/turnpike" }, "audit.archive.to: "},
		"archive with no bucket":    {func(c *Config) { c.Audit.Archive.To = "s3:///turnpike?region=eu-central-1" }, "audit.archive.to: "},
		"archive with bad escape":   {func(c *Config) { c.Audit.Archive.To = "s3://logs/%zz" }, "audit.archive.to: is neither a directory nor a URL; expected a directory, or such as s3://name/prefix"},
		"archive shorter than log":  {func(c *Config) { c.Audit = archived(30, 29) }, "audit.archive.retention_days: 29 is less than audit.retention_days, so nothing would be read from the archive; expected at least 30, or 0"},
		"archive as long as log":    {func(c *Config) { c.Audit = archived(30, 30) }, ""},
		"archive forever":           {func(c *Config) { c.Audit = archived(30, 0) }, ""},
		"archive days negative":     {func(c *Config) { c.Audit = archived(30, -1) }, "audit.archive.retention_days: "},
		"archive off, short":        {func(c *Config) { c.Audit = archived(30, 29); c.Audit.Archive.To = "" }, ""},
		"replica":                   {func(c *Config) { c.MasterKey, c.DatabaseURL, c.ReplicaURL = testMasterKey, databaseKey, databaseKey }, ""},
		"replica of another DB":     {func(c *Config) { c.MasterKey, c.DatabaseURL, c.ReplicaURL = testMasterKey, databaseKey, "mysql://db/x" }, "database_replica_url: does not start with postgres://"},
		"replica without database":  {func(c *Config) { c.ReplicaURL = databaseKey }, "database_replica_url: needs database_url; the embedded database has no replicas"},
		"replica lag too short":     {func(c *Config) { c.ReplicaMaxLag = time.Millisecond }, "database_replica_max_lag: 1ms is out of range; expected 1s to 5m"},
		"shutdown negative":         {func(c *Config) { c.ShutdownTimeout = -time.Second }, "shutdown_timeout: -1s is out of range; expected 0s to 1h"},
		"origin":                    {func(c *Config) { c.AllowedOrigins = []string{"https://a.example", "http://localhost:3000"} }, ""},
		"origin of an extension":    {func(c *Config) { c.AllowedOrigins = []string{"chrome-extension://abcdef"} }, ""},
		"origin with a path":        {func(c *Config) { c.AllowedOrigins = []string{"https://a.example/"} }, `allowed_origins: "https://a.example/" has a path; expected an origin`},
		"origin without a scheme":   {func(c *Config) { c.AllowedOrigins = []string{"a.example"} }, "allowed_origins: "},
		"origin of anyone":          {func(c *Config) { c.AllowedOrigins = []string{"*"} }, "has a wildcard"},
		"origin null":               {func(c *Config) { c.AllowedOrigins = []string{"null"} }, "is not an absolute"},
		"origin in capitals":        {func(c *Config) { c.AllowedOrigins = []string{"https://A.example"} }, "is not how a browser sends it; expected https://a.example"},
		"origin with default port":  {func(c *Config) { c.AllowedOrigins = []string{"https://a.example:443"} }, "expected https://a.example"},
		"hosts":                     {func(c *Config) { c.Agents.UnlimitedHosts = []string{"api.example.com", "10.1.2.3", "::1"} }, ""},
		"Kafka": {func(c *Config) {
			c.Audit.Kafka = LogKafka{Brokers: []string{"kafka:9092", "[::1]:9092"}, Topic: "turnpike-requests", SASL: "scram-sha-512", Username: "u", Password: "p"}
		}, ""},
		"Kafka without a topic": {func(c *Config) { c.Audit.Kafka.Brokers = []string{"kafka:9092"} }, "audit.kafka.topic: "},
		"Kafka without a port":  {func(c *Config) { c.Audit.Kafka.Brokers, c.Audit.Kafka.Topic = []string{"kafka"}, "t" }, "audit.kafka.brokers: "},
		"topic without brokers": {func(c *Config) { c.Audit.Kafka.Topic = "t" }, "audit.kafka.topic: "},
		"Kafka with half a login": {func(c *Config) {
			c.Audit.Kafka = LogKafka{Brokers: []string{"kafka:9092"}, Topic: "t", TLS: true, SASL: "plain", Username: "u"}
		}, "audit.kafka.password: "},
		"Kafka with an unused login": {func(c *Config) {
			c.Audit.Kafka = LogKafka{Brokers: []string{"kafka:9092"}, Topic: "t", SASL: SASLNone, Username: "u"}
		}, "audit.kafka.sasl: "},
		"Kafka with a readable password": {func(c *Config) {
			c.Audit.Kafka = LogKafka{Brokers: []string{"kafka:9092"}, Topic: "t", SASL: "plain", Username: "u", Password: "p"}
		}, "audit.kafka.sasl: "},
		"Kafka with a client certificate": {func(c *Config) {
			c.Audit.Kafka = LogKafka{Brokers: []string{"kafka:9092"}, Topic: "t", TLS: true, Cert: "cert.pem", Key: "key.pem", SASL: SASLNone}
		}, ""},
		"Kafka with a certificate without a key": {func(c *Config) {
			c.Audit.Kafka = LogKafka{Brokers: []string{"kafka:9092"}, Topic: "t", TLS: true, Cert: "cert.pem", SASL: SASLNone}
		}, "audit.kafka.key: "},
		"Kafka with a key without a certificate": {func(c *Config) {
			c.Audit.Kafka = LogKafka{Brokers: []string{"kafka:9092"}, Topic: "t", TLS: true, Key: "key.pem", SASL: SASLNone}
		}, "audit.kafka.cert: "},
		"Kafka with a certificate without TLS": {func(c *Config) {
			c.Audit.Kafka = LogKafka{Brokers: []string{"kafka:9092"}, Topic: "t", Cert: "cert.pem", Key: "key.pem", SASL: SASLNone}
		}, "audit.kafka.tls: "},
		"Kafka with another mechanism": {func(c *Config) { c.Audit.Kafka.SASL = "gssapi" }, "audit.kafka.sasl: "},
		"host with a port":             {func(c *Config) { c.Agents.UnlimitedHosts = []string{"api.example.com:8080"} }, "agents.unlimited_hosts: "},
		"host with a scheme":           {func(c *Config) { c.Agents.UnlimitedHosts = []string{"https://api.example.com"} }, "agents.unlimited_hosts: "},
		"host with a wildcard":         {func(c *Config) { c.Agents.UnlimitedHosts = []string{"*.example.com"} }, "agents.unlimited_hosts: "},
		"origin in Unicode":            {func(c *Config) { c.AllowedOrigins = []string{"https://bücher.example"} }, "bad host name"},
		"smtp":                         {func(c *Config) { c.SMTP.URL, c.Mail.From = "smtp://u:p%40@mail.example.com:587", "a@example.com" }, ""},
		"smtp over TLS":                {func(c *Config) { c.SMTP.URL, c.Mail.From = "smtps://[2001:db8::1]", "Turnpike <a@example.com>" }, ""},
		"smtp in plain text":           {func(c *Config) { c.SMTP.URL, c.Mail.From = "smtp://h:25?tls=insecure-plaintext", "a@example.com" }, ""},
		"a bucket": {func(c *Config) {
			c.Files.URL, c.Files.FromBucket = "s3://name?region=eu-central-1&endpoint=https://h", true
		}, ""},
		"a bucket elsewhere":        {func(c *Config) { c.Files.URL = "gs://name" }, "files.url: does not start with s3://"},
		"a bucket without a name":   {func(c *Config) { c.Files.URL = "s3://?region=x" }, "files.url: names no bucket"},
		"a bucket with a path":      {func(c *Config) { c.Files.URL = "s3://name/path" }, "files.url: has a path or a fragment"},
		"a bucket with credentials": {func(c *Config) { c.Files.URL = "s3://key:secret@name" }, "files.url: has credentials in it"},
		"no bucket to send files":   {func(c *Config) { c.Files.FromBucket = true }, "files.from_bucket: needs a bucket in files.url"},
		"files kept for no time":    {func(c *Config) { c.Files.Retention, c.Media.Deadline = time.Minute, time.Minute }, "files.retention: 1m0s is out of range"},
		"files gone before the job": {func(c *Config) { c.Files.Retention = 23 * time.Hour }, "files.retention: 23h0m0s is less than media.deadline"},
		"files kept as long":        {func(c *Config) { c.Files.Retention, c.Media.Deadline = time.Hour, time.Hour }, ""},
		"keys of GitHub on a relay": {func(c *Config) { c.Leaks.GitHubKeysURL = "http://127.0.0.1:9/keys" }, ""},
		"keys of GitHub in clear":   {func(c *Config) { c.Leaks.GitHubKeysURL = "http://example.com/keys" }, "leaks.github_keys_url: must be https://"},
		"keys of GitHub nowhere":    {func(c *Config) { c.Leaks.GitHubKeysURL = "" }, "leaks.github_keys_url: is not a web address"},
		"token of GitLab":           {func(c *Config) { c.Leaks.GitLabToken = "0123456789abcdef" }, ""},
		"issuer":                    {func(c *Config) { c.OIDC.Issuer, c.OIDC.ClientID = "https://id.example.com/realms/x", "turnpike" }, ""},
		"issuer on this machine":    {func(c *Config) { c.OIDC.Issuer, c.OIDC.ClientID = "http://127.0.0.1:9000", "turnpike" }, ""},
		"issuer, plain":             {func(c *Config) { c.OIDC.Issuer, c.OIDC.ClientID = "http://id.example.com", "x" }, "oidc.issuer: must be https://"},
		"issuer, no address":        {func(c *Config) { c.OIDC.Issuer, c.OIDC.ClientID = "id.example.com", "x" }, "oidc.issuer: is not a web address"},
		"issuer with a query":       {func(c *Config) { c.OIDC.Issuer, c.OIDC.ClientID = "https://id.example.com?x", "x" }, "oidc.issuer: has a query"},
		"issuer without a client":   {func(c *Config) { c.OIDC.Issuer = "https://id.example.com" }, "oidc.client_id: is required"},
		"client without an issuer":  {func(c *Config) { c.OIDC.ClientSecret = "x" }, "oidc.client_id: is of no use"},
		"issuer without a name":     {func(c *Config) { c.OIDC = OIDC{Issuer: "https://id.example.com", ClientID: "x"} }, "oidc.name: must have"},
		"token of GitLab, short":    {func(c *Config) { c.Leaks.GitLabToken = "0123456789abcde" }, "leaks.gitlab_token: is shorter than 16"},
		"smtp without a sender":     {func(c *Config) { c.SMTP.URL = "smtp://h" }, "mail.from: is required with smtp.url; expected an address such as"},
		"smtp with another scheme":  {func(c *Config) { c.SMTP.URL, c.Mail.From = "https://h", "a@example.com" }, "smtp.url: does not start with smtp:// or smtps://"},
		"smtp without a scheme":     {func(c *Config) { c.SMTP.URL, c.Mail.From = "mail.example.com:587", "a@example.com" }, "smtp.url: does not start with"},
		"smtp without a host":       {func(c *Config) { c.SMTP.URL, c.Mail.From = "smtp://:587", "a@example.com" }, "smtp.url: names no host"},
		"smtp with a bad port":      {func(c *Config) { c.SMTP.URL, c.Mail.From = "smtp://h:0", "a@example.com" }, "smtp.url: has a bad port"},
		"smtp with a path":          {func(c *Config) { c.SMTP.URL, c.Mail.From = "smtp://h/x", "a@example.com" }, "smtp.url: has a path"},
		"smtp without a password":   {func(c *Config) { c.SMTP.URL, c.Mail.From = "smtp://u@h", "a@example.com" }, "smtp.url: has a user name or a password, but not both"},
		"smtp with a bad query":     {func(c *Config) { c.SMTP.URL, c.Mail.From = "smtp://h?starttls=off", "a@example.com" }, "smtp.url: has a query other than tls"},
		"smtp with unknown tls":     {func(c *Config) { c.SMTP.URL, c.Mail.From = "smtp://h?tls=off", "a@example.com" }, "smtp.url: has an unknown tls query; expected"},
		"smtps in plain text":       {func(c *Config) { c.SMTP.URL, c.Mail.From = "smtps://h?tls=insecure-plaintext", "a@example.com" }, "smtps:// is always encrypted"},
		"sender that is none":       {func(c *Config) { c.Mail.From = "Turnpike" }, `mail.from: "Turnpike" is not an e-mail address`},
		"sender with a new line":    {func(c *Config) { c.Mail.From = "a@example.com\r\nBcc: b@example.com" }, "is not an e-mail address"},
		"sender alone":              {func(c *Config) { c.Mail.From = "a@example.com" }, ""},
		"proxies":                   {func(c *Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("::/0")} }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Default()
			tt.change(&c)
			err := c.Validate()
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var ps Problems
			if !errors.As(err, &ps) || len(ps) != 1 || !strings.Contains(ps[0].String(), tt.want) {
				t.Errorf("got %v, want one problem with %q", err, tt.want)
			}
		})
	}
}

func TestMailPasswordIsNeverPrinted(t *testing.T) {
	t.Parallel()
	for _, around := range []string{"", "/", "1/", "?", "?tls=", "#", "@", ":", "%", "%zz", " "} {
		for _, scheme := range []string{"smtp://", "smtps://", ""} {
			c := Default()
			c.SMTP.URL = SecretURL(scheme + "u:" + around + sentinel + around + "@mail.example.com:587")
			if printed := fmt.Sprint(c.Validate(), c); strings.Contains(printed, sentinel) {
				t.Errorf("with %q around it: %s", around, printed)
			}
		}
	}
}

func TestValidateReportsAllWithTheirOrigin(t *testing.T) {
	t.Parallel()
	l := mustLoad(t, "log: {format: xml}", []string{"TURNPIKE_LISTEN=x", "TURNPIKE_ALLOWED_ORIGINS=*,null"}, []string{"--tls-cert=c"})
	err := l.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"5 problems",
		`not one of auto, text, json (file turnpike.yaml:1)`,
		"for all interfaces (environment TURNPIKE_LISTEN)",
		"\n  tls.key: tls.cert is set, so its key file is expected here too\n",
		`"*" has a wildcard`, `"null" is not`, "(environment TURNPIKE_ALLOWED_ORIGINS)",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

func TestBaseURLFollowsTheBoundAddress(t *testing.T) {
	t.Parallel()
	tests := []struct {
		config Config
		bound  string
		want   string
	}{
		{Config{}, "127.0.0.1:41234", "http://127.0.0.1:41234"},
		{Config{}, ":8080", "http://localhost:8080"},
		{Config{}, "0.0.0.0:8080", "http://localhost:8080"},
		{Config{}, "[::]:8080", "http://localhost:8080"},
		{Config{}, "[::1]:8080", "http://[::1]:8080"},
		{Config{TLS: TLS{Cert: "c"}}, "example.com:8443", "https://example.com:8443"},
		{acmeConfig("a.example.com", "b.example.com"), "0.0.0.0:443", "https://a.example.com"},
		{acmeConfig("a.example.com"), "0.0.0.0:8443", "https://a.example.com:8443"},
		{Config{PublicURL: "https://api.example.com"}, ":1", "https://api.example.com"},
		{Config{}, "nonsense", ""},
	}
	for _, tt := range tests {
		if got := tt.config.BaseURL(tt.bound); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.bound, got, tt.want)
		}
	}
	if l := mustLoad(t, "", nil, []string{"--listen=127.0.0.1:0"}); l.PublicURL != "" {
		t.Errorf("port 0 gave the public URL %q", l.PublicURL)
	}
}

// archived is a log that is archived after some days, and kept there for others.
func archived(databaseDays, days int) Audit {
	return Audit{Kafka: LogKafka{SASL: SASLNone}, RetentionDays: databaseDays, Archive: LogArchive{To: "/srv/log", RetentionDays: days}}
}

func acmeConfig(domains ...string) Config {
	c := Default()
	c.TLS.ACME.Domains, c.TLS.ACME.AcceptTerms = domains, true
	return c
}
