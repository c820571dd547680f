{{- define "drumlin.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "drumlin.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "drumlin.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "drumlin.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "drumlin.selector" -}}
app.kubernetes.io/name: {{ include "drumlin.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "drumlin.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{ include "drumlin.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "drumlin.account" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "drumlin.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "drumlin.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The base of all names: fixed for the life of a store. */}}
{{- define "drumlin.base" -}}
{{- if .Values.config.base }}
{{- .Values.config.base }}
{{- else if .Values.ingress.enabled }}
{{- printf "%s://%s" (ternary "https" "http" (ne .Values.ingress.tlsSecret "")) .Values.ingress.host }}
{{- else }}
{{- printf "http://%s.%s.svc:%v" (include "drumlin.fullname" .) .Release.Namespace .Values.service.port }}
{{- end }}
{{- end }}

{{/* drumlin.toml as YAML: the user's, with what follows from the other values. */}}
{{- define "drumlin.config" -}}
{{- $full := include "drumlin.fullname" . }}
{{- $config := deepCopy .Values.config }}
{{- $_ := set $config "base" (include "drumlin.base" .) }}
{{- $names := list $full (printf "%s.%s" $full .Release.Namespace) (printf "%s.%s.svc" $full .Release.Namespace) (printf "%s.%s.svc.cluster.local" $full .Release.Namespace) }}
{{- if .Values.ingress.enabled }}{{ $names = append $names .Values.ingress.host }}{{ end }}
{{- $_ := set $config "hosts" (concat $names (default (list) .Values.config.hosts) | uniq) }}
{{- with .Values.access.anonymous }}{{ $_ := set $config "anonymous" . }}{{ end }}
{{- if .Values.access.tokensSecret }}{{ $_ := set $config "tokens" "/etc/drumlin-tokens/tokens.json" }}{{ end }}
{{- if and .Values.access.tokenReview.enabled (not .Values.config.token_review) }}
{{- $admin := dict "value" (printf "system:serviceaccount:%s:%s-admin" .Release.Namespace $full) "role" "admin" }}
{{- $_ := set $config "token_review" (dict "audience" .Values.access.tokenReview.audience "grant" (prepend .Values.access.tokenReview.grants $admin)) }}
{{- end }}
{{- if and .Values.store.remote (eq .Values.source "kubernetes") (not .Values.config.election) }}
{{- $_ := set $config "election" (dict "lease" $full "namespace" .Release.Namespace) }}
{{- end }}
{{- with .Values.grafana.url }}
{{- $url := trimSuffix "/" . }}
{{- $named := "var-cluster={cluster}&var-namespace={namespace}&var-kind={kind}&var-workload={name}" }}
{{- $dashboards := dict
  "workload" (printf "%s/d/drumlin-workload?%s" $url $named)
  "logs" (printf "%s/d/drumlin-logs?%s" $url $named)
  "node" (printf "%s/d/drumlin-node?var-cluster={cluster}&var-node={name}" $url)
  "domain" (printf "%s/d/drumlin-gnode?var-domain={name}" $url) }}
{{- $grafana := dict "name" "grafana" "kind" "grafana" "url" $url "dashboards" $dashboards }}
{{- $_ := set $config "datasource" (append (default (list) $config.datasource) $grafana) }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{/* Make integers of the whole numbers of a map, in place: YAML's are read as floating-point numbers, which TOML writes as 2.68e+08. */}}
{{- define "drumlin.integers" -}}
{{- $map := . }}
{{- range $key, $value := $map }}
{{- if kindIs "map" $value }}
{{- include "drumlin.integers" $value }}
{{- else if kindIs "slice" $value }}
{{- range $value }}{{ if kindIs "map" . }}{{ include "drumlin.integers" . }}{{ end }}{{ end }}
{{- else if kindIs "float64" $value }}
{{- if eq (floor $value) $value }}{{ $_ := set $map $key (int64 $value) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
