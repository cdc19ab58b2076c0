#!/bin/sh
# Hands a file to a relay for a node, with nothing but curl; goes on where it broke off.
#
#   TOKEN=… examples/upload.sh https://relay.example:7410 photos.tar edge-7 photos 1 0
#
# CA=FILE names the authority that signed the relay's certificate.
set -eu

if [ $# -ne 6 ]; then
    echo "usage: TOKEN=… [CA=FILE] $0 URL FILE NODE FILE_ID VERSION SHARD" >&2
    exit 2
fi
url=${1%/} file=$2 node=$3 file_id=$4 version=$5 shard=$6
[ -r "$file" ] || { echo "$file cannot be read" >&2; exit 1; }
: "${TOKEN:?the bearer token that 'consign pickup clients enrol' printed}"

size=$(wc -c <"$file" | tr -d ' ')
digest=$(openssl dgst -sha256 -binary "$file" | openssl base64 -A)
answer=$(mktemp) config=$(mktemp)
trap 'rm -f "$answer" "$answer.head" "$config"' EXIT
# The token goes in by a file, so that no list of processes shows it.
printf 'header = "Authorization: Bearer %s"\n' "$TOKEN" >"$config"

# Prints the status; 000 where there was no answer.
call() {
    : >"$answer.head"
    curl --silent --show-error --config "$config" ${CA:+--cacert "$CA"} \
        --header "X-Nodus-File-Id: $file_id" \
        --header "X-Nodus-Version: $version" \
        --header "X-Nodus-Shard-Index: $shard" \
        --header "X-Nodus-Node-Id: $node" \
        --output "$answer" --dump-header "$answer.head" --write-out '%{http_code}' \
        "$@" "$url/buffer/upload" || true
}

# The value of a field of the last answer.
field() {
    tr -d '\r' <"$answer.head" | awk -F': *' -v name="$1" 'tolower($1) == tolower(name) { v = $2 } END { print v }'
}

for try in 1 2 3 4 5 6 7 8; do
    status=$(call --head)
    if [ "$status" = 204 ] && [ "$(field X-Nodus-State)" = UPLOADING ]; then
        offset=$(field Upload-Offset)
        status=$(tail -c "+$((offset + 1))" "$file" |
            call --request PATCH --upload-file - \
                --header "Repr-Digest: sha-256=:$digest:" \
                --header "Upload-Offset: $offset" --header "Upload-Complete: ?1")
    elif [ "$status" != 000 ]; then
        status=$(call --request POST --upload-file "$file" \
            --header "Repr-Digest: sha-256=:$digest:")
    fi
    case $status in
    200 | 201)
        echo "buffered at the relay ($size bytes):"
        cat "$answer"
        exit 0
        ;;
    409) # Another connection may be at it; other bytes are there for good.
        if grep -q '"code":"conflict"' "$answer"; then
            cat "$answer" >&2
            exit 1
        fi
        echo "try $try: status $status, again in $try s" >&2
        sleep "$try"
        ;;
    000 | 100 | 408 | 429 | 503)
        echo "try $try: status $status, again in $try s" >&2
        sleep "$try"
        ;;
    *)
        echo "refused with status $status:" >&2
        cat "$answer" >&2
        exit 1
        ;;
    esac
done
echo "given up; the same command goes on where the relay has it" >&2
exit 1
