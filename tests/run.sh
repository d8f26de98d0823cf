#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: tests/run.sh [--long] [NAME...]
#
# Runs the project's tests and ends with the line "N passed, N failed"; fails if any failed. NAME: only these parts, or
# only these tests of tests/vm (on both kernels where they run on both). Parts, in this order:
#
#   host      formatting, clippy and tests of the Cargo workspace in rust/host
#   module    nrs.ko for both kernels, with clippy
#   scripts   the scripts' own tests and syntax
#   stock     tests in virtual machines of the stock kernel
#   debug     tests in virtual machines of the debug kernel, and KUnit
#
#   --long    every virtual machine's tests five times over, and more of them on the debug kernel
#   --list    the tests of each machine
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"

# Tests by machine: those of a line share a boot. KERNEL:NAME:SECONDS:HOW:TESTS, the seconds twice what a slow host needs. With HOW "icount" time in the
# machine counts instructions, so that its results do not mind what else runs: such machines run one after the other beside everything
# else (the lane). With "icount2" there are two CPUs that take turns. "late": a machine like
# any other, for the end of the lane.
machines=(
	"stock:trace:1600:icount:trace nrsctl-top"
	"stock:tool:1500::nrsctl nrsctl-config nrsctl-stats"
	"stock:shares:1800:icount:fair hp tbf-user fair-tree"
	"stock:data:1080::ext4 switch nowait meta stats order-dm unaware"
	"stock:turns:1500:icount:robin delay health timeouts"
	"stock:life:1440::load dm-life killed errors hang programs wrong control params rules-configfs qbm-configfs tbf-storm qbm-storm soak"
	"stock:cpts:1200:icount2:cpts"
	"stock:order:1120::order-user"
	"stock:user:1400::chardev fair-churn timeouts-user"
	"stock:rates:1800:icount:tbf tbf-files tbf-ext4 tbf-wrong qbm-wrong"
	"debug:life:1560::kunit load errors programs tbf-storm"
	"stock:bands:1800:icount:qbm"
	"debug:dm:1560:late:dm-life hang order-dm"
)
# What the lane runs, in the order of the table.
lane_kinds=(icount icount2 late)
# With --long: what takes many minutes on the debug kernel.
long=(
	"debug:user:1800::chardev"
	"debug:rules:2400::rules-configfs qbm-configfs qbm-storm"
	"debug:churn:1200::fair-churn"
	"debug:unaware:1200::unaware params"
	"debug:timeouts:1800::timeouts timeouts-user"
	"debug:order:1800::order-user"
	"debug:trace:1800::trace control switch"
)
rounds=1 only=()
while [ $# -gt 0 ]; do
	case $1 in
	--help | -h) usage && exit ;;
	--long) rounds=5 machines+=("${long[@]}") && export NRS_LONG=1 ;;
	--list) printf '%s\n' "${machines[@]}" && exit ;;
	-*) die "unknown option '$1', see --help" ;;
	*) only+=("$1") ;;
	esac
	shift
done
cd "$NRS_TOP"
logs=$NRS_TOP/build/test
mkdir -p "$logs"
passed=0 failed=0 broken=()

# An interruption ends what is running (in-root.sh ends its own with it), and still says how far it came.
child='' lane=''
interrupted() {
	trap - INT TERM
	# shellcheck disable=SC2086
	[ -z "$child$lane" ] || kill -TERM $child $lane 2>/dev/null || true
	log "interrupted"
	echo "$passed passed, $failed failed, not finished"
	exit 130
}
trap interrupted INT TERM

# wanted PART [TEST...]: whether NAMEs were not given, or name the part or one of the tests.
wanted() {
	local name
	[ ${#only[@]} -gt 0 ] || return 0
	for name in "${only[@]}"; do
		case " $* " in *" $name "*) return 0 ;; esac
	done
	return 1
}

# run LOG CMD...: in the background, so that an interruption is heard at once; output to LOG.
run() {
	local file=$1 status=0
	shift
	"$@" >"$file" 2>&1 </dev/null &
	child=$!
	wait "$child" || status=$?
	child=''
	return "$status"
}

# check NAME CMD...: one check.
check() {
	local name=$1 file started=$SECONDS
	file=$logs/$(tr -c 'a-z0-9\n' - <<<"$name").log
	shift
	log "$name ..."
	if run "$file" "$@"; then
		passed=$((passed + 1))
		log "$name: ok ($((SECONDS - started)) s)"
	else
		failed=$((failed + 1)) broken+=("$name")
		log "$name: FAILED ($((SECONDS - started)) s), end of $file:"
		tail -n 25 "$file" >&2
	fi
}

# cargo_tests: the checks are the tests that cargo counts.
cargo_tests() {
	local file=$logs/cargo-test.log started=$SECONDS status=0 good bad
	log "host: cargo test ..."
	run "$file" scripts/in-root.sh cargo test --manifest-path rust/host/Cargo.toml --workspace || status=$?
	good=$(awk '/^test result:/ { n += $4 } END { print n + 0 }' "$file")
	bad=$(awk '/^test result:/ { n += $6 } END { print n + 0 }' "$file")
	if [ "$status" != 0 ] && [ "$bad" = 0 ] || [ "$good$bad" = 00 ]; then bad=$((bad + 1)); fi
	passed=$((passed + good)) failed=$((failed + bad))
	log "host: cargo test: $good passed, $bad failed ($((SECONDS - started)) s)"
	if [ "$bad" != 0 ]; then
		broken+=("host: cargo test")
		tail -n 40 "$file" >&2
	fi
}

# boot KERNEL NAME SECONDS HOW TEST...: a virtual machine, output to LOG of its name.
boot() {
	local kernel=$1 name=$1-$2 limit=$3 how=("$4") tool files=(--file "$logs/suites:/suites" --file scripts/measure.sh:/bin/measure.sh)
	shift 4
	case ${how[0]} in
	icount) how=(--icount) ;;
	icount2) how=(--icount --cpus 2) ;;
	*) how=() ;;
	esac
	for tool in nrs-load nrs-check nrs-overlap nrs-storm nrsctl; do [ ! -x "build/tools/$tool" ] || files+=(--file "build/tools/$tool:/bin/$tool"); done
	case " $* " in *" trace "*) how+=(--mem 2048) files+=(--file "$(scripts/trace-tools.sh):/trace" --file Documentation/tracing.md:/tracing.md) ;; esac
	scripts/vm.sh --kernel "$kernel" --name "$name" --timeout "$limit" "${how[@]}" "${files[@]}" -- all.sh ${NRS_LONG:+--long} "$@"
}

# count_machine NAME STATUS SECONDS: the checks of a machine are the lines "ok" and "not ok" of its tests; of one that was booted
# once more, those of the second time.
count_machine() {
	local name=$1 status=$2 file=$logs/$1.log good bad
	read -r good bad < <(awk '/; once more$/ { good = bad = 0 } /^ok / { good++ } /^not ok / { bad++ } END { print good + 0, bad + 0 }' "$file")
	# A kernel log with trouble, or a machine that did not come to its end, is a failure of its own.
	case $status in
	90 | 91 | 92) bad=$((bad + 1)) ;;
	0) ;;
	*) [ "$bad" != 0 ] || bad=1 ;;
	esac
	passed=$((passed + good)) failed=$((failed + bad))
	grep -E '^(# |== )' "$file" >&2 || true
	log "$name: $good passed, $bad failed ($3 s)"
	if [ "$bad" != 0 ]; then
		broken+=("$name (build/vm/$name)")
		{ grep -E '^not ok ' "$file" && tail -n 15 "$file"; } >&2 || true
	fi
	if [ -d "build/vm/$name/out/yaml" ]; then
		check "$name: statistics as YAML" scripts/in-root.sh python3 tests/check-yaml.py "build/vm/$name/out/yaml"
	fi
	if [ -d "build/vm/$name/out/pages" ]; then check "$name: pages of the exporter" tests/exporter.sh "build/vm/$name/out/pages"; fi
}

# machine KERNEL NAME SECONDS HOW TEST...: boots it and counts.
machine() {
	local name=$1-$2 started=$SECONDS status=0
	# As the tree is now; where it is built already this takes a second.
	scripts/build-module.sh "$1"
	log "$name: ${*:5} ..."
	run "$logs/$name.log" boot "$@" || status=$?
	count_machine "$name" "$status" $((SECONDS - started))
}

# chosen HOW...: the machines of those kinds that were asked for, a line each, with only the tests that were named unless the
# whole part was.
chosen() {
	local entry kernel name limit how tests some t
	for entry in "${machines[@]}"; do
		IFS=: read -r kernel name limit how tests <<<"$entry"
		case " $* " in *" ${how:-free} "*) ;; *) continue ;; esac
		read -ra tests <<<"$tests"
		wanted "$kernel" "${tests[@]}" || continue
		if [ ${#only[@]} -gt 0 ] && ! wanted "$kernel"; then
			some=()
			for t in "${tests[@]}"; do if wanted "$t"; then some+=("$t"); fi; done
			tests=("${some[@]}")
		fi
		echo "$kernel $name $limit ${how:-free} ${tests[*]}"
	done
}

# start_lane: the machines that count instructions, one after the other in the background; what they need is built.
start_lane() {
	local entry
	mapfile -t entries < <(chosen "${lane_kinds[@]}")
	: >"$logs/lane"
	[ ${#entries[@]} -gt 0 ] || return 0
	log "beside the rest: $(printf '%s\n' "${entries[@]}" | awk '{ printf "%s-%s ", $1, $2 }')"
	(
		for entry in "${entries[@]}"; do
			read -ra words <<<"$entry"
			started=$SECONDS status=0
			scripts/build-module.sh "${words[0]}"
			boot "${words[@]}" >"$logs/${words[0]}-${words[1]}.log" 2>&1 </dev/null || status=$?
			echo "${words[0]}-${words[1]} $status $((SECONDS - started))" >>"$logs/lane"
		done
	) &
	lane=$!
}

# await_lane: waits for them, and counts.
await_lane() {
	local name status seconds
	[ -n "$lane" ] || return 0
	log "waiting for the machines beside the rest"
	wait "$lane" || true
	lane=''
	while read -r name status seconds; do count_machine "$name" "$status" "$seconds"; done <"$logs/lane"
	if [ "$(wc -l <"$logs/lane")" != ${#entries[@]} ]; then
		failed=$((failed + 1)) broken+=("machines beside the rest")
	fi
}

# syntax: all scripts of the project.
syntax() {
	local file
	for file in scripts/*.sh debian/dkms/*.sh tests/*.sh tests/vm/*.sh tests/vm/*/*.sh .ci/*.sh; do
		[ ! -f "$file" ] || bash -n "$file" || return
	done
	for file in scripts/*.py debian/*.py tests/*.py; do
		[ ! -f "$file" ] || scripts/in-root.sh python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$file" || return
	done
}

# asserts: in checks, whose commands end them when they fail, neither "A && B" nor "! A" does where A decides.
asserts() {
	local found
	found=$(grep -nE '^\s+(\[|\[\[|grep|cmp) .* && |^\s+! ' tests/vm/*.sh | grep -vE '\|\||(\{|then|do|\\|&&)$|^tests/vm/lib.sh:') || return 0
	echo "$found"
	return 1
}

# In a function, so that the whole file has been read before anything runs, whatever happens to it meanwhile.
main() {
	# What all parts need; where it is there already this takes a second.
	scripts/root.sh
	scripts/kernel.sh

	mkdir -p "$logs"
	grep -rhoE 'kunit_tests\(nrs_[a-z0-9_]+' rust --include='*.rs' | cut -d'(' -f2 | sort -u >"$logs/suites"
	# What the machines run that is not in the system.
	if [ -n "$(chosen free "${lane_kinds[@]}")" ]; then check "tools: build" scripts/build-tools.sh; fi
	if [ -n "$(chosen "${lane_kinds[@]}")" ]; then
		check "module: build for the stock kernel" scripts/build-module.sh stock
		start_lane
	fi
	if wanted host; then
		check "host: cargo fmt" scripts/in-root.sh cargo fmt --manifest-path rust/host/Cargo.toml --all -- --check
		check "host: rustfmt of the module" scripts/in-root.sh rustfmt --edition 2021 --check rust/nrs.rs
		check "host: cargo clippy" scripts/in-root.sh cargo clippy --manifest-path rust/host/Cargo.toml --workspace --all-targets -- -D warnings
		cargo_tests
	fi
	if wanted module; then
		for kernel in stock debug; do
			check "module: clippy for the $kernel kernel" scripts/build-module.sh "$kernel" --clippy
		done
		check "module: build for the debug kernel" scripts/build-module.sh debug
	fi
	if wanted scripts; then
		check "scripts: log-check.sh --self-test" scripts/log-check.sh --self-test
		check "scripts: syntax" syntax
		check "scripts: helpers of the tests" tests/lib.sh
		check "scripts: checks can fail" asserts
		check "scripts: a machine that lost a timer" tests/machine.sh
		check "scripts: compare.sh --check" scripts/compare.sh --check
		check "scripts: pages of the exporter" tests/exporter.sh
		check "packages: built, lintian, installed and removed" scripts/deb-test.sh --quick
		check "tutorial: as it is written" tests/tutorial.sh
	fi
	for round in $(seq "$rounds"); do
		[ "$rounds" = 1 ] || log "round $round of $rounds"
		[ "$round" = 1 ] || start_lane
		while read -ra words <&3; do machine "${words[@]}"; done 3< <(chosen free)
		await_lane
	done

	[ ${#broken[@]} = 0 ] || { log "failed:" && printf '  %s\n' "${broken[@]}" >&2; }
	echo "$passed passed, $failed failed"
	[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}
main
exit
