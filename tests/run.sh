#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: tests/run.sh [--long] [--changed [BASE]] [NAME...]
#
# Runs the project's tests and ends with the line "N passed, N failed"; fails if any test failed.
# Before that line it prints the ten slowest checks; build/test/timing.tsv lists the seconds of all
# checks. NAME selects parts, or tests of tests/vm, with all their checks, on each kernel that runs
# them. Parts:
#
#   host      lines of each room; formatting, clippy and tests of the Cargo workspace in rust/host
#   module    clippy, nrs.ko for both kernels
#   scripts   the scripts' own tests and syntax, packages
#   stock     tests in virtual machines of the stock kernel
#   debug     tests in virtual machines of the debug kernel, and KUnit
#
#   --long           run all checks of all tests, and some for each other supported kernel series;
#                    ROUNDS=N repeats the virtual machines N times
#   --changed [BASE] run the NAMEs that tests/changed.map lists for the files that differ from BASE
#                    (default: HEAD, or its parent if nothing differs)
#   --list           list the tests of each machine
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"

# changed [BASE]: Prints the names of the parts and tests that cover the files that differ from
# BASE.
changed() {
	local base=${1:-HEAD} file files pattern names name
	files=$(cd "$NRS_TOP" && git diff --name-only "$base" &&
		git ls-files --others --exclude-standard)
	[ -n "$files" ] || files=$(cd "$NRS_TOP" && git diff --name-only "$base~1" "$base")
	while IFS= read -r file; do
		# The first matching pattern decides.
		while read -r pattern names; do
			case $pattern in '#'* | '') continue ;; esac
			# shellcheck disable=SC2053 # a pattern
			[[ $file == $pattern ]] || continue
			name=${file##*/}
			[ -e "$NRS_TOP/$file" ] || name=''
			tr ' ' '\n' <<<"${names//@/${name%.sh}}"
			break
		done <"$NRS_TOP/tests/changed.map"
	done <<<"$files" | sort -u | xargs
}

# Tests by machine: the tests of a line share a boot. KERNEL:NAME:SECONDS:CLOCK:TESTS, where SECONDS
# is twice the time on a slow host. CLOCK "icount": the machine's time counts instructions, so that
# other work on the host does not affect the results. "any": two CPUs, with KVM if it works,
# otherwise also counting instructions. "vng": under virtme-ng (scripts/vng.sh). Empty: the host's
# time.
short=(
	"stock:vng:900:vng:load nowait+elevator"
	"stock:smoke:1800:any:ext4 programs nowait meta order-dm unaware dm-life limits errors hang\
		killed control params rules-configfs wrong switch stats owners layers cpts chardev\
		order-user timeouts-user tbf-user nrsctl nrsctl-config nrsctl-stats tutorial elevator\
		elevator-storm lustre"
	"stock:figures:1800:icount:fair fair-tree factors devices hp tbf tbf-ext4 qbm robin\
		delay health timeouts dead dead+elevator trace nrsctl-top elevator-tags elevator-share"
	"debug:vng:900:vng:kunit"
	"debug:debug:1500::load errors programs dm-life switch tbf-storm chardev capi lustre"
)
long=(
	"stock:trace:1600:icount:trace nrsctl-top"
	"stock:shares:1800:icount:fair factors cluster locality devices hp tbf-user fair-tree"
	"stock:beside:1800:icount:fair+idle fair-tree+idle hp+idle tbf+idle qbm+idle fair+metadata\
		tbf+metadata"
	"stock:rates:1800:icount:tbf tbf-files tbf-ext4"
	"stock:bands:1800:icount:qbm interference"
	"stock:turns:1500:icount:robin delay health timeouts dead few auto isolation"
	"stock:cpts:1800:any:cpts programs"
	"stock:life:1800:any:load layout dm-life killed errors hang wrong control params rules-configfs\
		tbf-storm qbm-storm soak"
	"stock:tool:1800:any:nrsctl nrsctl-config nrsctl-stats tutorial"
	"stock:data:1500:any:ext4 switch nowait meta stats order-dm unaware limits"
	"stock:owners:1800:any:owners owners+elevator layers"
	"stock:user:1500:any:chardev fair-churn timeouts-user nbdkit capi lustre"
	"stock:order:1500:any:order-user"
	"stock:elevator:1800:any:elevator elevator-storm load+elevator nowait+elevator ext4+elevator\
		meta+elevator switch+elevator order-dm+elevator"
	"stock:elevator-storms:1800:any:tbf-storm+elevator qbm-storm+elevator programs+elevator"
	"stock:elevator-shares:1800:icount:elevator-share fair+elevator fair-tree+elevator tbf+elevator\
		hp+elevator devices+elevator robin+elevator dead+elevator"
	"stock:elevator-tags:1200:icount:elevator-tags"
	"debug:life:1800::kunit load errors tbf-storm"
	"debug:programs:1800::programs"
	"debug:dm:1800::dm-life hang order-dm switch"
	"debug:user:1800::chardev order-user timeouts-user capi lustre"
	"debug:elevator:1800::elevator elevator-storm elevator-tags load+elevator switch+elevator\
		order-dm+elevator tbf-storm+elevator"
)
# The other supported series: enough tests to cover the replacements for what the kernel crate of
# each series lacks. The real-time kernel of the newest one, whose locks sleep.
for series in $(supported_series | sed 's/ .*/-rt&/'); do
	long+=("$series:series:1800:any:load layout dm-life chardev capi lustre elevator")
done
parts=(host module scripts stock debug)
rounds=1 only=() machines=("${short[@]}")
while [ $# -gt 0 ]; do
	case $1 in
	--help | -h) usage && exit ;;
	--long) rounds=${ROUNDS:-1} machines=("${long[@]}") && export NRS_LONG=1 ;;
	--changed)
		changed_names=$(changed ${2:+"$2"})
		[ -n "$changed_names" ] || { log "no test covers the changed files" && exit 0; }
		read -ra only <<<"$changed_names"
		[ $# = 1 ] || shift
		;;
	--list) printf '%s\n' "${machines[@]}" | tr -s '\t' ' ' && exit ;;
	-*) die "unknown option '$1', see --help" ;;
	*) only+=("$1") ;;
	esac
	shift
done
# A test that is named runs all its checks.
for name in "${only[@]}"; do
	case " ${parts[*]} " in *" $name "*) ;; *) machines=("${long[@]}") && export NRS_LONG=1 ;; esac
done
cd "$NRS_TOP"
logs=$NRS_TOP/build/test
mkdir -p "$logs"
passed=0 failed=0 broken=()

# An interruption ends the running command (in-root.sh ends its own children with it) and still
# prints the counts.
child='' lane='' builder=''
interrupted() {
	trap - INT TERM
	# shellcheck disable=SC2086
	[ -z "$child$lane$builder" ] || kill -TERM $child $lane $builder 2>/dev/null || true
	log "interrupted"
	echo "$passed passed, $failed failed, not finished"
	exit 130
}
trap interrupted INT TERM

# wanted PART [TEST...]: Returns true if no NAMEs were given, or if they include the part or one of
# the tests, with either front-end.
wanted() {
	local name
	[ ${#only[@]} -gt 0 ] || return 0
	for name in "${only[@]}"; do
		case " $* " in *" $name "* | *" $name+elevator "*) return 0 ;; esac
	done
	return 1
}

# timed MACHINE TEST CHECK SECONDS: Appends a line to timing.tsv.
timed() {
	printf '%s\t%s\t%s\t%s\n' "$@" >>"$logs/timing.tsv"
}

# run LOG CMD...: Runs CMD in the background, so that an interruption is handled at once; output
# goes to LOG.
run() {
	local file=$1 status=0
	shift
	"$@" >"$file" 2>&1 </dev/null &
	child=$!
	wait "$child" || status=$?
	child=''
	return "$status"
}

# check NAME CMD...: Runs one check.
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
		tail -n 10 "$file" >&2
	fi
	timed host - "$name" $((SECONDS - started))
}

# clippy compiles the workspace's crates, so that no crate is compiled for clippy alone; its
# arguments have the format of cargo clippy.
cargo_test=(env RUSTC_WORKSPACE_WRAPPER=clippy-driver
	CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
	cargo test --manifest-path rust/host/Cargo.toml --workspace)

# cargo_tests: Runs the tests of the workspace; each test that cargo counts is a check.
cargo_tests() {
	local file=$logs/cargo-test.log started=$SECONDS status=0 good bad
	log "host: cargo test ..."
	run "$file" scripts/in-root.sh --shared "${cargo_test[@]}" || status=$?
	good=$(awk '/^test result:/ { n += $4 } END { print n + 0 }' "$file")
	bad=$(awk '/^test result:/ { n += $6 } END { print n + 0 }' "$file")
	if [ "$status" != 0 ] && [ "$bad" = 0 ] || [ "$good$bad" = 00 ]; then bad=$((bad + 1)); fi
	passed=$((passed + good)) failed=$((failed + bad))
	log "host: cargo test: $good passed, $bad failed ($((SECONDS - started)) s)"
	timed host - "cargo test" $((SECONDS - started))
	if [ "$bad" != 0 ]; then
		broken+=("host: cargo test")
		tail -n 40 "$file" >&2
	fi
}

# boot KERNEL NAME SECONDS CLOCK TEST...: Boots a virtual machine.
boot() {
	local kernel=$1 name=$1-$2 limit=$3 how=() machine=vm tool plugins
	local files=(--file "$logs/suites:/suites")
	case $4 in
	icount) how=(--icount) ;;
	any) how=(--icount-or-kvm --cpus 2) ;;
	vng) machine=vng ;;
	esac
	shift 4
	for tool in nrs-test nrsctl; do
		[ ! -x "build/tools/$tool" ] || files+=(--file "build/tools/$tool:/bin/$tool")
	done
	case " $* " in *" trace "*)
		files+=(--file Documentation/tracing.md:/tracing.md)
		[ -z "${NRS_LONG:-}" ] ||
			how+=(--mem 2048) files+=(--file "$(scripts/trace-tools.sh):/trace")
		;;
	esac
	case " $* " in *" chardev "* | *" timeouts-user "*)
		for tool in server server-c tokio fallback timeouts; do
			files+=(--file "build/tools/example-$tool:/bin/example-$tool")
		done
		;;
	esac
	case " $* " in *" capi "* | *" lustre "*)
		scripts/build-against.sh "$kernel" tests/capi tests/lustre lustre
		for tool in nrs_capi_test nrs_example ptlrpc nrs_lustre; do
			files+=(--file "build/$kernel/$tool.ko:/$tool.ko")
		done
		;;
	esac
	case " $* " in *" limits "*)
		scripts/build-against.sh "$kernel" tests/crypt
		files+=(--file "build/$kernel/nrs_crypt_test.ko:/nrs_crypt_test.ko")
		;;
	esac
	case " $* " in *" cluster "*)
		scripts/build-tools.sh --agent
		files+=(--file build/tools/nrs-agent:/bin/nrs-agent)
		;;
	esac
	case " $* " in *" nbdkit "*)
		plugins=/usr/lib/x86_64-linux-gnu/nbdkit/filters
		files+=(--file "build/tools/nbdkit-nrs-filter.so:$plugins/nbdkit-nrs-filter.so")
		;;
	esac
	case " $* " in *" tutorial "*)
		tests/tutorial.sh --extract "$logs/tutorial-$name"
		files+=(--file "$logs/tutorial-$name:/tutorial")
		;;
	esac
	[ -z "${NRS_LONG:-}" ] ||
		case " $* " in
		*" soak "* | *" programs"* | *" owners "* | *" layers "* | *" nbdkit "*) how+=(--more) ;;
		esac
	"scripts/$machine.sh" --kernel "$kernel" --name "$name" --timeout "$limit" "${how[@]}" \
		"${files[@]}" -- all.sh ${NRS_LONG:+--long} "$@"
}

# count_machine NAME STATUS SECONDS: Counts the "ok" and "not ok" lines of a machine's tests; if the
# machine was booted once more, only those of the last boot.
count_machine() {
	local name=$1 status=$2 file=$logs/$1.log good bad
	read -r good \
		bad < \
		<(awk '/; once more$/ { good = bad = 0 } /^ok / { good++ } /^not ok / { bad++ }
			END { print good + 0, bad + 0 }' "$file")
	# Errors in the kernel log, and a machine that did not run to its end, count as a failure each.
	if [ -s "build/vm/$name/trouble" ]; then status=90; fi
	case $status in
	90 | 91 | 92) bad=$((bad + 1)) ;;
	0) ;;
	*) [ "$bad" != 0 ] || bad=1 ;;
	esac
	passed=$((passed + good)) failed=$((failed + bad))
	grep -E '^(# |== )' "$file" >&2 || true
	log "$name: $good passed, $bad failed ($3 s)"
	sed "s/^/$name\t/" "build/vm/$name/timing.tsv" >>"$logs/timing.tsv" || true
	if [ "$bad" != 0 ]; then
		broken+=("$name (build/vm/$name)")
		{ grep -E '^not ok ' "$file" && tail -n 15 "$file"; } >&2 || true
	fi
	if [ -d "build/vm/$name/out/pages" ]; then
		check "$name: pages of the exporter" tests/exporter.sh "build/vm/$name/out/pages"
	fi
}

# chosen [KERNEL]: Prints the selected machines, one per line, with only the selected tests unless
# the whole part is selected.
chosen() {
	local entry kernel name limit clock tests some t
	for entry in "${machines[@]}"; do
		IFS=: read -r kernel name limit clock tests <<<"$entry"
		[ "$kernel" = "${1:-$kernel}" ] || continue
		read -ra tests <<<"$tests"
		wanted "$kernel" "${tests[@]}" || continue
		if [ ${#only[@]} -gt 0 ] && ! wanted "$kernel"; then
			some=()
			for t in "${tests[@]}"; do if wanted "$t"; then some+=("$t"); fi; done
			tests=("${some[@]}")
		fi
		echo "$kernel $name $limit ${clock:-host} ${tests[*]}"
	done
}

# next: Removes the first machine from the queue and prints it.
next() {
	local fd
	exec {fd}>"$logs/queue.lock"
	flock "$fd"
	head -n 1 "$logs/queue"
	sed -i 1d "$logs/queue"
}

# work: Boots the machines of the queue until it is empty. Results go to $logs/done.
work() {
	local entry words name started status
	while entry=$(next) && [ -n "$entry" ]; do
		read -ra words <<<"$entry"
		name=${words[0]}-${words[1]} started=$SECONDS status=0
		log "$name: ${words[*]:4} ... ($(wc -l <"$logs/queue") machines after it)"
		# Builds the current tree; takes a second if it is already built.
		{
			scripts/build-module.sh "${words[0]}" && boot "${words[@]}"
		} >"$logs/$name.log" 2>&1 </dev/null || status=$?
		log "$name: status $status ($((SECONDS - started)) s)"
		echo "$name $status $((SECONDS - started))" >>"$logs/done"
	done
}

# start_machines: Fills the queue and starts the first of two workers; the programs and modules are
# already built.
start_machines() {
	chosen >"$logs/queue"
	: >"$logs/done"
	work &
	lane=$!
}

# finish_machines: Runs the second worker, waits for the first one, and counts the results.
finish_machines() {
	local name status seconds wanted
	wanted=$(chosen | wc -l)
	work &
	child=$!
	wait "$child" || true
	child=''
	wait "$lane" || true
	lane=''
	while read -r name status seconds; do
		count_machine "$name" "$status" "$seconds"
	done <"$logs/done"
	if [ "$(wc -l <"$logs/done")" != "$wanted" ]; then
		failed=$((failed + 1)) broken+=("machines that did not finish")
	fi
}

# slowest: Prints the ten slowest checks.
slowest() {
	log "slowest, of $(awk -F'\t' '{ n += $4 } END { printf "%d", n }' "$logs/timing.tsv") s" \
		"in $(wc -l <"$logs/timing.tsv") lines of $logs/timing.tsv:"
	# awk reads all lines: if it exited early, sort would fail with a broken pipe and end this
	# script.
	sort -t $'\t' -k4,4nr "$logs/timing.tsv" |
		awk -F'\t' 'NR <= 10 { printf "%7.1f s  %s %s: %s\n", $4, $1, $2, $3 }' >&2
}

# syntax: Checks the syntax of all scripts of the project.
syntax() {
	local file
	for file in scripts/*.sh debian/dkms/*.sh tests/*.sh tests/vm/*.sh tests/vm/*/*.sh .ci/*.sh; do
		[ ! -f "$file" ] || bash -n "$file" || return
	done
	for file in scripts/*.py debian/*.py tests/*.py; do
		[ ! -f "$file" ] ||
			scripts/in-root.sh python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' \
				"$file" || return
	done
}

# guide: Compares the example in the guide for kernel servers with the one that the tests build.
guide() {
	diff <(sed -n '/^```c$/,/^```$/p' Documentation/kernel-servers.md | sed '1d;$d') \
		<(tail -n +2 tests/capi/example.c)
}

# asserts: Verifies that no check relies on "A && B" or "! A", because a failure of A in these does
# not end the check.
asserts() {
	local found
	found=$(grep -nE '^\s+(\[|\[\[|grep|cmp) .* && |^\s+! ' tests/vm/*.sh |
		grep -vE '\|\||(\{|then|do|\\|&&)$|^tests/vm/lib.sh:') || return 0
	echo "$found"
	return 1
}

# Runs all parts. A function, so that the shell reads the whole file before it runs any of it; later
# changes to the file have no effect.
main() {
	mkdir -p "$logs"
	: >"$logs/timing.tsv"
	grep -rhoE 'kunit_tests\(nrs_[a-z0-9_]+' rust --include='*.rs' | cut -d'(' -f2 |
		sort -u >"$logs/suites"
	# Prerequisites of all parts; takes a second if they exist. The programs need only the root.
	scripts/root.sh
	scripts/kernel.sh &
	builder=$!
	if [ -n "$(chosen)" ]; then check "tools: build" scripts/build-tools.sh; fi
	wait "$builder" || die "no kernel to test with"
	builder=''
	# The debug kernel takes longest to build, and yields to the other builds.
	if wanted module || [ -n "$(chosen debug)" ]; then
		scripts/debug-kernel.sh >"$logs/debug-kernel.log" 2>&1 </dev/null &
		builder=$!
	fi
	if [ -n "$(chosen)" ]; then
		check "module: build for the stock kernel" scripts/build-module.sh stock
		check "module: stack frames" scripts/in-root.sh tests/frames.py build/stock/nrs.ko
		start_machines
	fi
	# Files of all parts have lines.
	if wanted host module scripts; then
		check "host: lines of each room" scripts/in-root.sh tests/size.py
	fi
	if wanted host; then
		check "host: cargo fmt" scripts/in-root.sh cargo fmt --manifest-path rust/host/Cargo.toml \
			--all -- --check
		check "host: rustfmt of the module" scripts/in-root.sh rustfmt --edition 2021 \
			--check rust/nrs.rs rust/sched/policy/*.rs
		check "host: atomics only in rust/sched/atomic.rs" bash -c \
			'! git grep -nE "sync::atomic|Atomic[BIPU]" -- rust/sched ":!*/atomic.rs" ":!*/tests*"'
		check "host: clippy" scripts/in-root.sh --shared "${cargo_test[@]}" --all-targets --no-run
		cargo_tests
		[ -z "${NRS_LONG:-}" ] || check "host: nrs-agent with zenoh" scripts/in-root.sh --shared \
			"${cargo_test[@]/--workspace/--package=nrs-agent}" --features daemon
	fi
	if wanted scripts; then
		check "scripts: log-check.sh --self-test" scripts/log-check.sh --self-test
		check "scripts: syntax" syntax
		check "scripts: helpers of the tests" tests/lib.sh
		check "scripts: no check relies on A && B or ! A" asserts
		check "scripts: blocks of how-tos are run, or marked" tests/tutorial.sh --check
		check "scripts: words" scripts/in-root.sh tests/words.py
		check "scripts: figures are as commands printed them" scripts/in-root.sh \
			scripts/figures.py check
		check "scripts: the example of the guide for kernel servers" guide
		check "scripts: pages of the exporter" tests/exporter.sh
		if [ -n "${NRS_LONG:-}" ]; then
			check "scripts: a machine that lost a timer" tests/machine.sh
			check "scripts: compare.sh --check" scripts/compare.sh --check
			check "packages: installed, built and removed in a minimal system" scripts/deb-test.sh
			check "packages: a system with systemd, booted three times" tests/boot.sh
			check "cluster: two servers in two machines" scripts/cluster.sh --check
		fi
	fi
	if wanted module; then
		# With KUnit the crate disables lints that its tests violate, so the stock kernel's build
		# has more lints.
		check "module: clippy" scripts/build-module.sh stock --clippy
		[ -z "${NRS_LONG:-}" ] ||
			check "module: clippy with KUnit" scripts/build-module.sh debug --clippy
		check "module: build for the debug kernel" scripts/build-module.sh debug
	fi
	if [ -n "$(chosen)" ]; then
		for round in $(seq "$rounds"); do
			[ "$rounds" = 1 ] || log "round $round of $rounds"
			[ "$round" = 1 ] || start_machines
			finish_machines
		done
	fi

	slowest
	[ ${#broken[@]} = 0 ] || { log "failed:" && printf '  %s\n' "${broken[@]}" >&2; }
	echo "$passed passed, $failed failed"
	[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}
main
exit
