#!/bin/sh
# Checks the Helm chart: lint, render, and validate against the types of Kubernetes.
set -eu
cd "$(dirname "$0")/.."

chart=deploy/helm/turnpike
go build -C .helm -o ../bin/helm helm.sh/helm/v4/cmd/helm
go build -C .helm -o ../bin/kubeconform github.com/yannh/kubeconform/cmd/kubeconform
schemas=$(mktemp -d)
trap 'rm -rf "$schemas"' EXIT
go run -C .helm . "$schemas"

# The Prometheus operator defines ServiceMonitor.
for values in "$chart"/ci/*.yaml; do
	bin/helm lint --strict --quiet -f "$values" "$chart"
	bin/helm template trial "$chart" -f "$values" |
		bin/kubeconform -strict -summary -skip ServiceMonitor -schema-location "$schemas/{{.ResourceKind}}{{.KindSuffix}}.json"
done

# Values that can't work are rejected with advice.
rejects() {
	want=$1
	shift
	if got=$(bin/helm template trial "$chart" "$@" 2>&1); then
		echo "accepted: $*" >&2
		exit 1
	fi
	case $got in *"$want"*) ;; *)
		echo "got: $got, want: $want" >&2
		exit 1
		;;
	esac
}
rejects 'needs TURNPIKE_DATABASE_URL in secrets'
rejects 'additional properties' --set database=sqlite --set replicaCount=3
rejects 'autoscaling needs database: postgresql' --set database=sqlite --set autoscaling.enabled=true
rejects 'so they need no ingress' -f "$chart/ci/acme.yaml" --set ingress.enabled=true --set ingress.host=turnpike.example.com
echo "the chart is valid"
