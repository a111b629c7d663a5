#!/usr/bin/env bash
# Deploys rag-context with its backends to a Kubernetes cluster, and validates the result. Running it again changes only
# what differs; keys and data stay.
set -euo pipefail

manifests=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)/k8s
readonly settings=(
  RAG_CONTEXT_API_KEY RAG_CONTEXT_STORES__QDRANT_API_KEY QDRANT_URL MONGODB_URI DATABASE_URL REDIS_URL LM_STUDIO_URL
  RAG_CONTEXT_EMBEDDER__MODEL RAG_CONTEXT_EMBEDDER__API_KEY
)
context='' namespace=rag-context image='' postgres='' dry_run=''
secret='' passwords='' work='' forward='' url=''

usage() {
  cat <<'USAGE'
Usage: deploy/deploy.sh [--context NAME] [--namespace NAME] [--image IMAGE] [--postgres] [--dry-run]

  --context NAME    kubectl context of the cluster; default: the current one
  --namespace NAME  target namespace; default: rag-context
  --image IMAGE     the server's image; default: the manifest's
  --postgres        PostgreSQL for documents and vectors, in place of Qdrant and MongoDB; the next runs know it
  --dry-run         query the cluster, change nothing, print the steps

From the environment, and stored in the Secret rag-context:
  DATABASE_URL                        an external PostgreSQL; implies --postgres
  MONGODB_URI, REDIS_URL, QDRANT_URL  an external backend; without it, one is started in the cluster
  RAG_CONTEXT_STORES__QDRANT_API_KEY  Qdrant's key; generated if there is none
  RAG_CONTEXT_API_KEY                 the key of all clients; generated if there is none
  LM_STUDIO_URL, RAG_CONTEXT_EMBEDDER__MODEL, RAG_CONTEXT_EMBEDDER__API_KEY
                                      an embedding server instead of the bundled model
USAGE
}

main() {
  options "$@"
  local program
  for program in kubectl rag-context curl; do
    command -v "$program" >/dev/null || fail "$program is not on the PATH"
  done
  check_addresses
  trap clean_up EXIT
  umask 077
  work=$(mktemp -d)

  step '1/7' "namespace $namespace"
  apply namespace.yaml
  step '2/7' 'keys'
  keep_keys
  if [[ -n $postgres ]]; then
    step '3/7' 'PostgreSQL'
    postgresql
    step '4/7' 'Redis'
  else
    step '3/7' 'Qdrant'
    qdrant
    step '4/7' 'MongoDB and Redis'
    mongodb
  fi
  redis
  step '5/7' 'rag-context'
  server
  step '6/7' 'validation'
  if [[ -n $dry_run ]]; then
    echo '  would run rag-context validate, and a sample search, through kubectl port-forward'
    return
  fi
  reach_server
  validate
  step '7/7' 'a sample search'
  sample_search
  printf '\nDeployed. kubectl%s --namespace %s port-forward service/rag-context 3000 brings it to this machine.\n' \
    "${context:+ --context $context}" "$namespace"
}

options() {
  while (($#)); do
    case $1 in
      --context | --namespace | --image)
        [[ -n ${2:-} ]] || fail "$1 needs a value"
        printf -v "${1#--}" %s "$2"
        shift
        ;;
      --postgres) postgres=yes ;;
      --dry-run) dry_run=yes ;;
      -h | --help) usage && exit ;;
      *) usage >&2 && exit 2 ;;
    esac
    shift
  done
  [[ $namespace =~ ^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$ ]] || fail "$namespace cannot be the name of a namespace"
}

check_addresses() {
  local name loopback='(//|@|,)(localhost|127[.][0-9.]+|\[::1\])([:/,?]|$)'
  for name in QDRANT_URL MONGODB_URI DATABASE_URL REDIS_URL LM_STUDIO_URL; do
    [[ ! ${!name:-} =~ $loopback ]] ||
      fail "$name names this machine, which pods cannot reach by that name: unset it, or give an address they can"
  done
}

# The existing Secret, overridden by the environment, with missing keys generated.
keep_keys() {
  local name
  secret=$(read_secret rag-context)
  passwords=$(read_secret rag-context-backends)
  for name in "${settings[@]}"; do
    [[ -z ${!name:-} ]] || secret=$(with "$secret" "$name" "${!name}")
  done
  [[ -z $(value "$secret" DATABASE_URL) ]] || postgres=yes
  secret=$(with_default "$secret" RAG_CONTEXT_API_KEY "$(new_key)")
  passwords=$(with_default "$passwords" REDIS_PASSWORD "$(new_key)")
  secret=$(with_default "$secret" RAG_CONTEXT_STORES__REDIS_SECRET "$(new_key)")
  secret=$(with_default "$secret" REDIS_URL "redis://:$(value "$passwords" REDIS_PASSWORD)@redis:6379/0")
  if [[ -n $postgres ]]; then
    passwords=$(with_default "$passwords" POSTGRES_PASSWORD "$(new_key)")
    secret=$(with_default "$secret" DATABASE_URL \
      "postgresql://rag-context:$(value "$passwords" POSTGRES_PASSWORD)@postgres:5432/rag_context")
  else
    passwords=$(with_default "$passwords" MONGODB_PASSWORD "$(new_key)")
    secret=$(with_default "$secret" MONGODB_URI \
      "mongodb://rag-context:$(value "$passwords" MONGODB_PASSWORD)@mongodb:27017/P4NTH30N?authSource=admin")
  fi
  if [[ -z $postgres && -z $(value "$secret" QDRANT_URL) ]]; then
    secret=$(with_default "$secret" RAG_CONTEXT_STORES__QDRANT_API_KEY "$(new_key)")
    passwords=$(with "$passwords" QDRANT_API_KEY "$(value "$secret" RAG_CONTEXT_STORES__QDRANT_API_KEY)")
  fi
  write_secret rag-context "$secret"
  write_secret rag-context-backends "$passwords"
}

qdrant() {
  if [[ -n $(value "$secret" QDRANT_URL) ]]; then
    echo '  QDRANT_URL says where it is'
    return
  fi
  apply qdrant-pvc.yaml
  apply qdrant-config.yaml
  apply qdrant-deployment.yaml secret/rag-context-backends configmap/qdrant-config
  apply qdrant-service.yaml
  await qdrant 120s
}

mongodb() {
  if [[ $(value "$secret" MONGODB_URI) == *@mongodb:27017/* ]]; then
    apply mongodb.yaml
    await mongodb 180s
  else
    echo '  MONGODB_URI says where MongoDB is'
  fi
}

postgresql() {
  if [[ $(value "$secret" DATABASE_URL) == *@postgres:5432/* ]]; then
    apply postgres/postgres.yaml
    await postgres 180s
  else
    echo '  DATABASE_URL says where PostgreSQL is'
  fi
}

redis() {
  if [[ $(value "$secret" REDIS_URL) == *@redis:6379/* ]]; then
    apply redis.yaml
    await redis 60s
  else
    echo '  REDIS_URL says where Redis is'
  fi
}

server() {
  local replicas
  apply ${postgres:+postgres/}server-config.yaml
  apply server-deployment.yaml secret/rag-context configmap/rag-context
  apply server-service.yaml
  apply server-scaling.yaml
  # After a roll-back: the autoscaler does not scale a deployment of zero pods.
  replicas=$(ask get deployment/rag-context --ignore-not-found --output 'jsonpath={.spec.replicas}')
  if [[ $replicas == 0 ]]; then
    change scale deployment/rag-context --replicas=2
  fi
  await rag-context 180s
}

reach_server() {
  local line='' tries
  : >"$work/forward"
  # Not through `ask`: the process to end must be kubectl itself.
  kubectl ${context:+--context "$context"} --namespace "$namespace" port-forward service/rag-context :3000 \
    >>"$work/forward" 2>&1 &
  forward=$!
  for ((tries = 0; tries < 300; tries++)); do
    line=$(<"$work/forward")
    [[ ! $line =~ Forwarding\ from\ 127\.0\.0\.1:([0-9]+) ]] || break
    kill -0 "$forward" 2>/dev/null || fail "kubectl port-forward ended: $line"
    sleep 0.1
  done
  [[ -n ${BASH_REMATCH[1]:-} ]] || fail "kubectl port-forward does not forward: $line"
  url=http://127.0.0.1:${BASH_REMATCH[1]}
}

validate() {
  RAG_CONTEXT_API_KEY=$(value "$secret" RAG_CONTEXT_API_KEY) rag-context validate --url "$url" ||
    fail "validation failed. Everything is left in place for inspection; deploy/rollback.sh stops it and keeps the data"
}

sample_search() {
  local answer
  answer=$(printf 'Authorization: Bearer %s\n' "$(value "$secret" RAG_CONTEXT_API_KEY)" |
    curl --fail --silent --show-error --max-time 30 --header @- --header 'Content-Type: application/json' \
      --data '{"query": "architecture decision", "limit": 3}' "$url/tools/rag_context_search") ||
    fail 'the sample search was not answered'
  printf '%s\n' "$answer"
  [[ $answer =~ \"fallbackLevel\":\ ?1[,}] ]] || fail 'the sample search was not answered at level 1'
}

# The cluster.

ask() {
  kubectl ${context:+--context "$context"} --namespace "$namespace" "$@"
}

change() {
  if [[ -n $dry_run ]]; then
    echo "  would run kubectl $*"
  else
    ask "$@" | indented
  fi
}

# A manifest, and what its pods read at their start: they restart only if that has changed.
apply() {
  local file=$1 text versions
  shift
  text=$(<"$manifests/$file")
  text=${text//namespace: rag-context/namespace: $namespace}
  [[ $file != namespace.yaml ]] || text=${text//name: rag-context/name: $namespace}
  [[ -z $image || ! $text =~ image:\ (rag-context:[^[:space:]]+) ]] || text=${text//${BASH_REMATCH[1]}/$image}
  if (($#)); then
    versions=$(ask get "$@" --ignore-not-found --output 'jsonpath={range .items[*]}-{.metadata.resourceVersion}{end}')
    text=${text//configuration: none/configuration: version$versions}
  fi
  apply_text "$file" "$text"
}

apply_text() {
  if [[ -n $dry_run ]]; then
    echo "  would apply $1"
  else
    ask apply --server-side --force-conflicts --field-manager=rag-context-deploy --filename - <<<"$2" | indented
  fi
}

await() {
  if [[ -n $dry_run ]]; then
    echo "  would wait for $1, $2 at most"
  else
    ask rollout status "deployment/$1" --timeout="$2" | indented ||
      fail "$1 is not up after $2: kubectl --namespace $namespace describe pods --selector app=$1"
  fi
}

# Secrets are lines of NAME=VALUE here, and never an argument of a program, where others could see them.

read_secret() {
  # shellcheck disable=SC2016  # kubectl's variables, not ours
  ask get secret "$1" --ignore-not-found \
    --output 'go-template={{range $name, $value := .data}}{{$name}}={{$value | base64decode}}{{"\n"}}{{end}}'
}

write_secret() {
  local line text
  while IFS= read -r line; do
    [[ $line =~ ^[A-Za-z_][A-Za-z0-9_]*=. ]] || fail "the Secret $1 has a value that is empty or has several lines"
  done <<<"$2"
  text=$(ask create secret generic "$1" --from-env-file=/dev/stdin --dry-run=client --output yaml <<<"$2")
  apply_text "the Secret $1" "$text"
}

value() {
  local line
  while IFS= read -r line; do
    [[ $line != "$2="* ]] || printf %s "${line#*=}"
  done <<<"$1"
}

with() {
  local line
  while IFS= read -r line; do
    [[ -z $line || $line == "$2="* ]] || printf '%s\n' "$line"
  done <<<"$1"
  printf '%s=%s\n' "$2" "$3"
}

with_default() {
  if [[ -n $(value "$1" "$2") ]]; then
    printf '%s\n' "$1"
  else
    with "$@"
  fi
}

new_key() {
  od -An -N32 -tx1 /dev/urandom | tr -d ' \n'
}

# Output.

step() {
  printf '\n%s %s\n' "$1" "$2"
}

indented() {
  sed 's/^/  /'
}

fail() {
  printf 'deploy: %s\n' "$1" >&2
  exit 1
}

clean_up() {
  [[ -z $forward ]] || kill "$forward" 2>/dev/null || true
  [[ -z $work ]] || rm -rf "$work"
}

main "$@"
