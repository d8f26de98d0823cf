#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/demo.sh
#
# Boots the stock kernel in a virtual machine, loads nrs.ko and lets a small and a greedy user share
# one device; the greedy user has two jobs. The policies are fifo, fairshare by users and their
# jobs, and tbf with a limit for the greedy user (tests/vm/demo.sh). Prints a table and writes
# demo.svg and build/demo.txt.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in
--help | -h) usage && exit ;;
'') ;;
*) die "unknown argument '$1', see --help" ;;
esac

"$NRS_SCRIPTS/build-module.sh" stock
"$NRS_SCRIPTS/vm.sh" --kernel stock --icount --timeout 300 --name demo -- demo.sh
"$NRS_SCRIPTS/report.sh" demo "$NRS_TOP/build/vm/demo/out" "$NRS_TOP/demo.svg" \
	"$NRS_TOP/build/demo.md" | fold -s -w 100 |
	tee "$NRS_TOP/build/demo.txt"
log "demo: the picture is demo.svg, the table is build/demo.txt"
