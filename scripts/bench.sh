#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/bench.sh [CRITERION-OPTION...]
#        scripts/bench.sh --instructions [CASE CLASSES]...
#
# Measures the scheduling code (rust/sched) on this host with the toolchain root's compiler:
# nanoseconds per decision of every policy with 2 to 100,000 classes, and bytes per class and per
# queued request. Takes about ten minutes; about three with --quick. With a FILTER, such as
# `decision/fairshare`, only the matching benchmarks run.
#
# Results are kept in build/bench/criterion, and the next run compares with them. The report of all
# results is written to build/bench: bench.md (also printed) and decisions.svg.
#
# --instructions prints the instructions of a decision with this host's compiler, counted by
# valgrind and exactly repeatable. build/bench/instructions.CASE.CLASSES lists the instructions by
# function, for callgrind_annotate.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in --help | -h) usage && exit ;; esac

# instructions CASE CLASSES: Prints the instructions of a decision, averaged over a round of all
# classes, at least 4,000 decisions.
instructions() {
	local count=$(($2 > 4000 ? $2 : 4000)) sum runner
	runner='valgrind --tool=callgrind --toggle-collect=*instructions::decide*'
	runner+=" --callgrind-out-file=$NRS_TOP/build/bench/instructions.$1.$2"
	sum=$(CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=$runner \
		cargo bench --quiet -p nrs-sched --bench instructions -- "$1" "$2" "$count" 2>&1 |
		awk '/Collected/ { print $NF }')
	[ -n "$sum" ] || die "valgrind counted nothing for $1 with $2 classes"
	echo "$1 $2 $((sum / count))"
}
if [ "${1:-}" = --instructions ]; then
	shift
	command -v valgrind >/dev/null || die 'valgrind is missing (apt install valgrind)'
	[ $# -gt 0 ] ||
		set -- fairshare 2 fairshare 64 fairshare 1000 fairshare 100000 fairshare_mixed 1000 \
			fairshare_limits 1000 fairshare3 64 fairshare3 1000 tbf 64 tbf 1000 qbm 1000
	mkdir -p "$NRS_TOP/build/bench"
	cd "$NRS_TOP/rust/host"
	for ((; $# > 1; )); do
		instructions "$1" "$2"
		shift 2
	done
	exit
fi

if [ -z "${NRS_IN_ROOT:-}" ]; then
	"$NRS_SCRIPTS/root.sh"
	exec "$NRS_SCRIPTS/in-root.sh" "$0" "$@"
fi
out=$NRS_TOP/build/bench
mkdir -p "$out"
cd "$NRS_TOP/rust/host"
export CRITERION_HOME=$out/criterion

# sizes: Prints the bytes that the module keeps per request, from its debug information, if it was
# built. A missing type is a failure, so that a renamed type does not vanish from the report.
sizes() {
	local module=$NRS_TOP/build/stock/nrs.ko types name bytes what
	local box='Holder<nrs::frontend::chardev::session::SessionRequest>'
	local row='SlabEntry<nrs::sched::table::TableRow<u64,'
	row+=' nrs::frontend::chardev::session::table::RequestRow>>'
	[ -f "$module" ] && command -v llvm-dwarfdump >/dev/null || return 0
	types=$(llvm-dwarfdump --debug-info "$module" 2>/dev/null | awk '
		/DW_TAG_structure_type/ { open = 1; name = ""; next }
		open && /DW_AT_name/ { match($0, /".*"/); name = substr($0, RSTART + 1, RLENGTH - 2) }
		open && /DW_AT_byte_size/ {
			match($0, /0x[0-9a-f]+/)
			print name "\t" substr($0, RSTART, RLENGTH)
			open = 0
		}
		/^$/ { open = 0 }
	' | sort -u)
	while IFS='|' read -r name what; do
		bytes=$(awk -F'\t' -v name="$name" '$1 == name { print $2; exit }' <<<"$types")
		[ -n "$bytes" ] || die "$module has no type '$name'"
		echo "$((bytes)) $what"
	done <<-EOF
		PerBio|bio on a device-mapper target: area that device-mapper gives with it
		$box|request of /dev/nrs: box until it is read
		$row|request of /dev/nrs: row until it is completed
		NodeFifo|of the class: queue
	EOF
}

cargo bench --quiet -p nrs-sched --no-run
load=$(cut -d ' ' -f 1-3 /proc/loadavg)
cargo bench --quiet -p nrs-sched --bench sched --bench rules --bench scale --bench timeouts -- "$@"
case " $* " in *" --list "* | *" --help "*) exit ;; esac
cargo bench --quiet -p nrs-sched --bench memory >"$out/memory.tmp"
mv "$out/memory.tmp" "$out/memory.jsonl"
sizes >"$out/sizes.txt"
{
	echo "$load"
	cut -d ' ' -f 1-3 /proc/loadavg
} >"$out/load.txt"
"$NRS_SCRIPTS/report.sh" bench "$out"
