#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: tests/tutorial.sh [--extract DIR]
#
# Runs the commands of Documentation/tutorial.md as written, in a virtual machine of the stock
# kernel: the blocks that begin with ```sh run in one shell, one after the other. Each command must
# succeed, and the output of a block must match the comments <!-- expect REGULAR EXPRESSION -->
# after it. <!-- until CONDITION --> waits for the condition, because a reader pauses between
# blocks.
#
#   --extract DIR   only write the blocks to DIR
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"

only=''
case ${1:-} in
--help | -h) usage && exit ;;
--extract) only=${2:?say where} ;;
'') ;;
*) die "unknown argument '$1', see --help" ;;
esac

dir=${only:-$NRS_TOP/build/tutorial}
rm -rf "$dir"
mkdir -p "$dir"
awk -v dir="$dir" '
	$0 == "```sh run" { file = sprintf("%s/%02d", dir, ++n); printf "" >(file ".sh"); printf "" >(file ".expect"); printf "" >(file ".until"); inside = 1; next }
	$0 == "```" && inside { inside = 0; next }
	inside { print >(file ".sh"); next }
	file != "" && /^<!-- expect .* -->$/ { gsub(/^<!-- expect | -->$/, ""); print >(file ".expect") }
	file != "" && /^<!-- until .* -->$/ { gsub(/^<!-- until | -->$/, ""); print >(file ".until") }
' "$NRS_TOP/Documentation/tutorial.md"
blocks=$(find "$dir" -name '*.sh' | wc -l)
[ "$blocks" -gt 0 ] || die "no block to run in Documentation/tutorial.md"
[ -z "$only" ] || exit 0

"$NRS_SCRIPTS/build-tools.sh"
"$NRS_SCRIPTS/build-module.sh" stock
log "tutorial: $blocks blocks"
exec "$NRS_SCRIPTS/vm.sh" --kernel stock --name tutorial --timeout 600 --file "$dir:/tutorial" \
	--file "${NRSCTL:-$NRS_TOP/build/tools/nrsctl}:/bin/nrsctl" -- tutorial.sh
