// Generated from sdk/openapi.json by `make sdk`. Don't edit this file.

export interface paths {
    "/v1/images/batches": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List image batches
         * @description Lists the batches of your workspace and environment, without their `results`. A scoped token sees the batches of tokens with the same key and the same metadata.
         *
         *     Requires the scope `images:read`.
         */
        get: operations["listImageBatches"];
        put?: never;
        /**
         * Create an image batch
         * @description Queues up to 1,000 image requests and returns immediately. Turnpike processes them in the background. When the batch ends, it publishes `image.batch.completed` with all results, including failures. Until then, `GET` shows the progress.
         *
         *     If the maximum cost exceeds a budget, the request fails with `402`. You pay only for images that were created.
         *
         *     All requests use the same `model`, which can be a router name and defaults to `auto`. Turnpike passes fields of a request's `body` other than `prompt`, `n` and `size` to the provider unchanged.
         *
         *     With a test key, a prompt can simulate a failure, for example with `[[sim:fail=moderation_blocked_output]]`.
         *
         *     Requires the scope `images:create`.
         */
        post: operations["createImageBatch"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/images/batches/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get an image batch
         * @description Returns a batch with the result of each of its requests. Each response has new URLs, which work for 24 hours.
         *
         *     Requires the scope `images:read`.
         */
        get: operations["getImageBatch"];
        put?: never;
        post?: never;
        /**
         * Delete an image batch
         * @description Deletes a batch that has ended, and its files. If the batch hasn't ended, the request fails with `409 invalid_state`. Cancel the batch first. Charges remain.
         *
         *     Requires the scope `images:create`.
         */
        delete: operations["deleteImageBatch"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/images/batches/{id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cancel an image batch
         * @description Cancels a batch. A queued batch becomes `cancelled` immediately. A batch in progress becomes `cancelling`: Turnpike finishes the requests in progress and cancels the others, and then the batch becomes `cancelled`. You keep the images that were created, and pay for them.
         *
         *     Canceling a canceled batch has no effect. If the batch has ended otherwise, the request fails with `409 invalid_state`.
         *
         *     Requires the scope `images:create`.
         */
        post: operations["cancelImageBatch"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/videos": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List videos
         * @description Lists the videos of your workspace and environment. A scoped token sees the videos of tokens with the same key and the same metadata.
         *
         *     Requires the scope `videos:read`.
         */
        get: operations["listVideos"];
        put?: never;
        /**
         * Create a video
         * @description Queues a video and returns immediately. When the video ends, Turnpike publishes `video.render.completed`, even if it failed. Until then, `GET` shows the progress.
         *     The request and the response are OpenAI's. Turnpike passes fields that aren't documented here to the provider.
         *
         *     The body is JSON or a form (`multipart/form-data`) with the same fields. In a form, `input_reference` is a file and `metadata` is a JSON object as a string.
         *     In JSON, `input_reference` contains the image as an `image_url` that starts with `data:`. Turnpike rejects other URLs and OpenAI file IDs.
         *
         *     If the cost exceeds a budget, the request fails with `402`. Failed and canceled videos are free.
         *
         *     With a test key, the video is completed immediately. `[[sim:delay=10s]]` in the prompt delays it, and `[[sim:fail=capacity]]` makes it fail.
         *
         *     Requires the scope `videos:create`.
         */
        post: operations["createVideo"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/videos/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a video
         * @description Returns a video. A completed video has a `url`. Each response has a new one, which works for 24 hours.
         *
         *     Requires the scope `videos:read`.
         */
        get: operations["getVideo"];
        put?: never;
        post?: never;
        /**
         * Delete a video
         * @description Deletes a video that has ended, and its files. If the video hasn't ended, the request fails with `409 invalid_state`. Cancel the video first. Charges remain.
         *
         *     Requires the scope `videos:create`.
         */
        delete: operations["deleteVideo"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/videos/{id}/remix": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Remix a video
         * @description Queues a new version of a completed video, which changes what the prompt describes. It has the model, the duration and the size of the video, and costs as much.
         *     Only the provider that rendered the video can remix it. If that provider can't, the request fails with `400`. If the video isn't completed, the request fails with `409 invalid_state`.
         *
         *     Requires the scope `videos:create`.
         */
        post: operations["remixVideo"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/videos/{id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cancel a video
         * @description Cancels a video immediately, and at the provider if the provider supports it. OpenAI clients don't know a canceled state, so the video becomes `failed` with the `error.code` `cancelled`. Canceled videos are free.
         *
         *     Canceling a canceled video has no effect. If the video has ended otherwise, the request fails with `409 invalid_state`.
         *
         *     Requires the scope `videos:create`.
         */
        post: operations["cancelVideo"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/voice/renders": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List voice renders
         * @description Lists the renders of your workspace and environment. A scoped token sees the renders of tokens with the same key and the same metadata.
         *
         *     Requires the scope `voice:read`.
         */
        get: operations["listVoiceRenders"];
        put?: never;
        /**
         * Create a voice render
         * @description Queues a text of up to 1,000,000 characters and returns immediately. Turnpike splits the text at sentences, generates speech for chunks of up to 1,500 characters, and joins them into one file.
         *     Finished chunks survive restarts of the server. When the render ends, Turnpike publishes `voice.render.completed`, even if it failed. Until then, `GET` shows the progress.
         *
         *     Send the text as `input`, or in parts as `segments`. Each segment can have its own voice and a pause after it. Formats other than `wav` and `pcm` need ffmpeg on the server. Without ffmpeg, they fail with `400`.
         *
         *     If the maximum cost exceeds a budget, the request fails with `402`. You pay only for generated speech.
         *
         *     Requires the scope `voice:create`.
         */
        post: operations["createVoiceRender"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/voice/renders/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a voice render
         * @description Returns a render. A completed render has a `url`. Each response has a new one, which works for 24 hours.
         *
         *     Requires the scope `voice:read`.
         */
        get: operations["getVoiceRender"];
        put?: never;
        post?: never;
        /**
         * Delete a voice render
         * @description Deletes a render that has ended, and its file. If the render hasn't ended, the request fails with `409 invalid_state`. Cancel the render first. Charges remain.
         *
         *     Requires the scope `voice:create`.
         */
        delete: operations["deleteVoiceRender"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/voice/renders/{id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cancel a voice render
         * @description Cancels a render immediately. You pay for the speech generated so far, but there is no file.
         *
         *     Canceling a canceled render has no effect. If the render has ended otherwise, the request fails with `409 invalid_state`.
         *
         *     Requires the scope `voice:create`.
         */
        post: operations["cancelVoiceRender"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/voice/transcriptions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List transcription jobs
         * @description Lists the transcriptions of your workspace and environment. A scoped token sees the transcriptions of tokens with the same key and the same metadata.
         *
         *     Requires the scope `audio.transcriptions:create`.
         */
        get: operations["listTranscriptionJobs"];
        put?: never;
        /**
         * Create a transcription job
         * @description Queues an audio file and returns immediately. Use it for long files: the job survives lost connections and restarts of the server.
         *     When it ends, Turnpike publishes `voice.transcription.completed`, even if it failed. The transcript is a file in the format of `response_format`.
         *
         *     The form is the same as for `POST /v1/audio/transcriptions`, with `task` and `metadata` in addition. `stream` must be omitted or false.
         *
         *     If the cost of the file's duration exceeds a budget, the request fails with `402`. Failed and canceled jobs are free. Turnpike deletes the audio file when the job ends.
         *
         *     Requires the scope `audio.transcriptions:create`.
         */
        post: operations["createTranscriptionJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/voice/transcriptions/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a transcription job
         * @description Returns a transcription. A completed transcription has a `url`. Each response has a new one, which works for 24 hours.
         *
         *     Requires the scope `audio.transcriptions:create`.
         */
        get: operations["getTranscriptionJob"];
        put?: never;
        post?: never;
        /**
         * Delete a transcription job
         * @description Deletes a transcription that has ended, and its transcript. If the transcription hasn't ended, the request fails with `409 invalid_state`. Cancel the transcription first. Charges remain.
         *
         *     Requires the scope `audio.transcriptions:create`.
         */
        delete: operations["deleteTranscriptionJob"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/voice/transcriptions/{id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cancel a transcription job
         * @description Cancels a transcription immediately. A canceled transcription is free.
         *
         *     Canceling a canceled transcription has no effect. If the transcription has ended otherwise, the request fails with `409 invalid_state`.
         *
         *     Requires the scope `audio.transcriptions:create`.
         */
        post: operations["cancelTranscriptionJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agents/runs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List agent runs
         * @description Lists the runs of your workspace and environment. A scoped token sees the runs of tokens with the same key and the same metadata.
         *
         *     Requires the scope `agents.runs:read`.
         */
        get: operations["listAgentRuns"];
        put?: never;
        /**
         * Create an agent run
         * @description Queues a run and returns it immediately. When the run needs a decision, Turnpike publishes `agent.run.awaiting_approval`. At its end, Turnpike publishes `agent.run.completed` or `agent.run.failed`. Until then, `GET` shows the progress, and you can watch the run's events.
         *
         *     With `stream: true`, the response is the stream of the run's events, as in `GET /v1/agents/runs/{id}/events`. With an `Idempotency-Key`, such a request fails with `400`. Disconnecting doesn't stop the run.
         *
         *     If a tool or a check is invalid, the request fails with `400`, and `param` shows where: `tools[2].url`, `output.checks[0].rubric`. An unknown model, including a judge's, fails with `404` and its `param`.
         *     Turnpike asks MCP servers for their tools when the run starts. If a server is unreachable, the run fails with `tool_error`.
         *     With a test key, Turnpike simulates HTTP tools, MCP tools and HTTP checks without sending a request, unless the workspace's `test_tools` is `real`.
         *     Turnpike checks budgets at each step, so creating a run never returns `402`. The run fails with `insufficient_credits` or `budget_exceeded` instead.
         *
         *     Requires the scope `agents.runs:create`.
         */
        post: operations["createAgentRun"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agents/runs/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get an agent run
         * @description Returns a run, including its `required_actions`.
         *
         *     Requires the scope `agents.runs:read`.
         */
        get: operations["getAgentRun"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agents/runs/{id}/steps": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List a run's steps
         * @description Lists the steps of a run, oldest first. A step has the model's response, its tool calls, their outputs and the decisions about them.
         *
         *     Requires the scope `agents.runs:read`.
         */
        get: operations["listAgentSteps"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agents/runs/{id}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Watch an agent run
         * @description Returns the run's events, from the beginning or after a given event. Events are numbered from 1 without gaps, and are kept as long as the run.
         *
         *     With `stream=true`, the response is `text/event-stream`. Turnpike sends the existing events first, and then each new event. The last event is `run.completed`, `run.failed` or `run.cancelled`. After it, Turnpike sends `data: [DONE]` and closes the connection.
         *     Each event has its number as `id`, its type as `event`, and one line of `data`. If a stream is silent for 15 seconds, Turnpike sends a comment. To resume an interrupted stream, send the last ID in the header `Last-Event-ID` or as `starting_after`.
         *     Errors before the first event are ordinary error responses. A later error is a last event `error`, without `[DONE]`. A key, including its scoped tokens, can have 100 concurrent streams on a server. More fail with `429 rate_limit_exceeded`.
         *
         *     These are the event types and the fields of their `data`. More may be added.
         *
         *     - `run.queued`, `run.in_progress`, `run.awaiting_approval`, `run.requires_action`, `run.verifying`, `run.cancelling`: the run entered this state. Field: `status`.
         *     - `run.completed`, `run.failed`, `run.cancelled`: the run has ended. Fields: `status`, and `error`, which is null for a completed run.
         *     - `run.verified`: Turnpike checked the output. Fields: `passed`, `simulated`, and `checks` with the `type`, `passed`, `reason` and `simulated` of each.
         *     - `check.started`: Turnpike calls a judge. Field: `request_id`.
         *     - `check.completed`: the judge's call has ended and was charged. Fields: `request_id`, `credits` and, if the judge responded, `verdict`. A verdict has `passed`, `reason`, the `step` that it is about, and `check`, the index in `output.checks` from 0.
         *     - `step.started`: Turnpike calls the model. A retried step sends this event again. Fields: `step` (its number), `step_id`.
         *     - `step.completed`: the model responded. Fields: `step`, `step_id`, `text`, `credits`.
         *     - `approval.requested`: a tool call needs a decision. Fields: `approval_id`, `call_id`, `tool`, `arguments`, `arguments_hash`.
         *     - `approval.decided`: someone decided. Fields: `approval_id`, `call_id`, `decision`, `decided_by`, `reason`, and for an edit `arguments` and `edited_arguments`.
         *     - `approval.approved`: the first of two approvers approved. Fields: `approval_id`, `call_id`, `approved_by`, `approvals`, `approvers`.
         *     - `approval.expired`: no one decided in time, and the run continues without the call. Fields: `approval_id`, `call_id`.
         *     - `tool_call.requested`: the model called a tool. Fields: `call_id`, `tool`, `arguments`.
         *     - `tool_call.started`: the server executes a tool. Fields: `call_id`, `tool`.
         *     - `tool_call.completed`: the server or you executed a tool, or the call failed. Fields: `call_id`, `tool`, `is_error`, `simulated`, `output`, `credits`.
         *
         *     Requires the scope `agents.runs:read`.
         */
        get: operations["listAgentRunEvents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agents/runs/{id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cancel an agent run
         * @description Cancels a run. A waiting run becomes `cancelled` immediately. A run in progress becomes `cancelling`: Turnpike interrupts the work in progress, and then the run becomes `cancelled`.
         *     An interrupted tool may still have had its effect. Its call then stays `started`. You pay for the usage so far.
         *
         *     Canceling a canceled run has no effect. If the run has ended otherwise, the request fails with `409 invalid_state`.
         *
         *     Requires the scope `agents.runs:create`.
         */
        post: operations["cancelAgentRun"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agents/runs/{id}/tool_outputs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send tool outputs
         * @description Sends the outputs of calls to your own tools (`function`). The run's `required_actions` list the calls with their `call_id`. Send all outputs together, or some now and others later. The run continues when it has all of them. You can send outputs while the run awaits approvals.
         *
         *     Turnpike accepts either all outputs of a request or none. If a `call_id` isn't a call of this run to one of your tools, the request fails with `400`.
         *     Sending the same output again has no effect. A different output, or an output for a call that isn't pending, fails with `409 invalid_state`.
         *
         *     Requires the scope `agents.runs:create`.
         */
        post: operations["sendAgentToolOutputs"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agents/runs/{id}/approvals/{approval}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Approve or deny a tool call
         * @description Approves or denies a tool call, changes its arguments (`edit`), or answers the model instead of making it (`respond`). The decision applies only to the call's exact arguments. If you send an `arguments_hash` that doesn't match, the request fails with `409 invalid_state` and this `param`.
         *
         *     Turnpike executes an approved call when all calls of the step have a decision. It never executes a denied call. The model gets your `reason` and continues.
         *
         *     Repeating a decision has no effect. Any other decision fails with `409 invalid_state`, and so does a late decision or one that the run doesn't need.
         *     The step and `GET /v1/audit/actions` show who decided, and when.
         *
         *     Requires the scope `agents.runs:approve`.
         */
        post: operations["decideAgentApproval"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/scoped_tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create a scoped token
         * @description Creates a token that has a subset of the key's scopes for up to 15 minutes. Call this from your backend, and pass the `value` to the browser or app. Only this response has the `value`.
         *
         *     The token works in the key's environment, from any IP address, under the key's budget and limits. With a `Service-Project` header, the token belongs to that project.
         *     A token can't create other tokens. It survives a rotation of the key. It ends when the key is revoked, expires or loses the scope.
         *
         *     You can delegate models, chat, responses, embeddings, images, videos, voice, and creating and reading agent runs. Other scopes fail with `403 scoped_token_not_allowed`.
         *     Scopes that the key doesn't have fail with `403 insufficient_scope`.
         *
         *     By default, a workspace has at most 50,000 unexpired tokens in each environment (`409 limit_reached`). A token counts for up to a minute after it expires.
         *
         *     Requires the scope `scoped_tokens:create`.
         */
        post: operations["createScopedToken"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/scoped_tokens/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Revoke a scoped token
         * @description Revokes a token. This takes effect immediately on this node, and on other nodes typically within 250 ms, and at most 10 seconds. Revoking a revoked token succeeds. Use the token's ID (`st_…`), not its value.
         *
         *     Requires the scope `scoped_tokens:create`.
         */
        delete: operations["revokeScopedToken"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List keys
         * @description Lists the keys of your workspace and environment, including revoked and expired ones.
         *
         *     Requires the scope `keys:read`.
         */
        get: operations["listKeys"];
        put?: never;
        /**
         * Create a key
         * @description Creates a key in the environment of the key that you use. Only this response has the `value`. Turnpike stores a keyed hash of it.
         *
         *     If the new key would be more privileged than the key that you use, the request fails with `403`, and `param` shows in which respect.
         *     By default, a workspace has at most 1,000 keys in each environment that aren't revoked or expired (`409 limit_reached`).
         *
         *     Requires the scope `keys:write`.
         */
        post: operations["createKey"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/keys/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a key
         * @description Returns a key, without its value.
         *
         *     Requires the scope `keys:read`.
         */
        get: operations["getKey"];
        put?: never;
        post?: never;
        /**
         * Revoke a key
         * @description Revokes a key, both its secrets and all its scoped tokens. This takes effect immediately on this node, and on other nodes typically within 250 ms, and at most 10 seconds.
         *     You can't undo this. Revoking a revoked key succeeds. Turnpike keeps the key's record, because log entries refer to it.
         *
         *     Keys that this key created keep working within its budget and limits. `descendants=true` also revokes them, and the keys that they created.
         *
         *     Requires the scope `keys:write`.
         */
        delete: operations["revokeKey"];
        options?: never;
        head?: never;
        /**
         * Update a key
         * @description Updates the fields that you send. Null removes a limit, if the field allows it. Neither the old nor the new version of the key can be more privileged than the key that you use.
         *     If the key is revoked, the request fails with `409 invalid_state`.
         *
         *     Requires the scope `keys:write`.
         */
        patch: operations["updateKey"];
        trace?: never;
    };
    "/v1/keys/{id}/rotate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Rotate a key
         * @description Creates a new secret for the key. Only this response has its `value`. The ID, scopes, budget and usage stay the same. The old secret works until the grace period ends, so that you can deploy the new one.
         *
         *     During an earlier grace period, the request fails with `409 invalid_state`, unless `force` ends that grace period. You can't rotate an expired or revoked key.
         *
         *     Requires the scope `keys:write`.
         */
        post: operations["rotateKey"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/keys/{id}/end_grace": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * End the grace period of a rotation
         * @description Invalidates the previous secret immediately. Send no body, or an empty object. If there is no previous secret, the request fails with `409 invalid_state`.
         *
         *     Requires the scope `keys:write`.
         */
        post: operations["endKeyGrace"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/projects": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List projects
         * @description Lists the projects of your workspace and environment, including archived ones. If the key is pinned to a project, the request fails with `403 project_not_allowed`.
         *
         *     Requires the scope `projects:read`.
         */
        get: operations["listProjects"];
        put?: never;
        /**
         * Create a project
         * @description Creates a project with an ID of your choice. If the ID exists, even as an archived project, the request fails with `409 invalid_state`.
         *     A workspace has at most 1,000 projects in each environment (`409 limit_reached`). Archived projects don't count.
         *     If the key is pinned to a project, the request fails with `403 project_not_allowed`.
         *
         *     Requires the scope `projects:write`.
         */
        post: operations["createProject"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/projects/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a project
         * @description Returns a project. For a key that is pinned to a project, other projects return `404`.
         *
         *     Requires the scope `projects:read`.
         */
        get: operations["getProject"];
        put?: never;
        post?: never;
        /**
         * Archive a project
         * @description Archives a project. Requests that name it fail with `400 unknown_project`. Its past usage remains. It no longer counts toward the workspace's 1,000.
         *     To restore it, send a PATCH request. Archiving an archived project succeeds.
         *
         *     Requires the scope `projects:write`.
         */
        delete: operations["archiveProject"];
        options?: never;
        head?: never;
        /**
         * Update or restore a project
         * @description Updates the fields that you send. Any update restores an archived project, unless it has `status: archived`. A restored project counts toward the workspace's 1,000 again (`409 limit_reached`).
         *
         *     Requires the scope `projects:write`.
         */
        patch: operations["updateProject"];
        trace?: never;
    };
    "/v1/webhooks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List endpoints
         * @description Lists the endpoints of your workspace and environment, including paused ones. Tunnels are listed only with `kind=all`. A pinned key sees the endpoints of its project.
         *
         *     Requires the scope `webhooks:read`.
         */
        get: operations["listWebhooks"];
        put?: never;
        /**
         * Create an endpoint
         * @description Creates an endpoint, which receives events from now on. Only this response has the `secret`. Turnpike stores it encrypted.
         *
         *     Turnpike doesn't call the URL or resolve its host now. If the URL can never receive deliveries, for example because its IP address is private, the request fails with `400`. If the host resolves to such an address later, the attempt fails.
         *     A workspace has at most 1,000 endpoints in each environment (`409 limit_reached`).
         *
         *     Requires the scope `webhooks:write`.
         */
        post: operations["createWebhook"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get an endpoint
         * @description Returns an endpoint, without its secret.
         *
         *     Requires the scope `webhooks:read`.
         */
        get: operations["getWebhook"];
        put?: never;
        post?: never;
        /**
         * Delete an endpoint
         * @description Deletes an endpoint. Pending deliveries become `discarded` with the reason `endpoint_deleted`. Turnpike finishes and records an attempt in progress.
         *     You can read the endpoint's deliveries until they are 37 days old. Tunnels that mirror the endpoint are also deleted. You can't undo this.
         *
         *     Requires the scope `webhooks:write`.
         */
        delete: operations["deleteWebhook"];
        options?: never;
        head?: never;
        /**
         * Update an endpoint
         * @description Updates the fields that you send. All further attempts use the new URL, including retries of earlier deliveries.
         *     A new subscription applies to future events. Turnpike still sends pending deliveries. A tunnel that mirrors an endpoint has the same events as the endpoint, so changing them fails with `409 invalid_state`.
         *     If the endpoint has headers and the new `url` has another host, send or remove each of them in `headers`, so that secrets never reach a new host unnoticed.
         *
         *     Requires the scope `webhooks:write`.
         */
        patch: operations["updateWebhook"];
        trace?: never;
    };
    "/v1/webhooks/{id}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pause an endpoint
         * @description Stops deliveries to the endpoint. Pending and retrying deliveries become `held`, and so do deliveries of new events. Turnpike keeps them for 30 days.
         *     Turnpike finishes an attempt in progress and stops replays to this endpoint. Send no body, or an empty object. Pausing a paused endpoint has no effect.
         *
         *     Requires the scope `webhooks:write`.
         */
        post: operations["pauseWebhook"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks/{id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Resume an endpoint
         * @description Resumes deliveries. With `held: deliver`, Turnpike sends the held ones, oldest first, each with a new set of attempts (six by default). With `held: discard`, it discards them with the reason `discarded_on_resume`.
         *     Deliveries that finally failed stay failed. To send them again, replay them. Resuming an active endpoint has no effect.
         *     `discard` also covers deliveries that are still becoming `held` after a pause. Large numbers of deliveries change in the background, even if you pause the endpoint again.
         *
         *     Requires the scope `webhooks:write`.
         */
        post: operations["resumeWebhook"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks/{id}/rotate_secret": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Rotate an endpoint's secret
         * @description Creates a new secret. Only this response has it. Until the grace period ends, `Service-Signature` uses the old secret, and `webhook-signature` has one signature for each secret.
         *
         *     During an earlier grace period, the request fails with `409 invalid_state`. End that grace period first.
         *
         *     Requires the scope `webhooks:write`.
         */
        post: operations["rotateWebhookSecret"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks/{id}/end_grace": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * End the grace period of a rotation
         * @description Invalidates the old secret. Turnpike signs the next attempt only with the new one. Send no body, or an empty object. Without an old secret, the request has no effect.
         *     For a tunnel that mirrors another endpoint, the request fails with `409 invalid_state`. End the grace period of that endpoint instead.
         *
         *     Requires the scope `webhooks:write`.
         */
        post: operations["endWebhookGrace"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks/{id}/test": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send a sample event
         * @description Delivers a sample event to this endpoint, even if it doesn't subscribe to the event. Turnpike signs, retries and records the delivery like any other. Its body has `"sample": true`. It never pauses the endpoint.
         *     If the endpoint is paused, the delivery is held.
         *
         *     Requires the scope `webhooks:write`.
         */
        post: operations["testWebhook"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/webhooks/{id}/replay": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Replay many deliveries
         * @description Replays the deliveries of a time range in the background. `failed` selects failed deliveries, and `all` selects all that are finished.
         *     `missed` selects events without a delivery to this endpoint, such as events from before the endpoint was created.
         *     New events have priority. To follow the progress, use `GET /v1/replays/{id}`. If there are more than 1,000 deliveries, Turnpike counts the rest in the background, and `total` grows until `counting` is false.
         *
         *     Each delivery gets a new set of attempts (six by default) and keeps its ID, so that your endpoint recognizes it. With `new_id`, it gets a new ID.
         *     If `since` is more than 30 days ago, the request fails with `400 outside_replay_window`. This also applies to the timestamp in the example.
         *     If the endpoint is paused or deleted, the request fails with `409 invalid_state`. Pausing or deleting the endpoint also stops the replay.
         *     An endpoint has one replay at a time. While one is in progress, another fails with `409 conflict`, and the message names the replay in progress.
         *
         *     Requires the scope `events:replay`.
         */
        post: operations["replayWebhook"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/deliveries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List deliveries
         * @description Lists the deliveries of your workspace and environment, without their attempts. Turnpike keeps deliveries for 37 days.
         *     The list is sorted by the time of the event, newest first. This includes deliveries that were created later, such as by a replay of `missed` events. Only replays with a new ID are sorted by the time of their creation.
         *
         *     `endpoint`, `since`, `until` and the statuses `held`, `failed` and `retrying` use an index. For the other filters, Turnpike scans up to 10,000 deliveries for each page, so a page can be short or empty
         *     while `has_more` is true. Continue from `last_id`, which is where the scan stopped.
         *
         *     Requires the scope `webhooks:read`.
         */
        get: operations["listDeliveries"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/deliveries/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a delivery
         * @description Returns a delivery with all its attempts, oldest first. The ID is the `Service-Event-Id` that your endpoint received.
         *
         *     Requires the scope `webhooks:read`.
         */
        get: operations["getDelivery"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/deliveries/{id}/replay": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Replay a delivery
         * @description Sends a delivery again, regardless of its status, with a new set of attempts (six by default). It keeps its ID, so that your endpoint recognizes it. With `new_id`, Turnpike creates a new delivery of the same event.
         *     If the event is more than 30 days old, the request fails with `400 outside_replay_window`. If the endpoint is paused or deleted, the request fails with `409 invalid_state`.
         *
         *     Requires the scope `events:replay`.
         */
        post: operations["replayDelivery"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/replays/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a replay
         * @description Returns the progress of a replay: Turnpike has queued `done` of `total` deliveries. `GET /v1/deliveries` shows the result of each.
         *
         *     Requires the scope `webhooks:read`.
         */
        get: operations["getReplay"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List events
         * @description Lists the events of your workspace and environment, newest first. This includes sample events and events without subscribers. Turnpike keeps events for 37 days.
         *
         *     `since` and `until` use an index. For `type`, Turnpike scans up to 10,000 events for each page. A page also ends after about 4 MB of events.
         *     A page can therefore be short or empty while `has_more` is true. Continue from `last_id`, which is where the scan stopped.
         *
         *     Requires the scope `events:read`.
         */
        get: operations["listEvents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/events/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get an event
         * @description Returns an event, byte for byte as Turnpike delivers it, except for the URLs of its files. Each response has new URLs, which work for 24 hours.
         *
         *     Requires the scope `events:read`.
         */
        get: operations["getEvent"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/billing": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get billing
         * @description Returns the workspace's monthly credits: the limit, and the used, reserved and remaining amounts. Test requests are free, so test keys fail with `409 invalid_state`. If the key is pinned to a project, the request fails with `403 project_not_allowed`.
         *
         *     Requires the scope `billing:read`.
         */
        get: operations["getBilling"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        /**
         * Update billing
         * @description Updates the fields that you send. Changes take effect immediately, including for the current month. A `monthly_credits` below the used credits fails with `400 invalid_parameter`, except `0`, which blocks all spending.
         *
         *     When a charge or an update brings the remaining credits below the threshold, Turnpike publishes `billing.credits.low` once. The alert re-arms with a new month, or when an update brings the remaining credits to the threshold or above.
         *
         *     When spending reaches one of the `alert_thresholds` of a budget, Turnpike publishes `budget.threshold_reached`, once per month and budget. When a budget is used up, or refuses a request that needs at most a tenth of it, Turnpike publishes `budget.exceeded` once. Owners and admins get an email about each alert.
         *
         *     Requires the scope `billing:write`.
         */
        patch: operations["updateBilling"];
        trace?: never;
    };
    "/v1/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get usage
         * @description Returns the usage of model requests in your workspace and environment, by time and optionally by key, project, model, provider or end user. A request counts at the time of its arrival, as soon as it has ended. Buckets without requests are left out.
         *
         *     Turnpike keeps minutes for 7 days, and larger buckets permanently. One response covers a day by the minute, 31 days by the hour, 400 days by the day, or ten years by the month.
         *     It has at most 10,000 rows, one for each bucket and group. A larger result fails with `400 invalid_parameter`. Use a shorter time range, a larger bucket or fewer `group_by` values.
         *
         *     Requires the scope `usage:read`.
         */
        get: operations["getUsage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/tool_servers": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List tool servers
         * @description Lists the tool servers of your workspace and environment. A pinned key sees those of its project.
         *
         *     Requires the scope `tool_servers:read`.
         */
        get: operations["listToolServers"];
        put?: never;
        /**
         * Register a tool server
         * @description Registers an MCP server (Streamable HTTP). Turnpike doesn't contact it now. It reads the tools when a client lists them, or with `POST /v1/tool_servers/{id}/refresh`.
         *     The `headers` are encrypted and never shown. A workspace has at most 100 tool servers in each environment (`409 limit_reached`).
         *
         *     Requires the scope `tool_servers:write`.
         */
        post: operations["createToolServer"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/tool_servers/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a tool server
         * @description Returns a tool server with its tools, as they were when Turnpike last read them.
         *
         *     Requires the scope `tool_servers:read`.
         */
        get: operations["getToolServer"];
        put?: never;
        post?: never;
        /**
         * Delete a tool server
         * @description Deletes a tool server and its headers. Clients no longer see its tools.
         *
         *     Requires the scope `tool_servers:write`.
         */
        delete: operations["deleteToolServer"];
        options?: never;
        head?: never;
        /**
         * Update a tool server
         * @description Updates the fields that you send. If the server has headers and the new `url` has another host, send `headers` too, so that secrets never reach a new host unnoticed. To loosen the approval rules of a tool, you must satisfy them: the request fails with `403 insufficient_scope` otherwise, and keys can't loosen rules with `roles`, two approvers or `exclude_creator`.
         *
         *     Requires the scope `tool_servers:write`.
         */
        patch: operations["updateToolServer"];
        trace?: never;
    };
    "/v1/tool_servers/{id}/refresh": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Read a server's tools
         * @description Asks the server for its tools and stores them. If the server fails, `problem` has the reason and the tools stay as they were.
         *     If tools are simulated, the request fails with `409 invalid_state`.
         *
         *     Requires the scope `tool_servers:write`.
         */
        post: operations["refreshToolServer"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/routes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List routes
         * @description Lists the routes of your workspace and environment by name, at most 100. A pinned key sees those of its project.
         *
         *     Requires the scope `routes:read`.
         */
        get: operations["listRoutes"];
        put?: never;
        /**
         * Create a route
         * @description Creates a route: a name for a list of models. Requests use it as `route/NAME`. The models must be ones that the key can call (`404 model_not_found`).
         *     A name that the operator uses, or that another route of the same project has, fails with `409 invalid_state`. A workspace has at most 100 routes in each environment (`409 limit_reached`).
         *     If the `allowed_models` of the key or its project name the route, the request fails with `403 insufficient_scope`, so that a key can't widen itself. Updates and deletions fail in the same way.
         *
         *     Requires the scope `routes:write`.
         */
        post: operations["createRoute"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/routes/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a route
         * @description Returns a route.
         *
         *     Requires the scope `routes:read`.
         */
        get: operations["getRoute"];
        put?: never;
        post?: never;
        /**
         * Delete a route
         * @description Deletes a route. Requests that name it fail with `404 model_not_found`.
         *
         *     Requires the scope `routes:write`.
         */
        delete: operations["deleteRoute"];
        options?: never;
        head?: never;
        /**
         * Update a route
         * @description Updates the fields that you send. Requests in progress keep the old route. Null removes `weights` and `timeout_ms`.
         *
         *     Requires the scope `routes:write`.
         */
        patch: operations["updateRoute"];
        trace?: never;
    };
    "/v1/audit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List requests
         * @description Lists the request log of your workspace and environment, newest first. The response is a page of JSON. With `format=csv` or `Accept: text/csv`, it is one CSV file with every matching entry, regardless of `limit`.
         *
         *     `start`, `end` and `key` use an index. For the other filters, Turnpike scans up to 10,000 entries for each page, so a page can be short or empty
         *     while `has_more` is true. Continue from `last_id`, which is where the scan stopped.
         *
         *     In the CSV, timestamps use RFC 3339 and unknown values are empty. A cell that a spreadsheet would read as a formula starts with a quote.
         *
         *     Requires the scope `audit:read`.
         */
        get: operations["listAudit"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/audit/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a request
         * @description Returns a request from the log, by the ID in its `X-Request-Id` header.
         *
         *     Requires the scope `audit:read`.
         */
        get: operations["getAudit"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/audit/{id}/content": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get the content of a request
         * @description Returns the body of a request and of its response, if the key or the project logged it with `content_log_days`. Secrets are masked, and binary data is replaced by its size.
         *
         *     Each call is recorded in the admin log as `content.read`, before the content is returned. If the content isn't stored, or has expired, the request fails with `404`.
         *
         *     The wildcard `*` doesn't include the scope.
         *
         *     Requires the scope `content:read`.
         */
        get: operations["getAuditContent"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/audit/actions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List administrative actions
         * @description Lists who created, updated, rotated, revoked or archived which objects. Live keys also see actions that concern the whole workspace, such as sign-ins and changes to members. Test keys see only actions in the test environment.
         *     A key that is pinned to a project sees the actions on that project and its objects.
         *
         *     Turnpike scans up to 10,000 actions of the workspace for each page, so a page can be short or empty
         *     while `has_more` is true. Continue from `last_id`, which is where the scan stopped.
         *
         *     Requires the scope `audit:read`.
         */
        get: operations["listAuditActions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export interface webhooks {
    "image.batch.completed": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** An image batch has ended */
        post: operations["onImageBatchCompleted"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "video.render.completed": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A video has finished or failed */
        post: operations["onVideoRenderCompleted"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "voice.render.completed": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A voice render has ended */
        post: operations["onVoiceRenderCompleted"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "voice.transcription.completed": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A transcription job has ended */
        post: operations["onVoiceTranscriptionCompleted"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "agent.run.awaiting_approval": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** An agent run needs a decision */
        post: operations["onAgentRunAwaitingApproval"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "agent.run.completed": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** An agent run has its result */
        post: operations["onAgentRunCompleted"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "agent.run.failed": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** An agent run failed or was canceled */
        post: operations["onAgentRunFailed"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "batch.completed": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A batch was completed */
        post: operations["onBatchCompleted"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "batch.failed": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** The input of a batch is invalid */
        post: operations["onBatchFailed"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "batch.expired": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A batch expired */
        post: operations["onBatchExpired"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "batch.cancelled": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A batch was canceled */
        post: operations["onBatchCancelled"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "response.completed": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A background response is complete */
        post: operations["onResponseCompleted"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "response.incomplete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A background response was cut off */
        post: operations["onResponseIncomplete"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "response.failed": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A background response failed */
        post: operations["onResponseFailed"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "response.cancelled": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A background response was canceled */
        post: operations["onResponseCancelled"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "billing.credits.low": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Credits are running low */
        post: operations["onBillingCreditsLow"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "billing.unbilled_limit_reached": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** The limit of unbilled credits is reached */
        post: operations["onBillingUnbilledLimitReached"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "budget.threshold_reached": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Spending has reached a threshold of a budget */
        post: operations["onBudgetThresholdReached"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "budget.exceeded": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A budget is used up, or has too little left for a small request */
        post: operations["onBudgetExceeded"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "key.auto_revoked": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A leaked key was revoked */
        post: operations["onKeyAutoRevoked"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "endpoint.failing": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Another endpoint is failing */
        post: operations["onEndpointFailing"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "endpoint.paused": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Another endpoint was paused */
        post: operations["onEndpointPaused"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "endpoint.secret_leaked": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** The secret of another endpoint was leaked */
        post: operations["onEndpointSecretLeaked"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "delivery.failed": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A delivery to another endpoint failed */
        post: operations["onDeliveryFailed"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export interface components {
    schemas: {
        /**
         * credits
         * Format: double
         * @description An amount of credits, with up to six decimal places.
         */
        Credits: number;
        /** @description The environment of the key that created the object. */
        Environment: "live" | "test" | (string & {});
        KeyId: string;
        ScopedTokenId: string;
        RequestId: string;
        AuditActionId: string;
        WebhookId: string;
        DeliveryId: string;
        AttemptId: string;
        ReplayId: string;
        EventId: string;
        ImageBatchId: string;
        VideoId: string;
        VoiceRenderId: string;
        VoiceTranscriptionId: string;
        AgentRunId: string;
        AgentStepId: string;
        ApprovalId: string;
        ToolServerId: string;
        UserId: string;
        RouteId: string;
        /** @description 1 to 64 letters, digits, dots, underscores and dashes, starting with a letter or digit. */
        ProjectId: string;
        /**
         * scope name
         * @description A scope, a wildcard for a resource (`images:*`), or `*` for everything. Wildcards include future scopes, but never `content:read`.
         */
        ScopeName: "models:read" | "chat.completions:create" | "responses:create" | "messages:create" | "embeddings:create" | "moderations:create" | "rerank:create" | "images:create" | "images:read" | "videos:create" | "videos:read" | "voice:create" | "voice:read" | "files:create" | "files:read" | "audio.transcriptions:create" | "batches:create" | "batches:read" | "agents.runs:create" | "agents.runs:read" | "agents.runs:approve" | "webhooks:read" | "webhooks:write" | "events:read" | "events:replay" | "scoped_tokens:create" | "keys:read" | "keys:write" | "projects:read" | "projects:write" | "usage:read" | "audit:read" | "billing:read" | "billing:write" | "mcp.tools:call" | "tool_servers:read" | "tool_servers:write" | "routes:read" | "routes:write" | "users:read" | "users:write" | "content:read" | (string & {});
        /** @description An object without fields. */
        Nothing: Record<string, never>;
        /** @description The body of every error. */
        Error: {
            error: {
                /** @description The stable error code. See the table of error codes. More values may be added within a type. */
                code: "invalid_json" | "invalid_parameter" | "unknown_parameter" | "missing_parameter" | "context_length_exceeded" | "model_not_priced" | "unknown_project" | "outside_replay_window" | "authentication_error" | "insufficient_credits" | "budget_exceeded" | "insufficient_scope" | "ip_not_allowed" | "live_key_in_browser" | "scoped_token_not_allowed" | "project_not_allowed" | "model_not_allowed" | "user_blocked" | "invalid_signature" | "not_found" | "model_not_found" | "method_not_allowed" | "not_acceptable" | "request_timeout" | "request_too_large" | "unsupported_media_type" | "upgrade_required" | "invalid_state" | "idempotency_key_reused" | "limit_reached" | "conflict" | "rate_limit_exceeded" | "internal_error" | "upstream_error" | "upstream_timeout" | "no_provider" | "overloaded" | "storage_unavailable" | (string & {});
                /** @description The category of the code. */
                type: "invalid_request_error" | "authentication_error" | "billing_error" | "permission_error" | "not_found_error" | "conflict_error" | "rate_limit_error" | "api_error" | "upstream_error" | "unavailable_error" | (string & {});
                /** @description A message for people. Don't parse it. */
                message: string;
                /** @description The field (`messages[0].role`), header or query parameter that the error is about. */
                param: string | null;
                /** @description The request's ID. In a replayed response, it is the ID of the first request. */
                request_id: components["schemas"]["RequestId"];
                /** @description The description of the code in the documentation of this server. */
                doc_url: string;
                /** @description More information, depending on the code. For a billing error: the limit that was reached, and when it resets. */
                details?: {
                    [key: string]: unknown;
                };
            };
        };
        /** @description A background response that has ended. Read it with `GET /v1/responses/{id}`. */
        ResponseEnded: {
            /** @description The ID of the response. */
            id: string;
        };
        ImageBatchCreate: {
            /** @description A model ID or a router name, from `GET /v1/models`. The default is `auto`. */
            model?: string;
            /** @description The images to create. */
            requests: {
                /** @description Your ID for the request, unique in the batch. */
                custom_id: string;
                /** @description The request, as for `POST /v1/images/generations` but without a model. Turnpike passes fields that aren't listed to the provider. Other spellings of fields that Turnpike reads, such as `Model`, fail with `400 unknown_parameter`. */
                body: {
                    /** @description A description of the image. */
                    prompt: string;
                    /** @description The number of images. Default: `1`. */
                    n?: number | null;
                    /** @description `auto`, or width and height from 64 to 4096. */
                    size?: string | null;
                } & {
                    [key: string]: unknown;
                };
            }[];
            /** @description Your own key-value pairs: up to 16, with names of up to 64 characters and string values of up to 512. Turnpike returns them in the object and in its event. */
            metadata?: {
                [key: string]: string;
            } | null;
        };
        /** @description OpenAI's request. Turnpike passes fields that aren't listed to the provider. Other spellings of fields that Turnpike reads, such as `Model`, fail with `400 unknown_parameter`. */
        VideoCreate: {
            /** @description A model ID or a router name, from `GET /v1/models`. The default is `sora-2`, as with OpenAI. If the server doesn't have that model, the default is `auto`. */
            model?: string;
            /** @description A description of the video. */
            prompt: string;
            /** @description The duration: an integer from 1 to 60, as a string or a number. The provider defines the durations that a model supports. Default: `"4"`. */
            seconds?: string | number | null;
            /** @description Width and height, such as `1280x720`. Default: `"720x1280"`. */
            size?: string;
            /** @description An image or a video to start with. */
            input_reference?: {
                /** @description The file, as `data:image/png;base64,…`: a PNG, JPEG, GIF or WebP image, or an MP4 video. */
                image_url: string;
            } | null;
            /** @description Your own key-value pairs: up to 16, with names of up to 64 characters and string values of up to 512. Turnpike returns them in the object and in its event. */
            metadata?: {
                [key: string]: string;
            } | null;
        } & {
            [key: string]: unknown;
        };
        /** @description OpenAI's request. Turnpike passes fields that aren't listed to the provider. */
        VideoRemix: {
            /** @description What to change. */
            prompt: string;
            /** @description Your own key-value pairs: up to 16, with names of up to 64 characters and string values of up to 512. Turnpike returns them in the object and in its event. */
            metadata?: {
                [key: string]: string;
            } | null;
        } & {
            [key: string]: unknown;
        };
        /** @description OpenAI's form. Turnpike passes fields that aren't listed to the provider. Other spellings of fields that Turnpike reads, such as `Model`, fail with `400 unknown_parameter`. */
        VideoForm: {
            /** @description A model ID or a router name. The default is `auto`. */
            model?: string;
            /** @description A description of the video. */
            prompt: string;
            /** @description The duration: an integer from 1 to 60. Default: `"4"`. */
            seconds?: string;
            /** @description Width and height. Default: `"720x1280"`. */
            size?: string;
            /**
             * Format: binary
             * @description An image (PNG, JPEG, GIF or WebP) or a video (MP4) to start with.
             */
            input_reference?: string;
            /** @description The same as a string, as in JSON. OpenAI's clients send objects in a form this way. */
            "input_reference[image_url]"?: string;
            /** @description Your own key-value pairs, as a JSON object. */
            metadata?: string;
        } & {
            [key: string]: unknown;
        };
        /** @description OpenAI's form. Turnpike passes fields that aren't listed to the provider. Other spellings of fields that Turnpike reads, such as `Model`, fail with `400 unknown_parameter`. */
        TranscriptionJobForm: {
            /**
             * Format: binary
             * @description The audio file, with a filename.
             */
            file: string;
            /** @description A model ID or a router name, from `GET /v1/models`. Required without `models`. */
            model?: string;
            /** @description Fallbacks, in this order. */
            models?: string[];
            /** @description The language of the audio, such as `en`. */
            language?: string;
            /** @description Text that precedes the audio, or names that it contains. */
            prompt?: string;
            /** @description `json`, `text`, `srt`, `vtt`, `verbose_json` or `diarized_json`. The model decides which of them it supports. Default: `"json"`. */
            response_format?: string;
            /** @description `word` or `segment`, for `verbose_json`. Send one part for each, named `timestamp_granularities[]`. */
            timestamp_granularities?: string[];
            /**
             * Format: double
             * @description The sampling temperature.
             */
            temperature?: number;
            /**
             * @description A job can't be streamed.
             * @constant
             */
            stream?: false;
            /**
             * @description `translate` translates to English. Default: `"transcribe"`.
             * @enum {string}
             */
            task?: "transcribe" | "translate";
            /** @description Your own key-value pairs, as a JSON object with string values. Turnpike returns them in the object and in its event. */
            metadata?: string;
        } & {
            [key: string]: unknown;
        };
        VoiceRenderCreate: {
            /** @description A model ID or a router name, from `GET /v1/models`. The default is `auto`. */
            model?: string;
            /** @description The name of a voice, such as `alloy`. Required unless each segment has one. */
            voice?: string;
            /** @description The text to speak. Send either this or `segments`. */
            input?: string;
            /** @description The parts of the text, with up to 1,000,000 characters in total. */
            segments?: {
                /** @description The text to speak. */
                text: string;
                /** @description The voice. The default is the `voice` of the render. */
                voice?: string;
                /** @description The silence after the segment, in milliseconds. Default: `0`. */
                pause_ms?: number;
            }[] | null;
            /**
             * @description The audio format. A WAV file of more than 4 GiB is an RF64 file. Default: `"wav"`.
             * @enum {string}
             */
            response_format?: "wav" | "mp3" | "opus" | "aac" | "flac" | "pcm" | "";
            /**
             * Format: double
             * @description The speed of the speech.
             */
            speed?: number | null;
            /** @description Your own key-value pairs: up to 16, with names of up to 64 characters and string values of up to 512. Turnpike returns them in the object and in its event. */
            metadata?: {
                [key: string]: string;
            } | null;
        };
        ScopedTokenCreate: {
            /** @description The scopes of the token. Grant only those that the page needs. */
            scopes: components["schemas"]["ScopeName"][];
            /** @description The lifetime in seconds. Default: `900`. */
            expires_in?: number | null;
            /** @description Your own data, such as your user's ID, with at most 4 KiB of JSON. Tokens of the same key with equal metadata see each other's jobs and runs. The order of names doesn't matter, and numbers are compared as written. The log has the metadata with every request of the token. */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /** @description The models that the token can use: names such as `gpt-5`, beginnings of names such as `claude-*`, and routes such as `route/fast`. Each must match a model of the server, or a route of the server, the workspace or the project. An empty array allows none, and null allows all of the key. */
            allowed_models?: string[] | null;
            /** @description The providers that can run the models, by their names in the server's configuration. An empty array allows none, and null allows all of the key. */
            allowed_providers?: string[] | null;
            /** @description Your ID of the end user. The token's requests count toward the user's account, whatever the request body says. */
            user?: string | null;
            /** @description Limits of the end user. Fields that you omit keep the value of the previous token, or else the workspace's default. Limits that an admin has set with `PATCH /v1/users/{id}` take precedence. Requires `user`. */
            user_limits?: components["schemas"]["UserLimits"] | null;
        };
        /** @description A scoped token, without its value. */
        ScopedToken: {
            /** @description The ID, which identifies the token in the log. */
            id: components["schemas"]["ScopedTokenId"];
            /** @constant */
            object: "scoped_token";
            /** @description The scopes, as long as the key has them too. */
            scopes: components["schemas"]["ScopeName"][];
            /** @description The lifetime in seconds. */
            expires_in: number;
            /**
             * Unix time
             * @description When the token expires.
             */
            expires_at: number;
            /** @description The metadata that you set when you created the token. */
            metadata: {
                [key: string]: unknown;
            };
            /** @description The project that the token belongs to. */
            project: string | null;
            /** @description Your ID of the end user. */
            user: string | null;
            /** @description The models that the token can use: names such as `gpt-5`, beginnings of names such as `claude-*`, and routes such as `route/fast`. Each must match a model of the server, or a route of the server, the workspace or the project. An empty array allows none, and null allows all of the key. */
            allowed_models: string[] | null;
            /** @description The providers that can run the models, by their names in the server's configuration. An empty array allows none, and null allows all of the key. */
            allowed_providers: string[] | null;
            /** @description The environment of the key. */
            environment: components["schemas"]["Environment"];
            /**
             * Unix time
             * @description When the token was created.
             */
            created_at: number;
            /** @description Whether the token was revoked before it expired. */
            revoked: boolean;
        };
        /** @description A scoped token with its value. */
        ScopedTokenWithValue: {
            /** @description The ID, which identifies the token in the log. */
            id: components["schemas"]["ScopedTokenId"];
            /** @constant */
            object: "scoped_token";
            /** @description The token itself, to be sent as `Authorization: Bearer`. Shown this once. */
            value: string;
            /** @description The scopes, as long as the key has them too. */
            scopes: components["schemas"]["ScopeName"][];
            /** @description The lifetime in seconds. */
            expires_in: number;
            /**
             * Unix time
             * @description When the token expires.
             */
            expires_at: number;
            /** @description The metadata that you set when you created the token. */
            metadata: {
                [key: string]: unknown;
            };
            /** @description The project that the token belongs to. */
            project: string | null;
            /** @description Your ID of the end user. */
            user: string | null;
            /** @description The models that the token can use: names such as `gpt-5`, beginnings of names such as `claude-*`, and routes such as `route/fast`. Each must match a model of the server, or a route of the server, the workspace or the project. An empty array allows none, and null allows all of the key. */
            allowed_models: string[] | null;
            /** @description The providers that can run the models, by their names in the server's configuration. An empty array allows none, and null allows all of the key. */
            allowed_providers: string[] | null;
            /** @description The environment of the key. */
            environment: components["schemas"]["Environment"];
            /**
             * Unix time
             * @description When the token was created.
             */
            created_at: number;
            /** @description Whether the token was revoked before it expired. */
            revoked: boolean;
        };
        /** @description How long a budget lasts before it starts again, in UTC. A week starts on Monday. */
        BudgetWindow: "day" | "week" | "month" | "lifetime" | (string & {});
        /** @description A limit of a key or a project. It needs a budget, a rate or both. */
        SpendingLimitCreate: {
            /** @description The ID of an existing limit that this one replaces. Without it, a limit with the same `window` is replaced if the new `models` include its own. The spending of a replaced limit stays. */
            id?: string | null;
            /** @description The models that the limit applies to: exact names, or beginnings such as `claude-*`. A limit for a model applies to its aliases as well. Null means all models. */
            models?: string[] | null;
            /**
             * credits
             * Format: double
             * @description The maximum credits in a window. 0 blocks the models. Another budget can't be lower than the credits already spent in the window.
             */
            budget?: number | null;
            /**
             * @description Required with `budget`, and only allowed with it.
             * @enum {string|null}
             */
            window?: "day" | "week" | "month" | "lifetime" | null;
            /** @description The maximum model requests, jobs and runs per minute. */
            requests_per_minute?: number | null;
            /** @description The maximum tokens per minute. */
            tokens_per_minute?: number | null;
            /** @description The maximum requests in progress. */
            concurrent_requests?: number | null;
            /**
             * credits
             * Format: double
             * @description Ignored, so that you can send back limits that you have read.
             */
            spent?: number | null;
        };
        /** @description A limit of a key or a project. */
        SpendingLimit: {
            /** @description The ID, which stays the same when other limits change. */
            id: string;
            /** @description The models that the limit applies to: exact names, or beginnings such as `claude-*`. A limit for a model applies to its aliases as well. Null means all models. */
            models: string[] | null;
            /**
             * credits
             * Format: double
             * @description The maximum credits in a window. 0 blocks the models. Another budget can't be lower than the credits already spent in the window.
             */
            budget: number | null;
            /** @description Required with `budget`, and only allowed with it. */
            window: "day" | "week" | "month" | "lifetime" | (string & {}) | null;
            /** @description The maximum model requests, jobs and runs per minute. */
            requests_per_minute: number | null;
            /** @description The maximum tokens per minute. */
            tokens_per_minute: number | null;
            /** @description The maximum requests in progress. */
            concurrent_requests: number | null;
            /**
             * credits
             * Format: double
             * @description The credits spent in the current window. Null without a budget.
             */
            spent: number | null;
        };
        /** @description Raises the `monthly_budget` for a time. Requests that arrive before `until` have the higher budget. Afterwards the `monthly_budget` applies again, including what was spent until then. */
        TemporaryRaise: {
            /**
             * credits
             * Format: double
             * @description The maximum credits per calendar month meanwhile. It must be more than the `monthly_budget` and at least what is already spent this month.
             */
            budget: number;
            /**
             * Unix time
             * @description When the raise ends, in the future.
             */
            until: number;
        };
        KeyCreate: {
            /** @description The purpose of the key. At most 200 bytes, without control or bidirectional-override characters. */
            name: string;
            /** @description The scopes of the key. Grant only those that it needs. */
            scopes: components["schemas"]["ScopeName"][];
            /**
             * credits
             * Format: double
             * @description The maximum credits per calendar month (UTC). 0 blocks all spending. Null means no limit. Default: `null`.
             */
            monthly_budget?: number | null;
            /** @description Percentages of `monthly_budget`, from 1 to 99. When spending reaches one, Turnpike publishes `budget.threshold_reached` and sends an email. An empty array turns that off. Null means the workspace's `alert_thresholds`. */
            alert_thresholds?: components["schemas"]["AlertThresholds"] | null;
            /**
             * Format: email
             * @description An address that gets the key's alerts, in addition to owners and admins.
             */
            alert_email?: string | null;
            /** @description Limits in addition to the `monthly_budget`. All that match a request's model apply. */
            limits?: components["schemas"]["SpendingLimitCreate"][] | null;
            /** @description Raises the `monthly_budget` for a time. Null means no raise. */
            temporary_raise?: components["schemas"]["TemporaryRaise"] | null;
            /** @description Pins the key to a project. The key then works only for this project. Turnpike creates a new project, unless the workspace has strict projects. Default: `null`. */
            project?: string | null;
            /** @description The IP addresses and CIDR ranges that can use the key. Empty means any address. */
            allowed_ips?: string[] | null;
            /** @description The key's limit of model requests, jobs and runs per minute, including its tokens. Null means the server's limit. Default: `null`. */
            rate_limit?: number | null;
            /** @description The tools that the key can call at `/mcp`, by their listed name such as `github__search`. A `*` at the end stands for anything, as in `github__*`. An empty array allows none, and null allows all. */
            allowed_tools?: string[] | null;
            /** @description The models that the key can use: names such as `gpt-5`, beginnings of names such as `claude-*`, and routes such as `route/fast`. Each must match a model of the server, or a route of the server, the workspace or the project. An empty array allows none, and null allows all. */
            allowed_models?: string[] | null;
            /** @description The providers that can run the models, by their names in the server's configuration. An empty array allows none, and null allows all. */
            allowed_providers?: string[] | null;
            /** @description How many days the content log keeps the bodies of the key's requests and their responses. 0 turns it off, and null means the project's setting. Default: `null`. */
            content_log_days?: number | null;
            /** @description Whether requests can leave themselves out of the content log with `Service-Content-Log: off`. Default: `false`. */
            content_log_opt_out?: boolean;
            /**
             * Unix time
             * @description When the key stops working, in the future. Null means never. Default: `null`.
             */
            expires_at?: number | null;
            /** @description The ID of the key's owner in another system. At most 255 bytes. Several keys can have the same. */
            external_id?: string | null;
            /** @description Up to 16 pairs of strings: names of at most 64 characters and values of at most 512. Requests don't use them. */
            metadata?: {
                [key: string]: string;
            } | null;
        };
        KeyUpdate: {
            /** @description The purpose of the key. At most 200 bytes, without control or bidirectional-override characters. */
            name?: string;
            /** @description The scopes of the key. Grant only those that it needs. */
            scopes?: components["schemas"]["ScopeName"][];
            /**
             * credits
             * Format: double
             * @description The maximum credits per calendar month (UTC). 0 blocks all spending. Null means no limit. A new budget other than 0 can't be lower than the credits already spent this month.
             */
            monthly_budget?: number | null;
            /** @description Percentages of `monthly_budget`, from 1 to 99. When spending reaches one, Turnpike publishes `budget.threshold_reached` and sends an email. An empty array turns that off. Null means the workspace's `alert_thresholds`. */
            alert_thresholds?: components["schemas"]["AlertThresholds"] | null;
            /**
             * Format: email
             * @description An address that gets the key's alerts, in addition to owners and admins.
             */
            alert_email?: string | null;
            /** @description Replaces all limits. A limit with the `id`, or with the same `models` and `window`, keeps its spending. Null removes all. */
            limits?: components["schemas"]["SpendingLimitCreate"][] | null;
            /** @description Raises the `monthly_budget` for a time. Null means no raise. */
            temporary_raise?: components["schemas"]["TemporaryRaise"] | null;
            /** @description The project that the key is pinned to. Null unpins it. */
            project?: string | null;
            /** @description The IP addresses and CIDR ranges that can use the key. Empty or null means any address. */
            allowed_ips?: string[] | null;
            /** @description The key's limit of model requests, jobs and runs per minute, including its tokens. Null means the server's limit. */
            rate_limit?: number | null;
            /** @description The tools that the key can call at `/mcp`, by their listed name such as `github__search`. A `*` at the end stands for anything, as in `github__*`. An empty array allows none, and null allows all. */
            allowed_tools?: string[] | null;
            /** @description The models that the key can use: names such as `gpt-5`, beginnings of names such as `claude-*`, and routes such as `route/fast`. Each must match a model of the server, or a route of the server, the workspace or the project. An empty array allows none, and null allows all. */
            allowed_models?: string[] | null;
            /** @description The providers that can run the models, by their names in the server's configuration. An empty array allows none, and null allows all. */
            allowed_providers?: string[] | null;
            /** @description How many days the content log keeps the bodies of the key's requests and their responses. 0 turns it off, and null means the project's setting. */
            content_log_days?: number | null;
            /** @description Whether requests can leave themselves out of the content log with `Service-Content-Log: off`. */
            content_log_opt_out?: boolean;
            /**
             * Unix time
             * @description When the key stops working, in the future. Null means never.
             */
            expires_at?: number | null;
            /** @description The ID of the key's owner in another system. At most 255 bytes. Several keys can have the same. */
            external_id?: string | null;
            /** @description The new metadata, which replaces all of the old. Null removes it. */
            metadata?: {
                [key: string]: string;
            } | null;
        };
        KeyRotate: {
            /** @description How long the old secret still works. 0 invalidates it immediately. The default is the workspace's setting, which is initially 86,400 (a day). */
            grace_period_seconds?: number | null;
            /** @description Rotates the key even during an earlier grace period, and ends that grace period. Default: `false`. */
            force?: boolean;
        };
        /** @description An API key, without its value. */
        Key: {
            /** @description The ID, which stays the same after a rotation. */
            id: components["schemas"]["KeyId"];
            /** @constant */
            object: "key";
            /** @description The purpose. */
            name: string;
            /** @description The start of the key's value. */
            prefix: "tp_live_" | "tp_test_" | (string & {});
            /** @description The end of the key's value. */
            last_four: string;
            /** @description The environment that the key works in. */
            environment: components["schemas"]["Environment"];
            /** @description The scopes of the key. */
            scopes: components["schemas"]["ScopeName"][];
            /**
             * credits
             * Format: double
             * @description The maximum credits per calendar month (UTC). Null means no limit.
             */
            monthly_budget: number | null;
            /** @description The credits that the key and the keys that it created have spent this month. */
            spent_this_month: components["schemas"]["Credits"];
            /** @description Limits in addition to the `monthly_budget`. */
            limits: components["schemas"]["SpendingLimit"][];
            /** @description The raise of the `monthly_budget` in force, or null. */
            temporary_raise: components["schemas"]["TemporaryRaise"] | null;
            /** @description The project that the key is pinned to. */
            project: string | null;
            /** @description The IP addresses and CIDR ranges that can use the key. Empty means any address. */
            allowed_ips: string[];
            /** @description The key's limit of model requests, jobs and runs per minute, including its tokens. Null means the server's limit. */
            rate_limit: number | null;
            /** @description The tools that the key can call at `/mcp`, by their listed name such as `github__search`. A `*` at the end stands for anything, as in `github__*`. An empty array allows none, and null allows all. */
            allowed_tools: string[] | null;
            /** @description The models that the key can use: names such as `gpt-5`, beginnings of names such as `claude-*`, and routes such as `route/fast`. Each must match a model of the server, or a route of the server, the workspace or the project. An empty array allows none, and null allows all. */
            allowed_models: string[] | null;
            /** @description The providers that can run the models, by their names in the server's configuration. An empty array allows none, and null allows all. */
            allowed_providers: string[] | null;
            /** @description How many days the content log keeps the bodies of the key's requests and their responses. 0 turns it off, and null means the project's setting. */
            content_log_days: number | null;
            /** @description Whether requests can leave themselves out of the content log with `Service-Content-Log: off`. */
            content_log_opt_out: boolean;
            /** @description The ID of the key's owner in another system. */
            external_id: string | null;
            /** @description Pairs of strings that you attached to the key. */
            metadata: {
                [key: string]: string;
            };
            /** @description `rotating` means active, with a previous secret in its grace period. More values may be added. */
            status: "active" | "rotating" | "revoked" | "expired" | (string & {});
            /**
             * Unix time
             * @description When it was created.
             */
            created_at: number;
            /** @description The creator: the ID of a key or a person, or `operator`. */
            created_by: string;
            /** @description The key that created this key, or null. This key's spending and rates count toward its parent and all further ancestors. It can do only what all of them allow. */
            parent_key_id: string | null;
            /**
             * Unix time
             * @description When the key was last used, accurate to a few seconds. Null means never.
             */
            last_used_at: number | null;
            /** @description The IP address of the last use. */
            last_used_ip: string | null;
            /**
             * Unix time
             * @description When the key stops working. Null means never.
             */
            expires_at: number | null;
            /** @description The secret before the rotation, while it still works. */
            previous: {
                /** @description The end of its value. */
                last_four: string;
                /**
                 * Unix time
                 * @description When the grace period ends.
                 */
                expires_at: number;
                /**
                 * Unix time
                 * @description When the previous secret was last used. A recent time means that a client still uses it.
                 */
                last_used_at: number | null;
            } | null;
            /** @description Percentages of `monthly_budget`, from 1 to 99. When spending reaches one, Turnpike publishes `budget.threshold_reached` and sends an email. An empty array turns that off. Null means the workspace's `alert_thresholds`. */
            alert_thresholds: components["schemas"]["AlertThresholds"] | null;
            /**
             * Format: email
             * @description An address that gets the key's alerts, in addition to owners and admins.
             */
            alert_email: string | null;
            forecast: components["schemas"]["Forecast"];
        };
        /** @description An API key with its value. */
        KeyWithValue: {
            /** @description The ID, which stays the same after a rotation. */
            id: components["schemas"]["KeyId"];
            /** @constant */
            object: "key";
            /** @description The purpose. */
            name: string;
            /** @description The start of the key's value. */
            prefix: "tp_live_" | "tp_test_" | (string & {});
            /** @description The end of the key's value. */
            last_four: string;
            /** @description The key itself. Shown this once; keep it like a password. */
            value: string;
            /** @description The environment that the key works in. */
            environment: components["schemas"]["Environment"];
            /** @description The scopes of the key. */
            scopes: components["schemas"]["ScopeName"][];
            /**
             * credits
             * Format: double
             * @description The maximum credits per calendar month (UTC). Null means no limit.
             */
            monthly_budget: number | null;
            /** @description The credits that the key and the keys that it created have spent this month. */
            spent_this_month: components["schemas"]["Credits"];
            /** @description Limits in addition to the `monthly_budget`. */
            limits: components["schemas"]["SpendingLimit"][];
            /** @description The raise of the `monthly_budget` in force, or null. */
            temporary_raise: components["schemas"]["TemporaryRaise"] | null;
            /** @description The project that the key is pinned to. */
            project: string | null;
            /** @description The IP addresses and CIDR ranges that can use the key. Empty means any address. */
            allowed_ips: string[];
            /** @description The key's limit of model requests, jobs and runs per minute, including its tokens. Null means the server's limit. */
            rate_limit: number | null;
            /** @description The tools that the key can call at `/mcp`, by their listed name such as `github__search`. A `*` at the end stands for anything, as in `github__*`. An empty array allows none, and null allows all. */
            allowed_tools: string[] | null;
            /** @description The models that the key can use: names such as `gpt-5`, beginnings of names such as `claude-*`, and routes such as `route/fast`. Each must match a model of the server, or a route of the server, the workspace or the project. An empty array allows none, and null allows all. */
            allowed_models: string[] | null;
            /** @description The providers that can run the models, by their names in the server's configuration. An empty array allows none, and null allows all. */
            allowed_providers: string[] | null;
            /** @description How many days the content log keeps the bodies of the key's requests and their responses. 0 turns it off, and null means the project's setting. */
            content_log_days: number | null;
            /** @description Whether requests can leave themselves out of the content log with `Service-Content-Log: off`. */
            content_log_opt_out: boolean;
            /** @description The ID of the key's owner in another system. */
            external_id: string | null;
            /** @description Pairs of strings that you attached to the key. */
            metadata: {
                [key: string]: string;
            };
            /** @description `rotating` means active, with a previous secret in its grace period. More values may be added. */
            status: "active" | "rotating" | "revoked" | "expired" | (string & {});
            /**
             * Unix time
             * @description When it was created.
             */
            created_at: number;
            /** @description The creator: the ID of a key or a person, or `operator`. */
            created_by: string;
            /** @description The key that created this key, or null. This key's spending and rates count toward its parent and all further ancestors. It can do only what all of them allow. */
            parent_key_id: string | null;
            /**
             * Unix time
             * @description When the key was last used, accurate to a few seconds. Null means never.
             */
            last_used_at: number | null;
            /** @description The IP address of the last use. */
            last_used_ip: string | null;
            /**
             * Unix time
             * @description When the key stops working. Null means never.
             */
            expires_at: number | null;
            /** @description The secret before the rotation, while it still works. */
            previous: {
                /** @description The end of its value. */
                last_four: string;
                /**
                 * Unix time
                 * @description When the grace period ends.
                 */
                expires_at: number;
                /**
                 * Unix time
                 * @description When the previous secret was last used. A recent time means that a client still uses it.
                 */
                last_used_at: number | null;
            } | null;
            /** @description Percentages of `monthly_budget`, from 1 to 99. When spending reaches one, Turnpike publishes `budget.threshold_reached` and sends an email. An empty array turns that off. Null means the workspace's `alert_thresholds`. */
            alert_thresholds: components["schemas"]["AlertThresholds"] | null;
            /**
             * Format: email
             * @description An address that gets the key's alerts, in addition to owners and admins.
             */
            alert_email: string | null;
            forecast: components["schemas"]["Forecast"];
        };
        KeyList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["Key"][];
            /** @description The first ID of the page. */
            first_id: string | null;
            /** @description The last ID of the page. Send it as `after`. */
            last_id: string | null;
            /** @description Whether there is another page. */
            has_more: boolean;
        };
        ProjectCreate: {
            /** @description The ID that requests send as `Service-Project`: 1 to 64 letters, digits, dots, underscores and dashes, starting with a letter or digit. */
            id: components["schemas"]["ProjectId"];
            /** @description A display name. At most 200 bytes, without control or bidirectional-override characters. The default is the ID. */
            name?: string | null;
            /**
             * credits
             * Format: double
             * @description The maximum credits per calendar month (UTC). 0 blocks all spending. Null means no limit. Default: `null`.
             */
            monthly_budget?: number | null;
            /** @description Percentages of `monthly_budget`, from 1 to 99. When spending reaches one, Turnpike publishes `budget.threshold_reached` and sends an email. An empty array turns that off. Null means the workspace's `alert_thresholds`. */
            alert_thresholds?: components["schemas"]["AlertThresholds"] | null;
            /** @description The models that the project's requests can use: names such as `gpt-5`, beginnings of names such as `claude-*`, and routes such as `route/fast`. Each must match a model of the server, or a route of the server, the workspace or the project. An empty array allows none, and null allows all. */
            allowed_models?: string[] | null;
            /** @description The providers that can run the models, by their names in the server's configuration. An empty array allows none, and null allows all. */
            allowed_providers?: string[] | null;
            /** @description How many days the content log keeps the bodies of the project's requests and their responses. 0 and null turn it off. A key's own setting comes first. Default: `null`. */
            content_log_days?: number | null;
            /** @description Whether requests can leave themselves out of the content log with `Service-Content-Log: off`. Default: `false`. */
            content_log_opt_out?: boolean;
            /** @description Limits in addition to the `monthly_budget`. All that match a request's model apply. */
            limits?: components["schemas"]["SpendingLimitCreate"][] | null;
            /** @description Raises the `monthly_budget` for a time. Null means no raise. */
            temporary_raise?: components["schemas"]["TemporaryRaise"] | null;
        };
        ProjectUpdate: {
            /** @description A display name. At most 200 bytes, without control or bidirectional-override characters. */
            name?: string;
            /**
             * credits
             * Format: double
             * @description The maximum credits per calendar month (UTC). 0 blocks all spending. Null means no limit. A new budget other than 0 can't be lower than the credits already spent this month.
             */
            monthly_budget?: number | null;
            /** @description Percentages of `monthly_budget`, from 1 to 99. When spending reaches one, Turnpike publishes `budget.threshold_reached` and sends an email. An empty array turns that off. Null means the workspace's `alert_thresholds`. */
            alert_thresholds?: components["schemas"]["AlertThresholds"] | null;
            /** @description The models that the project's requests can use: names such as `gpt-5`, beginnings of names such as `claude-*`, and routes such as `route/fast`. Each must match a model of the server, or a route of the server, the workspace or the project. An empty array allows none, and null allows all. */
            allowed_models?: string[] | null;
            /** @description The providers that can run the models, by their names in the server's configuration. An empty array allows none, and null allows all. */
            allowed_providers?: string[] | null;
            /** @description How many days the content log keeps the bodies of the project's requests and their responses. 0 and null turn it off. A key's own setting comes first. */
            content_log_days?: number | null;
            /** @description Whether requests can leave themselves out of the content log with `Service-Content-Log: off`. */
            content_log_opt_out?: boolean;
            /** @description Replaces all limits. A limit with the `id`, or with the same `models` and `window`, keeps its spending. Null removes all. */
            limits?: components["schemas"]["SpendingLimitCreate"][] | null;
            /** @description Raises the `monthly_budget` for a time. Null means no raise. */
            temporary_raise?: components["schemas"]["TemporaryRaise"] | null;
            /**
             * @description Whether requests can use the project. Default: `"active"`.
             * @enum {string}
             */
            status?: "active" | "archived";
        };
        /** @description A project. */
        Project: {
            /** @description Your ID for the project. */
            id: components["schemas"]["ProjectId"];
            /** @constant */
            object: "project";
            /** @description The display name. */
            name: string;
            environment: components["schemas"]["Environment"];
            /**
             * credits
             * Format: double
             * @description The maximum credits per calendar month (UTC). Null means no limit.
             */
            monthly_budget: number | null;
            /** @description The credits that the project has spent this month. */
            spent_this_month: components["schemas"]["Credits"];
            /** @description Percentages of `monthly_budget`, from 1 to 99. When spending reaches one, Turnpike publishes `budget.threshold_reached` and sends an email. An empty array turns that off. Null means the workspace's `alert_thresholds`. */
            alert_thresholds: components["schemas"]["AlertThresholds"] | null;
            forecast: components["schemas"]["Forecast"];
            /** @description The models that the project's requests can use: names such as `gpt-5`, beginnings of names such as `claude-*`, and routes such as `route/fast`. Each must match a model of the server, or a route of the server, the workspace or the project. An empty array allows none, and null allows all. */
            allowed_models: string[] | null;
            /** @description The providers that can run the models, by their names in the server's configuration. An empty array allows none, and null allows all. */
            allowed_providers: string[] | null;
            /** @description How many days the content log keeps the bodies of the project's requests and their responses. 0 and null turn it off. A key's own setting comes first. */
            content_log_days: number | null;
            /** @description Whether requests can leave themselves out of the content log with `Service-Content-Log: off`. */
            content_log_opt_out: boolean;
            /** @description Limits in addition to the `monthly_budget`. */
            limits: components["schemas"]["SpendingLimit"][];
            /** @description The raise of the `monthly_budget` in force, or null. */
            temporary_raise: components["schemas"]["TemporaryRaise"] | null;
            /** @description More values may be added. */
            status: "active" | "archived" | (string & {});
            /**
             * Unix time
             * @description When the project was created or first used.
             */
            created_at: number;
            /**
             * Unix time
             * @description When the project was archived.
             */
            archived_at: number | null;
        };
        ProjectList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["Project"][];
            /** @description The first ID of the page. */
            first_id: string | null;
            /** @description The last ID of the page. Send it as `after`. */
            last_id: string | null;
            /** @description Whether there is another page. */
            has_more: boolean;
        };
        /**
         * event name
         * @description The name of an event. More values may be added.
         */
        EventName: "image.batch.completed" | "video.render.completed" | "voice.render.completed" | "voice.transcription.completed" | "agent.run.awaiting_approval" | "agent.run.completed" | "agent.run.failed" | "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" | "batch.completed" | "batch.failed" | "batch.expired" | "batch.cancelled" | "billing.credits.low" | "billing.unbilled_limit_reached" | "budget.threshold_reached" | "budget.exceeded" | "key.auto_revoked" | "endpoint.failing" | "endpoint.paused" | "endpoint.secret_leaked" | "delivery.failed" | (string & {});
        /**
         * event name
         * @description The name of an event, a wildcard for a resource (`agent.run.*`), or `*` for everything. Wildcards include future events.
         * @enum {string}
         */
        EventPattern: "*" | "image.batch.*" | "video.render.*" | "voice.render.*" | "voice.transcription.*" | "agent.run.*" | "response.*" | "batch.*" | "billing.*" | "billing.credits.*" | "budget.*" | "key.*" | "endpoint.*" | "delivery.*" | "image.batch.completed" | "video.render.completed" | "voice.render.completed" | "voice.transcription.completed" | "agent.run.awaiting_approval" | "agent.run.completed" | "agent.run.failed" | "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" | "batch.completed" | "batch.failed" | "batch.expired" | "batch.cancelled" | "billing.credits.low" | "billing.unbilled_limit_reached" | "budget.threshold_reached" | "budget.exceeded" | "key.auto_revoked" | "endpoint.failing" | "endpoint.paused" | "endpoint.secret_leaked" | "delivery.failed";
        WebhookCreate: {
            /** @description The absolute `https://` URL that receives events. At most 2,048 bytes, without user name, password or fragment. */
            url: string;
            /** @description The events that the endpoint subscribes to. If several entries match an event, Turnpike delivers it once. */
            events: components["schemas"]["EventPattern"][];
            /** @description The purpose of the endpoint. At most 500 bytes. */
            description?: string | null;
            /** @description Headers that Turnpike sends with each delivery, such as an API key of the receiver. Turnpike stores the values encrypted and never returns them. Names that Turnpike sets itself are rejected: `Service-…`, `webhook-…`, `Content-Type`, `User-Agent` and those of the connection. */
            headers?: {
                [key: string]: string;
            } | null;
            /** @description Only events of these projects, which must exist. Empty or null means all events. With a filter, the endpoint doesn't get events without a project. */
            projects?: string[] | null;
            /** @description The maximum number of requests per second to the endpoint. Null means no limit. */
            requests_per_second?: number | null;
        };
        WebhookUpdate: {
            /** @description The absolute `https://` URL that receives events. At most 2,048 bytes, without user name, password or fragment. */
            url?: string;
            /** @description The events that the endpoint subscribes to. If several entries match an event, Turnpike delivers it once. */
            events?: components["schemas"]["EventPattern"][];
            /** @description The purpose of the endpoint. At most 500 bytes. */
            description?: string | null;
            /** @description Headers to add or replace. A null value removes a header. Other headers stay. Null removes all of them. */
            headers?: {
                [key: string]: string | null;
            } | null;
            /** @description Only events of these projects, which must exist. Empty or null means all events. With a filter, the endpoint doesn't get events without a project. */
            projects?: string[] | null;
            /** @description The maximum number of requests per second to the endpoint. Null means no limit. */
            requests_per_second?: number | null;
        };
        WebhookResume: {
            /**
             * @description Whether to deliver or discard the held deliveries. Default: `"deliver"`.
             * @enum {string|null}
             */
            held?: "deliver" | "discard" | null;
        };
        WebhookRotate: {
            /** @description How long Turnpike still signs with the old secret. Use 0 to stop immediately if the secret has leaked. Default: `86400`. */
            grace_period_seconds?: number | null;
        };
        WebhookTest: {
            /**
             * @description The type of the sample event. The default is the first event that the endpoint subscribes to.
             * @enum {string|null}
             */
            type?: "image.batch.completed" | "video.render.completed" | "voice.render.completed" | "voice.transcription.completed" | "agent.run.awaiting_approval" | "agent.run.completed" | "agent.run.failed" | "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" | "batch.completed" | "batch.failed" | "batch.expired" | "batch.cancelled" | "billing.credits.low" | "billing.unbilled_limit_reached" | "budget.threshold_reached" | "budget.exceeded" | "key.auto_revoked" | "endpoint.failing" | "endpoint.paused" | "endpoint.secret_leaked" | "delivery.failed" | null;
        };
        WebhookReplay: {
            /**
             * Unix time
             * @description Replays events that happened at or after this time, at most 30 days ago.
             */
            since: number;
            /**
             * Unix time
             * @description Replays events that happened before this time. The default is the current time.
             */
            until?: number | null;
            /** @description Only these events. Empty means all events. */
            types?: components["schemas"]["EventName"][] | null;
            /**
             * @description The deliveries to send: those that finally `failed`, or `all` that are finished. `missed` sends events that never had a delivery here, if the endpoint subscribes to them now. Default: `"failed"`.
             * @enum {string|null}
             */
            status?: "failed" | "all" | "missed" | null;
            /** @description Sends the deliveries with new IDs, so that receivers process them again. Default: `false`. */
            new_id?: boolean;
        };
        DeliveryReplay: {
            /** @description Sends the delivery with a new ID, so that the receiver processes it again. Default: `false`. */
            new_id?: boolean;
        };
        /** @description A URL that receives events, without its secret. */
        WebhookEndpoint: {
            id: components["schemas"]["WebhookId"];
            /** @constant */
            object: "webhook_endpoint";
            /** @description The transport: HTTP, or the connection of a `turnpike listen` client. More values may be added. */
            kind: "http" | "tunnel" | (string & {});
            /** @description The URL that receives events. Null for a tunnel. */
            url: string | null;
            /** @description The event names and wildcards that the endpoint subscribes to. More values may be added. */
            events: string[];
            /** @description The purpose. */
            description: string;
            /** @description The names of the headers that Turnpike adds to each delivery. Their values can't be read. */
            header_names: string[];
            /** @description The projects whose events the endpoint receives. Empty means all events. */
            projects: string[];
            /** @description The maximum number of requests per second. Null means no limit. */
            requests_per_second: number | null;
            /** @description Whether Turnpike delivers to the endpoint. More values may be added. */
            status: "active" | "paused" | (string & {});
            /** @description Why the endpoint is paused: `manual`, or `delivery_failed` if the last retry of a delivery failed. More values may be added. */
            paused_reason: string | null;
            /**
             * Unix time
             * @description When the endpoint was paused.
             */
            paused_at: number | null;
            /** @description The start and end of the secret. */
            secret_hint: string;
            /**
             * Unix time
             * @description When the previous secret stops signing, after a rotation.
             */
            old_secret_expires_at: number | null;
            /** @description The project whose events the endpoint receives. Null means all projects. An endpoint belongs to a project if the key that created it is pinned to one. */
            project: string | null;
            /** @description The environment whose events the endpoint receives. */
            environment: components["schemas"]["Environment"];
            /**
             * Unix time
             * @description When it was created.
             */
            created_at: number;
            /** @description Statistics of the deliveries. */
            stats: {
                /** @description The number of deliveries that succeeded. */
                succeeded: number;
                /** @description The number of deliveries that finally failed. */
                failed: number;
                /** @description The number of failed attempts. */
                failed_attempts: number;
                /** @description The number of held deliveries, counted up to 10,000. */
                held: number;
                /** Unix time */
                last_success_at: number | null;
                /** Unix time */
                last_failure_at: number | null;
                /** @description The error message of the last failed attempt. */
                last_error: string | null;
            };
        };
        /** @description An endpoint with its secret. */
        WebhookEndpointWithSecret: {
            id: components["schemas"]["WebhookId"];
            /** @constant */
            object: "webhook_endpoint";
            /** @description The transport: HTTP, or the connection of a `turnpike listen` client. More values may be added. */
            kind: "http" | "tunnel" | (string & {});
            /** @description The URL that receives events. Null for a tunnel. */
            url: string | null;
            /** @description The event names and wildcards that the endpoint subscribes to. More values may be added. */
            events: string[];
            /** @description The purpose. */
            description: string;
            /** @description The names of the headers that Turnpike adds to each delivery. Their values can't be read. */
            header_names: string[];
            /** @description The projects whose events the endpoint receives. Empty means all events. */
            projects: string[];
            /** @description The maximum number of requests per second. Null means no limit. */
            requests_per_second: number | null;
            /** @description Whether Turnpike delivers to the endpoint. More values may be added. */
            status: "active" | "paused" | (string & {});
            /** @description Why the endpoint is paused: `manual`, or `delivery_failed` if the last retry of a delivery failed. More values may be added. */
            paused_reason: string | null;
            /**
             * Unix time
             * @description When the endpoint was paused.
             */
            paused_at: number | null;
            /** @description The secret that signs deliveries. Only this response has it. */
            secret: string;
            /** @description The start and end of the secret. */
            secret_hint: string;
            /**
             * Unix time
             * @description When the previous secret stops signing, after a rotation.
             */
            old_secret_expires_at: number | null;
            /** @description The project whose events the endpoint receives. Null means all projects. An endpoint belongs to a project if the key that created it is pinned to one. */
            project: string | null;
            /** @description The environment whose events the endpoint receives. */
            environment: components["schemas"]["Environment"];
            /**
             * Unix time
             * @description When it was created.
             */
            created_at: number;
            /** @description Statistics of the deliveries. */
            stats: {
                /** @description The number of deliveries that succeeded. */
                succeeded: number;
                /** @description The number of deliveries that finally failed. */
                failed: number;
                /** @description The number of failed attempts. */
                failed_attempts: number;
                /** @description The number of held deliveries, counted up to 10,000. */
                held: number;
                /** Unix time */
                last_success_at: number | null;
                /** Unix time */
                last_failure_at: number | null;
                /** @description The error message of the last failed attempt. */
                last_error: string | null;
            };
        };
        /** @description A deleted endpoint. */
        DeletedWebhookEndpoint: {
            id: components["schemas"]["WebhookId"];
            /** @constant */
            object: "webhook_endpoint";
            /** @constant */
            deleted: true;
        };
        WebhookEndpointList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["WebhookEndpoint"][];
            /** @description The first ID of the page. */
            first_id: string | null;
            /** @description The last ID of the page. Send it as `after`. */
            last_id: string | null;
            /** @description Whether there is another page. */
            has_more: boolean;
        };
        /**
         * approval rule
         * @description Which calls a person must approve: `always`, `never`, or lists of tools. Tools in neither list need approval. With `never`, tools that their server marks as destructive still need approval unless you list them.
         */
        ToolApproval: ("always" | "never" | (string & {})) | {
            always?: components["schemas"]["ToolNames"];
            never?: components["schemas"]["ToolNames"];
        };
        ToolNames: {
            /** @description The names of tools at their server. */
            tool_names: string[];
        };
        /** @description The settings of single tools, by their name at the server. */
        ToolSettings: {
            [key: string]: {
                /**
                 * credits
                 * Format: double
                 * @description The credits that a live call costs, under the same budgets as model requests. A call that fails without an effect is free. Default: `0`.
                 */
                price_per_call?: number;
                /** @description Rules for this tool, in place of the server's `approval_rules`. Null applies the server's. */
                approval_rules?: components["schemas"]["ApprovalRules"] | null;
            };
        };
        ToolServerCreate: {
            /** @description The beginning of the tools' names, unique in the workspace and environment: letters, digits, hyphens and single underscores. `turnpike` is reserved. */
            label: string;
            /** @description The purpose. Default: `""`. */
            description?: string;
            /** @description The https:// address of the MCP server. */
            url: string;
            /** @description Headers that Turnpike sends to the server, such as `Authorization`. They are encrypted and never shown. */
            headers?: {
                [key: string]: string;
            } | null;
            /** @description How Turnpike gets access tokens, which it sends as `Authorization`. They are encrypted and never shown. */
            oauth?: {
                /**
                 * @description With `authorization_code`, a member connects the server in the dashboard. Default: `"client_credentials"`.
                 * @enum {string}
                 */
                grant_type?: "authorization_code" | "client_credentials";
                /** @description The https:// address that returns tokens. Required with `client_credentials`. */
                token_url?: string;
                /** @description Required with `client_credentials`. With `authorization_code`, Turnpike registers a client if you send none. */
                client_id?: string;
                /** @description Required with `client_credentials`. */
                client_secret?: string;
                /** @description Scopes, separated by spaces. */
                scope?: string;
                /** @description The authorization server at which you registered `client_id`, for `authorization_code`. Turnpike sends the client to no other one. Without it, the server that the tool server names at the first connection is stored. */
                issuer?: string;
            } | null;
            /** @description Which calls a person must approve. The default is `always`. */
            require_approval?: components["schemas"]["ToolApproval"];
            /** @description Who decides about calls that need approval, and which calls these are. They apply to agent runs and to MCP clients. */
            approval_rules?: components["schemas"]["ApprovalRules"] | null;
            /** @description The tools that you offer, by their name at the server. Null offers all. */
            allowed_tools?: string[] | null;
            tool_settings?: components["schemas"]["ToolSettings"];
            /** @description How long a call may take. Default: `30`. */
            timeout_seconds?: number | null;
            /** @description How long a call can wait for an approval. Default: `3600`. */
            approval_timeout_seconds?: number | null;
        };
        ToolServerUpdate: {
            /** @description The beginning of the tools' names, unique in the workspace and environment: letters, digits, hyphens and single underscores. `turnpike` is reserved. */
            label?: string;
            /** @description The purpose. Default: `""`. */
            description?: string;
            /** @description The https:// address of the MCP server. */
            url?: string;
            /** @description Headers that Turnpike sends to the server, such as `Authorization`. They are encrypted and never shown. */
            headers?: {
                [key: string]: string;
            } | null;
            /** @description How Turnpike gets access tokens, which it sends as `Authorization`. They are encrypted and never shown. */
            oauth?: {
                /**
                 * @description With `authorization_code`, a member connects the server in the dashboard. Default: `"client_credentials"`.
                 * @enum {string}
                 */
                grant_type?: "authorization_code" | "client_credentials";
                /** @description The https:// address that returns tokens. Required with `client_credentials`. */
                token_url?: string;
                /** @description Required with `client_credentials`. With `authorization_code`, Turnpike registers a client if you send none. */
                client_id?: string;
                /** @description Required with `client_credentials`. */
                client_secret?: string;
                /** @description Scopes, separated by spaces. */
                scope?: string;
                /** @description The authorization server at which you registered `client_id`, for `authorization_code`. Turnpike sends the client to no other one. Without it, the server that the tool server names at the first connection is stored. */
                issuer?: string;
            } | null;
            require_approval?: components["schemas"]["ToolApproval"];
            /** @description Who decides about calls that need approval, and which calls these are. They apply to agent runs and to MCP clients. */
            approval_rules?: components["schemas"]["ApprovalRules"] | null;
            /** @description The tools that you offer, by their name at the server. Null offers all. */
            allowed_tools?: string[] | null;
            tool_settings?: components["schemas"]["ToolSettings"];
            /** @description How long a call may take. */
            timeout_seconds?: number;
            /** @description How long a call can wait for an approval. */
            approval_timeout_seconds?: number;
        };
        /** @description An MCP server that a workspace has registered, without its headers. */
        ToolServer: {
            id: components["schemas"]["ToolServerId"];
            /** @constant */
            object: "tool_server";
            /** @description The beginning of the tools' names. */
            label: string;
            /** @description The purpose. */
            description: string;
            /** @description The address of the MCP server. */
            url: string;
            /** @description Whether Turnpike sends secret headers to the server, including an OAuth token. */
            has_headers: boolean;
            /** @description `connected` or `needs_authorization` for a server that a member connects in the dashboard. Null for others. */
            oauth_status: string | null;
            require_approval: components["schemas"]["ToolApproval"];
            /** @description Who decides about calls that need approval, and which calls these are. They apply to agent runs and to MCP clients. */
            approval_rules: components["schemas"]["ApprovalRules"] | null;
            /** @description The tools that you offer. Null offers all. */
            allowed_tools: string[] | null;
            tool_settings: components["schemas"]["ToolSettings"];
            /** @description How long a call may take. */
            timeout_seconds: number;
            /** @description How long a call can wait for an approval. */
            approval_timeout_seconds: number;
            /** @description The tools, as they were when Turnpike last read them. */
            tools: {
                /** @description The name at the server. */
                name: string;
                /** @description The name at `/mcp`. */
                listed_name: string;
                description: string;
                /** @description Whether a person must approve each call. */
                require_approval: boolean;
                price_per_call: components["schemas"]["Credits"];
            }[];
            /**
             * Unix time
             * @description When Turnpike last tried to read the tools.
             */
            listed_at: number | null;
            /** @description Why that failed. */
            problem: string | null;
            /** @description The project that the server belongs to, if the key that created it is pinned to one. */
            project: string | null;
            environment: components["schemas"]["Environment"];
            /**
             * Unix time
             * @description When it was registered.
             */
            created_at: number;
        };
        /** @description A deleted tool server. */
        DeletedToolServer: {
            id: components["schemas"]["ToolServerId"];
            /** @constant */
            object: "tool_server";
            /** @constant */
            deleted: true;
        };
        /**
         * user limits
         * @description Limits of an end user. Null means not set.
         */
        UserLimits: {
            /** @description The credits that the user can spend in each window. `0` blocks every request that costs credits. */
            budget?: components["schemas"]["Credits"] | null;
            /** @description The window of the budget. Without one, it is a month. */
            window?: components["schemas"]["BudgetWindow"] | null;
            /** @description The requests that the user can send per minute. */
            requests_per_minute?: number | null;
        };
        /** @description How the models are ordered. `order` tries them as listed, `weight` at random in proportion to the weights, `latency` the fastest first and `price` the cheapest first, each divided by the weight. More values may be added. */
        RouteStrategy: "order" | "weight" | "latency" | "price" | (string & {});
        /** @description The models to try. */
        RouteModels: string[];
        /** @description One weight for each model. Not for the strategy `order`. */
        RouteWeights: number[] | null;
        /** @description How many milliseconds each attempt may take until the first chunk of a stream, or until the end of another response. */
        RouteTimeout: number | null;
        RouteCreate: {
            /** @description The name. Requests use it as `route/NAME`. */
            name: string;
            models: components["schemas"]["RouteModels"];
            /** @description Default: `"order"`. */
            strategy?: components["schemas"]["RouteStrategy"];
            weights?: components["schemas"]["RouteWeights"];
            timeout_ms?: components["schemas"]["RouteTimeout"];
            /** @description The project whose requests can use the route. Null for all requests of the workspace. The default is the project of a pinned key. */
            project?: string | null;
        };
        RouteUpdate: {
            /** @description The name. */
            name?: string;
            models?: components["schemas"]["RouteModels"];
            strategy?: components["schemas"]["RouteStrategy"];
            weights?: components["schemas"]["RouteWeights"];
            timeout_ms?: components["schemas"]["RouteTimeout"];
        };
        /** @description A name for a list of models. */
        Route: {
            id: components["schemas"]["RouteId"];
            /** @constant */
            object: "route";
            /** @description The name. */
            name: string;
            /** @description The `model` of requests that use the route. */
            model: string;
            models: components["schemas"]["RouteModels"];
            strategy: components["schemas"]["RouteStrategy"];
            weights: components["schemas"]["RouteWeights"];
            timeout_ms: components["schemas"]["RouteTimeout"];
            /** @description Whether the operator has since defined a route with the same name, which requests get instead. */
            shadowed: boolean;
            /** @description The project whose requests can use the route. Null for all requests of the workspace. */
            project: string | null;
            environment: components["schemas"]["Environment"];
            /**
             * Unix time
             * @description When the route was created.
             */
            created_at: number;
        };
        DeletedRoute: {
            id: components["schemas"]["RouteId"];
            /** @constant */
            object: "route";
            /** @constant */
            deleted: true;
        };
        RouteList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["Route"][];
            /** @description The first ID of the page. */
            first_id: string | null;
            /** @description The last ID of the page. */
            last_id: string | null;
            /** @description Always false. */
            has_more: boolean;
        };
        ToolServerList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["ToolServer"][];
            /** @description The first ID of the page. */
            first_id: string | null;
            /** @description The last ID of the page. Send it as `after`. */
            last_id: string | null;
            /** @description Whether there is another page. */
            has_more: boolean;
        };
        /** @description The delivery of an event to an endpoint, without its attempts. */
        Delivery: {
            /** @description The ID, which the receiver gets as `Service-Event-Id`. */
            id: components["schemas"]["DeliveryId"];
            /** @constant */
            object: "delivery";
            /** @description The endpoint, which may have been deleted. */
            endpoint_id: components["schemas"]["WebhookId"];
            event_id: components["schemas"]["EventId"];
            /** @description The event's name. More values may be added. */
            type: string;
            /** @description `pending` waits for its first attempt, and `retrying` for the next one. `held` waits until the endpoint is resumed. `failed` has used its last attempt. `discarded` won't be delivered. More values may be added. */
            status: "pending" | "retrying" | "succeeded" | "failed" | "held" | "discarded" | (string & {});
            /** @description Why the delivery was discarded: `endpoint_deleted`, `discarded_on_resume`, or `expired` after it was held for 30 days or pending for 37. More values may be added. */
            reason: string | null;
            /** @description The number of attempts, including those before a replay. */
            attempt_count: number;
            /**
             * Unix time
             * @description The earliest time of the next attempt. Null if there won't be one.
             */
            next_attempt_at: number | null;
            environment: components["schemas"]["Environment"];
            /**
             * Unix time
             * @description When the event happened.
             */
            event_created_at: number;
            /**
             * Unix time
             * @description When the delivery was created.
             */
            created_at: number;
            /**
             * Unix time
             * @description When the delivery succeeded, failed or was discarded.
             */
            finished_at: number | null;
        };
        /** @description A delivery with its attempts. */
        DeliveryWithAttempts: {
            /** @description The ID, which the receiver gets as `Service-Event-Id`. */
            id: components["schemas"]["DeliveryId"];
            /** @constant */
            object: "delivery";
            /** @description The endpoint, which may have been deleted. */
            endpoint_id: components["schemas"]["WebhookId"];
            event_id: components["schemas"]["EventId"];
            /** @description The event's name. More values may be added. */
            type: string;
            /** @description `pending` waits for its first attempt, and `retrying` for the next one. `held` waits until the endpoint is resumed. `failed` has used its last attempt. `discarded` won't be delivered. More values may be added. */
            status: "pending" | "retrying" | "succeeded" | "failed" | "held" | "discarded" | (string & {});
            /** @description Why the delivery was discarded: `endpoint_deleted`, `discarded_on_resume`, or `expired` after it was held for 30 days or pending for 37. More values may be added. */
            reason: string | null;
            /** @description The number of attempts, including those before a replay. */
            attempt_count: number;
            /**
             * Unix time
             * @description The earliest time of the next attempt. Null if there won't be one.
             */
            next_attempt_at: number | null;
            environment: components["schemas"]["Environment"];
            /**
             * Unix time
             * @description When the event happened.
             */
            event_created_at: number;
            /**
             * Unix time
             * @description When the delivery was created.
             */
            created_at: number;
            /**
             * Unix time
             * @description When the delivery succeeded, failed or was discarded.
             */
            finished_at: number | null;
            /** @description The attempts, oldest first. */
            attempts: components["schemas"]["Attempt"][];
        };
        /** @description An attempt to deliver. */
        Attempt: {
            id: components["schemas"]["AttemptId"];
            /** @constant */
            object: "attempt";
            /** @description The number of the attempt within the delivery. */
            number: number;
            /**
             * Unix time
             * @description When Turnpike signed and sent the attempt.
             */
            started_at: number;
            /**
             * Format: double
             * @description The duration in milliseconds.
             */
            latency_ms: number;
            /** @description The parts of the duration, in milliseconds. Skipped parts are 0, for example on a reused connection. */
            timings: {
                /**
                 * Format: double
                 * @description DNS lookup.
                 */
                dns_ms: number;
                /**
                 * Format: double
                 * @description TCP connection.
                 */
                connect_ms: number;
                /**
                 * Format: double
                 * @description TLS handshake.
                 */
                tls_ms: number;
                /**
                 * Format: double
                 * @description From the start to the first byte of the response.
                 */
                first_byte_ms: number;
            };
            /** @description The URL of the request. Null for a tunnel. */
            url: string | null;
            /** @description The IP address and port of the connection. Null if Turnpike rejected the address or didn't connect. */
            address: string | null;
            /** @description The request headers. Signatures are shortened, so that no one can use them to resend the delivery. */
            request_headers: {
                [key: string]: string;
            };
            /** @description The HTTP status. Null if there was no response. */
            response_status: number | null;
            /** @description The response headers, up to 16 KiB. */
            response_headers: {
                [key: string]: string;
            } | null;
            /** @description The response body as text, up to 16 KiB. */
            response_body: string | null;
            /** @description Why the attempt failed. Null if it succeeded. */
            error: {
                /** @description The type of the error: `status` (not a 2xx), `redirect`, `timeout`, `connect`, `tls`, `reset`, `cancelled` or `other`. `dns` means that the host doesn't resolve to a public address. `protocol` means that the response isn't HTTP. `refused_address` means that the IP address in the URL isn't public. More values may be added. */
                class: string;
                /** @description The error message for people. */
                message: string;
            } | null;
            /**
             * Unix time
             * @description The planned time of the next attempt. Null after a success and after the last attempt.
             */
            next_retry_at: number | null;
        };
        DeliveryList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["Delivery"][];
            /** @description The first ID of the page. */
            first_id: string | null;
            /** @description The position after this page. Send it as `after`. If `has_more` is true, it is present even if `data` is empty. */
            last_id: string | null;
            /** @description Whether there is another page. */
            has_more: boolean;
        };
        /** @description A replay of many deliveries. */
        Replay: {
            id: components["schemas"]["ReplayId"];
            /** @constant */
            object: "replay";
            endpoint_id: components["schemas"]["WebhookId"];
            /** @description `stopped` if the endpoint was paused or deleted before the end. More values may be added. */
            status: "running" | "completed" | "stopped" | (string & {});
            /** @description The request's `status`. More values may be added. */
            selection: "failed" | "all" | "missed" | (string & {});
            /** @description Only these events. Empty means all events. */
            types: string[];
            /** @description Whether the deliveries get new IDs. */
            new_id: boolean;
            /**
             * Unix time
             * @description The start of the time range, by the time of the event.
             */
            since: number;
            /**
             * Unix time
             * @description The end of the time range (exclusive).
             */
            until: number;
            /** @description The number of deliveries to send, counted so far. For `missed`, the number of events to check. */
            total: number;
            /** @description Whether Turnpike is still counting. If it is, `total` is a minimum. */
            counting: boolean;
            /** @description The number of deliveries queued so far. For `missed`, the number of events checked. */
            done: number;
            environment: components["schemas"]["Environment"];
            /**
             * Unix time
             * @description When it started.
             */
            created_at: number;
            /**
             * Unix time
             * @description When the replay was completed or stopped.
             */
            finished_at: number | null;
        };
        /** @description An event, as Turnpike delivers it. */
        Event: {
            /** @description The ID, which is the same for every endpoint. */
            id: components["schemas"]["EventId"];
            /** @constant */
            object: "event";
            /** @description The event's name. More values may be added, so ignore names that you don't know. */
            type: components["schemas"]["EventName"];
            /**
             * @description Present and true for sample events.
             * @constant
             */
            sample?: true;
            /**
             * Unix time
             * @description When it happened.
             */
            created_at: number;
            /** @description The environment of the event. */
            environment: components["schemas"]["Environment"];
            /** @description The workspace's ID. */
            workspace: string;
            /** @description The project that it belongs to. */
            project: string | null;
            /** @description The object that the event is about, depending on `type`. */
            data: components["schemas"]["ImageBatch"] | components["schemas"]["Video"] | components["schemas"]["VoiceRender"] | components["schemas"]["VoiceTranscription"] | components["schemas"]["AgentRun"] | components["schemas"]["BatchReference"] | components["schemas"]["ResponseEnded"] | components["schemas"]["CreditsLow"] | components["schemas"]["UnbilledLimitReached"] | components["schemas"]["BudgetThreshold"] | components["schemas"]["BudgetExceeded"] | components["schemas"]["KeyAutoRevoked"] | components["schemas"]["EndpointState"] | components["schemas"]["LeakedSecret"] | components["schemas"]["FailedDelivery"];
        };
        EventList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["Event"][];
            /** @description The first ID of the page. */
            first_id: string | null;
            /** @description The position after this page. Send it as `after`. If `has_more` is true, it is present even if `data` is empty. */
            last_id: string | null;
            /** @description Whether there is another page. */
            has_more: boolean;
        };
        /** @description Why a job or a part of it failed. */
        JobError: {
            /** @description The stable error code. More values may be added. */
            code: "moderation_blocked_input" | "moderation_blocked_output" | "invalid_input" | "upstream_error" | "upstream_timeout" | "capacity" | "deadline_exceeded" | "cancelled" | "insufficient_credits" | "key_revoked" | "internal_error" | (string & {});
            /** @description The error message for people. */
            message: string;
            /** @description Whether the same request can succeed later. */
            retryable: boolean;
        };
        /** @description `queued`, `in_progress` and `cancelling` are active states. `completed` (at least one request succeeded), `failed` (all failed) and `cancelled` are final. More values may be added. */
        BatchStatus: "queued" | "in_progress" | "cancelling" | "completed" | "failed" | "cancelled" | (string & {});
        /** @description `queued` and `in_progress` are active states. `completed` and `failed` are final. No values will be added. */
        VideoStatus: "queued" | "in_progress" | "completed" | "failed" | (string & {});
        /** @description `queued` and `in_progress` are active states. `completed`, `failed` and `cancelled` are final. More values may be added. */
        VoiceStatus: "queued" | "in_progress" | "completed" | "failed" | "cancelled" | (string & {});
        /**
         * image batch
         * @description An image batch without its results.
         */
        ImageBatchSummary: {
            /** @description The ID. */
            id: components["schemas"]["ImageBatchId"];
            /** @constant */
            object: "image.batch";
            status: components["schemas"]["BatchStatus"];
            /** @description The model of the batch. Before the batch starts, the most likely model. */
            model: string;
            /** @description The percentage of requests that have ended. It never decreases. */
            progress: number;
            /** @description The number of requests by state. */
            request_counts: {
                total: number;
                completed: number;
                /** @description Includes requests that were canceled while the batch was in progress. */
                failed: number;
            };
            /** @description The cost. Until the end, the cost so far. */
            cost: components["schemas"]["Credits"];
            /** @description The metadata from the request that created the object. */
            metadata: {
                [key: string]: string;
            };
            /** @description Why the whole batch failed or was canceled, otherwise null. If all requests failed with the same code, it is that code. If their codes differ, it is `upstream_error`. */
            error: components["schemas"]["JobError"] | null;
            /** Unix time */
            created_at: number;
            /**
             * Unix time
             * @description When work on it started.
             */
            started_at: number | null;
            /**
             * Unix time
             * @description When it ended, regardless of the result.
             */
            completed_at: number | null;
            /**
             * Unix time
             * @description When Turnpike deletes it and its files.
             */
            expires_at: number | null;
        };
        /**
         * image batch
         * @description An image batch with its results. It is also the data of `image.batch.completed`.
         */
        ImageBatch: {
            /** @description The ID. */
            id: components["schemas"]["ImageBatchId"];
            /** @constant */
            object: "image.batch";
            status: components["schemas"]["BatchStatus"];
            /** @description The model of the batch. Before the batch starts, the most likely model. */
            model: string;
            /** @description The percentage of requests that have ended. It never decreases. */
            progress: number;
            /** @description The number of requests by state. */
            request_counts: {
                total: number;
                completed: number;
                /** @description Includes requests that were canceled while the batch was in progress. */
                failed: number;
            };
            /** @description The cost. Until the end, the cost so far. */
            cost: components["schemas"]["Credits"];
            /** @description The metadata from the request that created the object. */
            metadata: {
                [key: string]: string;
            };
            /** @description Why the whole batch failed or was canceled, otherwise null. If all requests failed with the same code, it is that code. If their codes differ, it is `upstream_error`. */
            error: components["schemas"]["JobError"] | null;
            /** Unix time */
            created_at: number;
            /**
             * Unix time
             * @description When work on it started.
             */
            started_at: number | null;
            /**
             * Unix time
             * @description When it ended, regardless of the result.
             */
            completed_at: number | null;
            /**
             * Unix time
             * @description When Turnpike deletes it and its files.
             */
            expires_at: number | null;
            /** @description The result of each request, in the order of the requests. An event has as many as fit into a delivery. */
            results: {
                /** @description Your ID for the request. */
                custom_id: string;
                /** @description More values may be added. */
                status: "queued" | "completed" | "failed" | "cancelled" | (string & {});
                /** @description The images, without those whose files were deleted. */
                images: {
                    /** @description A signed URL that works without a key. */
                    url: string;
                    /**
                     * Unix time
                     * @description When the URL expires: after 24 hours, or when the file is deleted if that is earlier. In an event, after 48 hours.
                     */
                    url_expires_at: number;
                    content_type: string;
                    bytes: number;
                    sha256: string;
                }[];
                /** @description Why it failed. */
                error: components["schemas"]["JobError"] | null;
            }[];
            /**
             * @description Present and true in an event whose `results` were truncated to fit into 1 MiB. Get the batch for the rest.
             * @constant
             */
            results_truncated?: true;
        };
        ImageBatchList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["ImageBatchSummary"][];
            /** @description The first ID of the page. */
            first_id: string | null;
            /** @description The position after this page. Send it as `after`. If `has_more` is true, it is present even if `data` is empty. */
            last_id: string | null;
            /** @description Whether there is another page. */
            has_more: boolean;
        };
        /** @description A deleted batch. */
        DeletedImageBatch: {
            id: components["schemas"]["ImageBatchId"];
            /** @constant */
            object: "image.batch.deleted";
            /** @constant */
            deleted: true;
        };
        /**
         * video
         * @description A video, in OpenAI's format with additional fields. It is also the data of `video.render.completed`.
         */
        Video: {
            /** @description The ID. */
            id: components["schemas"]["VideoId"];
            /** @constant */
            object: "video";
            status: components["schemas"]["VideoStatus"];
            /** @description The model of the video. Before the video starts, the most likely model. */
            model: string;
            /** @description The progress in percent, as the provider reports it. It never decreases. */
            progress: number;
            /** @description The prompt. */
            prompt: string;
            /** @description The duration, as a string. */
            seconds: string;
            /** @description Width and height, such as `1280x720`. */
            size: string;
            /** @description The video that this one is a remix of, or null. */
            remixed_from_video_id: string | null;
            /** @description A signed URL that works without a key. Null until the video is completed, if it failed, and after its file was deleted. */
            url: string | null;
            /**
             * Unix time
             * @description When the URL expires: after 24 hours, or when the file is deleted if that is earlier. In an event, after 48 hours.
             */
            url_expires_at: number | null;
            /** @description Why the video failed: the `code` of `error`. */
            failure_reason: string | null;
            /** @description Why the video failed. The code is `cancelled` if you canceled it. */
            error: components["schemas"]["JobError"] | null;
            /** @description The cost. */
            cost: components["schemas"]["Credits"];
            /** @description The metadata from the request that created the object. */
            metadata: {
                [key: string]: string;
            };
            /** Unix time */
            created_at: number;
            /**
             * Unix time
             * @description When it ended, regardless of the result.
             */
            completed_at: number | null;
            /**
             * Unix time
             * @description When Turnpike deletes it and its files.
             */
            expires_at: number | null;
        };
        VideoList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["Video"][];
            /** @description The first ID of the page. */
            first_id: string | null;
            /** @description The position after this page. Send it as `after`. If `has_more` is true, it is present even if `data` is empty. */
            last_id: string | null;
            /** @description Whether there is another page. */
            has_more: boolean;
        };
        /**
         * ended batch
         * @description A batch that has ended. Read it with `GET /v1/batches/{id}`, or `GET /v1/messages/batches/{id}` if its ID begins with `msgbatch_`.
         */
        BatchReference: {
            /** @description The ID of the batch. */
            id: string;
        };
        /** @description A deleted video. */
        DeletedVideo: {
            id: components["schemas"]["VideoId"];
            /** @constant */
            object: "video.deleted";
            /** @constant */
            deleted: true;
        };
        /**
         * voice render
         * @description A text that Turnpike converts to speech. It is also the data of `voice.render.completed`.
         */
        VoiceRender: {
            /** @description The ID. */
            id: components["schemas"]["VoiceRenderId"];
            /** @constant */
            object: "voice.render";
            status: components["schemas"]["VoiceStatus"];
            /** @description The model of the render. Before the render starts, the most likely model. */
            model: string;
            /** @description The voice. Empty if only the segments have voices. */
            voice: string;
            /** @description The progress in percent. It never decreases. */
            progress: number;
            /** @description The chunks that Turnpike splits the text into. They aren't the segments of your request. */
            segments: {
                total: number;
                completed: number;
            };
            /** @description The number of characters of the text. */
            characters: number;
            /**
             * Format: double
             * @description The duration of the whole file. 0 until the file exists.
             */
            duration_seconds: number;
            /** @description The content type of the file. */
            content_type: string;
            /** @description A signed URL that works without a key. Null until the file exists, if there won't be one, and after it was deleted. */
            url: string | null;
            /**
             * Unix time
             * @description When the URL expires: after 24 hours, or when the file is deleted if that is earlier. In an event, after 48 hours.
             */
            url_expires_at: number | null;
            /** @description The cost. Until the end, the cost so far. */
            cost: components["schemas"]["Credits"];
            /** @description The metadata from the request that created the object. */
            metadata: {
                [key: string]: string;
            };
            /** @description Why it failed. */
            error: components["schemas"]["JobError"] | null;
            /** Unix time */
            created_at: number;
            /**
             * Unix time
             * @description When work on it started.
             */
            started_at: number | null;
            /**
             * Unix time
             * @description When it ended, regardless of the result.
             */
            completed_at: number | null;
            /**
             * Unix time
             * @description When Turnpike deletes the render and its file.
             */
            expires_at: number | null;
        };
        VoiceRenderList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["VoiceRender"][];
            /** @description The first ID of the page. */
            first_id: string | null;
            /** @description The position after this page. Send it as `after`. If `has_more` is true, it is present even if `data` is empty. */
            last_id: string | null;
            /** @description Whether there is another page. */
            has_more: boolean;
        };
        /** @description A deleted render. */
        DeletedVoiceRender: {
            id: components["schemas"]["VoiceRenderId"];
            /** @constant */
            object: "voice.render.deleted";
            /** @constant */
            deleted: true;
        };
        /**
         * transcription job
         * @description An audio file that Turnpike has transcribed. It is also the data of `voice.transcription.completed`.
         */
        VoiceTranscription: {
            /** @description The ID. */
            id: components["schemas"]["VoiceTranscriptionId"];
            /** @constant */
            object: "voice.transcription";
            status: components["schemas"]["VoiceStatus"];
            /** @description The model of the transcription. Before it starts, the most likely model. */
            model: string;
            /** @description `transcribe` or `translate`. More values may be added. */
            task: string;
            /** @description The format of the transcript. */
            response_format: string;
            /** @description The progress in percent: 100 when it is completed. */
            progress: number;
            /**
             * Format: double
             * @description The duration of the audio file. 0 if it is unknown, which only free models allow.
             */
            duration_seconds: number;
            /** @description The content type of the transcript. */
            content_type: string | null;
            /** @description A signed URL that works without a key. Null until the transcript exists, if there won't be one, and after it was deleted. */
            url: string | null;
            /**
             * Unix time
             * @description When the URL expires: after 24 hours, or when the file is deleted if that is earlier. In an event, after 48 hours.
             */
            url_expires_at: number | null;
            /** @description The cost. 0 until the end. */
            cost: components["schemas"]["Credits"];
            /** @description The metadata from the request that created the object. */
            metadata: {
                [key: string]: string;
            };
            /** @description Why it failed. */
            error: components["schemas"]["JobError"] | null;
            /** Unix time */
            created_at: number;
            /**
             * Unix time
             * @description When work on it started.
             */
            started_at: number | null;
            /**
             * Unix time
             * @description When it ended, regardless of the result.
             */
            completed_at: number | null;
            /**
             * Unix time
             * @description When Turnpike deletes the job and its transcript.
             */
            expires_at: number | null;
        };
        VoiceTranscriptionList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["VoiceTranscription"][];
            /** @description The first ID of the page. */
            first_id: string | null;
            /** @description The position after this page. Send it as `after`. If `has_more` is true, it is present even if `data` is empty. */
            last_id: string | null;
            /** @description Whether there is another page. */
            has_more: boolean;
        };
        /** @description A deleted transcription job. */
        DeletedVoiceTranscription: {
            id: components["schemas"]["VoiceTranscriptionId"];
            /** @constant */
            object: "voice.transcription.deleted";
            /** @constant */
            deleted: true;
        };
        AgentRunStatus: "queued" | "in_progress" | "awaiting_approval" | "requires_action" | "verifying" | "cancelling" | "completed" | "failed" | "cancelled" | (string & {});
        AgentRunCreate: {
            /** @description A model ID or a router name, from `GET /v1/models`. */
            model: string;
            /** @description The system prompt: the first message that the model gets in each step. Up to 262,144 bytes. */
            instructions?: string;
            /** @description The task: a string, or a conversation of OpenAI chat messages. */
            input: string | ({
                /**
                 * @description The role of the author.
                 * @enum {string}
                 */
                role: "user" | "assistant" | "system" | "developer";
                /** @description A string, or an array of parts. */
                content: string | {
                    [key: string]: unknown;
                }[];
            } & {
                [key: string]: unknown;
            })[];
            /** @description The tools that the model can call. At most 128, including those of MCP servers. */
            tools?: components["schemas"]["AgentTool"][] | null;
            /** @description The maximum number of model calls. A run without an answer by then fails with `max_steps_exceeded`. Default: `20`. */
            max_steps?: number | null;
            /** @description A limit of the run's cost. */
            budget?: {
                /** @description The maximum credits for all steps and judges. Turnpike limits responses to the remaining credits. If these are too few for a response, the run fails with `budget_exceeded`. */
                max_credits: components["schemas"]["Credits"];
            } | null;
            /** @description How long the run can work, without the time that it waits for people or in a queue. After that, it fails with `run_timeout`. By default, there is no limit. */
            timeout_seconds?: number | null;
            /** @description How long the run waits for a decision before it fails with `approval_expired`. Default: `86400`. */
            approval_timeout_seconds?: number | null;
            /** @description How long the run waits for the outputs of your tools before it fails with `tool_output_timeout`. Default: `600`. */
            tool_output_timeout_seconds?: number | null;
            /** @description The requirements for the answer. */
            output?: {
                /** @description A JSON Schema of up to 64 KiB without external references. The default version is draft 2020-12. Turnpike asks the model for an answer that satisfies the schema, and validates the answer. */
                schema?: {
                    [key: string]: unknown;
                } | null;
                /** @description The checks of the answer, after it satisfies the schema. */
                checks?: components["schemas"]["AgentCheck"][] | null;
                /** @description How often the model can revise a rejected answer before the run fails with `verification_failed`. Each revision is a step. Default: `1`. */
                max_revisions?: number | null;
            } | null;
            /** @description Your own key-value pairs: up to 16, with names of up to 64 characters and string values of up to 512. Turnpike returns them in the object and in its events. */
            metadata?: {
                [key: string]: string;
            } | null;
            /** @description Streams the run's events. Default: `false`. */
            stream?: boolean;
        };
        AgentTool: {
            /**
             * @description The executor: you, the server with one request, or an MCP server.
             * @enum {string}
             */
            type: "function" | "http" | "mcp";
            /** @description For `function` and `http` (required): the name that the model uses. */
            name?: string;
            /** @description For `function` and `http`: a description of the tool for the model. */
            description?: string;
            /** @description For `function` and `http`: a JSON Schema of an object, up to 64 KiB, without external references. Turnpike returns invalid arguments to the model. By default, the tool has no arguments. */
            parameters?: {
                [key: string]: unknown;
            } | null;
            /** @description For `function`: accepted for compatibility with OpenAI's clients. Turnpike always validates arguments. */
            strict?: boolean | null;
            /** @description For `function`: an alternative place for `name`, `description`, `parameters` and `strict`, as in chat completions. */
            function?: {
                name: string;
                description?: string;
                parameters?: {
                    [key: string]: unknown;
                } | null;
                strict?: boolean | null;
            } | null;
            /** @description For `http` (required): the URL of the request. Its IP address must be public and, unless the operator allows otherwise, its scheme `https`. Turnpike doesn't follow redirects. */
            url?: string;
            /**
             * @description For `http`. With `GET`, the arguments are in the query, otherwise in the body as JSON. Default: `"POST"`.
             * @enum {string|null}
             */
            method?: "POST" | "GET" | "PUT" | "PATCH" | "DELETE" | null;
            /** @description For `http`: whether Turnpike can safely repeat a call. Each call has the header `Idempotency-Key: {run_id}:{call_id}`. Default: `false`. */
            idempotent?: boolean;
            /** @description For `mcp` (required): your name for the server. The model sees its tools as `{server_label}__{tool}`. */
            server_label?: string;
            /** @description For `mcp`: the server's URL (Streamable HTTP), under the same rules as `url`. Without it, `server_label` is the label of a registered tool server. */
            server_url?: string;
            /** @description For `mcp`: the tools that the model can call, by the server's names, as an array or in `tool_names`. The default is all tools. */
            allowed_tools?: string[] | {
                tool_names?: string[];
                /** @description Must be `false` or absent. */
                read_only?: boolean | null;
            } | null;
            /** @description For `mcp`: a token that Turnpike sends as `Authorization: Bearer`. It is stored like `headers`. */
            authorization?: string;
            /** @description For `mcp`: your description of the server. */
            server_description?: string;
            /** @description For `mcp`: accepted, without effect. The model gets all tools at once. */
            defer_loading?: boolean | null;
            /** @description For `http` and `mcp`: request headers, such as `Authorization`. Turnpike stores them encrypted and never returns them. If a server's response repeats one, Turnpike hides it. */
            headers?: {
                [key: string]: string;
            } | null;
            /** @description For `http` and `mcp`: the timeout of a call. Default: `30`. */
            timeout_seconds?: number | null;
            /** @description The calls that a person must approve: `always` (the default for `mcp`) or `never` (the default for other tools). For `mcp`, it can be an object that names tools. Tools in neither list need approval. If the server marks a tool as destructive, it needs approval unless you name it under `never`. */
            require_approval?: ("always" | "never") | {
                /** @description Tools that need approval. */
                always?: {
                    /** @description The tools' names, as the server has them. */
                    tool_names: string[];
                } | null;
                /** @description Tools that don't need approval. */
                never?: {
                    /** @description The tools' names, as the server has them. */
                    tool_names: string[];
                } | null;
            } | null;
            /** @description Who decides about calls that need approval, and which calls these are. Not with `require_approval: never`, or for registered tool servers, which have their own. */
            approval_rules?: components["schemas"]["ApprovalRules"] | null;
        };
        /**
         * approval rules
         * @description Who decides about the calls of a tool, and which calls need a decision. A rule that no one can satisfy is rejected.
         */
        ApprovalRules: {
            /** @description What happens if no one decides in time: the run fails with `approval_expired`, or the model learns that the call wasn't made and the run continues. Default: `"fail"`. */
            on_expiry?: "fail" | "report" | "" | (string & {});
            /** @description The roles that may decide, in the dashboard. Keys can't. The default is everyone with the scope `agents.runs:approve`. */
            roles?: ("owner" | "admin" | "developer" | "viewer" | (string & {}))[] | null;
            /** @description How many must approve. With 2, calls can only be approved or denied. A member and all of their keys count as one. Default: `1`. */
            approvers?: number;
            /** @description Whether the member behind the run's key, and all keys that this member or these keys created, are excluded from deciding. Default: `false`. */
            exclude_creator?: boolean;
            /** @description Only calls that meet one of these conditions need approval. A value that is missing or can't be compared meets its condition. The default is every call. */
            conditions?: {
                /** @description A JSON Pointer to a value in the arguments, such as `/amount`. */
                path: string;
                /** @description How to compare. All but `eq` and `ne` compare numbers. */
                operator: "eq" | "ne" | "gt" | "gte" | "lt" | "lte" | (string & {});
                /** @description The value to compare with. */
                value: string | number | boolean | null;
            }[] | null;
        };
        AgentCheck: {
            /**
             * @description A model with a rubric, or your own server.
             * @enum {string}
             */
            type: "judge" | "http";
            /** @description For `judge` (required): the model. The run pays for it, but it doesn't count as a step. */
            model?: string;
            /** @description For `judge` (required): the criteria of a good answer. */
            rubric?: string;
            /** @description For `http` (required): the URL that gets a POST with `run_id`, `output_text`, `output` and `metadata`. It must return `{"passed": true}` or `{"passed": false, "reason": "…"}` within 30 seconds. The same rules apply as for the `url` of a tool. */
            url?: string;
        };
        AgentToolOutputs: {
            /** @description The outputs of the calls. */
            tool_outputs: {
                /** @description The call's ID. */
                call_id: string;
                /** @description The output of the tool, for the model. Up to 262,144 bytes. Default: `""`. */
                output?: string;
                /** @description Whether the tool failed. Default: `false`. */
                is_error?: boolean;
            }[];
        };
        AgentDecision: {
            /**
             * @description The decision. `edit` makes the call with other arguments. `respond` gives the model an answer instead of making the call.
             * @enum {string}
             */
            decision: "approve" | "deny" | "edit" | "respond";
            /** @description The reason. If you deny a call, the model gets it. */
            reason?: string;
            /** @description The hash of the arguments that you reviewed, from `required_actions`. Required for `edit`. */
            arguments_hash?: string;
            /** @description For `edit` (required): the new arguments, as an object or as JSON in a string. They must fit the tool's parameters. */
            arguments?: Record<string, never> | string;
            /** @description For `respond` (required): the answer that the model gets instead of the tool's output. */
            response?: string;
        };
        /**
         * agent run
         * @description An agent run. It is also the data of the three `agent.run` events.
         */
        AgentRun: {
            /** @description The ID. */
            id: components["schemas"]["AgentRunId"];
            /** @constant */
            object: "agent.run";
            /** @description The state of the run. */
            status: components["schemas"]["AgentRunStatus"];
            /** @description The requested model. Each step has the model that ran. */
            model: string;
            /** @description The maximum number of model calls. */
            max_steps: number;
            /** @description The number of model calls, including the current one. */
            steps_used: number;
            /** @description The usage so far, including judges. */
            usage: components["schemas"]["AgentUsage"];
            /** @description The limit of the run's cost, if you set one. */
            budget: {
                max_credits: components["schemas"]["Credits"];
            } | null;
            /** @description The pending actions. Empty unless the status is `awaiting_approval` or `requires_action`. */
            required_actions: {
                /** @description A decision, or the output of one of your tools. */
                type: "approval" | "function_call" | (string & {});
                /** @description For an approval: the ID to use for the decision. */
                id?: components["schemas"]["ApprovalId"];
                /** @description The call's ID, to use for its output. */
                call_id: string;
                /** @description The tool's name. */
                tool: string;
                /** @description The arguments as JSON in a string. */
                arguments: string;
                /** @description For an approval: the hex SHA-256 of `arguments`. Send it with your decision. */
                arguments_hash?: string;
                /** @description For an approval: the reason, if it isn't required by the tool itself. For example, a crash. */
                note?: string;
                /**
                 * Unix time
                 * @description How long the run waits.
                 */
                expires_at: number;
                /** @description For an approval: the roles that may decide, if the tool limits them. */
                roles?: string[];
            }[];
            /** @description The result of a completed run. */
            result: {
                /** @description The answer as text. */
                output_text: string;
                /** @description True if the answer was cut off at its token limit: the model's, the server's `gateway.default_max_output`, or the limit of the remaining budgets. */
                truncated: boolean;
                /**
                 * any JSON
                 * @description The answer as JSON if you set a schema, otherwise null.
                 */
                output: unknown;
                /** @description True if the answer passed all checks, including the schema. Null if there were no checks, or if a check was simulated. */
                verified: boolean | null;
                /** @description The results of the checks. Null if there were none. */
                verification: {
                    /** @description The result of each check. */
                    checks: components["schemas"]["AgentVerdict"][];
                    /** @description The number of revisions. */
                    revisions: number;
                    /** @description True if a check was simulated, as HTTP checks are with a test key. */
                    simulated?: boolean;
                } | null;
            } | null;
            /** @description The model's last text, while the run isn't completed. It remains if the run fails or is canceled. */
            partial_result: string | null;
            /** @description Why the run failed. The codes are `max_steps_exceeded`, `budget_exceeded`, `insufficient_credits`, `run_timeout`, `approval_expired`, `tool_output_timeout`, `verification_failed`, `model_error`, `context_length_exceeded`, `check_error`, `tool_error`, `max_tool_calls_exceeded`, `key_revoked`, `unknown_project` and `cancelled`. More values may be added. */
            error: components["schemas"]["AgentError"];
            /** @description The metadata from the request that created the object. */
            metadata: {
                [key: string]: string;
            };
            /**
             * Unix time
             * @description When it was created.
             */
            created_at: number;
            /**
             * Unix time
             * @description When Turnpike first called the model.
             */
            started_at: number | null;
            /**
             * Unix time
             * @description When it ended, regardless of the result.
             */
            completed_at: number | null;
        };
        AgentUsage: {
            input_tokens: number;
            output_tokens: number;
            credits: components["schemas"]["Credits"];
        };
        AgentVerdict: {
            /** @description The type of the check: `schema`, `judge` or `http`. More values may be added. */
            type: string;
            /** @description Whether the answer passed the check. */
            passed: boolean;
            /** @description The reason, for people. It can be empty. */
            reason: string;
            /** @description True if tools are simulated and Turnpike didn't call the check's server. Simulated checks pass. */
            simulated?: boolean;
        };
        AgentError: {
            /** @description The stable error code. More values may be added. */
            code: string;
            /** @description The error message for people. */
            message: string;
        } | null;
        AgentRunList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["AgentRun"][];
            /** @description The first ID of the page. */
            first_id: string | null;
            /** @description The position after this page. Send it as `after`. If `has_more` is true, it is present even if `data` is empty. */
            last_id: string | null;
            /** @description Whether there is another page. */
            has_more: boolean;
        };
        /** @description A response of the model, and its tool calls. */
        AgentStep: {
            /** @description The ID. */
            id: components["schemas"]["AgentStepId"];
            /** @constant */
            object: "agent.step";
            /** @description The run that it belongs to. */
            run_id: components["schemas"]["AgentRunId"];
            /** @description The number of the step, from 1. */
            number: number;
            /** @description `started` until the model responds, including while the step waits for a retry. */
            status: "started" | "completed" | "failed" | (string & {});
            /** @description The model that responded. */
            model: string | null;
            /** @description The provider that ran the model. */
            provider: string | null;
            /** @description The text of the model's response. */
            text: string | null;
            /** @description The tool calls of the response. */
            tool_calls: {
                /** @description The call's ID, unique in the run. Other objects have it as `call_id`. */
                id: string;
                /** @description The tool's name. */
                tool: string;
                /** @description The type of the tool. Empty if the tool doesn't exist. */
                type: "function" | "http" | "mcp" | "" | (string & {});
                /** @description The arguments as the model wrote them, as JSON in a string. */
                arguments: string;
                /** @description The hex SHA-256 of `arguments`. */
                arguments_hash: string;
                /** @description `ready` will be executed. `started` is being executed, or its result is unknown because the run ended first. `awaiting_output` waits for your output. `completed` has an output, which can be an error. */
                status: "awaiting_approval" | "ready" | "started" | "awaiting_output" | "completed" | "denied" | (string & {});
                /** @description The decision about the call, if it needs one. */
                approval: {
                    id: components["schemas"]["ApprovalId"];
                    /** @description Null until someone decides. More values may be added. */
                    decision: "approve" | "deny" | "edit" | "respond" | (string & {}) | null;
                    /** @description The ID of the key, scoped token or person that decided. */
                    decided_by: string | null;
                    /** Unix time */
                    decided_at: number | null;
                    /** @description The reason for the decision. */
                    reason: string | null;
                    /** @description Why approval was required, if it isn't required by the tool itself. */
                    note: string | null;
                    /**
                     * Unix time
                     * @description How long the run waits for the decision. After you approve a call to your own tool, how long the run waits for its output.
                     */
                    expires_at: number | null;
                    /** @description The arguments that a person set, as JSON in a string. Null if the call has the model's. */
                    edited_arguments: string | null;
                    /** @description Who has approved a call that needs two approvers. */
                    approved_by: string[];
                } | null;
                /** @description The output for the model. Null if there is none (yet). */
                output: string | null;
                /** @description Whether the call failed, was denied or was rejected. */
                is_error: boolean;
                /** @description True if Turnpike didn't send a request, as for HTTP and MCP tools with test keys. The output is then `{"simulated":true,"tool":…,"arguments":…}`, or the value of `[[sim:tool_result=…]]` in the input. */
                simulated: boolean;
                /** @description What the call cost: the `price_per_call` of a tool of a registered server. */
                credits: components["schemas"]["Credits"];
                /**
                 * Unix time
                 * @description When the server started to execute the call. Null for your own tools.
                 */
                started_at: number | null;
                /**
                 * Unix time
                 * @description When the output arrived.
                 */
                finished_at: number | null;
            }[];
            /** @description The usage of the step: the tokens of the response, and the credits of all attempts. */
            usage: components["schemas"]["AgentUsage"];
            /** @description The request's ID in the log. Null while the step waits for a retry. */
            request_id: components["schemas"]["RequestId"] | null;
            /** @description Why the model's last attempt failed. */
            error: components["schemas"]["AgentError"];
            /**
             * Unix time
             * @description When it started.
             */
            created_at: number;
            /**
             * Unix time
             * @description When the model responded.
             */
            completed_at: number | null;
        };
        AgentStepList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["AgentStep"][];
            /** @description The first ID of the page. */
            first_id: string | null;
            /** @description The last ID of the page. Send it as `after`. */
            last_id: string | null;
            /** @description Whether there is another page. */
            has_more: boolean;
        };
        /** @description An event of a run. */
        AgentRunEvent: {
            /** @constant */
            object: "agent.run.event";
            /** @description The number of the event in the run. It is also the `id` of the server-sent event. */
            seq: number;
            /** @description The run that it belongs to. */
            run_id: components["schemas"]["AgentRunId"];
            /** @description The type, as listed above. More values may be added, so ignore types that you don't know. */
            type: string;
            /** @description More information, depending on `type`. */
            data: {
                [key: string]: unknown;
            };
            /**
             * Unix time
             * @description When it happened.
             */
            created_at: number;
        };
        /** @description The data of an event of a streamed run. */
        AgentRunStreamEvent: components["schemas"]["AgentRunEvent"] | components["schemas"]["Error"];
        AgentRunEventList: {
            /** @constant */
            object: "list";
            /** @description Oldest first. */
            data: components["schemas"]["AgentRunEvent"][];
            /** @description The number of the first event, as a string. */
            first_id: string | null;
            /** @description The number of the last event. Send it as `starting_after`. */
            last_id: string | null;
            /** @description Whether there is another page. */
            has_more: boolean;
        };
        /**
         * credits left
         * @description The remaining credits of the month: the data of `billing.credits.low`.
         */
        CreditsLow: {
            /** @description The remaining credits. */
            remaining: components["schemas"]["Credits"];
            /** @description The threshold of the alert. */
            threshold: components["schemas"]["Credits"];
            /** @description The monthly limit. */
            monthly_credits: components["schemas"]["Credits"];
            /** @description The month (UTC). */
            period: string;
        };
        /**
         * unbilled credits
         * @description What the workspace has used this month beyond its charges: the data of `billing.unbilled_limit_reached`.
         */
        UnbilledLimitReached: {
            /** @description The unbilled credits. */
            unbilled: components["schemas"]["Credits"];
            /** @description Their limit. */
            limit: components["schemas"]["Credits"];
            /** @description The month (UTC). */
            period: string;
            /** @description When the next month begins. */
            resets_at: number;
        };
        /**
         * budget threshold
         * @description A budget whose spending has reached a threshold: the data of `budget.threshold_reached`.
         */
        BudgetThreshold: {
            /** @description The level of the budget: `workspace`, `project`, `key` or `user`. More values may be added. */
            limit_source: string;
            /** @description The ID of the limit, if the budget belongs to one of the `limits` of a key or a project. */
            limit_id?: string;
            /** @description The ID of the workspace, project, key or end user. */
            id: string;
            /** @description Its name. For an end user, the same as `id`. */
            name: string;
            /** @description The budget. */
            budget: components["schemas"]["Credits"];
            /** @description The credits spent in the period. */
            spent: components["schemas"]["Credits"];
            /** @description The period of the budget, such as the month `2026-08` (UTC). */
            period: string;
            /**
             * Unix time
             * @description When the next period starts. Null for a budget that never starts again.
             */
            resets_at: number | null;
            /** @description The threshold in percent of the budget. */
            threshold: number;
        };
        /**
         * used-up budget
         * @description A budget that is used up, or has refused a request that needs at most a tenth of it: the data of `budget.exceeded`.
         */
        BudgetExceeded: {
            /** @description The level of the budget: `workspace`, `project`, `key` or `user`. More values may be added. */
            limit_source: string;
            /** @description The ID of the limit, if the budget belongs to one of the `limits` of a key or a project. */
            limit_id?: string;
            /** @description The ID of the workspace, project, key or end user. */
            id: string;
            /** @description Its name. For an end user, the same as `id`. */
            name: string;
            /** @description The budget. */
            budget: components["schemas"]["Credits"];
            /** @description The credits spent in the period. */
            spent: components["schemas"]["Credits"];
            /** @description The period of the budget, such as the month `2026-08` (UTC). */
            period: string;
            /**
             * Unix time
             * @description When the next period starts. Null for a budget that never starts again.
             */
            resets_at: number | null;
        };
        /** percentages */
        AlertThresholds: number[];
        /** @description What the month's spending will be if it goes on at the same pace as since the start of the month. Null in the first hour of the month, and without spending. */
        Forecast: {
            /** @description The credits spent at the end of the month. */
            spent: components["schemas"]["Credits"];
            /**
             * Unix time
             * @description When the budget is used up. Null if it lasts, or without a budget.
             */
            exhausted_at: number | null;
        } | null;
        /**
         * revoked key
         * @description A leaked key that Turnpike revoked: the data of `key.auto_revoked`. It doesn't contain the key's value.
         */
        KeyAutoRevoked: {
            /** @description The ID of the key or the scoped token. */
            key_id: string;
            /** @description The start and end of the value. */
            key_hint: string;
            /** @description The source of the report. More values may be added. */
            source: string;
            /** @description Where the key was found, if known. */
            url: string | null;
            /** @description The file, line and commit in what the server scanned. Null for other reports. */
            location: string | null;
            /**
             * Unix time
             * @description When it was detected.
             */
            detected_at: number;
            /** @description Keys that were also revoked, because this key created them directly or through other keys. */
            descendants: {
                /** @description The ID of the key. */
                key_id: string;
                /** @description The start and end of the value. */
                key_hint: string;
                /** @description The purpose of the key. */
                name: string;
            }[];
            /** @description Whether more than 100 other keys were revoked. `GET /v1/keys` lists all of them. */
            descendants_truncated: boolean;
        };
        /**
         * leaked webhook secret
         * @description A leaked secret of a webhook endpoint: the data of `endpoint.secret_leaked`, which goes to other endpoints. It doesn't contain the secret. The secret keeps signing until someone rotates it.
         */
        LeakedSecret: {
            /** @description The ID of the endpoint. */
            endpoint_id: string;
            /** @description The URL of the endpoint. It is empty for a tunnel. */
            url: string;
            /** @description The purpose of the endpoint. */
            description: string;
            /** @description The start and end of the secret. */
            secret_hint: string;
            /** @description Whether it is the old secret of a rotation, in its grace period. End the grace period then. */
            previous: boolean;
            /** @description The source of the report. More values may be added. */
            source: string;
            /** @description Where the secret was found, if known. */
            leak_url: string | null;
            /** @description The file, line and commit in what the server scanned. Null for other reports. */
            location: string | null;
            /**
             * Unix time
             * @description When it was detected.
             */
            detected_at: number;
        };
        /**
         * failing or paused endpoint
         * @description An endpoint that fails or was paused: the data of `endpoint.failing` and `endpoint.paused`, which go to other endpoints.
         */
        EndpointState: {
            /** @description The ID of the endpoint. */
            endpoint_id: string;
            /** @description The URL of the endpoint. */
            url: string;
            /** @description The purpose of the endpoint. */
            description: string;
            /** @description What happened: `failing` if a delivery failed three times while no other succeeded, or `paused`. More values may be added. */
            status: "failing" | "paused" | (string & {});
            /** @description `delivery_failed`, or `manual` if someone paused the endpoint. More values may be added. */
            reason: string;
            /**
             * Unix time
             * @description When the endpoint began to fail or was paused.
             */
            since: number;
            /** @description The error of the last attempt. Null if someone paused the endpoint. */
            last_error: string | null;
            /** @description The delivery that failed. Null if someone paused the endpoint. */
            delivery_id: string | null;
        };
        /**
         * failed delivery
         * @description A delivery whose last attempt failed: the data of `delivery.failed`, which goes to other endpoints.
         */
        FailedDelivery: {
            /** @description The ID of the delivery. */
            delivery_id: string;
            /** @description The endpoint that didn't accept it. */
            endpoint_id: string;
            /** @description The URL of the endpoint. */
            url: string;
            /** @description The event that wasn't delivered. */
            event_id: string;
            /** @description The type of that event. More values may be added. */
            event_type: string;
            /** @description The number of attempts. */
            attempts: number;
            /** @description The status of the last response. Null if there was none. */
            last_status: number | null;
            /** @description The error of the last attempt. */
            last_error: string;
        };
        /**
         * credits or a share
         * @description An amount of credits, or a percentage of the monthly credits, such as `20%`.
         */
        AlertThreshold: components["schemas"]["Credits"] | string;
        /** @description The workspace's credits in the current month. */
        Billing: {
            /** @constant */
            object: "billing";
            /** @description The monthly limit. Null means no limit. */
            monthly_credits: components["schemas"]["Credits"] | null;
            /** @description The credits charged this month. */
            used: components["schemas"]["Credits"];
            /** @description The credits that the server's nodes have reserved for current and future requests. The nodes release unused credits. Always 0 without a limit. */
            reserved: components["schemas"]["Credits"];
            /** @description The remaining credits, including reserved ones. Null without a limit. */
            remaining: components["schemas"]["Credits"] | null;
            /** @description If fewer credits remain, Turnpike publishes `billing.credits.low`. */
            alert_threshold: components["schemas"]["AlertThreshold"];
            /** @description The percentages of the budget at which Turnpike publishes `budget.threshold_reached`. Projects and keys inherit them. */
            alert_thresholds: components["schemas"]["AlertThresholds"];
            forecast: components["schemas"]["Forecast"];
            /** @description The month (UTC). */
            period: string;
            /**
             * Unix time
             * @description When the next month starts.
             */
            resets_at: number;
        };
        BillingUpdate: {
            /** @description The monthly limit. Null means no limit. 0 rejects every request. A new limit other than 0 can't be lower than the credits already used this month. */
            monthly_credits?: components["schemas"]["Credits"] | null;
            /** @description Credits as a number, or a percentage of `monthly_credits` from `0%` to `100%`. Null resets it to the default, `20%`. */
            alert_threshold?: components["schemas"]["AlertThreshold"] | null;
            /** @description Percentages of a budget, from 1 to 99. When spending reaches one, Turnpike publishes `budget.threshold_reached` and sends an email. An empty array turns that off. Null resets it to the default, 50, 80 and 95. */
            alert_thresholds?: components["schemas"]["AlertThresholds"] | null;
        };
        /** @description Usage by time. */
        UsageReport: {
            /** @constant */
            object: "usage";
            /** @description The bucket size. */
            bucket: "minute" | "hour" | "day" | "month" | (string & {});
            /** @description The dimensions of the groups. */
            group_by: ("key" | "project" | "model" | "provider" | "user" | (string & {}))[];
            /**
             * Unix time
             * @description As in the request.
             */
            start: number;
            /**
             * Unix time
             * @description As in the request.
             */
            end: number;
            /** @description Oldest first. */
            data: components["schemas"]["UsageRow"][];
        };
        /** @description The usage of one bucket and group. */
        UsageRow: {
            /**
             * Unix time
             * @description The start of the bucket.
             */
            start: number;
            /** @description With `key`: the key's ID. */
            key_id?: components["schemas"]["KeyId"];
            /** @description With `project`: the project's ID. Empty for requests without a project. */
            project?: string;
            /** @description With `model`: the model that ran. */
            model?: string;
            /** @description With `provider`: the provider that ran the model. */
            provider?: string;
            /** @description With `user`: Turnpike's ID of the end user. */
            user_id?: components["schemas"]["UserId"];
            /** @description With `user`: your ID of the end user. Absent if the user is deleted. */
            user?: string;
            /** @description The number of requests. */
            requests: number;
            /** @description The number of requests that failed. */
            errors: number;
            input_tokens: number;
            output_tokens: number;
            /** @description The part of the input tokens that providers read from their prompt caches. */
            cached_tokens: number;
            /** @description The cost of the requests. */
            credits: components["schemas"]["Credits"];
            /** @description The simulated cost of test requests. */
            simulated_credits: components["schemas"]["Credits"];
            /** @description With `include=latency`: the median latency of successful requests in milliseconds, estimated from counts in 16 ranges. Absent without one. */
            latency_p50_ms?: number;
            /** @description With `include=latency`: the latency that 95% of the successful requests didn't exceed. */
            latency_p95_ms?: number;
        };
        /** @description The content of a request. */
        AuditContent: {
            /** @constant */
            object: "audit.content";
            request_id: components["schemas"]["RequestId"];
            /** @description The body that the client sent. The fields of a form are a JSON object. */
            request: components["schemas"]["AuditContentPart"];
            /** @description The body that the client got. A stream is assembled into the response that the same request has without a stream. */
            response: components["schemas"]["AuditContentPart"];
            /**
             * Unix time
             * @description When the content is deleted.
             */
            expires_at: number;
        };
        /** @description A body, without secrets and binary data. */
        AuditContentPart: {
            /** @description The media type of the body. */
            content_type: string;
            /** @description The body as text: JSON in most cases, and a size such as `[audio/mpeg, 5120 bytes]` for audio. Empty if there was none. */
            body: string;
            /** @description The number of bytes that were sent. */
            size: number;
            /** @description Whether `body` was cut at 256 KiB. */
            truncated: boolean;
            /** @description Whether `body` was assembled from a stream. */
            streamed: boolean;
        };
        /** @description An authenticated request. */
        AuditEntry: {
            /** @description The same as `request_id`. */
            id: components["schemas"]["RequestId"];
            /** @constant */
            object: "audit.entry";
            /** @description The value of the response's `X-Request-Id` header. */
            request_id: components["schemas"]["RequestId"];
            /** @description The key, or the key of the scoped token. */
            key_id: components["schemas"]["KeyId"];
            /** @description The start and end of the key. */
            key_hint: string;
            /** @description The scoped token, if the request used one. */
            scoped_token_id: string | null;
            /** @description The metadata of the token. */
            token_metadata: {
                [key: string]: unknown;
            } | null;
            /** @description The client's IP address. */
            ip: string;
            method: string;
            /** @description The path without the query. Values that look like keys are masked. */
            path: string;
            /** @description The HTTP status. Null while the request is in progress, and if the server crashed during the request. */
            status: number | null;
            /** @description The `code` of the error. */
            error_code: string | null;
            /** @description The `message` of the error, up to 500 bytes. Values that look like keys are masked. */
            error_message: string | null;
            /** @description The `param` of the error. */
            error_param: string | null;
            /** @description The budget or the rate limit that refused the request. */
            refused_by: {
                /** @description `budget`, `requests_per_minute`, `tokens_per_minute` or `concurrent_requests`. More values may be added. */
                kind: string;
                /** @description The owner: `workspace`, `project`, `key`, `user` or `run`. More values may be added. */
                level: string;
                /** @description The ID of the owner. Null for a run. */
                id: string | null;
                /** @description The ID of the limit, if it is one of the owner's `limits`. */
                limit_id: string | null;
            } | null;
            /** @description The model that the request named, such as `auto`. `model` has the one that Turnpike called. */
            requested_model: string | null;
            /** @description The model that Turnpike called. Null for requests that were rejected earlier, except for those that exceeded a budget. */
            model: string | null;
            /** @description The provider that ran the model. */
            provider: string | null;
            /** @description The attempts, if there were several or the only one failed. */
            attempts: {
                /** @description The provider of the attempt. */
                provider: string;
                /** @description The model of the attempt. */
                model: string;
                /** @description `ok`, or why the attempt failed: `connect`, `timeout`, `rate_limited`, `overloaded`, `server_error`, `auth`, `no_model`, `invalid`, `too_long`, `blocked_input`, `blocked_output`, `protocol` or `cut`. `unsupported` means that the provider's format doesn't support the request. `local` means that this server had no free file descriptor. More values may be added. */
                outcome: string;
                /** @description The provider's HTTP status, if there was one. */
                status?: number;
                /** @description The time to the response or, for a stream, to the first chunk. */
                ms: number;
                /** @description How long Turnpike waited before this attempt: its own backoff, or the provider's `Retry-After`. Absent if it didn't. */
                wait_ms?: number;
            }[] | null;
            /** @description The project that it belongs to. */
            project: string | null;
            environment: components["schemas"]["Environment"];
            input_tokens: number | null;
            output_tokens: number | null;
            /** @description The input tokens that the provider read from its cache. Null if there were none, or if the number is unknown. */
            cached_tokens: number | null;
            /** @description The cost. */
            credits: components["schemas"]["Credits"];
            /** @description The cost above the reservation, which wasn't charged. */
            unbilled_credits: components["schemas"]["Credits"];
            /** @description The simulated cost of a test request. */
            simulated_credits: components["schemas"]["Credits"];
            /** @description The version of the prices: the date of the model catalog and, if the operator changed prices or terms, an identifier for them. */
            price_version: string | null;
            /** @description The source of the usage: `provider`, or `estimated` if the provider didn't report it. `partial` means that the response was interrupted or the client disconnected. `recovered` means that the server crashed and charged the reservation. More values may be added. */
            usage_source: string | null;
            /**
             * Format: double
             * @description From the arrival of the request to the end of the response.
             */
            latency_ms: number | null;
            /**
             * Format: double
             * @description The time from the arrival of the request to the first attempt: reading the body, checking limits, reserving credits. Null below 1 ms.
             */
            queue_ms: number | null;
            /**
             * Format: double
             * @description The part of the latency that providers took, over all attempts. It doesn't include Turnpike's waits between attempts.
             */
            upstream_ms: number | null;
            /**
             * Format: double
             * @description The time from the arrival of the request to the first token of a streamed response.
             */
            first_token_ms: number | null;
            user_agent: string;
            /** @description The end user that the request counts toward, by Turnpike's ID. */
            user_id: string | null;
            /**
             * Unix time
             * @description When the request arrived.
             */
            created_at: number;
        };
        AuditEntryList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["AuditEntry"][];
            /** @description The first ID of the page. */
            first_id: string | null;
            /** @description The position after this page. Send it as `after`. If `has_more` is true, it is present even if `data` is empty. */
            last_id: string | null;
            /** @description Whether there is another page. */
            has_more: boolean;
        };
        /** @description An administrative action. */
        AuditAction: {
            id: components["schemas"]["AuditActionId"];
            /** @constant */
            object: "audit.action";
            /** @description The ID of a key or a person, `operator`, `leak scanner` for a reported key, or `system` for an automatic action. */
            actor: string;
            /** @description The action: `key.created`, `key.updated`, `key.rotated`, `key.grace_ended`, `key.revoked`, `scoped_token.revoked`, `project.created`, `project.updated`, `project.archived`, `webhook.created`, `webhook.updated`, `webhook.deleted`, `webhook.paused`, `webhook.resumed`, `webhook.secret_rotated`, `webhook.grace_ended`, `webhook.tested`, `webhook.replayed`, `delivery.replayed`, `agent.run.approve`, `agent.run.deny`, `billing.updated`. There are also actions of people in the dashboard and of the operator on the command line. More values may be added. */
            action: string;
            /** @description The ID of the object. */
            target: string;
            /** @description More information, depending on the action, or null. It never contains a secret. */
            detail: {
                [key: string]: unknown;
            } | null;
            /** @description Null if the action concerns both environments. */
            environment: "live" | "test" | (string & {}) | null;
            /** @description The project of the object. Null if it belongs to none. */
            project: string | null;
            /** @description The IP address. Null for the operator. */
            ip: string | null;
            /** @description The request of the action. */
            request_id: string | null;
            /**
             * Unix time
             * @description When it was detected.
             */
            created_at: number;
        };
        AuditActionList: {
            /** @constant */
            object: "list";
            data: components["schemas"]["AuditAction"][];
            /** @description The first ID of the page. */
            first_id: string | null;
            /** @description The last ID of the page. Send it as `after`. */
            last_id: string | null;
            /** @description Whether there is another page. */
            has_more: boolean;
        };
    };
    responses: never;
    parameters: {
        /** @description The project of the request. */
        ServiceProject: components["schemas"]["ProjectId"];
        /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
        IdempotencyKey: string;
        /** @description The maximum number of entries. A page can have fewer while `has_more` is true. */
        Limit: number;
        /** @description Newest first (`desc`) or oldest first (`asc`). */
        Order: "asc" | "desc";
        /** @description The key's ID (not its value). */
        KeyIdInPath: components["schemas"]["KeyId"];
        /** @description The project's ID. */
        ProjectIdInPath: components["schemas"]["ProjectId"];
        /** @description The route's ID. */
        RouteIdInPath: components["schemas"]["RouteId"];
        /** @description The tool server's ID. */
        ToolServerIdInPath: components["schemas"]["ToolServerId"];
        /** @description The endpoint's ID. */
        WebhookIdInPath: components["schemas"]["WebhookId"];
        /** @description The delivery's ID. */
        DeliveryIdInPath: components["schemas"]["DeliveryId"];
        /** @description The replay's ID. */
        ReplayIdInPath: components["schemas"]["ReplayId"];
        /** @description The event's ID. */
        EventIdInPath: components["schemas"]["EventId"];
        /** @description The batch's ID. */
        ImageBatchIdInPath: components["schemas"]["ImageBatchId"];
        /** @description The video's ID. */
        VideoIdInPath: components["schemas"]["VideoId"];
        /** @description The render's ID. */
        VoiceRenderIdInPath: components["schemas"]["VoiceRenderId"];
        /** @description The transcription's ID. */
        VoiceTranscriptionIdInPath: components["schemas"]["VoiceTranscriptionId"];
        /** @description The run's ID. */
        AgentRunIdInPath: components["schemas"]["AgentRunId"];
    };
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    listImageBatches: {
        parameters: {
            query?: {
                /** @description Filters by state. Turnpike scans up to 10,000 entries for each page, so a page can be short or empty while `has_more` is true. */
                status?: components["schemas"]["BatchStatus"];
                /** @description The maximum number of entries. A page can have fewer while `has_more` is true. */
                limit?: components["parameters"]["Limit"];
                /** @description The `last_id` of the previous page. */
                after?: components["schemas"]["ImageBatchId"];
                /** @description Newest first (`desc`) or oldest first (`asc`). */
                order?: components["parameters"]["Order"];
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of batches. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImageBatchList"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    createImageBatch: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ImageBatchCreate"];
            };
        };
        responses: {
            /** @description The queued batch. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImageBatchSummary"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getImageBatch: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The batch's ID. */
                id: components["parameters"]["ImageBatchIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The batch. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImageBatch"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    deleteImageBatch: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The batch's ID. */
                id: components["parameters"]["ImageBatchIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The batch is deleted. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedImageBatch"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    cancelImageBatch: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The batch's ID. */
                id: components["parameters"]["ImageBatchIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Nothing"];
            };
        };
        responses: {
            /** @description The updated batch. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImageBatchSummary"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    listVideos: {
        parameters: {
            query?: {
                /** @description Filters by state. Turnpike scans up to 10,000 entries for each page, so a page can be short or empty while `has_more` is true. */
                status?: components["schemas"]["VideoStatus"];
                /** @description The maximum number of entries. A page can have fewer while `has_more` is true. */
                limit?: components["parameters"]["Limit"];
                /** @description The `last_id` of the previous page. */
                after?: components["schemas"]["VideoId"];
                /** @description Newest first (`desc`) or oldest first (`asc`). */
                order?: components["parameters"]["Order"];
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of videos. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VideoList"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    createVideo: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["VideoCreate"];
                "multipart/form-data": components["schemas"]["VideoForm"];
            };
        };
        responses: {
            /** @description The queued video. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Video"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getVideo: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The video's ID. */
                id: components["parameters"]["VideoIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The video. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Video"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    deleteVideo: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The video's ID. */
                id: components["parameters"]["VideoIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The video is deleted. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedVideo"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    remixVideo: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The video's ID. */
                id: components["parameters"]["VideoIdInPath"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["VideoRemix"];
            };
        };
        responses: {
            /** @description The queued video. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Video"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    cancelVideo: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The video's ID. */
                id: components["parameters"]["VideoIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Nothing"];
            };
        };
        responses: {
            /** @description The updated video. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Video"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    listVoiceRenders: {
        parameters: {
            query?: {
                /** @description Filters by state. Turnpike scans up to 10,000 entries for each page, so a page can be short or empty while `has_more` is true. */
                status?: components["schemas"]["VoiceStatus"];
                /** @description The maximum number of entries. A page can have fewer while `has_more` is true. */
                limit?: components["parameters"]["Limit"];
                /** @description The `last_id` of the previous page. */
                after?: components["schemas"]["VoiceRenderId"];
                /** @description Newest first (`desc`) or oldest first (`asc`). */
                order?: components["parameters"]["Order"];
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of renders. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VoiceRenderList"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    createVoiceRender: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["VoiceRenderCreate"];
            };
        };
        responses: {
            /** @description The queued render. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VoiceRender"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getVoiceRender: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The render's ID. */
                id: components["parameters"]["VoiceRenderIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The render. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VoiceRender"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    deleteVoiceRender: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The render's ID. */
                id: components["parameters"]["VoiceRenderIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The render is deleted. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedVoiceRender"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    cancelVoiceRender: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The render's ID. */
                id: components["parameters"]["VoiceRenderIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Nothing"];
            };
        };
        responses: {
            /** @description The updated render. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VoiceRender"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    listTranscriptionJobs: {
        parameters: {
            query?: {
                /** @description Filters by state. Turnpike scans up to 10,000 entries for each page, so a page can be short or empty while `has_more` is true. */
                status?: components["schemas"]["VoiceStatus"];
                /** @description The maximum number of entries. A page can have fewer while `has_more` is true. */
                limit?: components["parameters"]["Limit"];
                /** @description The `last_id` of the previous page. */
                after?: components["schemas"]["VoiceTranscriptionId"];
                /** @description Newest first (`desc`) or oldest first (`asc`). */
                order?: components["parameters"]["Order"];
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of transcriptions. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VoiceTranscriptionList"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    createTranscriptionJob: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "multipart/form-data": components["schemas"]["TranscriptionJobForm"];
            };
        };
        responses: {
            /** @description The queued transcription. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VoiceTranscription"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getTranscriptionJob: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The transcription's ID. */
                id: components["parameters"]["VoiceTranscriptionIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The transcription. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VoiceTranscription"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    deleteTranscriptionJob: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The transcription's ID. */
                id: components["parameters"]["VoiceTranscriptionIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The transcription is deleted. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedVoiceTranscription"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    cancelTranscriptionJob: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The transcription's ID. */
                id: components["parameters"]["VoiceTranscriptionIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Nothing"];
            };
        };
        responses: {
            /** @description The updated transcription. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VoiceTranscription"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    listAgentRuns: {
        parameters: {
            query?: {
                /** @description Filters by state. Turnpike scans up to 10,000 entries for each page, so a page can be short or empty while `has_more` is true. */
                status?: components["schemas"]["AgentRunStatus"];
                /** @description The maximum number of entries. A page can have fewer while `has_more` is true. */
                limit?: components["parameters"]["Limit"];
                /** @description The `last_id` of the previous page. */
                after?: components["schemas"]["AgentRunId"];
                /** @description Newest first (`desc`) or oldest first (`asc`). */
                order?: components["parameters"]["Order"];
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of runs. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentRunList"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    createAgentRun: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AgentRunCreate"];
            };
        };
        responses: {
            /** @description The queued run, or the stream of its events. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentRun"];
                    "text/event-stream": string;
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getAgentRun: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The run's ID. */
                id: components["parameters"]["AgentRunIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The run. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentRun"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    listAgentSteps: {
        parameters: {
            query?: {
                /** @description The maximum number of entries. A page can have fewer while `has_more` is true. */
                limit?: components["parameters"]["Limit"];
                /** @description The `last_id` of the previous page. */
                after?: components["schemas"]["AgentStepId"];
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The run's ID. */
                id: components["parameters"]["AgentRunIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of steps. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentStepList"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    listAgentRunEvents: {
        parameters: {
            query?: {
                /** @description Streams the events as they happen, instead of returning a list of the existing ones. */
                stream?: "true" | "false";
                /** @description Returns only events after this number. The header `Last-Event-ID` takes precedence. */
                starting_after?: number;
                /** @description The maximum number of events. It has no effect on a stream. */
                limit?: number;
            };
            header?: {
                /** @description The ID of the last event that you received. */
                "Last-Event-ID"?: number;
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The run's ID. */
                id: components["parameters"]["AgentRunIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of events, or the stream. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentRunEventList"];
                    "text/event-stream": string;
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    cancelAgentRun: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The run's ID. */
                id: components["parameters"]["AgentRunIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Nothing"];
            };
        };
        responses: {
            /** @description The updated run. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentRun"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    sendAgentToolOutputs: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The run's ID. */
                id: components["parameters"]["AgentRunIdInPath"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AgentToolOutputs"];
            };
        };
        responses: {
            /** @description The updated run. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentRun"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    decideAgentApproval: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The run's ID. */
                id: components["parameters"]["AgentRunIdInPath"];
                /** @description The approval's ID, from `required_actions`. */
                approval: components["schemas"]["ApprovalId"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AgentDecision"];
            };
        };
        responses: {
            /** @description The updated run. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentRun"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    createScopedToken: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ScopedTokenCreate"];
            };
        };
        responses: {
            /** @description The token, with its value. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScopedTokenWithValue"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    revokeScopedToken: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The token's ID. */
                id: components["schemas"]["ScopedTokenId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The updated token. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScopedToken"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    listKeys: {
        parameters: {
            query?: {
                /** @description The maximum number of entries. A page can have fewer while `has_more` is true. */
                limit?: components["parameters"]["Limit"];
                /** @description The `last_id` of the previous page. */
                after?: components["schemas"]["KeyId"];
                /** @description Newest first (`desc`) or oldest first (`asc`). */
                order?: components["parameters"]["Order"];
                /** @description Only keys with this status. */
                status?: "active" | "rotating" | "revoked" | "expired";
                /** @description Only keys that are pinned to this project. */
                project?: string;
                /** @description Only keys with this `external_id`. */
                external_id?: string;
                /** @description Only keys with this text in their name, ID, `external_id`, metadata or last four characters, in upper or lower case. */
                search?: string;
                /** @description Only keys with this metadata: `metadata[team]=red`. Repeat it for several pairs. */
                metadata?: {
                    [key: string]: string;
                };
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of keys. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyList"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    createKey: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["KeyCreate"];
            };
        };
        responses: {
            /** @description The key, with its value. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyWithValue"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getKey: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The key's ID (not its value). */
                id: components["parameters"]["KeyIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The key. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Key"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    revokeKey: {
        parameters: {
            query?: {
                /** @description Also revokes every key that the key created, directly or through other keys. */
                descendants?: boolean;
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The key's ID (not its value). */
                id: components["parameters"]["KeyIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The key, with the status `revoked`. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Key"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    updateKey: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The key's ID (not its value). */
                id: components["parameters"]["KeyIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["KeyUpdate"];
            };
        };
        responses: {
            /** @description The updated key. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Key"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    rotateKey: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The key's ID (not its value). */
                id: components["parameters"]["KeyIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["KeyRotate"];
            };
        };
        responses: {
            /** @description The key, with its new value. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyWithValue"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    endKeyGrace: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The key's ID (not its value). */
                id: components["parameters"]["KeyIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Nothing"];
            };
        };
        responses: {
            /** @description The updated key. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Key"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    listProjects: {
        parameters: {
            query?: {
                /** @description The maximum number of entries. A page can have fewer while `has_more` is true. */
                limit?: components["parameters"]["Limit"];
                /** @description The `last_id` of the previous page. */
                after?: components["schemas"]["ProjectId"];
                /** @description Newest first (`desc`) or oldest first (`asc`). */
                order?: components["parameters"]["Order"];
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of projects. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProjectList"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    createProject: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ProjectCreate"];
            };
        };
        responses: {
            /** @description The project. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Project"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getProject: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The project's ID. */
                id: components["parameters"]["ProjectIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The project. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Project"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    archiveProject: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The project's ID. */
                id: components["parameters"]["ProjectIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The project, with the status `archived`. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Project"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    updateProject: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The project's ID. */
                id: components["parameters"]["ProjectIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ProjectUpdate"];
            };
        };
        responses: {
            /** @description The updated project. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Project"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    listWebhooks: {
        parameters: {
            query?: {
                /** @description The kind of endpoints to list. `all` adds tunnels. */
                kind?: "http" | "all";
                /** @description The maximum number of entries. A page can have fewer while `has_more` is true. */
                limit?: components["parameters"]["Limit"];
                /** @description The `last_id` of the previous page. */
                after?: components["schemas"]["WebhookId"];
                /** @description Newest first (`desc`) or oldest first (`asc`). */
                order?: components["parameters"]["Order"];
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of endpoints. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WebhookEndpointList"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    createWebhook: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WebhookCreate"];
            };
        };
        responses: {
            /** @description The endpoint, with its secret. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WebhookEndpointWithSecret"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getWebhook: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The endpoint's ID. */
                id: components["parameters"]["WebhookIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The endpoint. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WebhookEndpoint"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    deleteWebhook: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The endpoint's ID. */
                id: components["parameters"]["WebhookIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The deleted endpoint. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedWebhookEndpoint"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    updateWebhook: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The endpoint's ID. */
                id: components["parameters"]["WebhookIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["WebhookUpdate"];
            };
        };
        responses: {
            /** @description The updated endpoint. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WebhookEndpoint"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    pauseWebhook: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The endpoint's ID. */
                id: components["parameters"]["WebhookIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Nothing"];
            };
        };
        responses: {
            /** @description The updated endpoint. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WebhookEndpoint"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    resumeWebhook: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The endpoint's ID. */
                id: components["parameters"]["WebhookIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["WebhookResume"];
            };
        };
        responses: {
            /** @description The updated endpoint. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WebhookEndpoint"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    rotateWebhookSecret: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The endpoint's ID. */
                id: components["parameters"]["WebhookIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["WebhookRotate"];
            };
        };
        responses: {
            /** @description The endpoint, with its new secret. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WebhookEndpointWithSecret"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    endWebhookGrace: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The endpoint's ID. */
                id: components["parameters"]["WebhookIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Nothing"];
            };
        };
        responses: {
            /** @description The updated endpoint. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WebhookEndpoint"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    testWebhook: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The endpoint's ID. */
                id: components["parameters"]["WebhookIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["WebhookTest"];
            };
        };
        responses: {
            /** @description The delivery of the sample event. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Delivery"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    replayWebhook: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The endpoint's ID. */
                id: components["parameters"]["WebhookIdInPath"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WebhookReplay"];
            };
        };
        responses: {
            /** @description The replay, which has started. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Replay"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    listDeliveries: {
        parameters: {
            query?: {
                /** @description Only deliveries to this endpoint, which can be a deleted one. */
                endpoint?: components["schemas"]["WebhookId"];
                /** @description Only deliveries of this event. */
                type?: components["schemas"]["EventName"];
                /** @description Only deliveries with this status. */
                status?: "pending" | "retrying" | "succeeded" | "failed" | "held" | "discarded";
                /** @description Only deliveries of events that happened at or after this Unix time. For replays with a new ID, the time of their creation counts. */
                since?: number;
                /** @description Only deliveries of events that happened before this Unix time. For replays with a new ID, the time of their creation counts. */
                until?: number;
                /** @description The maximum number of entries. A page can have fewer while `has_more` is true. */
                limit?: components["parameters"]["Limit"];
                /** @description The `last_id` of the previous page. */
                after?: components["schemas"]["DeliveryId"];
                /** @description Newest first (`desc`) or oldest first (`asc`). */
                order?: components["parameters"]["Order"];
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of deliveries. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeliveryList"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getDelivery: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The delivery's ID. */
                id: components["parameters"]["DeliveryIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The delivery. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeliveryWithAttempts"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    replayDelivery: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The delivery's ID. */
                id: components["parameters"]["DeliveryIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["DeliveryReplay"];
            };
        };
        responses: {
            /** @description The updated delivery, or the new one. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Delivery"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getReplay: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The replay's ID. */
                id: components["parameters"]["ReplayIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The replay. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Replay"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    listEvents: {
        parameters: {
            query?: {
                /** @description Only events with this name. */
                type?: components["schemas"]["EventName"];
                /** @description Only events at or after this Unix time. */
                since?: number;
                /** @description Only events before this Unix time. */
                until?: number;
                /** @description The maximum number of entries. A page can have fewer while `has_more` is true. */
                limit?: components["parameters"]["Limit"];
                /** @description The `last_id` of the previous page. */
                after?: components["schemas"]["EventId"];
                /** @description Newest first (`desc`) or oldest first (`asc`). */
                order?: components["parameters"]["Order"];
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of events. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventList"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getEvent: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The event's ID. */
                id: components["parameters"]["EventIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The event. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Event"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getBilling: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The workspace's credits. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Billing"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    updateBilling: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["BillingUpdate"];
            };
        };
        responses: {
            /** @description The workspace's updated credits. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Billing"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getUsage: {
        parameters: {
            query?: {
                /** @description The start as a Unix time, rounded down to the start of its bucket. The default is an hour, a day, 30 days or a year before `end`, depending on the bucket size. */
                start?: number;
                /** @description The end as a Unix time. The last bucket is the one that contains it. The default is the current time. */
                end?: number;
                /** @description The bucket size, in UTC. */
                bucket?: "minute" | "hour" | "day" | "month";
                /** @description The dimensions to group by: `key`, `project`, `model` and `provider`, separated by commas, or `user` alone with the bucket `day` or `month`. Requests without an end user aren't in the groups of `user`. */
                group_by?: string;
                /** @description `latency` adds the latency of successful requests. Usage by `user` has none. */
                include?: "latency";
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The usage, oldest first. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UsageReport"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    listToolServers: {
        parameters: {
            query?: {
                /** @description The maximum number of entries. A page can have fewer while `has_more` is true. */
                limit?: components["parameters"]["Limit"];
                /** @description The `last_id` of the previous page. */
                after?: components["schemas"]["ToolServerId"];
                /** @description Newest first (`desc`) or oldest first (`asc`). */
                order?: components["parameters"]["Order"];
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of tool servers. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ToolServerList"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    createToolServer: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ToolServerCreate"];
            };
        };
        responses: {
            /** @description The tool server. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ToolServer"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getToolServer: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The tool server's ID. */
                id: components["parameters"]["ToolServerIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The tool server. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ToolServer"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    deleteToolServer: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The tool server's ID. */
                id: components["parameters"]["ToolServerIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The deleted tool server. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedToolServer"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    updateToolServer: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The tool server's ID. */
                id: components["parameters"]["ToolServerIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ToolServerUpdate"];
            };
        };
        responses: {
            /** @description The updated tool server. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ToolServer"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    refreshToolServer: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The tool server's ID. */
                id: components["parameters"]["ToolServerIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The tool server. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ToolServer"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    listRoutes: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All routes. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteList"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    createRoute: {
        parameters: {
            query?: never;
            header?: {
                /** @description Printable ASCII of your choice, such as a UUID. If you repeat the request with the same key and body within 24 hours, you get the first response again. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RouteCreate"];
            };
        };
        responses: {
            /** @description The route. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Route"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getRoute: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The route's ID. */
                id: components["parameters"]["RouteIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The route. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Route"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    deleteRoute: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The route's ID. */
                id: components["parameters"]["RouteIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The deleted route. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeletedRoute"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    updateRoute: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The route's ID. */
                id: components["parameters"]["RouteIdInPath"];
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["RouteUpdate"];
            };
        };
        responses: {
            /** @description The updated route. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Route"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    listAudit: {
        parameters: {
            query?: {
                /** @description Only requests at or after this Unix time. */
                start?: number;
                /** @description Only requests before this Unix time. */
                end?: number;
                /** @description Only requests of this key and its tokens, by the key's ID. */
                key?: components["schemas"]["KeyId"];
                /** @description Only requests to this model. */
                model?: string;
                /** @description Only requests for this project. */
                project?: string;
                /** @description Only requests from this IP address. */
                ip?: string;
                /** @description Only requests of this end user, by Turnpike's ID. */
                user_id?: components["schemas"]["UserId"];
                /** @description Only requests with this HTTP status. */
                status?: number;
                /** @description The format of the response. It takes precedence over the `Accept` header. */
                format?: "json" | "csv";
                /** @description The maximum number of entries. A page can have fewer while `has_more` is true. */
                limit?: components["parameters"]["Limit"];
                /** @description The `last_id` of the previous page. */
                after?: components["schemas"]["RequestId"];
                /** @description Newest first (`desc`) or oldest first (`asc`). */
                order?: components["parameters"]["Order"];
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of requests, or all matching requests as CSV. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AuditEntryList"];
                    "text/csv": string;
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getAudit: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The request's ID. */
                id: components["schemas"]["RequestId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The request. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AuditEntry"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    getAuditContent: {
        parameters: {
            query?: never;
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path: {
                /** @description The request's ID. */
                id: components["schemas"]["RequestId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The content. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AuditContent"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    listAuditActions: {
        parameters: {
            query?: {
                /** @description The maximum number of entries. A page can have fewer while `has_more` is true. */
                limit?: components["parameters"]["Limit"];
                /** @description The `last_id` of the previous page. */
                after?: components["schemas"]["AuditActionId"];
                /** @description Newest first (`desc`) or oldest first (`asc`). */
                order?: components["parameters"]["Order"];
            };
            header?: {
                /** @description The project of the request. */
                "Service-Project"?: components["parameters"]["ServiceProject"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of actions. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AuditActionList"];
                };
            };
            /** @description An error. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Error"];
                };
            };
        };
    };
    onImageBatchCompleted: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "image.batch.completed";
                    data?: components["schemas"]["ImageBatch"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onVideoRenderCompleted: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "video.render.completed";
                    data?: components["schemas"]["Video"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onVoiceRenderCompleted: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "voice.render.completed";
                    data?: components["schemas"]["VoiceRender"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onVoiceTranscriptionCompleted: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "voice.transcription.completed";
                    data?: components["schemas"]["VoiceTranscription"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onAgentRunAwaitingApproval: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "agent.run.awaiting_approval";
                    data?: components["schemas"]["AgentRun"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onAgentRunCompleted: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "agent.run.completed";
                    data?: components["schemas"]["AgentRun"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onAgentRunFailed: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "agent.run.failed";
                    data?: components["schemas"]["AgentRun"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onBatchCompleted: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "batch.completed";
                    data?: components["schemas"]["BatchReference"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onBatchFailed: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "batch.failed";
                    data?: components["schemas"]["BatchReference"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onBatchExpired: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "batch.expired";
                    data?: components["schemas"]["BatchReference"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onBatchCancelled: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "batch.cancelled";
                    data?: components["schemas"]["BatchReference"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onResponseCompleted: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "response.completed";
                    data?: components["schemas"]["ResponseEnded"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onResponseIncomplete: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "response.incomplete";
                    data?: components["schemas"]["ResponseEnded"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onResponseFailed: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "response.failed";
                    data?: components["schemas"]["ResponseEnded"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onResponseCancelled: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "response.cancelled";
                    data?: components["schemas"]["ResponseEnded"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onBillingCreditsLow: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "billing.credits.low";
                    data?: components["schemas"]["CreditsLow"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onBillingUnbilledLimitReached: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "billing.unbilled_limit_reached";
                    data?: components["schemas"]["UnbilledLimitReached"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onBudgetThresholdReached: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "budget.threshold_reached";
                    data?: components["schemas"]["BudgetThreshold"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onBudgetExceeded: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "budget.exceeded";
                    data?: components["schemas"]["BudgetExceeded"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onKeyAutoRevoked: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "key.auto_revoked";
                    data?: components["schemas"]["KeyAutoRevoked"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onEndpointFailing: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "endpoint.failing";
                    data?: components["schemas"]["EndpointState"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onEndpointPaused: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "endpoint.paused";
                    data?: components["schemas"]["EndpointState"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onEndpointSecretLeaked: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "endpoint.secret_leaked";
                    data?: components["schemas"]["LeakedSecret"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    onDeliveryFailed: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Event"] & {
                    /** @constant */
                    type?: "delivery.failed";
                    data?: components["schemas"]["FailedDelivery"];
                };
            };
        };
        responses: {
            /** @description Accepted. On any other status, or without a response within 10 seconds, Turnpike retries the delivery. */
            "2XX": {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
}
