{{- define "whymiss.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "whymiss.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 54 | trimSuffix "-" }}
{{- else if contains (include "whymiss.name" .) .Release.Name }}
{{- .Release.Name | trunc 54 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "whymiss.name" .) | trunc 54 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "whymiss.selector" -}}
app.kubernetes.io/name: {{ include "whymiss.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "whymiss.labels" -}}
{{ include "whymiss.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "whymiss.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "whymiss.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* whymiss.yaml: what the chart must set, under what the operator set. */}}
{{- define "whymiss.config" -}}
{{- $ours := dict
  "receivers" (dict "grpc" (dict "endpoint" "0.0.0.0:4317") "http" (dict "endpoint" "0.0.0.0:4318"))
  "telemetry" (dict "metrics_endpoint" "0.0.0.0:8888")
  "health" (dict "endpoint" "0.0.0.0:13133")
  "shutdown" (dict "deadline_seconds" (sub (int .Values.terminationGracePeriodSeconds) 10)) }}
{{- if .Values.digestKeySecret }}
{{- $_ := set $ours "redaction" (dict "digest_key" "${env:WHYMISS_DIGEST_KEY}") }}
{{- end }}
{{- if .Values.spool.enabled }}
{{- $_ := set $ours "spool" (dict "directory" "/var/spool/whymiss/requests" "bytes_max" .Values.spool.bytesMax) }}
{{- end }}
{{- toYaml (mergeOverwrite $ours (deepCopy .Values.config)) }}
{{- end }}
