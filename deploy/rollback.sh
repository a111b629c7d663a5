#!/usr/bin/env bash
# Stops what deploy.sh started: the server first, then the backends in the cluster. Volumes, keys and settings stay;
# deploy.sh starts everything again with the same data.
set -euo pipefail

context='' namespace=rag-context dry_run='' found=''

usage() {
  cat <<'USAGE'
Usage: deploy/rollback.sh [--context NAME] [--namespace NAME] [--dry-run]

  --context NAME    kubectl context of the cluster; default: the current one
  --namespace NAME  namespace of the deployment; default: rag-context
  --dry-run         query the cluster, change nothing, print the steps
USAGE
}

main() {
  options "$@"
  command -v kubectl >/dev/null || fail 'kubectl is not on the PATH'
  local name
  # The server stops first, and the script waits for its pods: they finish their requests while the stores still run.
  for name in rag-context qdrant mongodb postgres redis; do
    stop "$name"
  done
  if [[ -z $found ]]; then
    printf 'There is nothing to stop in the namespace %s.\n' "$namespace"
  elif [[ -n $dry_run ]]; then
    printf 'Nothing was changed.\n'
  else
    printf 'Stopped. The volumes are kept; deploy/deploy.sh starts it again.\n'
  fi
}

options() {
  while (($#)); do
    case $1 in
      --context | --namespace)
        [[ -n ${2:-} ]] || fail "$1 needs a value"
        printf -v "${1#--}" %s "$2"
        shift
        ;;
      --dry-run) dry_run=yes ;;
      -h | --help) usage && exit ;;
      *) usage >&2 && exit 2 ;;
    esac
    shift
  done
}

stop() {
  local there
  there=$(ask get "deployment/$1" --ignore-not-found --output name)
  if [[ -z $there ]]; then
    echo "$1: not there"
    return
  fi
  found=yes
  if [[ -n $dry_run ]]; then
    echo "$1: would be scaled to 0"
  else
    ask scale "deployment/$1" --replicas=0
    ask wait --for=delete pod --selector "app=$1" --timeout=90s || check_gone "$1"
  fi
}

# An older kubectl reports an error when there is nothing left to wait for.
check_gone() {
  local left
  left=$(ask get pods --selector "app=$1" --output name) || fail "cannot determine whether $1 has ended"
  [[ -z $left ]] || fail "$1 does not end: $left"
}

ask() {
  kubectl ${context:+--context "$context"} --namespace "$namespace" "$@"
}

fail() {
  printf 'rollback: %s\n' "$1" >&2
  exit 1
}

main "$@"
