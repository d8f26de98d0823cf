# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
# What scripts/vm.sh and scripts/vng.sh share; sourced after lib.sh, with the script's arguments.

kernel='' cpus='' mem='' limit='' module='' name='' files=() args=("$@")

# guest_option OPTION VALUE...: Sets an option that both scripts have.
guest_option() {
	case $1 in
	--kernel) kernel=$2 ;;
	--cpus) cpus=$2 ;;
	--mem) mem=$2 ;;
	--timeout) limit=$2 ;;
	--file) files+=("$2") ;;
	--module) module=$2 ;;
	--name) name=$2 ;;
	*) die "unknown argument '$1', see --help" ;;
	esac
}

# guest_kernel: Sets $image, $modules and $release of $kernel: stock, debug or a series. Builds what
# is missing, and runs this script again in the root, with $args.
guest_kernel() {
	local vars series=$kernel
	case $kernel in
	stock | debug) series='' ;;
	[0-9]*) ;;
	*) die "--kernel stock|SERIES|debug is missing, see --help" ;;
	esac
	if [ -z "${NRS_IN_ROOT:-}" ]; then
		"$NRS_SCRIPTS/kernel.sh" $series
		"$NRS_SCRIPTS/fio.sh"
		[ "$kernel" != debug ] || "$NRS_SCRIPTS/debug-kernel.sh"
		exec "$NRS_SCRIPTS/in-root.sh" "$0" "${args[@]}"
	fi
	vars=$("$NRS_SCRIPTS/kernel.sh" $series --print)
	eval "$vars"
	image=$NRS_VMLINUZ modules=$NRS_MODULES release=$NRS_KREL
	if [ "$kernel" = debug ]; then
		vars=$("$NRS_SCRIPTS/debug-kernel.sh" --print)
		eval "$vars"
		image=$NRS_DBG_VMLINUX modules=$NRS_DBG_MODULES release=$NRS_DBG_REL
	fi
}

# guest_results SECONDS DEBUG NAME: Sets $mem, $limit (SECONDS, or DEBUG on the debug kernel),
# $module and $name (NAME), unless options did, and $out, the directory of the results, which is
# emptied. Fails if another run has it.
guest_results() {
	local debug=''
	[ "$kernel" != debug ] || debug=1
	mem=${mem:-${debug:+2048}} mem=${mem:-1024}
	limit=${limit:-${debug:+$2}} limit=${limit:-$1}
	module=${module:-$NRS_TOP/build/$kernel/nrs.stripped.ko}
	name=${name:-$3}
	out=$NRS_TOP/build/vm/$name
	mkdir -p "$NRS_TOP/build/vm"
	exec {lockfd}>"$out.lock"
	flock -n "$lockfd" || die "another run named $name is still active: choose another --name"
	rm -rf "$out"
	mkdir "$out"
}

# guest_log DIR: Checks the kernel log of the guest, $out/console.log, and DIR/kmemleak; fails with
# status 90 if one has errors.
guest_log() {
	local logs=("$out/console.log")
	[ ! -f "$1/kmemleak" ] || logs+=("$1/kmemleak")
	"$NRS_SCRIPTS/log-check.sh" "${logs[@]}" >"$out/trouble" && return
	log "$name: errors in the kernel log (first lines; all in $out):"
	head -n 12 "$out/trouble" >&2
	return 90
}

# guest_tree TREE MODULE PAIR... -- [SCRIPT ARG...]: Adds to TREE what varies: tests/vm, the module
# unless "none", each file HOST:GUEST, and /guest/run, which runs SCRIPT: a file of tests/vm, by
# name or path, or any other.
guest_tree() {
	local tree=$1 module=$2 pairs=() pair script=''
	shift 2
	while [ "$1" != -- ]; do pairs+=("$1") && shift; done
	shift
	if [ $# -gt 0 ]; then
		script=$1
		shift
		if [ -f "$NRS_TOP/tests/vm/$script" ]; then
			script=/tests/$script
		elif [ -f "$script" ] && [[ $(realpath "$script") = "$NRS_TOP/tests/vm/"* ]]; then
			script=/tests/$(realpath --relative-to="$NRS_TOP/tests/vm" "$script")
		elif [ -f "$script" ]; then
			pairs+=("$script:/guest/$(basename "$script")")
			script=/guest/$(basename "$script")
		else
			die "no guest script '$script', neither in tests/vm nor as a path"
		fi
	fi
	mkdir -p "$tree"/{tests,guest}
	cp -a "$NRS_TOP/tests/vm/." "$tree/tests/"
	install -m 755 "$NRS_TOP/tests/vm/init.sh" "$tree/init"
	if [ "$module" != none ]; then
		if [ -f "$module" ]; then
			cp "$module" "$tree/nrs.ko"
		else
			log "no $module, the guest has no /nrs.ko"
		fi
	fi
	for pair in "${pairs[@]}"; do
		mkdir -p "$tree$(dirname "${pair#*:}")"
		cp -aL "${pair%%:*}" "$tree${pair#*:}"
	done
	[ -z "$script" ] || {
		echo '#!/bin/bash' && printf '%q ' exec bash "$script" "$@" && echo
	} >"$tree/guest/run"
}

# cpu_of PROCESS: Prints the CPU time that the children of PROCESS have used, in hundredths of a
# second.
cpu_of() {
	local child fields sum=0
	for child in $(<"/proc/$1/task/$1/children"); do
		read -ra fields <"/proc/$child/stat" && sum=$((sum + fields[13] + fields[14]))
	done 2>/dev/null
	echo "$sum"
}

# stamped [PROCESS]: Copies the guest's lines. Appends for each check to $out/timing.tsv its test,
# its name, and the seconds since the previous check: of the host's clock, and of the CPU time of
# the emulator, a child of PROCESS.
stamped() {
	local line what before=${EPOCHREALTIME/./} now cpu_before=0 cpu test=''
	: >"$out/timing.tsv"
	while IFS= read -r line; do
		printf '%s\n' "$line"
		case $line in
		"== "*:*) what='(end)' ;;
		"== "*)
			what=$([ -n "$test" ] && echo '(start)' || echo '(boot)')
			test=${line#== }
			;;
		"ok "* | "not ok "*)
			what=${line#*- }
			what=${what%% # *} what=${what% (* s)}
			;;
		*) continue ;;
		esac
		now=${EPOCHREALTIME/./} cpu=$(cpu_of "${1:-}")
		printf '%s\t%s\t%d.%d\t%d.%d\n' "$test" "${what//$'\t'/ }" $(((now - before) / 1000000)) \
			$(((now - before) / 100000 % 10)) $(((cpu - cpu_before) / 100)) \
			$(((cpu - cpu_before) / 10 % 10)) >>"$out/timing.tsv"
		before=$now cpu_before=$cpu
	done
}
