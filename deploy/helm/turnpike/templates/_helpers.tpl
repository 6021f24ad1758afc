{{- define "turnpike.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "turnpike.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "turnpike.labels" -}}
{{ include "turnpike.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The first domain of tls.acme, or nothing if the nodes don't serve HTTPS. */ -}}
{{- define "turnpike.domain" -}}
{{- first (dig "tls" "acme" "domains" list .Values.config) | default "" }}
{{- end }}

{{- define "turnpike.validate" -}}
{{- if and (include "turnpike.domain" .) .Values.ingress.enabled }}{{ fail "config.tls.acme.domains makes the nodes serve HTTPS, so they need no ingress. Disable the ingress, or remove config.tls.acme." }}{{ end }}
{{- $variables := list }}
{{- range .Values.secrets }}{{ $variables = append $variables .variable }}{{ end }}
{{- if eq .Values.database "postgresql" }}
{{- range list "TURNPIKE_DATABASE_URL" "TURNPIKE_MASTER_KEY" }}
{{- if not (has . $variables) }}{{ fail (printf "database is postgresql, which needs %s in secrets. Add it, or set database to sqlite." .) }}{{ end }}
{{- end }}
{{- else if has "TURNPIKE_DATABASE_URL" $variables }}{{ fail "database is sqlite, but secrets has TURNPIKE_DATABASE_URL. Remove it, or set database to postgresql." }}
{{- else if .Values.autoscaling.enabled }}{{ fail "autoscaling needs database: postgresql. With sqlite there is one node." }}
{{- end }}
{{- end }}

{{- define "turnpike.pod" -}}
metadata:
  labels:
    {{- include "turnpike.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    checksum/config: {{ toYaml .Values.config | sha256sum }}
    {{- with .Values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ include "turnpike.name" . }}
  automountServiceAccountToken: false
  # Kubernetes would set variables such as TURNPIKE_PORT, which aren't settings.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "turnpike.selector" . | nindent 10 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    # Otherwise each start makes the master key readable for the group.
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: turnpike
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      env:
        - name: TURNPIKE_CONFIG
          value: /etc/turnpike/turnpike.yaml
        - name: TURNPIKE_LISTEN
          value: "0.0.0.0:8080"
        - name: TURNPIKE_LOG_FORMAT
          value: json
        {{- $domain := include "turnpike.domain" . }}
        {{- with .Values.publicURL | default (empty $domain | ternary "" (printf "https://%s" $domain)) }}
        - name: TURNPIKE_PUBLIC_URL
          value: {{ . | quote }}
        {{- end }}
        {{- if $domain }}
        - name: TURNPIKE_TLS_ACME_HTTP_LISTEN
          value: "0.0.0.0:8081"
        {{- end }}
        {{- if .Values.metrics.enabled }}
        - name: TURNPIKE_METRICS_LISTEN
          value: "0.0.0.0:{{ .Values.metrics.port }}"
        {{- end }}
        {{- range .Values.secrets }}
        - name: {{ .variable }}_FILE
          value: /run/secrets/turnpike/{{ .variable }}
        {{- end }}
        {{- with .Values.env }}{{ toYaml . | nindent 8 }}{{ end }}
      ports:
        - name: http
          containerPort: 8080
        {{- if $domain }}
        - name: challenges
          containerPort: 8081
        {{- end }}
        {{- if .Values.metrics.enabled }}
        - name: metrics
          containerPort: {{ .Values.metrics.port }}
        {{- end }}
      startupProbe:
        httpGet: {path: /healthz, port: http{{ if $domain }}, scheme: HTTPS{{ end }}}
        periodSeconds: 5
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /healthz, port: http{{ if $domain }}, scheme: HTTPS{{ end }}}
        periodSeconds: 10
        timeoutSeconds: 5
      readinessProbe:
        httpGet: {path: /readyz, port: http{{ if $domain }}, scheme: HTTPS{{ end }}}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      {{- with .Values.preStopSeconds }}
      lifecycle:
        preStop:
          sleep:
            seconds: {{ . }}
      {{- end }}
      resources: {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - {name: data, mountPath: /data}
        - {name: tmp, mountPath: /tmp}
        - {name: config, mountPath: /etc/turnpike, readOnly: true}
        {{- if .Values.secrets }}
        - {name: secrets, mountPath: /run/secrets/turnpike, readOnly: true}
        {{- end }}
  volumes:
    {{- if eq .Values.database "postgresql" }}
    - name: data
      emptyDir: {}
    {{- end }}
    - name: tmp
      emptyDir: {}
    - name: config
      configMap:
        name: {{ include "turnpike.name" . }}
    {{- if .Values.secrets }}
    - name: secrets
      projected:
        defaultMode: 0440
        sources:
          {{- range .Values.secrets }}
          - secret:
              name: {{ .name }}
              items:
                - {key: {{ .key | quote }}, path: {{ .variable }}}
          {{- end }}
    {{- end }}
{{- end }}
