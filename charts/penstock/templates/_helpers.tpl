{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- define "penstock.name" -}}
{{- printf "%s-operator" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: penstock
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}
