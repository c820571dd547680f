{{/* The pod of the StatefulSet and of the Deployment. Pod Security Standard: restricted. */}}
{{- define "drumlin.pod" -}}
metadata:
  labels:
    {{- include "drumlin.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    drumlin.io/config: {{ include "drumlin.config" . | sha256sum }} # a change of the configuration restarts it
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "drumlin.account" . }}
  automountServiceAccountToken: {{ or (eq .Values.source "kubernetes") .Values.access.tokenReview.enabled }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: { type: RuntimeDefault }
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: drumlin
      image: {{ include "drumlin.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - serve
        - --source={{ .Values.source }}
        - --store={{ default "/data/store" .Values.store.remote }}
        - --host=0.0.0.0
        - --port=8080
        {{- with .Values.rbac.namespace }}
        - --namespace={{ . }}
        {{- end }}
        {{- range .Values.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      env:
        - { name: DRUMLIN_CONFIG, value: /etc/drumlin/drumlin.toml }
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - { name: http, containerPort: 8080 }
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: { drop: [ALL] }
      startupProbe:
        httpGet: { path: /livez, port: http }
        periodSeconds: 5
        failureThreshold: {{ div (add (int .Values.startupSeconds) 4) 5 }}
      livenessProbe:
        httpGet: { path: /livez, port: http }
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      readinessProbe:
        httpGet: { path: /readyz, port: http }
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      resources: {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - { name: data, mountPath: /data } # store and replicas: hard links, so one volume
        - { name: tmp, mountPath: /tmp }
        - { name: config, mountPath: /etc/drumlin, readOnly: true }
        {{- if .Values.access.tokensSecret }}
        - { name: tokens, mountPath: /etc/drumlin-tokens, readOnly: true }
        {{- end }}
        {{- range .Values.secrets }}
        - { name: secret-{{ . }}, mountPath: /var/run/secrets/drumlin/{{ . }}, readOnly: true }
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    {{- if .Values.store.remote }}
    - name: data
      emptyDir: { sizeLimit: 1Gi }
    {{- else if .Values.store.existingClaim }}
    - name: data
      persistentVolumeClaim: { claimName: {{ .Values.store.existingClaim }} }
    {{- end }}
    - name: tmp
      emptyDir: { sizeLimit: 1Gi }
    - name: config
      configMap: { name: {{ include "drumlin.fullname" . }} }
    {{- with .Values.access.tokensSecret }}
    - name: tokens
      secret: { secretName: {{ . }}, defaultMode: 0440 }
    {{- end }}
    {{- range .Values.secrets }}
    - name: secret-{{ . }}
      secret: { secretName: {{ . }}, defaultMode: 0440 }
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" }}
  {{- with get $.Values $key }}
  {{ $key }}: {{- if kindIs "string" . }} {{ . }}{{ else }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- end }}
  {{- end }}
{{- end }}
