package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/ids"
	"turnpike/internal/media"
	"turnpike/internal/web"
)

// Route is an endpoint of the API.
type Route struct {
	Method string
	Path   string       // in the syntax of http.ServeMux
	Scope  access.Scope // empty if no key is required
	handle handler
}

// Routes returns every endpoint that needs a key.
func Routes() []Route { return slices.Concat(modelRoutes(), resourceRoutes()) }

// modelRoutes call a model, or create a job or a run that does. They have their
// own rate limits, and only they and the creation of scoped tokens create
// projects.
func modelRoutes() []Route {
	return []Route{
		{"POST", "/v1/chat/completions", access.ChatCompletionsCreate, createChatCompletion},
		{"POST", "/v1/completions", access.ChatCompletionsCreate, createCompletion},
		{"POST", responsesPath, access.ResponsesCreate, createResponse},
		{"POST", "/v1/messages", access.MessagesCreate, createMessage},
		{"POST", "/v1/messages/count_tokens", access.MessagesCreate, countMessageTokens},
		{"POST", "/v1/embeddings", access.EmbeddingsCreate, createEmbeddings},
		{"POST", "/v1/moderations", access.ModerationsCreate, createModeration},
		{"POST", "/v1/rerank", access.RerankCreate, createRerank},
		{"POST", "/v1/images/generations", access.ImagesCreate, createImage},
		{"POST", "/v1/images/edits", access.ImagesCreate, editImage},
		{"POST", "/v1/images/batches", access.ImagesCreate, createJobOf((*media.Service).DraftImages)},
		{"POST", "/v1/videos", access.VideosCreate, createVideo},
		{"POST", "/v1/videos/{id}/remix", access.VideosCreate, remixVideo},
		{"POST", "/v1/audio/speech", access.VoiceCreate, createSpeech},
		{"POST", "/v1/audio/transcriptions", access.TranscriptionsCreate, createTranscription},
		{"POST", "/v1/audio/translations", access.TranscriptionsCreate, createTranslation},
		{"POST", "/v1/voice/renders", access.VoiceCreate, createJobOf((*media.Service).DraftVoice)},
		{"POST", "/v1/voice/transcriptions", access.TranscriptionsCreate, createTranscriptionJob},
		{"POST", "/v1/batches", access.BatchesCreate, createBatch},
		{"POST", messageBatchesPath, access.BatchesCreate, createMessageBatch},
		{"POST", "/v1/agents/runs", access.AgentRunsCreate, createRun},
	}
}

func resourceRoutes() []Route {
	return []Route{
		{"GET", "/v1/models", access.ModelsRead, read(listModels)},
		{"GET", "/v1/models/{id...}", access.ModelsRead, read(getModel)},

		{"GET", responsesPath, access.ResponsesCreate, openResponseSocket},
		{"POST", "/v1/responses/input_tokens", access.ResponsesCreate, countInputTokens},
		{"GET", "/v1/responses/{id}", access.ResponsesCreate, getResponse},
		{"DELETE", "/v1/responses/{id}", access.ResponsesCreate, act(deleteResponse)},
		{"POST", "/v1/responses/{id}/cancel", access.ResponsesCreate, act(cancelResponse)},
		{"GET", "/v1/responses/{id}/input_items", access.ResponsesCreate, read(listInputItems)},
		{"POST", "/v1/conversations", access.ResponsesCreate, act(createConversation)},
		{"GET", "/v1/conversations/{id}", access.ResponsesCreate, read(getConversation)},
		{"POST", "/v1/conversations/{id}", access.ResponsesCreate, act(updateConversation)},
		{"DELETE", "/v1/conversations/{id}", access.ResponsesCreate, act(deleteConversation)},
		{"GET", "/v1/conversations/{id}/items", access.ResponsesCreate, read(listConversationItems)},
		{"POST", "/v1/conversations/{id}/items", access.ResponsesCreate, act(addConversationItems)},
		{"GET", "/v1/conversations/{id}/items/{item}", access.ResponsesCreate, read(getConversationItem)},
		{"DELETE", "/v1/conversations/{id}/items/{item}", access.ResponsesCreate, act(deleteConversationItem)},

		{"GET", "/v1/images/batches", access.ImagesRead, read(listJobs(media.Images))},
		{"GET", "/v1/images/batches/{id}", access.ImagesRead, read(getJob(media.Images))},
		{"POST", "/v1/images/batches/{id}/cancel", access.ImagesCreate, act(cancelJob(media.Images))},
		{"DELETE", "/v1/images/batches/{id}", access.ImagesCreate, act(deleteJob(media.Images))},

		{"GET", "/v1/videos", access.VideosRead, read(listJobs(media.Video))},
		{"GET", "/v1/videos/{id}", access.VideosRead, read(getJob(media.Video))},
		{"GET", "/v1/videos/{id}/content", access.VideosRead, getVideoContent},
		{"POST", "/v1/videos/{id}/cancel", access.VideosCreate, act(cancelJob(media.Video))},
		{"DELETE", "/v1/videos/{id}", access.VideosCreate, act(deleteJob(media.Video))},

		{"GET", "/v1/voice/renders", access.VoiceRead, read(listJobs(media.Voice))},
		{"GET", "/v1/voice/renders/{id}", access.VoiceRead, read(getJob(media.Voice))},
		{"POST", "/v1/voice/renders/{id}/cancel", access.VoiceCreate, act(cancelJob(media.Voice))},
		{"DELETE", "/v1/voice/renders/{id}", access.VoiceCreate, act(deleteJob(media.Voice))},

		{"POST", "/v1/files", access.FilesCreate, createFile},
		{"GET", "/v1/files", access.FilesRead, read(listFiles)},
		{"GET", "/v1/files/{id}", access.FilesRead, read(getFile)},
		{"GET", "/v1/files/{id}/content", access.FilesRead, getFileContent},
		{"DELETE", "/v1/files/{id}", access.FilesCreate, act(deleteFile)},

		{"GET", "/v1/voice/transcriptions", access.TranscriptionsCreate, read(listJobs(media.Transcript))},
		{"GET", "/v1/voice/transcriptions/{id}", access.TranscriptionsCreate, read(getJob(media.Transcript))},
		{"POST", "/v1/voice/transcriptions/{id}/cancel", access.TranscriptionsCreate, act(cancelJob(media.Transcript))},
		{"DELETE", "/v1/voice/transcriptions/{id}", access.TranscriptionsCreate, act(deleteJob(media.Transcript))},

		{"GET", "/v1/batches", access.BatchesRead, read(listBatches)},
		{"GET", "/v1/batches/{id}", access.BatchesRead, read(getBatch)},
		{"POST", "/v1/batches/{id}/cancel", access.BatchesCreate, act(cancelBatch)},
		{"GET", messageBatchesPath, access.BatchesRead, read(listMessageBatches)},
		{"GET", "/v1/messages/batches/{id}", access.BatchesRead, read(getMessageBatch)},
		{"GET", "/v1/messages/batches/{id}/results", access.BatchesRead, getMessageBatchResults},
		{"POST", "/v1/messages/batches/{id}/cancel", access.BatchesCreate, act(cancelMessageBatch)},
		{"DELETE", "/v1/messages/batches/{id}", access.BatchesCreate, act(deleteMessageBatch)},

		{"GET", "/v1/agents/runs", access.AgentRunsRead, read(listRuns)},
		{"GET", "/v1/agents/runs/{id}", access.AgentRunsRead, read(getRun)},
		{"GET", "/v1/agents/runs/{id}/steps", access.AgentRunsRead, read(listSteps)},
		{"GET", "/v1/agents/runs/{id}/events", access.AgentRunsRead, getRunEvents},
		{"POST", "/v1/agents/runs/{id}/cancel", access.AgentRunsCreate, act(cancelRun)},
		{"POST", "/v1/agents/runs/{id}/tool_outputs", access.AgentRunsCreate, act(sendToolOutputs)},
		{"POST", "/v1/agents/runs/{id}/approvals/{approval}", access.AgentRunsApprove, act(decideApproval)},

		{"POST", "/v1/scoped_tokens", access.ScopedTokensCreate, act(createScopedToken)},
		{"DELETE", "/v1/scoped_tokens/{id}", access.ScopedTokensCreate, act(revokeScopedToken)},

		{"POST", "/v1/keys", access.KeysWrite, act(createKey)},
		{"GET", "/v1/keys", access.KeysRead, read(listKeys)},
		{"GET", "/v1/keys/{id}", access.KeysRead, read(getKey)},
		{"PATCH", "/v1/keys/{id}", access.KeysWrite, act(updateKey)},
		{"DELETE", "/v1/keys/{id}", access.KeysWrite, act(revokeKey)},
		{"POST", "/v1/keys/{id}/rotate", access.KeysWrite, act(rotateKey)},
		{"POST", "/v1/keys/{id}/end_grace", access.KeysWrite, act(endKeyGrace)},

		{"POST", "/v1/federation_rules", access.KeysWrite, act(createFederationRule)},
		{"GET", "/v1/federation_rules", access.KeysRead, read(listFederationRules)},
		{"GET", "/v1/federation_rules/{id}", access.KeysRead, read(getFederationRule)},
		{"PATCH", "/v1/federation_rules/{id}", access.KeysWrite, act(updateFederationRule)},
		{"DELETE", "/v1/federation_rules/{id}", access.KeysWrite, act(deleteFederationRule)},

		{"POST", "/v1/projects", access.ProjectsWrite, act(createProject)},
		{"GET", "/v1/projects", access.ProjectsRead, read(listProjects)},
		{"GET", "/v1/projects/{id}", access.ProjectsRead, read(getProject)},
		{"PATCH", "/v1/projects/{id}", access.ProjectsWrite, act(updateProject)},
		{"DELETE", "/v1/projects/{id}", access.ProjectsWrite, act(archiveProject)},

		{"POST", "/v1/webhooks", access.WebhooksWrite, act(createEndpoint)},
		{"GET", "/v1/webhooks", access.WebhooksRead, read(listEndpoints)},
		{"GET", "/v1/webhooks/{id}", access.WebhooksRead, read(getEndpoint)},
		{"PATCH", "/v1/webhooks/{id}", access.WebhooksWrite, act(updateEndpoint)},
		{"DELETE", "/v1/webhooks/{id}", access.WebhooksWrite, act(deleteEndpoint)},
		{"POST", "/v1/webhooks/{id}/pause", access.WebhooksWrite, act(pauseEndpoint)},
		{"POST", "/v1/webhooks/{id}/resume", access.WebhooksWrite, act(resumeEndpoint)},
		{"POST", "/v1/webhooks/{id}/rotate_secret", access.WebhooksWrite, act(rotateEndpointSecret)},
		{"POST", "/v1/webhooks/{id}/end_grace", access.WebhooksWrite, act(endEndpointGrace)},
		{"POST", "/v1/webhooks/{id}/test", access.WebhooksWrite, act(testEndpoint)},
		{"POST", "/v1/webhooks/{id}/replay", access.EventsReplay, replayEndpoint},
		{"GET", "/v1/tunnel", access.WebhooksWrite, openTunnel},

		{"POST", openAIEndpointsPath, access.WebhooksWrite, act(createOpenAIEndpoint)},
		{"GET", openAIEndpointsPath, access.WebhooksRead, read(listOpenAIEndpoints)},
		{"GET", "/v1/webhook_endpoints/{id}", access.WebhooksRead, read(getOpenAIEndpoint)},
		{"POST", "/v1/webhook_endpoints/{id}", access.WebhooksWrite, act(updateOpenAIEndpoint)},
		{"DELETE", "/v1/webhook_endpoints/{id}", access.WebhooksWrite, act(deleteOpenAIEndpoint)},
		{"POST", "/v1/webhook_endpoints/{id}/rotate_secret", access.WebhooksWrite, act(rotateOpenAISecret)},
		{"POST", "/v1/webhook_endpoints/{id}/test", access.WebhooksWrite, testOpenAIEndpoint},
		{"GET", "/v1/webhook_event_types", access.WebhooksRead, read(listEventTypes)},

		{"GET", "/v1/deliveries", access.WebhooksRead, read(listDeliveries)},
		{"GET", "/v1/deliveries/{id}", access.WebhooksRead, read(getDelivery)},
		{"POST", "/v1/deliveries/{id}/replay", access.EventsReplay, act(replayDelivery)},
		{"GET", "/v1/replays/{id}", access.WebhooksRead, read(getReplay)},

		{"GET", "/v1/events", access.EventsRead, read(listEvents)},
		{"GET", "/v1/events/{id}", access.EventsRead, read(getEvent)},

		{"GET", "/v1/billing", access.BillingRead, read(getBilling)},
		{"PATCH", "/v1/billing", access.BillingWrite, act(updateBilling)},
		{"GET", "/v1/notifications", access.BillingRead, read(getNotifications)},
		{"PATCH", "/v1/notifications", access.BillingWrite, act(updateNotifications)},
		{"POST", "/v1/notifications/test", access.BillingWrite, testNotifications},
		{"GET", "/v1/usage", access.UsageRead, read(getUsage)},

		{"POST", mcpPath, access.MCPToolsCall, serveMCP},
		{"POST", mcpPath + "/{label}", access.MCPToolsCall, serveMCP},
		{"POST", "/v1/tool_servers", access.ToolServersWrite, act(createToolServer)},
		{"GET", "/v1/tool_servers", access.ToolServersRead, read(listToolServers)},
		{"GET", "/v1/tool_servers/{id}", access.ToolServersRead, read(getToolServer)},
		{"PATCH", "/v1/tool_servers/{id}", access.ToolServersWrite, act(updateToolServer)},
		{"DELETE", "/v1/tool_servers/{id}", access.ToolServersWrite, act(deleteToolServer)},
		{"POST", "/v1/tool_servers/{id}/refresh", access.ToolServersWrite, refreshToolServer},

		{"POST", "/v1/routes", access.RoutesWrite, act(createModelRoute)},
		{"GET", "/v1/routes", access.RoutesRead, read(listModelRoutes)},
		{"GET", "/v1/routes/{id}", access.RoutesRead, read(getModelRoute)},
		{"PATCH", "/v1/routes/{id}", access.RoutesWrite, act(updateModelRoute)},
		{"DELETE", "/v1/routes/{id}", access.RoutesWrite, act(deleteModelRoute)},

		{"GET", "/v1/users", access.UsersRead, read(listUsers)},
		{"GET", "/v1/users/settings", access.UsersRead, read(getUserSettings)},
		{"PATCH", "/v1/users/settings", access.UsersWrite, act(updateUserSettings)},
		{"GET", "/v1/users/{id}", access.UsersRead, read(getUser)},
		{"PATCH", "/v1/users/{id}", access.UsersWrite, act(updateUser)},
		{"DELETE", "/v1/users/{id}", access.UsersWrite, act(deleteUser)},

		{"GET", "/v1/audit", access.AuditRead, listAudit},
		{"GET", "/v1/audit/{id}", access.AuditRead, read(getAudit)},
		{"GET", "/v1/audit/{id}/content", access.ContentRead, act(getContent)},
		{"GET", "/v1/audit/actions", access.AuditRead, read(listActions)},
	}
}

// pathIDs are the formats of the {id} of routes, by the path before it. Handlers
// check the IDs of models and projects.
var pathIDs = map[string]web.PathID{
	"/v1/images/batches": {Prefix: media.Images.Prefix(), Kind: media.Images.Noun()},
	"/v1/videos":         {Prefix: media.Video.Prefix(), Kind: media.Video.Noun()},
	"/v1/voice/renders":  {Prefix: media.Voice.Prefix(), Kind: media.Voice.Noun()},
	"/v1/files":          {Prefix: ids.File, Kind: "file"},
	"/v1/batches":        {Prefix: ids.Batch, Kind: "batch"},
	messageBatchesPath:   {Prefix: ids.MessageBatch, Kind: "batch"},
	responsesPath:        {Prefix: ids.Response, Kind: "response"},
	"/v1/conversations":  {Prefix: ids.Conversation, Kind: "conversation"},
	"/v1/agents/runs":    {Prefix: ids.Run, Kind: "agent run"},
	"/v1/scoped_tokens":  {Prefix: ids.ScopedToken, Kind: "scoped token"},
	"/v1/keys":           {Prefix: ids.Key, Kind: "key"},
	"/v1/webhooks":       {Prefix: ids.Endpoint, Kind: "webhook endpoint"},
	openAIEndpointsPath:  {Prefix: ids.Endpoint, Kind: "webhook endpoint"},
	"/v1/deliveries":     {Prefix: ids.Delivery, Kind: "delivery"},
	"/v1/replays":        {Prefix: ids.Replay, Kind: "replay"},
	"/v1/events":         {Prefix: ids.Event, Kind: "event"},
	"/v1/audit":          {Prefix: ids.Request, Kind: "request"},
	"/v1/tool_servers":   {Prefix: ids.ToolServer, Kind: "tool server"},
	"/v1/routes":         {Prefix: ids.Route, Kind: "route"},
	"/v1/users":          {Prefix: ids.EndUser, Kind: "user"},

	"/v1/federation_rules": {Prefix: ids.FederationRule, Kind: "federation rule"},

	"/v1/voice/transcriptions": {Prefix: media.Transcript.Prefix(), Kind: media.Transcript.Noun()},
}

func (rt Route) checkID(r *http.Request) error {
	before, _, _ := strings.Cut(rt.Path, "/{id}")
	return pathIDs[before].Check(r)
}

// newMux registers all routes, and a handler for every other path and method.
func (s *Server) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	register := func(rt Route, kind requestKind) {
		mux.HandleFunc(rt.Method+" "+rt.Path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, rt, kind) })
	}
	for _, rt := range modelRoutes() {
		register(rt, modelRequest)
	}
	for _, rt := range slices.Concat(resourceRoutes(), adminRoutes(), publicRoutes()) {
		register(rt, kindOf(rt.Method))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, Route{handle: func(c *Call) error { return c.noSuchRoute(mux) }}, kindOf(r.Method))
	})
	return mux
}

// noSuchRoute returns the error for a path that doesn't exist, or doesn't have
// the request's method.
func (c *Call) noSuchRoute(mux *http.ServeMux) error {
	allowed := methodsAt(mux, c.R)
	if len(allowed) == 0 {
		return c.notFound()
	}
	list := strings.Join(allowed, ", ")
	c.W.Header().Set("Allow", list)
	return fault.New(fault.MethodNotAllowed, "%s is not allowed here. Allowed methods: %s.", web.Sanitize(c.R.Method, 16), list)
}

// methodsAt returns the methods that the path has.
func methodsAt(mux *http.ServeMux, r *http.Request) []string {
	var out []string
	for _, method := range []string{"DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"} {
		probe := *r
		probe.Method = method
		if _, pattern := mux.Handler(&probe); pattern != "/" {
			out = append(out, method)
		}
	}
	return out
}

// useProject checks that the request's project can be used. A new project passes,
// unless the caller is a scoped token or the workspace is strict. It isn't created
// yet, or any key could use up the workspace's projects.
func (c *Call) useProject() error {
	if c.Project == "" {
		return nil
	}
	exists, err := c.s.Projects.Use(c.Context(), c.namedProject(), c.Principal.Token == nil)
	c.newProject = !exists
	return err
}

// createProject creates the request's project if it is new.
func (c *Call) createProject(ctx context.Context) error {
	if !c.newProject {
		return nil
	}
	return c.s.Projects.Create(ctx, c.Actor(), c.namedProject())
}

// createProjectIn is createProject in the transaction that stores the work.
func (c *Call) createProjectIn(ctx context.Context, tx *db.Tx) error {
	if !c.newProject {
		return nil
	}
	return c.s.Projects.CreateIn(ctx, tx, c.Actor(), c.namedProject())
}

func (c *Call) namedProject() accounts.Project {
	return accounts.Project{Tenant: c.Principal.Tenant, ID: c.Project}
}

func (c *Call) notFound() error {
	return fault.New(fault.NotFound, "There is nothing at %s. See /docs for all endpoints.", web.Sanitize(c.R.URL.Path, web.MaxLoggedText))
}

// publicRoutes need no key: health, the reference, files with signed URLs, the
// exchange of tokens and reports of leaked keys.
func publicRoutes() []Route {
	return []Route{
		{"GET", "/healthz", "", sendOK},
		{"GET", "/readyz", "", checkReady},
		{"GET", "/openapi.json", "", serveOpenAPI(func(d *documentation) *web.Asset { return d.json })},
		{"GET", "/openapi.yaml", "", serveOpenAPI(func(d *documentation) *web.Asset { return d.yaml })},
		{"GET", "/docs", "", serveDocs},
		{"GET", "/docs/{page...}", "", serveDocs},
		{"GET", "/llms.txt", "", serveDocs},
		{"GET", files.Prefix, "", (*Call).serveFile},
		{"OPTIONS", files.Prefix, "", (*Call).serveFile},
		{"POST", "/oauth/token", "", exchangeToken},
		{"POST", "/leaks/report", "", reportLeak},
		{"POST", "/leaks/github", "", reportFromGitHub},
		{"POST", "/leaks/gitlab", "", fromGitLab(reportFromGitLab)},
		{"GET", "/leaks/gitlab", "", fromGitLab(listGitLabTypes)},
	}
}

func sendOK(c *Call) error {
	c.send(http.StatusOK, jsonType, []byte(`{"status":"ok"}`))
	return nil
}

func checkReady(c *Call) error {
	err := c.s.DB.Ping(c.Context())
	switch {
	case errors.Is(err, db.ErrReadOnly):
		return fault.New(fault.StorageUnavailable, "The server's database accepts only reads. If it isn't failing over, run turnpike doctor.").Because(err)
	case err != nil:
		return web.StorageFault(err)
	}
	return sendOK(c)
}
