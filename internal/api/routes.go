package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/media"
)

// Route is one line of the interface.
type Route struct {
	Method string
	Path   string // in the syntax of http.ServeMux
	Scope  access.Scope
	handle handler
}

// Routes is the table of everything under /v1, with the scope each needs.
func Routes() []Route { return slices.Concat(modelRoutes(), resourceRoutes()) }

// modelRoutes are the model requests: they call a model, or create a job or a
// run that does. They have rate limits of their own, and only they and the
// creation of scoped tokens create projects.
func modelRoutes() []Route {
	return []Route{
		{"POST", "/v1/chat/completions", access.ChatCompletionsCreate, createChatCompletion},
		{"POST", "/v1/responses", access.ResponsesCreate, createResponse},
		{"POST", "/v1/embeddings", access.EmbeddingsCreate, createEmbeddings},
		{"POST", "/v1/images/generations", access.ImagesCreate, createImage},
		{"POST", "/v1/images/edits", access.ImagesCreate, editImage},
		{"POST", "/v1/images/batches", access.ImagesCreate, createImageBatch},
		{"POST", "/v1/videos", access.VideosCreate, createVideo},
		{"POST", "/v1/audio/speech", access.VoiceCreate, createSpeech},
		{"POST", "/v1/voice/renders", access.VoiceCreate, createVoiceRender},
		{"POST", "/v1/agents/runs", access.AgentRunsCreate, createRun},
	}
}

func resourceRoutes() []Route {
	return []Route{
		{"GET", "/v1/models", access.ModelsRead, read(listModels)},
		{"GET", "/v1/models/{id...}", access.ModelsRead, read(getModel)},

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
		{"POST", "/v1/webhooks/{id}/replay", access.EventsReplay, act(replayEndpoint)},
		{"GET", "/v1/tunnel", access.WebhooksWrite, openTunnel},

		{"GET", "/v1/deliveries", access.WebhooksRead, read(listDeliveries)},
		{"GET", "/v1/deliveries/{id}", access.WebhooksRead, read(getDelivery)},
		{"POST", "/v1/deliveries/{id}/replay", access.EventsReplay, act(replayDelivery)},
		{"GET", "/v1/replays/{id}", access.WebhooksRead, read(getReplay)},

		{"GET", "/v1/events", access.EventsRead, read(listEvents)},
		{"GET", "/v1/events/{id}", access.EventsRead, read(getEvent)},

		{"GET", "/v1/billing", access.BillingRead, read(getBilling)},
		{"PATCH", "/v1/billing", access.BillingWrite, act(updateBilling)},
		{"GET", "/v1/usage", access.UsageRead, read(getUsage)},

		{"GET", "/v1/audit", access.AuditRead, listAudit},
		{"GET", "/v1/audit/{id}", access.AuditRead, read(getAudit)},
		{"GET", "/v1/audit/actions", access.AuditRead, read(listActions)},
	}
}

// mux registers the table and an answer to everything that is not in it.
func (s *Server) mux(routes []Route) *http.ServeMux {
	mux := http.NewServeMux()
	for _, rt := range routes {
		mux.HandleFunc(rt.Method+" "+rt.Path, func(w http.ResponseWriter, r *http.Request) {
			callOf(w).serve(rt, r)
		})
	}
	answerTheRest(mux)
	return mux
}

// answerTheRest says what there is instead: no such path, or not with this method.
func answerTheRest(mux *http.ServeMux) {
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c := callOf(w)
		allowed := methodsAt(mux, r)
		if len(allowed) == 0 {
			c.fail(c.noRoute())
			return
		}
		list := strings.Join(allowed, ", ")
		w.Header().Set("Allow", list)
		c.fail(fault.New(fault.MethodNotAllowed, "%s is not possible here; possible: %s", masked(r.Method, 16), list))
	})
}

// methodsAt finds the methods that the path does have.
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

// serve checks the route's scope and runs its handler. The mux has put the
// path's values into the request.
func (c *Call) serve(rt Route, r *http.Request) {
	c.r, c.scope = r, rt.Scope
	err := c.Principal.Require(rt.Scope)
	if err == nil {
		err = c.useProject()
	}
	if err == nil {
		err = rt.handle(c)
	}
	if err != nil {
		c.fail(err)
	}
}

// useProject checks that the request's project can be used. One that is new
// passes, unless the caller is a scoped token or the workspace is strict: what
// has nothing to do in it doesn't create it, or any key could use up the
// workspace's projects.
func (c *Call) useProject() error {
	if c.Project == "" {
		return nil
	}
	exists, err := c.s.Projects.Use(c.Context(), c.namedProject(), c.Principal.Token == nil)
	c.newProject = !exists
	return err
}

// createProject creates the request's project if it is new, for work that is
// about to be done in it.
func (c *Call) createProject(ctx context.Context) error {
	if !c.newProject {
		return nil
	}
	return c.s.Projects.Create(ctx, c.Actor(), c.namedProject())
}

// createProjectIn is createProject in the transaction that stores the work.
func (c *Call) createProjectIn(tx *db.Tx) error {
	if !c.newProject {
		return nil
	}
	return c.s.Projects.CreateIn(c.Context(), tx, c.Actor(), c.namedProject())
}

func (c *Call) namedProject() accounts.Project {
	return accounts.Project{WorkspaceID: c.Principal.WorkspaceID, Environment: c.Principal.Environment, ID: c.Project}
}

func (c *Call) noRoute() error {
	return fault.New(fault.NotFound, "there is nothing at %s; /docs lists what there is", masked(c.r.URL.Path, maxLoggedText))
}
