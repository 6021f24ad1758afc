// Package config holds every setting of the server in one struct, filled from
// defaults, then a YAML file, then the environment, then flags; the later wins.
package config

import (
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"time"
)

// Config is every setting. A field's tags are its only declaration: the file,
// the environment, the flags, the help, the printout and docs/configuration.md
// all come from them, so a new setting is one new line here (and a check in
// validate.go when a range or a list of words does not say it all).
//
//	name     the key in the file; groups join with a dot, as in tls.cert
//	default  in the same notation as in the environment
//	help     one sentence, for --help and the docs
//	min,max  bounds, for numbers, sizes and durations
//	oneof    the allowed words, comma-separated
//	alias    a second, shorter variable for what scripts set often
//	section  instead of all these: a list that only the file has (sections.go)
//
// Secret values have the types Secret and SecretURL, which mask themselves
// wherever they are printed.
type Config struct {
	Listen          string         `name:"listen" default:"127.0.0.1:8080" help:"Address and port the server listens on; port 0 picks a free one."`
	Data            string         `name:"data" default:"./turnpike-data" help:"Folder of the embedded database, the files and the generated master key."`
	DatabaseURL     SecretURL      `name:"database_url" help:"PostgreSQL address (postgres://user:password@host/database), which makes this server one node of a cluster; empty means the embedded database in the data folder."`
	PublicURL       string         `name:"public_url" help:"Address under which clients reach the server, used in links and signed URLs, and where people sign in to the dashboard; empty derives it from listen."`
	MasterKey       Secret         `name:"master_key" help:"32 random bytes in base64 or hex that protect all stored secrets; required with PostgreSQL and the same on every node, empty means the one generated in the data folder."`
	TrustedProxies  []netip.Prefix `name:"trusted_proxies" help:"Addresses or CIDR ranges of reverse proxies. They are believed about the client's address (X-Forwarded-For) and, if public_url is https, that the client uses HTTPS; empty believes none."`
	AllowedOrigins  []string       `name:"allowed_origins" help:"Browser origins from which tp_live_ keys are accepted; empty accepts none."`
	MetricsListen   string         `name:"metrics_listen" help:"Address and port of GET /metrics for Prometheus, on a listener of its own; empty turns it off."`
	ShutdownTimeout time.Duration  `name:"shutdown_timeout" default:"30s" min:"0s" max:"1h" help:"How long a stopping server waits for requests in flight."`

	CreditUSD     Decimal `name:"credit_usd" default:"0.001" min:"0.000001" max:"1000" help:"US dollars of list price that one credit pays."`
	MarkupPercent Decimal `name:"markup_percent" default:"0" min:"0" max:"1000" help:"What is added to every list price, in percent."`

	TLS      TLS      `name:"tls"`
	Log      Log      `name:"log"`
	Limits   Limits   `name:"limits"`
	Gateway  Gateway  `name:"gateway"`
	Audit    Audit    `name:"audit"`
	Webhooks Webhooks `name:"webhooks"`
	Files    Files    `name:"files"`
	Media    Media    `name:"media"`
	Agents   Agents   `name:"agents"`
	Leaks    Leaks    `name:"leaks"`
	SMTP     SMTP     `name:"smtp"`
	Mail     Mail     `name:"mail"`
	OIDC     OIDC     `name:"oidc"`

	Providers []Provider `section:"providers"`
	Routes    []Route    `section:"routes"`
}

// TLS makes the server speak HTTPS itself; both files or none.
type TLS struct {
	Cert string `name:"cert" help:"PEM file with the certificate chain; makes the server speak HTTPS, together with tls.key."`
	Key  string `name:"key" help:"PEM file with the private key of tls.cert."`
}

// Log says what is logged and how.
type Log struct {
	Level  slog.Level `name:"level" default:"info" help:"Least severe level that is logged: debug, info, warn or error."`
	Format string     `name:"format" default:"auto" oneof:"auto,text,json" help:"Form of the log lines: text, json, or auto, which is text on a terminal and json elsewhere."`
}

// Limits bounds what one request, or one address, may send.
type Limits struct {
	BodyBytes      Size `name:"body_bytes" default:"1MiB" min:"1KiB" max:"1GiB" help:"Largest request body, except on model calls."`
	ModelBodyBytes Size `name:"model_body_bytes" default:"32MiB" min:"1KiB" max:"1GiB" help:"Largest request body on model calls, which carry images and audio."`
	// encoding/json itself gives up at a depth of 10,000.
	JSONDepth   int           `name:"json_depth" default:"128" min:"1" max:"10000" help:"Deepest nesting of a JSON body."`
	JSONValues  int           `name:"json_values" default:"100000" min:"1000" max:"100000000" help:"Most values in a JSON body, those within lists and objects included; embeddings may have five times as many, for lists of tokens."`
	HeaderBytes Size          `name:"header_bytes" default:"32KiB" min:"4KiB" max:"1MiB" help:"Largest request header, all fields together."`
	BodyTimeout time.Duration `name:"body_timeout" default:"20s" min:"100ms" max:"10m" help:"How long a request body may take to arrive; a large one gets a second more for every 8 KiB of its first MiB, and for every 64 KiB of the rest."`
	BodiesBytes Size          `name:"bodies_bytes" default:"1GiB" min:"2KiB" max:"1024GiB" help:"Memory that all request bodies over 64 KiB may have at once, and a workspace half of what the others leave of it; a body that finds no room is 503 overloaded. It is never less than twice the largest body."`
	RefusedKeys int           `name:"refused_keys" default:"60" min:"0" max:"1000000" help:"Rejected keys per minute after which an address must wait; keys that the node has seen valid still work from there. 0 turns this off."`
	// As many as a load test opens at once: what an address has open between the
	// handshake and its first valid key is in here, too.
	UnauthenticatedConnections int `name:"unauthenticated_connections" default:"1024" min:"0" max:"1000000" help:"Connections that one client address, in IPv6 one /64, may have open on which no complete request with a valid key or session has arrived; more are closed. Trusted proxies are exempt, and 0 turns this off."`

	LiveRequestsPerMinute int `name:"live_requests_per_minute" alias:"TURNPIKE_RATE_LIMIT_LIVE" default:"1000" min:"0" max:"100000000" help:"Model calls, jobs and runs that a live key may ask for in a minute; 0 turns this off."`
	LiveTokensPerMinute   int `name:"live_tokens_per_minute" default:"2000000" min:"0" max:"1000000000000" help:"Tokens that a live key may use in a minute; 0 turns this off."`
	LiveInFlight          int `name:"live_in_flight" alias:"TURNPIKE_MAX_IN_FLIGHT" default:"200" min:"0" max:"1000000" help:"Requests that a live key may have in flight; 0 turns this off."`
	TestFactor            int `name:"test_factor" default:"10" min:"1" max:"1000" help:"How many times as much a test key may do."`
	TestRequestsPerMinute int `name:"test_requests_per_minute" alias:"TURNPIKE_RATE_LIMIT_TEST" default:"-1" min:"-1" max:"100000000" help:"Model calls, jobs and runs that a test key may ask for in a minute; 0 turns this off, and -1 is test_factor times as many as a live key's."`

	ReadsPerMinute                  int `name:"reads_per_minute" default:"6000" min:"0" max:"100000000" help:"GET requests to the API that a key may send in a minute; 0 turns this off."`
	WritesPerMinute                 int `name:"writes_per_minute" default:"600" min:"0" max:"100000000" help:"Other requests to the API that a key may send in a minute, model calls and the creation of jobs and runs excepted; 0 turns this off."`
	WorkspaceReadsPerMinute         int `name:"workspace_reads_per_minute" default:"30000" min:"0" max:"100000000" help:"GET requests that all keys of a workspace may send in a minute, separately in live and test; 0 turns this off."`
	WorkspaceWritesPerMinute        int `name:"workspace_writes_per_minute" default:"3000" min:"0" max:"100000000" help:"Other requests that all keys of a workspace may send in a minute, separately in live and test; 0 turns this off."`
	WorkspaceModelRequestsPerMinute int `name:"workspace_model_requests_per_minute" default:"0" min:"0" max:"100000000" help:"Model calls, jobs and runs that all keys of a workspace may ask for in a minute, separately in live and test; 0 turns this off."`

	Keys               int `name:"keys" default:"1000" min:"0" max:"100000000" help:"Keys that a workspace may have in each environment, not counting revoked and expired ones; 0 turns this off."`
	ScopedTokens       int `name:"scoped_tokens" default:"50000" min:"0" max:"100000000" help:"Unexpired scoped tokens that a workspace may have in each environment; 0 turns this off."`
	IdempotencyRecords int `name:"idempotency_records" default:"500000" min:"0" max:"100000000" help:"Responses to requests with an Idempotency-Key, kept for 24 hours, that a workspace may have in each environment; 0 turns this off."`
	NewProjectsPerDay  int `name:"new_projects_per_day" default:"100" min:"0" max:"100000000" help:"Projects that a key may create in a UTC day by naming them in Service-Project; 0 turns this off."`
}

// TestRequests is how many requests a test key may make in a minute, 0 for any.
func (l Limits) TestRequests() int {
	if l.TestRequestsPerMinute >= 0 {
		return l.TestRequestsPerMinute
	}
	return l.TestFactor * l.LiveRequestsPerMinute
}

// Gateway bounds model calls.
type Gateway struct {
	DefaultMaxOutput int           `name:"default_max_output" default:"16384" min:"1" max:"10000000" help:"Most tokens of an answer whose request names no limit; credits are reserved for so many."`
	ConnectTimeout   time.Duration `name:"connect_timeout" default:"10s" min:"100ms" max:"1m" help:"How long a provider may take to accept a connection."`
	FirstByteTimeout time.Duration `name:"first_byte_timeout" default:"10m" min:"1s" max:"1h" help:"How long a provider may take to begin its answer. An answer that is not streamed begins when it is ready, so this bounds such a call as a whole, unless the provider sends something to keep the line; models that reason take minutes."`
	IdleTimeout      time.Duration `name:"idle_timeout" default:"5m" min:"1s" max:"1h" help:"How long a provider may pause between two pieces of a stream, in which a model may think."`
}

// Audit configures the request log.
type Audit struct {
	Strict        bool `name:"strict" default:"false" help:"Call a provider only after the request's log entry is durable; costs latency."`
	RetentionDays int  `name:"retention_days" default:"400" min:"1" max:"36500" help:"Days for which the request log is kept."`
}

// Webhooks configures deliveries.
type Webhooks struct {
	RetrySchedule []time.Duration `name:"retry_schedule" default:"1m,5m,30m,2h,12h" help:"How long after each failed attempt the next one is made, up to 20 delays of together 144h; after the last the endpoint is paused."`
	Timeout       time.Duration   `name:"timeout" default:"10s" min:"100ms" max:"1m" help:"How long an endpoint may take for its answer."`
	PerEndpoint   int             `name:"per_endpoint" default:"32" min:"1" max:"1000" help:"Most attempts at once to one endpoint; one that fails or is slow gets fewer."`
	Concurrency   int             `name:"concurrency" default:"512" min:"1" max:"100000" help:"Most attempts at once on this node."`
	AllowCIDRs    []netip.Prefix  `name:"allow_cidrs" help:"Private or otherwise refused addresses that endpoints may have, such as 10.20.0.0/16; unsafe unless every customer may reach them."`
	AllowHTTP     bool            `name:"allow_http" default:"false" help:"Accept http:// endpoints, whose deliveries anybody on the way can read."`
}

// Files says where files are kept, and for how long.
type Files struct {
	URL        SecretURL     `name:"url" help:"Bucket for files, such as s3://name?region=eu-central-1, with &endpoint=https://… and &use_path_style=true for other makes than Amazon's; credentials are found as the AWS tools find them. Empty means a folder in the data folder, which other nodes cannot read."`
	Retention  time.Duration `name:"retention" default:"720h" min:"1h" max:"87600h" help:"How long files are kept; not less than media.deadline."`
	FromBucket bool          `name:"from_bucket" default:"false" help:"Redirect downloads to the bucket, which then sends the file itself, instead of sending it from here."`
}

// Media says how jobs are worked that make pictures, videos and speech.
type Media struct {
	Concurrency  int           `name:"concurrency" default:"64" min:"1" max:"100000" help:"Most pieces of image, video and voice jobs that are worked at once on this node."`
	PerWorkspace int           `name:"per_workspace" default:"8" min:"1" max:"1000" help:"Most of them in one of a workspace's lanes, of which it has 16 for each kind of job; one whose provider fails gets fewer."`
	Deadline     time.Duration `name:"deadline" default:"24h" min:"1s" max:"720h" help:"How long a job may take before it fails."`
	PollInterval time.Duration `name:"poll_interval" default:"5s" min:"100ms" max:"10m" help:"How often a provider is asked how far a video is; the first times are sooner."`
	Espeak       bool          `name:"espeak" default:"true" help:"Let live keys use espeak-ng for speech, free of charge, if it is installed."`
}

// Agents says how agent runs are worked, and what their tools may reach.
type Agents struct {
	Concurrency  int            `name:"concurrency" default:"256" min:"1" max:"100000" help:"Most agent runs that are worked at once on this node; those that wait for somebody do not count."`
	PerWorkspace int            `name:"per_workspace" default:"32" min:"1" max:"1000" help:"Most of them in one of a workspace's lanes, of which it has 16."`
	AllowCIDRs   []netip.Prefix `name:"allow_cidrs" help:"Private or otherwise refused addresses that tools of runs may have, such as 10.20.0.0/16; unsafe unless every customer may reach them."`
	AllowHTTP    bool           `name:"allow_http" default:"false" help:"Accept http:// addresses of tools, whose calls anybody on the way can read."`

	TestToolsDefault      string   `name:"test_tools_default" default:"simulated" oneof:"simulated,real" help:"Whether runs of test keys simulate HTTP and MCP tools and HTTP checks, or really send their requests, in workspaces that don't set test_tools: simulated or real."`
	RequestsPerMinute     int      `name:"requests_per_minute" default:"600" min:"0" max:"100000000" help:"Requests per minute that tools, MCP sessions and checks of a workspace may send, in each environment. Runs over the limit wait. 0 turns this off."`
	HostRequestsPerMinute int      `name:"host_requests_per_minute" default:"1200" min:"0" max:"100000000" help:"Requests per minute that they may send to one host, all workspaces together, in each environment. Runs over the limit wait. 0 turns this off."`
	UnlimitedHosts        []string `name:"unlimited_hosts" help:"Hosts that host_requests_per_minute doesn't apply to, such as api.example.com; use it for your own services."`
	ToolCallsPerStep      int      `name:"tool_calls_per_step" default:"16" min:"1" max:"1000" help:"HTTP and MCP tool calls that the server makes in one step of a run. It skips the others and tells the model so."`
	ToolCallsPerRun       int      `name:"tool_calls_per_run" default:"500" min:"1" max:"1000000" help:"HTTP and MCP tool calls that the server makes in a run. A run that asks for more fails with max_tool_calls_exceeded."`
}

// Leaks says who may report leaked keys.
type Leaks struct {
	ReportPerMinute int    `name:"report_per_minute" default:"60" min:"0" max:"1000000" help:"Reports of leaked keys without a login that one address may send in a minute; 0 turns this limit off."`
	GitHubKeysURL   string `name:"github_keys_url" default:"https://api.github.com/meta/public_keys/secret_scanning" help:"Where the public keys are that sign reports to /leaks/github."`
	GitLabToken     Secret `name:"gitlab_token" help:"Token that a GitLab server sends with its reports to /leaks/gitlab, of at least 16 characters; empty turns these reports off."`
}

// SMTP is the way out for mail.
type SMTP struct {
	URL SecretURL `name:"url" help:"Mail server: smtp://user:password@host:587 (STARTTLS is required, except on this machine) or smtps://user:password@host:465; ?tls=insecure-plaintext does without encryption, ?tls=starttls asks for it on this machine too; empty writes a line to the log instead of sending."`
}

// Mail says how mails look.
type Mail struct {
	From string `name:"from" help:"Sender of mails, such as turnpike@example.com; required with smtp.url."`
}

// OIDC is a provider of OpenID Connect at which people can sign in.
type OIDC struct {
	Issuer       string `name:"issuer" help:"OpenID Connect provider at which people may sign in to the dashboard, such as https://accounts.example.com; it signs in members whose account is linked to it, or who are invited or have neither password nor passkey, by the e-mail address that it has verified. Its redirect address is {public_url}/dashboard/login/oidc/callback. Empty turns this off."`
	ClientID     string `name:"client_id" help:"Name that the provider knows this server by; required with oidc.issuer."`
	ClientSecret Secret `name:"client_secret" help:"Password that the provider gave to this server; empty for providers that give none."`
	Name         string `name:"name" default:"single sign-on" help:"How the button calls the provider: Sign in with …"`
}

// Default returns the settings of a server that was told nothing.
func Default() Config {
	var c Config
	for _, s := range c.settings() {
		s.reset()
	}
	return c
}

// BaseURL is the {base_url} of links: PublicURL, or the address that the
// server is bound to, which may differ from Listen when that has port 0.
func (c Config) BaseURL(bound string) string {
	if c.PublicURL != "" {
		return c.PublicURL
	}
	host, port, err := net.SplitHostPort(bound)
	if err != nil {
		return ""
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http"
	if c.TLS.Cert != "" {
		scheme = "https"
	}
	u := url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port)}
	return u.String()
}
