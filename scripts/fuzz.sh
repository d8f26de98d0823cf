#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/fuzz.sh [TARGET|all] [SECONDS]
#
# Fuzzes TARGET (default: all targets), each for SECONDS (default 60), with libFuzzer in the
# toolchain root. rust/host/fuzz contains the targets and their properties. New inputs are kept in
# build/fuzz/corpus/TARGET and used by the next run; rust/host/fuzz/corpus is only read. Prints a
# line for each target: executions, executions/s, coverage.
#
# If a property is violated, the input is in build/fuzz/TARGET, the other targets still run, and the
# exit status is 1. To reproduce the failure: scripts/fuzz.sh TARGET FILE.
#
#   --list    list the names of the targets
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in --help | -h) usage && exit ;; esac
fuzz=$NRS_TOP/rust/host/fuzz
input=
[ ! -f "${2:-}" ] || input=$(realpath "$2")
# Later versions require a newer compiler.
version=0.12.0

targets=$(sed -n '/^targets! {/,/^}/s/^    \([a-z]*\) [0-9].*/\1/p' "$fuzz/src/lib.rs")
if [ "${1:-}" = --list ]; then
	echo "$targets" && exit
fi
if [ "${1:-all}" != all ]; then
	grep -qx -- "$1" <<<"$targets" || die "no target $1; there are: ${targets//$'\n'/ }"
	targets=$1
fi
if [ -z "${NRS_IN_ROOT:-}" ]; then
	"$NRS_SCRIPTS/root.sh"
	exec "$NRS_SCRIPTS/in-root.sh" "$0" "$@"
fi

export PATH=$PATH:$CARGO_HOME/bin
if [ "$(cargo fuzz --version 2>/dev/null)" != "cargo-fuzz $version" ]; then
	cargo install --quiet cargo-fuzz --version "$version" --locked
fi
out=$NRS_TOP/build/fuzz
mkdir -p "$out"
cd "$fuzz"
# Runs cargo fuzz. All targets are one program; NRS_FUZZ_TARGET selects the target. There is no
# unsafe code for a sanitizer to check, and a stable compiler has no sanitizer.
cargo_fuzz() {
	cargo fuzz "$1" --fuzz-dir "$fuzz" --target-dir "$out/target" --sanitizer none --features link \
		nrs-fuzz "${@:2}"
}
cargo_fuzz build 2>"$out/build.log" || {
	cat "$out/build.log" >&2
	die "building the targets failed"
}

if [ -n "$input" ]; then
	NRS_FUZZ_TARGET=$targets cargo_fuzz run "$input"
	exit
fi
seconds=${2:-60}
case $seconds in *[!0-9]* | '') die "SECONDS is a number or a file: $seconds" ;; esac
status=0
for target in $targets; do
	mkdir -p "$out/corpus/$target" "$out/$target"
	log=$out/$target.log
	if NRS_FUZZ_TARGET=$target NRS_FUZZ_DICTIONARY=$out/$target.dict cargo_fuzz run \
		"$out/corpus/$target" "corpus/$target" -- -max_total_time="$seconds" -max_len=4096 \
		-timeout=10 -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix="$out/$target/" \
		-dict="$out/$target.dict" >"$log" 2>&1; then
		verdict=holds
	else
		verdict="FAILED, see $log" status=1
	fi
	stat() { sed -n "s/^stat::$1: *//p" "$log" | tail -n 1; }
	covered=$(grep -o ' cov: [0-9]*' "$log" | tail -n 1) || covered=
	printf '%-14s %10s executions %8s /s %9s  %s\n' "$target" "$(stat number_of_executed_units)" \
		"$(stat average_exec_per_sec)" "${covered# }" "$verdict"
done
exit "$status"
