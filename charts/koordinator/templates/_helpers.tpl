{{- /* The image of a part: (list $ .Values.manager). */ -}}
{{- define "koord.image" -}}
{{- $root := index . 0 -}}{{- $image := (index . 1).image -}}
{{ $image.host | default $root.Values.imageRepositoryHost }}/{{ $image.repository }}:{{ $image.tag | default (printf "v%s" $root.Chart.AppVersion) }}
{{- end -}}

{{- /* What every pod has: pull secrets. Koordinator's default is an empty map. */ -}}
{{- define "koord.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* A log level of ours, of Koordinator's number too. */ -}}
{{- define "koord.logLevel" -}}
{{- $level := . | toString -}}
{{- if regexMatch "^[0-9]+$" $level -}}
{{ ternary "debug" "info" (ge (int $level) 5) }}
{{- else -}}
{{ $level }}
{{- end -}}
{{- end -}}

{{- /* Of the gates in a text those that a part knows: (list $text "koord.nodeGates" $). */ -}}
{{- define "koord.gates" -}}
{{- $known := include (index . 1) (index . 2) | fromYamlArray -}}
{{- $kept := list -}}
{{- range $gate := splitList "," (index . 0 | toString) -}}
{{- if has (splitList "=" $gate | first | trim) $known -}}{{- $kept = append $kept (trim $gate) -}}{{- end -}}
{{- end -}}
{{ join "," $kept }}
{{- end -}}

{{- /* Whether the manager's gate is on, as "true" or "": (list "Name" $ false), the last being its default. As the manager
       reads it: of two entries the last counts, and the name before the group. */ -}}
{{- define "koord.isOn" -}}
{{- $isOn := index . 2 -}}
{{- $said := dict -}}
{{- range $entry := splitList "," ((index . 1).Values.featureGates | toString) -}}
{{- $parts := splitList "=" $entry -}}
{{- if eq (len $parts) 2 -}}
{{- $_ := set $said (index $parts 0 | trim) (has (index $parts 1 | trim) (list "1" "t" "T" "true" "True" "TRUE")) -}}
{{- end -}}
{{- end -}}
{{- range $name := list (ternary "AllBeta" "AllAlpha" $isOn) (index . 0) -}}
{{- if hasKey $said $name -}}{{- $isOn = get $said $name -}}{{- end -}}
{{- end -}}
{{- if $isOn -}}true{{- end -}}
{{- end -}}

{{- /* Whether the manager serves a webhook, as "true" or "": (list "Gate" $ false), as koord.isOn has it. */ -}}
{{- define "koord.isServed" -}}
{{- if and (include "koord.isOn" (list "WebhookFramework" (index . 1) true)) (include "koord.isOn" .) -}}true{{- end -}}
{{- end -}}

{{- /* Whether the Secret is this release's to make, as "true" or "": (list "name" $). One that a manager or kubectl has made
       stays as it is, with what is in it: helm takes over nothing that it does not own, and would fail. */ -}}
{{- define "koord.makesSecret" -}}
{{- $root := index . 1 -}}
{{- $found := lookup "v1" "Secret" $root.Values.installation.namespace (index . 0) -}}
{{- $release := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $found -}}
{{- $namespace := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" $found -}}
{{- if or (not $found) (and (eq $release $root.Release.Name) (eq $namespace $root.Release.Namespace)) -}}true{{- end -}}
{{- end -}}

{{- /* The names of those that it does not know. */ -}}
{{- define "koord.unknownGates" -}}
{{- $known := include (index . 1) (index . 2) | fromYamlArray -}}
{{- $rest := list -}}
{{- range $gate := splitList "," (index . 0 | toString) -}}
{{- $name := splitList "=" $gate | first | trim -}}
{{- if and $name (not (has $name $known)) -}}{{- $rest = append $rest $name -}}{{- end -}}
{{- end -}}
{{ join ", " $rest }}
{{- end -}}

{{- /* That an object is of the hook before helm deletes anything; its weight says in which order. */ -}}
{{- define "koord.uninstallHook" }}
  annotations:
    helm.sh/hook: pre-delete
    helm.sh/hook-weight: {{ . | quote }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- /* Whether an address is reached by this machine alone, as "true" or "". */ -}}
{{- define "koord.isLoopback" -}}
{{- if has . (list "127.0.0.1" "::1" "localhost") -}}true{{- end -}}
{{- end -}}

{{- /* What koord-scheduler reads. Its Lease has the name and the place that its rights name. */ -}}
{{- define "koord.schedulerConfiguration" -}}
{{- range $own := list "apiVersion" "kind" "leaderElection" -}}
{{- if hasKey $.Values.scheduler.configuration $own -}}
{{- fail (printf "scheduler.configuration.%s is the chart's to say" $own) -}}
{{- end -}}
{{- end -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceLock: leases
  resourceName: koord-scheduler
  resourceNamespace: {{ .Values.installation.namespace }}
{{ toYaml .Values.scheduler.configuration }}
{{- end -}}

{{- /* The directory in which a host path is bound, without the slash at its end. */ -}}
{{- define "koord.directory" -}}
{{ . | trimSuffix "/" }}
{{- end -}}

{{- /* Values without effect, one line each: (dict "values" .Values "above" "" "root" $). */ -}}
{{- define "koord.ineffective" -}}
{{- $known := include "koord.known" .root | fromYaml -}}
{{- $reasons := include "koord.withoutEffect" .root | fromYaml -}}
{{- $context := . -}}
{{- range $key, $value := .values }}
{{- $path := printf "%s%s" $context.above $key }}
{{- if hasKey $reasons $path }}
* {{ $path }}: {{ get $reasons $path }}
{{- else if eq (get $known $path) "section" }}
{{- if kindIs "map" $value }}
{{- include "koord.ineffective" (dict "values" $value "above" (printf "%s." $path) "root" $context.root) }}
{{- end }}
{{- else if and (ne (get $known $path) "value") (ne $path "global") }}
* {{ $path }}: no such value is known
{{- end }}
{{- end }}
{{- end -}}

{{- /* What Koordinator's charts have and this one has no use for, and why. */ -}}
{{- define "koord.withoutEffect" -}}
{{- range $plural := list "devices" "recommendations" "reservations" "podmigrationjobs" "clusternetworktopologies" "scheduleexplanations" }}
crds.{{ $plural }}: this version has no part that uses the kind; a CRD that is installed stays as it is
{{- end }}
crds.noderesourcetopologies: the CRD is not this project's; where it is installed it is used
installation.roleListGroups: rights are those in docs/install.md
scheduler.featureGates: koord-scheduler has no gates
scheduler.compatible122FeatureGates: Kubernetes 1.22 is not served
scheduler.compatibleBelow122FeatureGates: Kubernetes before 1.22 is not served
scheduler.enableJobPreemption: enablePreemption of Coscheduling in scheduler.configuration says whether gangs preempt
scheduler.deviceShare: this version divides no devices
descheduler: this version has no descheduler
deviceDaemon: this version reports no devices
koordYarnCopilotAgent: this version has no YARN copilot
koordlet.hostDirs.kubeletConfigDir: nothing below it is read
koordlet.hostDirs.koordletSockDir: sockets are in /run/koord
koordlet.hostDirs.predictionCheckpointDir: what prediction has learnt is in /var/lib/koord
koordlet.hostDirs.koordletTSDBDir: figures are kept in memory
koordlet.hostDirs.podResourcesProxyPath: pod resources are not proxied
manager.resyncPeriod: caches need none
manager.controllers: all controllers run
webhookConfiguration.failurePolicy.reservations: there is no such webhook yet
{{- end -}}
