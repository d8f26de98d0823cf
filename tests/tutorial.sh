#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: tests/tutorial.sh [--extract DIR | --check]
#
# Runs the commands of the tutorial and of how-tos as written, in a virtual machine of the stock
# kernel: the blocks of a page that begin with ```sh run in one shell, one after the other. Each
# command must succeed, and the output of a block must match the comments
# <!-- expect REGULAR EXPRESSION --> after it. <!-- until CONDITION --> waits for the condition,
# because a reader pauses between blocks. <!-- setup COMMAND --> prepares the machine that a page
# takes for granted.
#
#   --extract DIR   only write the blocks to DIR/PAGE
#   --check         only check that each block of these pages is run, or marked as an example
#                   (```sh example) or as something else than commands
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"

# Pages with commands for readers to type.
pages=(README Documentation/{tutorial,first-server,packages,operations,iosched,servers,agent,top}
	Documentation/{troubleshooting,tracing,simulator,lustre,kernel-servers,nbdkit})

only=''
case ${1:-} in
--help | -h) usage && exit ;;
--extract) only=${2:?say where} ;;
--check)
	unmarked=$(cd "$NRS_TOP" && awk '
		FNR == 1 { inside = 0 }
		/^ *```/ {
			if (!inside && $1 ~ /^```(sh)?$/ && $2 !~ /^(run|example)$/)
				print FILENAME ":" FNR ": neither run nor marked as an example"
			inside = !inside
		}' "${pages[@]/%/.md}")
	[ -z "$unmarked" ] || { echo "$unmarked" && exit 1; }
	exit
	;;
'') ;;
*) die "unknown argument '$1', see --help" ;;
esac

dir=${only:-$NRS_TOP/build/tutorial}
rm -rf "$dir"
blocks=0
for page in "${pages[@]}"; do
	grep -qx '```sh run' "$NRS_TOP/$page.md" || continue
	mkdir -p "$dir/${page##*/}"
	awk -v dir="$dir/${page##*/}" '
		$0 == "```sh run" {
			file = sprintf("%s/%02d", dir, ++n)
			printf "" >(file ".sh")
			printf "" >(file ".expect")
			printf "" >(file ".until")
			inside = 1
			next
		}
		$0 == "```" && inside { inside = 0; next }
		inside { print >(file ".sh"); next }
		/^<!-- setup .* -->$/ {
			gsub(/^<!-- setup | -->$/, "")
			print >(dir "/setup")
		}
		file != "" && /^<!-- expect .* -->$/ {
			gsub(/^<!-- expect | -->$/, "")
			print >(file ".expect")
		}
		file != "" && /^<!-- until .* -->$/ {
			gsub(/^<!-- until | -->$/, "")
			print >(file ".until")
		}
	' "$NRS_TOP/$page.md"
	blocks=$((blocks + $(find "$dir/${page##*/}" -name '*.sh' | wc -l)))
done
[ "$blocks" -gt 0 ] || die "no block to run"
[ -z "$only" ] || exit 0

"$NRS_SCRIPTS/build-tools.sh"
"$NRS_SCRIPTS/build-module.sh" stock
log "tutorial: $blocks blocks"
exec "$NRS_SCRIPTS/vm.sh" --kernel stock --name tutorial --timeout 600 --file "$dir:/tutorial" \
	--file "${NRSCTL:-$NRS_TOP/build/tools/nrsctl}:/bin/nrsctl" -- tutorial.sh
