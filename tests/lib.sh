#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: tests/lib.sh
#
# Tests those helpers of tests/vm/lib.sh that need no virtual machine; prints the failed checks.
set -euo pipefail
. "$(dirname "$0")/vm/lib.sh"

work=$(mktemp)
trap 'rm -f "$work"' EXIT

# reads TEXT: Prints the reads of device 253:1 in an io.stat with the contents TEXT.
reads() {
	local reads
	printf '%s' "$1" >"$work"
	reads_in "$work" 253:1
	echo "$reads"
}

full='rbytes=8192 wbytes=0 rios=2 wios=0 dbytes=0 dios=0'
check_eq "io.stat: a group that has read" 2 \
	"$(reads "8:0 ${full/rios=2/rios=7}"$'\n'"253:1 $full"$'\n')"
check_eq "io.stat: a group that has just begun" 0 "$(reads $'253:1 \n8:0 '"$full"$'\n')"
check_eq "io.stat: a group that has not begun" 0 "$(reads "8:0 $full"$'\n')"
check_eq "io.stat: empty" 0 "$(reads '')"
check_eq "a failed check prints the last ten lines" "not ok 5 - a # 4 5 6 7 8 9 10 11 12 13 " \
	"$(check a sh -c 'seq 13; exit 1')"
long_line=$(printf '%9999d' 1)
check_eq "a failed check cuts long lines" 2015 "$(expr length "$(not_ok a "$long_line")")"
summary
