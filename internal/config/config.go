// Package config holds every setting of the server. Defaults, a YAML file,
// environment variables and flags fill it; later sources win.
package config

import (
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// Config has every setting. The tags of a field are its only declaration: the
// file, environment, flags, help, printout and docs/reference/configuration.md
// come from them. A new setting is one line here, plus a check in validate.go
// if tags can't express it.
//
//	name     the key in the file; groups join with a dot, as in tls.cert
//	default  in the notation of the environment
//	help     a short text for --help and the docs
//	min,max  bounds of numbers, sizes and durations
//	oneof    the allowed words, comma-separated
//	alias    a second, shorter environment variable
//	reload   yes if a running server can apply a new value
//	node     yes if nodes of a cluster may have different values
//
// Secret and SecretURL values mask themselves when they are printed.
type Config struct {
	Listen          string         `name:"listen" node:"yes" default:"127.0.0.1:8080" help:"Address and port the server listens on; port 0 picks a free one."`
	Data            string         `name:"data" node:"yes" default:"./turnpike-data" help:"Directory of the embedded database, the files and the generated master key."`
	DatabaseURL     SecretURL      `name:"database_url" node:"yes" help:"PostgreSQL address (postgres://user:password@host/database), which makes this server a node of a cluster; empty uses the embedded database in the data directory."`
	ReplicaURL      SecretURL      `name:"database_replica_url" node:"yes" help:"Address of a streaming replica of database_url, from which lists of requests, events and deliveries, and usage are read, and in the dashboard lists of jobs and runs; empty reads them from database_url."`
	ReplicaMaxLag   time.Duration  `name:"database_replica_max_lag" default:"5s" min:"1s" max:"5m" help:"How outdated the replica may be. If it lags more, it isn't used until it has caught up."`
	PublicURL       string         `name:"public_url" help:"Address where clients and the dashboard reach the server, used in links and signed URLs; empty derives it from listen."`
	MasterKey       Secret         `name:"master_key" node:"yes" help:"32 random bytes in base64 or hex that encrypt all stored secrets. Required with PostgreSQL, and the same on every node; empty uses the key generated in the data directory."`
	SetupToken      Secret         `name:"setup_token" help:"Token of the link for the first owner, of at least 20 characters, so that it is known before the first start. It has no effect once there is an owner; empty creates a random one."`
	TrustedProxies  []netip.Prefix `name:"trusted_proxies" reload:"yes" help:"Addresses or CIDR ranges of reverse proxies. Turnpike trusts their X-Forwarded-For and, if public_url is https, that the client uses HTTPS; empty trusts none."`
	SecretPrefixes  []string       `name:"secret_prefixes" help:"What secrets such as tp_live_… begin with instead of tp: 2 to 16 lowercase letters and digits. The first one is for new secrets. Secrets that begin with the others, and with tp, keep working; empty uses tp."`
	AllowedOrigins  []string       `name:"allowed_origins" reload:"yes" help:"Browser origins that may use tp_live_ keys; empty allows none."`
	MetricsListen   string         `name:"metrics_listen" node:"yes" help:"Address and port of GET /metrics for Prometheus, on a separate listener; empty turns it off."`
	ShutdownTimeout time.Duration  `name:"shutdown_timeout" default:"30s" min:"0s" max:"1h" help:"How long a stopping server waits for requests in flight."`

	CreditUSD     Decimal `name:"credit_usd" reload:"yes" default:"0.001" min:"0.000001" max:"1000" help:"US dollars of list price that one credit pays for."`
	MarkupPercent Decimal `name:"markup_percent" reload:"yes" min:"0" max:"1000" help:"Percentage added to every list price; empty uses the one that operators have set while the server runs, or else 0."`
	CatalogKey    string  `name:"catalog_public_key" reload:"yes" help:"Minisign public key of the model tables that turnpike catalog update accepts; empty accepts none."`

	TLS       TLS       `name:"tls"`
	Log       Log       `name:"log"`
	Limits    Limits    `name:"limits"`
	Gateway   Gateway   `name:"gateway"`
	Audit     Audit     `name:"audit"`
	Webhooks  Webhooks  `name:"webhooks"`
	Files     Files     `name:"files"`
	Media     Media     `name:"media"`
	Responses Responses `name:"responses"`
	Batches   Batches   `name:"batches"`
	Agents    Agents    `name:"agents"`
	Leaks     Leaks     `name:"leaks"`
	SMTP      SMTP      `name:"smtp"`
	Mail      Mail      `name:"mail"`
	OIDC      OIDC      `name:"oidc"`
	Backup    Backup    `name:"backup"`

	Providers []Provider // lists that only the file has (sections.go)
	Routes    []Route
}

// TLS enables HTTPS, with a certificate in two files or with certificates that the
// server gets automatically.
type TLS struct {
	Cert string `name:"cert" node:"yes" reload:"yes" help:"PEM file with the certificate chain; enables HTTPS together with tls.key."`
	Key  string `name:"key" node:"yes" reload:"yes" help:"PEM file with the private key of tls.cert."`
	ACME ACME   `name:"acme"`
}

// TLSMode says where the server's certificates come from.
type TLSMode string

const (
	TLSOff   TLSMode = "off"
	TLSFiles TLSMode = "files"
	TLSACME  TLSMode = "acme"
)

// Mode returns where the server's certificates come from.
func (t TLS) Mode() TLSMode {
	switch {
	case len(t.ACME.Domains) > 0:
		return TLSACME
	case t.Cert != "":
		return TLSFiles
	}
	return TLSOff
}

// ACME configures the certificates that the server gets automatically.
type ACME struct {
	Domains     []string `name:"domains" reload:"yes" help:"Names of this server, such as turnpike.example.com. Turnpike gets a certificate for each and renews it, which enables HTTPS without tls.cert. Clients that send no name get the certificate of the first; empty turns this off."`
	AcceptTerms bool     `name:"accept_terms" default:"false" help:"Accept the terms of service of the certificate authority; required with tls.acme.domains."`
	Email       string   `name:"email" help:"Address at which the certificate authority can reach you. Turnpike sends it when it creates the account; empty sends none."`
	Directory   string   `name:"directory" default:"https://acme-v02.api.letsencrypt.org/directory" help:"ACME directory of the certificate authority. For tests, Let's Encrypt has https://acme-staging-v02.api.letsencrypt.org/directory."`
	CAFile      string   `name:"ca_file" node:"yes" help:"PEM file with the certificates to verify the directory's certificate with, for a private certificate authority; empty uses those of the system."`
	HTTPListen  string   `name:"http_listen" node:"yes" default:":80" help:"Address and port for HTTP-01 challenges, which the certificate authority must reach at port 80. Turnpike redirects all other requests there to HTTPS. off uses only TLS-ALPN-01 challenges, which arrive at port 443."`
	EABKeyID    string   `name:"eab_key_id" help:"ID of the key for external account binding, if the certificate authority requires it."`
	EABKey      Secret   `name:"eab_key" help:"Key for external account binding, in base64url as the certificate authority shows it; required with tls.acme.eab_key_id."`
}

// ListenOff as an address turns a listener off.
const ListenOff = "off"

// Log configures the server's log.
type Log struct {
	Level  slog.Level `name:"level" node:"yes" reload:"yes" default:"info" help:"Lowest level that is logged: debug, info, warn or error."`
	Format string     `name:"format" node:"yes" default:"auto" oneof:"auto,text,json" help:"Log format: text, json, or auto, which is text on a terminal and json elsewhere."`
	OTLP   bool       `name:"otlp" node:"yes" default:"false" help:"Also send the log to the OpenTelemetry collector that OTEL_EXPORTER_OTLP_LOGS_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT names."`
}

// Limits are the limits of requests, keys, workspaces and client addresses.
type Limits struct {
	BodyBytes      Size `name:"body_bytes" reload:"yes" default:"1MiB" min:"1KiB" max:"1GiB" help:"Largest request body, except on model calls."`
	ModelBodyBytes Size `name:"model_body_bytes" reload:"yes" default:"32MiB" min:"1KiB" max:"1GiB" help:"Largest request body on model calls, which carry images and audio."`
	// encoding/json stops at a depth of 10,000.
	JSONDepth   int           `name:"json_depth" reload:"yes" default:"128" min:"1" max:"10000" help:"Maximum nesting depth of a JSON body."`
	JSONValues  int           `name:"json_values" reload:"yes" default:"100000" min:"1000" max:"100000000" help:"Maximum number of values in a JSON body, including nested ones. Embeddings may have five times as many, for arrays of tokens."`
	HeaderBytes Size          `name:"header_bytes" default:"32KiB" min:"4KiB" max:"1MiB" help:"Largest request header, all fields together."`
	BodyTimeout time.Duration `name:"body_timeout" reload:"yes" default:"20s" min:"100ms" max:"10m" help:"How long a request body may take to arrive. A large one gets another second for every 8 KiB of its first MiB, and for every 64 KiB of the rest."`
	BodiesBytes Size          `name:"bodies_bytes" reload:"yes" default:"1GiB" min:"2KiB" max:"1024GiB" help:"Memory for what requests send, receive and decode beyond 64 KiB each, and at most half of what the container or machine has. A model request takes up to four times its body. A workspace may use half of what the others leave. Without free memory, a request fails with 503 overloaded, and lines of batches wait. One that needs more than half of all fails with 413. At least twice the largest body."`
	RefusedKeys int           `name:"refused_keys" default:"60" min:"0" max:"1000000" help:"Rejected keys per minute after which a client address must wait. Keys that the node knows to be valid still work from there; 0 turns this off."`
	// As many as a load test opens concurrently. Connections count from the
	// handshake to the first valid key.
	UnauthenticatedConnections int `name:"unauthenticated_connections" default:"1024" min:"0" max:"1000000" help:"Open connections of a client address (in IPv6, a /64) that have not sent a complete request with a valid key or session. Turnpike closes any more. Trusted proxies are exempt; 0 turns this off."`

	LiveRequestsPerMinute int `name:"live_requests_per_minute" reload:"yes" alias:"TURNPIKE_RATE_LIMIT_LIVE" default:"1000" min:"0" max:"100000000" help:"Model calls, jobs and runs that a live key may create per minute; 0 turns this off."`
	LiveTokensPerMinute   int `name:"live_tokens_per_minute" reload:"yes" default:"2000000" min:"0" max:"1000000000000" help:"Tokens that a live key may use per minute; 0 turns this off."`
	LiveInFlight          int `name:"live_in_flight" reload:"yes" alias:"TURNPIKE_MAX_IN_FLIGHT" default:"200" min:"0" max:"1000000" help:"Requests that a live key may have in flight; 0 turns this off."`
	TestFactor            int `name:"test_factor" reload:"yes" default:"10" min:"1" max:"1000" help:"Factor by which the limits of a test key exceed those of a live key."`
	TestRequestsPerMinute int `name:"test_requests_per_minute" reload:"yes" alias:"TURNPIKE_RATE_LIMIT_TEST" default:"-1" min:"-1" max:"100000000" help:"Model calls, jobs and runs that a test key may create per minute; 0 turns this off, and -1 means test_factor times the limit of a live key."`

	ReadsPerMinute                  int `name:"reads_per_minute" reload:"yes" default:"6000" min:"0" max:"100000000" help:"GET requests to the API that a key may send per minute; 0 turns this off."`
	WritesPerMinute                 int `name:"writes_per_minute" reload:"yes" default:"600" min:"0" max:"100000000" help:"Other requests to the API that a key may send per minute, except model calls and the creation of jobs and runs; 0 turns this off."`
	WorkspaceReadsPerMinute         int `name:"workspace_reads_per_minute" reload:"yes" default:"30000" min:"0" max:"100000000" help:"GET requests that all keys of a workspace may send per minute, separately in live and test; 0 turns this off."`
	WorkspaceWritesPerMinute        int `name:"workspace_writes_per_minute" reload:"yes" default:"3000" min:"0" max:"100000000" help:"Other requests that all keys of a workspace may send per minute, separately in live and test; 0 turns this off."`
	WorkspaceModelRequestsPerMinute int `name:"workspace_model_requests_per_minute" reload:"yes" default:"0" min:"0" max:"100000000" help:"Model calls, jobs and runs that all keys of a workspace may create per minute, separately in live and test; 0 turns this off."`

	Keys               int  `name:"keys" reload:"yes" default:"1000" min:"0" max:"100000000" help:"Keys that a workspace may have in each environment, not counting revoked and expired ones; 0 turns this off."`
	ScopedTokens       int  `name:"scoped_tokens" reload:"yes" default:"50000" min:"0" max:"100000000" help:"Unexpired scoped tokens that a workspace may have in each environment; 0 turns this off."`
	IdempotencyRecords int  `name:"idempotency_records" reload:"yes" default:"500000" min:"0" max:"100000000" help:"Responses to requests with an Idempotency-Key, kept for 24 hours, that a workspace may have in each environment; 0 turns this off."`
	StoredBytes        Size `name:"stored_bytes" reload:"yes" default:"5GiB" min:"1MiB" max:"1024GiB" help:"Stored responses, conversations and uploaded files of a workspace, encrypted. When they reach it, new responses are not stored, and uploads fail."`
	BatchRequests      int  `name:"batch_requests" reload:"yes" default:"50000" min:"1" max:"1000000" help:"Requests in a batch."`
	FileBytes          Size `name:"file_bytes" reload:"yes" default:"200MiB" min:"1KiB" max:"8GiB" help:"Largest file that can be uploaded with POST /v1/files."`
	NewProjectsPerDay  int  `name:"new_projects_per_day" reload:"yes" default:"100" min:"0" max:"100000000" help:"Projects that a key may create per UTC day by naming them in Service-Project; 0 turns this off."`
}

// TestRequests returns the requests per minute of a test key; 0 means
// unlimited.
func (l Limits) TestRequests() int {
	if l.TestRequestsPerMinute >= 0 {
		return l.TestRequestsPerMinute
	}
	return l.TestFactor * l.LiveRequestsPerMinute
}

// Gateway configures model calls.
type Gateway struct {
	DefaultMaxOutput int           `name:"default_max_output" reload:"yes" default:"16384" min:"1" max:"10000000" help:"Maximum output tokens of a request without a limit. Turnpike reserves credits for this number."`
	ConnectTimeout   time.Duration `name:"connect_timeout" reload:"yes" default:"10s" min:"100ms" max:"1m" help:"How long a provider may take to accept a connection."`
	FirstByteTimeout time.Duration `name:"first_byte_timeout" reload:"yes" default:"10m" min:"1s" max:"1h" help:"How long a provider may take to start its response. Without streaming, this usually limits the whole call, and reasoning models take minutes."`
	IdleTimeout      time.Duration `name:"idle_timeout" reload:"yes" default:"5m" min:"1s" max:"1h" help:"How long a provider may pause between two chunks of a stream, for example while a model reasons."`
}

// Webhooks configures webhook deliveries.
type Webhooks struct {
	RetrySchedule []time.Duration `name:"retry_schedule" reload:"yes" default:"1m,5m,30m,2h,12h" help:"Delays before each retry of a delivery: at most 20, with a sum of at most 144h. After the last one fails, the endpoint is paused."`
	Timeout       time.Duration   `name:"timeout" default:"10s" min:"100ms" max:"1m" help:"How long an endpoint may take to respond."`
	PerEndpoint   int             `name:"per_endpoint" default:"32" min:"1" max:"1000" help:"Maximum concurrent attempts per endpoint. A failing or slow endpoint gets fewer."`
	Concurrency   int             `name:"concurrency" node:"yes" default:"512" min:"1" max:"100000" help:"Maximum concurrent attempts on this node."`
	AllowCIDRs    []netip.Prefix  `name:"allow_cidrs" help:"Private or otherwise blocked addresses that endpoints may have, such as 10.20.0.0/16. Unsafe unless every workspace may reach them."`
	AllowHTTP     bool            `name:"allow_http" default:"false" help:"Accept http:// endpoints. Their deliveries are not encrypted."`
}

// Files configures where files are stored, and for how long.
type Files struct {
	URL        SecretURL     `name:"url" help:"Bucket for files, such as s3://name?region=eu-central-1. Services other than Amazon S3 also need &endpoint=https://… and often &use_path_style=true. Credentials come from the usual AWS sources. Empty uses the data directory, which other nodes cannot read."`
	Retention  time.Duration `name:"retention" default:"720h" min:"1h" max:"87600h" help:"How long files are kept; at least media.deadline."`
	FromBucket bool          `name:"from_bucket" default:"false" help:"Redirect downloads to the bucket instead of sending files from this server."`
}

// Media configures image, video and speech jobs.
type Media struct {
	Concurrency  int           `name:"concurrency" node:"yes" default:"64" min:"1" max:"100000" help:"Maximum concurrent parts of image, video and voice jobs on this node."`
	PerWorkspace int           `name:"per_workspace" default:"8" min:"1" max:"1000" help:"Maximum concurrent parts per lane of a workspace, which has 16 lanes for each kind of job. A lane whose provider fails gets fewer."`
	Deadline     time.Duration `name:"deadline" default:"24h" min:"1s" max:"720h" help:"How long a job may take before it fails."`
	PollInterval time.Duration `name:"poll_interval" default:"5s" min:"100ms" max:"10m" help:"How often Turnpike polls a provider for the state of a video. The first polls come sooner."`
	Espeak       bool          `name:"espeak" reload:"yes" default:"true" help:"Let live keys use espeak-ng for speech, free of charge, if it is installed."`
}

// Responses configures background responses.
type Responses struct {
	Concurrency  int           `name:"concurrency" node:"yes" default:"256" min:"1" max:"100000" help:"Maximum concurrent background responses on this node."`
	PerWorkspace int           `name:"per_workspace" default:"32" min:"1" max:"1000" help:"Maximum concurrent background responses per lane of a workspace, which has 16 lanes."`
	Deadline     time.Duration `name:"deadline" default:"24h" min:"1s" max:"720h" help:"How long a background response may take before it fails."`
}

// Batches configures batches of model requests.
type Batches struct {
	Concurrency  int `name:"concurrency" node:"yes" default:"64" min:"1" max:"100000" help:"Maximum concurrent requests of batches on this node."`
	PerWorkspace int `name:"per_workspace" default:"8" min:"1" max:"1000" help:"Maximum concurrent requests of batches per lane of a workspace, which has 16 lanes. All requests of a batch are in one lane. A lane whose provider fails gets fewer."`
}

// Agents configures agent runs and the hosts that their tools may reach.
type Agents struct {
	Concurrency  int            `name:"concurrency" node:"yes" default:"256" min:"1" max:"100000" help:"Maximum concurrent agent runs on this node, not counting runs that wait for a person."`
	PerWorkspace int            `name:"per_workspace" default:"32" min:"1" max:"1000" help:"Maximum concurrent runs per lane of a workspace, which has 16 lanes."`
	AllowCIDRs   []netip.Prefix `name:"allow_cidrs" help:"Private or otherwise blocked addresses that tools of runs may have, such as 10.20.0.0/16. Unsafe unless every workspace may reach them."`
	AllowHTTP    bool           `name:"allow_http" default:"false" help:"Accept http:// addresses of tools. Their requests are not encrypted."`

	TestToolsDefault      string   `name:"test_tools_default" reload:"yes" default:"simulated" oneof:"simulated,real" help:"Whether runs of test keys simulate requests of tools and HTTP checks or send them, in workspaces that don't set test_tools: simulated or real."`
	RequestsPerMinute     int      `name:"requests_per_minute" reload:"yes" default:"600" min:"0" max:"100000000" help:"Requests per minute that tools, MCP sessions and checks of a workspace may send, in each environment. Runs over the limit wait. 0 turns this off."`
	HostRequestsPerMinute int      `name:"host_requests_per_minute" reload:"yes" default:"1200" min:"0" max:"100000000" help:"Requests per minute that tools, MCP sessions and checks of all workspaces may send to one host, in each environment. Runs over the limit wait. 0 turns this off."`
	UnlimitedHosts        []string `name:"unlimited_hosts" reload:"yes" help:"Hosts that host_requests_per_minute doesn't apply to, such as api.example.com; use it for your own services."`
	ToolCallsPerStep      int      `name:"tool_calls_per_step" reload:"yes" default:"16" min:"1" max:"1000" help:"HTTP and MCP tool calls that the server makes in one step of a run. It skips the others and tells the model so."`
	ToolCallsPerRun       int      `name:"tool_calls_per_run" reload:"yes" default:"500" min:"1" max:"1000000" help:"HTTP and MCP tool calls that the server makes in a run. A run that asks for more fails with max_tool_calls_exceeded."`
}

// Leaks configures who may report leaked keys.
type Leaks struct {
	ReportPerMinute int    `name:"report_per_minute" default:"60" min:"0" max:"1000000" help:"Unauthenticated reports of leaked keys that a client address may send per minute; 0 turns this off."`
	GitHubKeysURL   string `name:"github_keys_url" default:"https://api.github.com/meta/public_keys/secret_scanning" help:"URL of the public keys that verify reports to /leaks/github."`
	GitLabToken     Secret `name:"gitlab_token" help:"Token that a GitLab server sends with its reports to /leaks/gitlab, of at least 16 characters; empty turns these reports off."`

	Scan []LeakScan // a list that only the file has (sections.go)
}

// SMTP configures the mail server.
type SMTP struct {
	URL SecretURL `name:"url" reload:"yes" help:"Mail server: smtp://user:password@host:587 (requires STARTTLS, except on this machine) or smtps://user:password@host:465. ?tls=insecure-plaintext turns encryption off; ?tls=starttls requires it on this machine, too. Empty logs emails instead of sending them."`
}

// Mail configures emails.
type Mail struct {
	From string `name:"from" reload:"yes" help:"Sender of emails, such as turnpike@example.com; required with smtp.url."`
}

// OIDC configures an OpenID Connect provider for sign-in.
type OIDC struct {
	Issuer       string `name:"issuer" reload:"yes" help:"OpenID Connect provider for the dashboard, such as https://accounts.example.com. Members can sign in if their account is linked to it. By verified email address, it also signs in members who are invited or have neither password nor passkey. Its redirect URL is {public_url}/dashboard/login/oidc/callback. Empty turns this off."`
	ClientID     string `name:"client_id" reload:"yes" help:"Client ID of this server at the provider; required with oidc.issuer."`
	ClientSecret Secret `name:"client_secret" reload:"yes" help:"Client secret of this server at the provider; empty if there is none."`
	Name         string `name:"name" reload:"yes" default:"single sign-on" help:"Name of the provider on the button: Sign in with …"`
	TrustEmail   bool   `name:"trust_email" reload:"yes" help:"Accept email addresses that the provider doesn't mark as verified. Only for a provider at which your organization assigns the addresses, such as your own Entra ID tenant: elsewhere, people could claim the address of another member."`
}

// Backup configures the schedule of backups.
type Backup struct {
	To       SecretURL     `name:"to" reload:"yes" help:"Where to store backups: a directory, or a bucket with a prefix, such as s3://name/prefix?region=eu-central-1, in the form of files.url. Empty turns scheduled backups off. With several nodes, use a bucket or a shared directory: any node may make the backup."`
	Interval time.Duration `name:"interval" reload:"yes" default:"24h" min:"1m" max:"8760h" help:"Time between two scheduled backups. doctor fails if the last good backup is older than twice this."`
	Keep     int           `name:"keep" reload:"yes" default:"7" min:"0" max:"100000" help:"How many backups to keep in backup.to; 0 keeps all."`
	// Recipients are public keys of age.
	Recipients []string `name:"recipients" reload:"yes" help:"Public keys of age (age1…), with one of whose private keys a restore decrypts the backup; empty leaves backups in clear."`
}

// Default returns the default settings.
func Default() Config {
	var c Config
	for _, s := range c.settings() {
		s.reset()
	}
	return c
}

// BaseURL returns PublicURL. Without one it returns the URL of the first ACME
// domain, or of the bound address.
func (c Config) BaseURL(bound string) string {
	if c.PublicURL != "" {
		return c.PublicURL
	}
	_, port, err := net.SplitHostPort(bound)
	if err == nil && c.TLS.Mode() == TLSACME {
		return "https://" + strings.TrimSuffix(net.JoinHostPort(c.TLS.ACME.Domains[0], port), ":443")
	}
	return c.ListenURL(bound)
}

// ListenURL returns the URL of the bound address, at which this machine reaches the
// server. It may differ from Listen, which can have port 0.
func (c Config) ListenURL(bound string) string {
	host, port, err := net.SplitHostPort(bound)
	if err != nil {
		return ""
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http"
	if c.TLS.Mode() != TLSOff {
		scheme = "https"
	}
	u := url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)}
	return u.String()
}
