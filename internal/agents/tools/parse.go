package tools

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/net/http/httpguts"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/openai"
	"turnpike/internal/safeschema"
)

// functionFields are the fields of a function, next to its type or inside "function". Strict is
// accepted because OpenAI's clients send it, but arguments are always validated.
type functionFields struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      *bool          `json:"strict"`
}

type functionInput struct {
	Type string `json:"type"`
	functionFields
	Function *functionFields `json:"function"`
	Approval *Approval       `json:"require_approval"`
	Rules    *ApprovalRules  `json:"approval_rules"`
}

type httpInput struct {
	Type           string            `json:"type"`
	Name           string            `json:"name"`
	Description    string            `json:"description"`
	Parameters     jsontext.Value    `json:"parameters"`
	Method         *string           `json:"method"`
	URL            string            `json:"url"`
	Headers        map[string]string `json:"headers"`
	TimeoutSeconds *int64            `json:"timeout_seconds"`
	Idempotent     bool              `json:"idempotent"`
	Approval       *Approval         `json:"require_approval"`
	Rules          *ApprovalRules    `json:"approval_rules"`
}

type mcpInput struct {
	Type           string            `json:"type"`
	ServerLabel    string            `json:"server_label"`
	ServerURL      string            `json:"server_url"`
	Headers        map[string]string `json:"headers"`
	AllowedTools   jsontext.Value    `json:"allowed_tools"`
	TimeoutSeconds *int64            `json:"timeout_seconds"`
	Approval       *Approval         `json:"require_approval"`
	Rules          *ApprovalRules    `json:"approval_rules"`

	// OpenAI's clients send these. The model gets all tools at once, so loading is never deferred.
	Authorization string `json:"authorization"`
	Description   string `json:"server_description"`
	ConnectorID   string `json:"connector_id"`
	DeferLoading  *bool  `json:"defer_loading"`
}

// toolFilter is allowed_tools as an object.
type toolFilter struct {
	ToolNames *[]string `json:"tool_names"`
	ReadOnly  *bool     `json:"read_only"`
}

var methods = []string{"POST", "GET", "PUT", "PATCH", "DELETE"}

var noParameters = json.RawMessage(`{"type":"object","properties":{}}`)

// Parse validates the "tools" of a run. The param of an error names the field, such
// as tools[2].parameters.
func (x *Executor) Parse(list []json.RawMessage) ([]Spec, Secrets, error) {
	if len(list) > maxSpecs {
		return nil, nil, fault.Invalid("tools", "tools must have at most %d entries.", maxSpecs)
	}
	specs := make([]Spec, 0, len(list))
	secrets := Secrets{}
	for i, raw := range list {
		at := fmt.Sprintf("tools[%d]", i)
		spec, headers, err := x.parse(at, raw)
		if err != nil {
			return nil, nil, err
		}
		for _, other := range specs {
			if other.id() == spec.id() {
				return nil, nil, fault.Invalid(at+"."+spec.nameField(), "%s.%s is already the name of another tool or server.", at, spec.nameField())
			}
		}
		if headers != nil {
			secrets[spec.id()] = headers
		}
		specs = append(specs, *spec)
	}
	return specs, secrets, nil
}

func (s *Spec) nameField() string {
	if s.Type == MCP {
		return "server_label"
	}
	return "name"
}

func (x *Executor) parse(at string, raw json.RawMessage) (*Spec, map[string]string, error) {
	var head struct {
		Type string `json:"type"`
	}
	if err := jsonbody.DecodeLenient(raw, &head); err != nil {
		return nil, nil, prefixParam(at, err)
	}
	switch Kind(head.Type) {
	case Function:
		spec, err := parseFunction(at, raw)
		return spec, nil, err
	case HTTP:
		return x.parseHTTP(at, raw)
	case MCP:
		return x.parseMCP(at, raw)
	case "":
		return nil, nil, fault.Missing(at+".type", "%s.type is required. It must be function, http or mcp.", at)
	}
	return nil, nil, fault.Invalid(at+".type", "%s.type must be function, http or mcp.", at)
}

func parseFunction(at string, raw json.RawMessage) (*Spec, error) {
	var in functionInput
	if err := jsonbody.DecodeStrict(raw, &in); err != nil {
		return nil, prefixParam(at, err)
	}
	fields := in.functionFields
	inside := at
	if in.Function != nil {
		if fields.Name != "" || fields.Description != "" || fields.Parameters != nil || fields.Strict != nil {
			return nil, fault.Invalid(at+".function", "%s must have its fields either next to type or inside function, not both.", at)
		}
		fields, inside = *in.Function, at+".function"
	}
	spec := &Spec{Type: Function, Name: fields.Name, Description: fields.Description}
	if err := spec.describe(inside, fields.Parameters); err != nil {
		return nil, err
	}
	if err := spec.setApproval(at, in.Approval, never); err != nil {
		return nil, err
	}
	return spec, spec.setRules(at, in.Rules)
}

func (x *Executor) parseHTTP(at string, raw json.RawMessage) (*Spec, map[string]string, error) {
	var in httpInput
	if err := jsonbody.DecodeStrict(raw, &in); err != nil {
		return nil, nil, prefixParam(at, err)
	}
	spec := &Spec{Type: HTTP, Name: in.Name, Description: in.Description, URL: in.URL, Idempotent: in.Idempotent}
	headers, err := checkHeaders(at+".headers", HTTP, in.Headers)
	return spec, headers, cmp.Or(
		spec.describe(at, in.Parameters),
		spec.setMethod(at, in.Method),
		x.checkURL(at+".url", in.URL),
		spec.setTimeout(at, in.TimeoutSeconds),
		spec.setApproval(at, in.Approval, never),
		spec.setRules(at, in.Rules),
		err)
}

func (x *Executor) parseMCP(at string, raw json.RawMessage) (*Spec, map[string]string, error) {
	var in mcpInput
	if err := jsonbody.DecodeStrict(raw, &in); err != nil {
		return nil, nil, prefixParam(at, err)
	}
	if in.ConnectorID != "" {
		return nil, nil, fault.Invalid(at+".connector_id", "%s.connector_id names a connector that only OpenAI can call. Use server_url.", at)
	}
	spec := &Spec{Type: MCP, ServerLabel: in.ServerLabel, ServerURL: in.ServerURL, Description: in.Description}
	headers, err := checkHeaders(at+".headers", MCP, in.Headers)
	if err == nil && in.Authorization != "" {
		headers, err = in.authorize(at+".authorization", headers)
	}
	if in.ServerURL == "" {
		return spec, nil, cmp.Or(checkName(at+".server_label", in.ServerLabel), spec.setRegistered(at, &in, headers), err)
	}
	return spec, headers, cmp.Or(
		checkDescription(at+".server_description", in.Description),
		checkName(at+".server_label", in.ServerLabel),
		x.checkURL(at+".server_url", in.ServerURL),
		spec.setAllowed(at+".allowed_tools", in.AllowedTools),
		spec.setTimeout(at, in.TimeoutSeconds),
		spec.setApproval(at, in.Approval, always),
		spec.setRules(at, in.Rules),
		err)
}

// setRegistered reads a server that the workspace has registered. The registry has its address, headers and
// approval rule, which a run can only make stricter.
func (s *Spec) setRegistered(at string, in *mcpInput, headers map[string]string) error {
	s.Registered = true
	if len(headers) > 0 {
		return fault.Invalid(at+".headers", "%s has no server_url, so it names a registered tool server, which has its own headers. Omit headers, or send server_url.", at)
	}
	if in.Approval != nil && in.Approval.mode != always {
		return fault.Invalid(at+".require_approval", "%s has no server_url, so it names a registered tool server, which has its own approval rule. Omit require_approval or set it to %q.", at, always)
	}
	if in.TimeoutSeconds != nil { // otherwise that of the registry
		if err := s.setTimeout(at, in.TimeoutSeconds); err != nil {
			return err
		}
	}
	return cmp.Or(s.setAllowed(at+".allowed_tools", in.AllowedTools), s.setApproval(at, in.Approval, ""), s.setRules(at, in.Rules))
}

// authorize adds the token of OpenAI's field to the headers.
func (in *mcpInput) authorize(param string, headers map[string]string) (map[string]string, error) {
	const name = "Authorization"
	switch {
	case headers[name] != "":
		return nil, fault.Invalid(param, "%s and the header Authorization exclude each other. Send one of them.", param)
	case !validHeaderValue(in.Authorization):
		return nil, fault.Invalid(param, "%s must be a token of at most %d bytes without line breaks or control characters.", param, maxHeaderBytes)
	case headers == nil:
		headers = map[string]string{}
	}
	headers[name] = "Bearer " + in.Authorization
	return headers, nil
}

func checkDescription(param, text string) error {
	if len(text) > maxDescription {
		return fault.Invalid(param, "%s must have at most %d bytes.", param, maxDescription)
	}
	return nil
}

func (s *Spec) setMethod(at string, method *string) error {
	s.Method = "POST"
	if method == nil {
		return nil
	}
	if s.Method = *method; !slices.Contains(methods, s.Method) {
		return fault.Invalid(at+".method", "%s.method must be one of %s.", at, strings.Join(methods, ", "))
	}
	return nil
}

func (s *Spec) describe(at string, parameters jsontext.Value) error {
	if err := checkName(at+".name", s.Name); err != nil {
		return err
	}
	if err := checkDescription(at+".description", s.Description); err != nil {
		return err
	}
	if len(parameters) == 0 || parameters.Kind() == 'n' {
		s.Parameters = noParameters
		return nil
	}
	s.Parameters = json.RawMessage(parameters)
	return checkParameters(at+".parameters", s.Parameters)
}

func (s *Spec) setTimeout(at string, seconds *int64) error {
	s.TimeoutSeconds = DefaultTimeout
	if seconds == nil {
		return nil
	}
	if *seconds < 1 || *seconds > MaxTimeout {
		return fault.Invalid(at+".timeout_seconds", "%s.timeout_seconds must be from 1 to %d.", at, MaxTimeout)
	}
	s.TimeoutSeconds = int(*seconds)
	return nil
}

func (s *Spec) setApproval(at string, given *Approval, byDefault string) error {
	if given == nil {
		s.Approval = Approval{mode: byDefault}
		return nil
	}
	if given.lists() && s.Type != MCP {
		return fault.Invalid(at+".require_approval", "%s.require_approval must be %q or %q. Lists of tool names are for mcp.", at, always, never)
	}
	s.Approval = *given
	return nil
}

func (x *Executor) checkURL(param, raw string) error {
	if raw == "" {
		return fault.Missing(param, "%s is required.", param)
	}
	_, err := x.guard.CheckURL(param, raw)
	return err
}

func checkParameters(param string, schema json.RawMessage) error {
	if err := checkSchema(param, schema, &safeschema.Budget{IgnorePatterns: true}); err != nil {
		return err
	}
	var root struct {
		Type any `json:"type"`
	}
	if err := json.Unmarshal(schema, &root); err != nil || root.Type != "object" {
		return fault.Invalid(param, `%s must be a schema with "type": "object", because arguments are an object.`, param)
	}
	return nil
}

// setAllowed reads allowed_tools: an array of names, or an object with them.
func (s *Spec) setAllowed(param string, value jsontext.Value) error {
	var names []string
	switch value.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return nil
	case jsontext.KindBeginObject:
		var filter toolFilter
		if err := jsonbody.DecodeStrict(value, &filter); err != nil {
			return prefixParam(param, err)
		}
		if filter.ReadOnly != nil && *filter.ReadOnly {
			return fault.Invalid(param+".read_only", "%s.read_only is not supported. Name the tools in tool_names.", param)
		}
		if filter.ToolNames == nil {
			return nil
		}
		names, param = *filter.ToolNames, param+".tool_names"
	default:
		if json.Unmarshal(value, &names) != nil {
			return fault.Invalid(param, "%s must be an array of strings, or an object with tool_names.", param)
		}
	}
	return s.setAllowedNames(param, names)
}

func (s *Spec) setAllowedNames(param string, names []string) error {
	s.AllowedTools = names
	if len(names) == 0 || len(names) > maxTools {
		return fault.Invalid(param, "%s must have 1 to %d tool names. Omit it to allow all tools.", param, maxTools)
	}
	for i, name := range names {
		if name == "" || len(name) > maxRemoteName {
			return fault.Invalid(fmt.Sprintf("%s[%d]", param, i), "%s[%d] must have 1 to %d bytes.", param, i, maxRemoteName)
		}
	}
	return nil
}

func checkName(param, name string) error {
	if name == "" {
		return fault.Missing(param, "%s is required.", param)
	}
	if !openai.ValidName(name) {
		return fault.Invalid(param, "%s must have 1 to %d letters, digits, hyphens or underscores.", param, maxName)
	}
	return nil
}

func prefixParam(at string, err error) error {
	f, ok := fault.As(err)
	if !ok {
		return err
	}
	moved := *f
	if f.Param == "" {
		moved.Code, moved.Param, moved.Message = fault.InvalidParameter, at, at+" must be a tool: an object with a type."
		return &moved
	}
	moved.Param = at + "." + f.Param
	moved.Message = strings.Replace(f.Message, f.Param, moved.Param, 1)
	return &moved
}

const (
	maxName       = 64  // the limit of model providers
	maxRemoteName = 256 // of a tool at its MCP server
)

// ValidName returns a valid tool name for one that a model may have invented.
func ValidName(name string) string {
	if openai.ValidName(name) {
		return name
	}
	clean := strings.Map(validInName, name)
	if clean == "" {
		clean = "no_name"
	}
	return clean[:min(len(clean), maxName)]
}

// validInName replaces characters that model providers reject in a name.
func validInName(r rune) rune {
	if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' {
		return r
	}
	return '_'
}

// mcpToolName returns the name by which the model calls an MCP tool: label__tool.
// An invalid name is changed and gets a hash, which keeps it unique.
func mcpToolName(label, tool string) string {
	whole := label + "__" + tool
	if openai.ValidName(whole) {
		return whole
	}
	sum := sha256.Sum256([]byte(whole))
	suffix := "_" + hex.EncodeToString(sum[:4])
	clean := strings.Map(validInName, whole)
	return clean[:min(len(clean), maxName-len(suffix))] + suffix
}

const (
	maxHeaders     = 32
	maxHeaderBytes = 8 << 10 // of one name or value
)

// reserved headers belong to the connection or to the server.
var reserved = map[string]bool{
	"Host": true, "Content-Length": true, "Connection": true, "Keep-Alive": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Expect": true, "Proxy-Connection": true, "Proxy-Authorization": true,
	"Proxy-Authenticate": true, "User-Agent": true, "Idempotency-Key": true,
	"X-Idempotency-Key": true, // net/http repeats requests that have it
}

// reservedForMCP headers belong to the protocol, as do those that begin with Mcp-.
var reservedForMCP = map[string]bool{"Accept": true, "Content-Type": true, "Last-Event-Id": true}

// checkHeaders validates headers and normalizes their names. Its errors contain no
// names or values except reserved names, because they may be secret.
func checkHeaders(param string, kind Kind, given map[string]string) (map[string]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	if len(given) > maxHeaders {
		return nil, fault.Invalid(param, "%s must have at most %d headers.", param, maxHeaders)
	}
	headers := make(map[string]string, len(given))
	for name, value := range given {
		if len(name) > maxHeaderBytes || !httpguts.ValidHeaderFieldName(name) {
			return nil, fault.Invalid(param, "%s has an invalid name. Names consist of letters, digits and hyphens.", param)
		}
		name = http.CanonicalHeaderKey(name)
		if reserved[name] || kind == MCP && (reservedForMCP[name] || strings.HasPrefix(name, "Mcp-")) {
			return nil, fault.Invalid(param, "%s must not have %s, which the server sets.", param, name)
		}
		if !validHeaderValue(value) {
			return nil, fault.Invalid(param, "%s has an invalid value. Values have at most %d bytes, no line breaks or control characters, and no spaces at the ends.", param, maxHeaderBytes)
		}
		if _, twice := headers[name]; twice {
			return nil, fault.Invalid(param, "%s has a name twice. Names are case-insensitive.", param)
		}
		headers[name] = value
	}
	return headers, nil
}

func validHeaderValue(value string) bool {
	return len(value) <= maxHeaderBytes && strings.TrimSpace(value) == value && httpguts.ValidHeaderFieldValue(value)
}
