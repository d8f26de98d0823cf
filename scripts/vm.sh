#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/vm.sh --kernel stock|debug [OPTION...] -- GUESTSCRIPT [ARG...]
#
# Boots a virtual machine, runs GUESTSCRIPT (a file of tests/vm, by name or path, or any other script) in it, and
# returns its exit status. Fails also when the kernel log shows trouble (scripts/log-check.sh: status 90), when the guest
# ends without an answer (91) or runs out of time (92). A machine of whose CPUs the emulator has lost one's timer is booted
# once more; its log is kept as console-lost.log. The guest has tests/vm in /tests, nrs.ko in /nrs.ko, and
# bash, busybox, fio, dmsetup, e2fsprogs. Results: console.log, guest.log (what the script printed), dmesg and the
# guest's /out, in build/vm/NAME.
#
#   --kernel K     stock or debug
#   --cpus N       virtual CPUs (default 2)        --mem M       MiB of memory (default 1024; debug 2048)
#   --timeout S    limit for the whole run (default 180; debug 420)
#   --icount       time counts instructions: repeatable, no KVM; one CPU, or more that take turns
#   --append ARGS  more kernel command line        --file HOST:GUEST  put a file or directory into the guest
#   --module FILE  another nrs.ko ("none": none)   --name NAME   name of the results (default KERNEL-SCRIPT)
#   --interactive  a shell on this terminal instead of GUESTSCRIPT, no time limit, no results
# NRS_QEMU: another program in place of qemu-system-x86_64.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

kernel='' cpus='' mem='' limit='' icount='' append='' module='' name='' interactive='' files=()
args=("$@")
while [ $# -gt 0 ]; do
	case $1 in
	--help | -h) usage && exit ;;
	--kernel) kernel=$2 && shift ;;
	--cpus) cpus=$2 && shift ;;
	--mem) mem=$2 && shift ;;
	--timeout) limit=$2 && shift ;;
	--icount) icount=1 ;;
	--append) append=$2 && shift ;;
	--file) files+=("$2") && shift ;;
	--module) module=$2 && shift ;;
	--name) name=$2 && shift ;;
	--interactive) interactive=1 ;;
	--) shift && break ;;
	-*) die "unknown option '$1', see --help" ;;
	*) break ;;
	esac
	shift
done
[ "$kernel" = stock ] || [ "$kernel" = debug ] || die "say --kernel stock or --kernel debug, see --help"
[ $# -gt 0 ] || [ -n "$interactive" ] || die "no guest script, see --help"

if [ -z "${NRS_IN_ROOT:-}" ]; then
	"$NRS_SCRIPTS/kernel.sh"
	[ "$kernel" = stock ] || "$NRS_SCRIPTS/debug-kernel.sh"
	exec "$NRS_SCRIPTS/in-root.sh" "$0" "${args[@]}"
fi

vars=$("$NRS_SCRIPTS/kernel.sh" --print)
eval "$vars"
image=$NRS_VMLINUZ modules=$NRS_MODULES release=$NRS_KREL
if [ "$kernel" = debug ]; then
	vars=$("$NRS_SCRIPTS/debug-kernel.sh" --print)
	eval "$vars"
	image=$NRS_DBG_BZIMAGE modules=$NRS_DBG_MODULES release=$NRS_DBG_REL
fi
mem=${mem:-$([ "$kernel" = debug ] && echo 2048 || echo 1024)}
limit=${limit:-$([ "$kernel" = debug ] && echo 420 || echo 180)}
module=${module:-$NRS_TOP/build/$kernel/nrs.stripped.ko}

# The guest's script: one of tests/vm goes by its name there, another is put in /guest.
script=''
if [ $# -gt 0 ]; then
	script=$1
	shift
	if [ -f "$NRS_TOP/tests/vm/$script" ]; then
		script=/tests/$script
	elif [ -f "$script" ] && [[ $(realpath "$script") = "$NRS_TOP/tests/vm/"* ]]; then
		script=/tests/$(realpath --relative-to="$NRS_TOP/tests/vm" "$script")
	elif [ -f "$script" ]; then
		files+=("$script:/guest/$(basename "$script")")
		script=/guest/$(basename "$script")
	else
		die "no guest script '$script', neither in tests/vm nor as a path"
	fi
fi
name=${name:-$kernel-$(basename "${script:-shell}" .sh)${icount:+-icount}}
out=$NRS_TOP/build/vm/$name
mkdir -p "$out"
exec {lockfd}>"$NRS_TOP/build/vm/$name.lock"
flock -n "$lockfd" || die "another run named $name is going on (--name gives this one another name)"
rm -rf "$out"
mkdir -p "$out/overlay"

# The changing part of the initramfs, appended to the cached one.
base=$("$NRS_SCRIPTS/initramfs.sh" "$release" "$modules")
overlay=$out/overlay
mkdir -p "$overlay"/{tests,guest}
cp -a "$NRS_TOP/tests/vm/." "$overlay/tests/"
install -m 755 "$NRS_TOP/tests/vm/init.sh" "$overlay/init"
if [ "$module" != none ]; then
	if [ -f "$module" ]; then cp "$module" "$overlay/nrs.ko"; else log "vm: no $module, the guest has no /nrs.ko"; fi
fi
for pair in "${files[@]}"; do
	mkdir -p "$overlay$(dirname "${pair#*:}")"
	cp -aL "${pair%%:*}" "$overlay${pair#*:}"
done
[ -z "$script" ] || { echo '#!/bin/bash' && printf '%q ' exec bash "$script" "$@" && echo; } >"$overlay/guest/run"
{ cat "$base" && (cd "$overlay" && find . | cpio -o -H newc --quiet); } >"$out/initramfs"
rm -rf "$overlay"

# la57=off: while the kernel reads its CPU's features, five-level paging makes KASAN see wild accesses.
if [ -n "$icount" ]; then
	accel=(-accel tcg,thread=single -icount shift=3,sleep=off -cpu max,la57=off) cpus=${cpus:-1}
elif "$NRS_SCRIPTS/kvm-usable.sh" "$NRS_VMLINUZ"; then
	accel=(-accel kvm -cpu host,la57=off)
else
	accel=(-accel tcg,thread=multi -cpu max,la57=off)
fi
cpus=${cpus:-2}
# watchdog_thresh: an emulated CPU may stand still for long on a busy host.
cmdline="console=ttyS0 panic=-1 cryptomgr.notests=1 watchdog_thresh=60 printk.devkmsg=on no_hash_pointers kasan_multi_shot"
# The allocator's per-CPU arrays keep stale pointers that hide leaks from kmemleak; its checks turn the arrays off.
[ "$kernel" = stock ] || cmdline+=" slab_debug=F,kmalloc-*"
cmdline+=" nrs.mode=${interactive:+shell} $append"
qemu=("${NRS_QEMU:-qemu-system-x86_64}" "${accel[@]}" -M pc -smp "$cpus" -m "$mem" -nodefaults -no-user-config -display none -no-reboot
	-kernel "$image" -initrd "$out/initramfs" -append "$cmdline")
if [ -n "$interactive" ]; then
	exec "${qemu[@]}" -serial mon:stdio
fi

# lost: whether a CPU of the machine gets no timer interrupts any more: the kernel says that a timer is long over, while the CPU
# whose it is waits for interrupts. QEMU 10.0's threads do that once in some hundred boots on a busy host, and nothing goes on then.
lost() {
	grep -q "kthread timer wakeup didn't happen" "$out/console.log" 2>/dev/null && grep -q 'RIP: .*native_safe_halt' "$out/console.log"
}

# boot: once, until the machine ends, its time is over, or a timer is lost.
boot() {
	local machine tail_pid
	truncate -s 256M "$out/result.img"
	: >"$out/guest.log"
	: >"$out/console.log"
	status=0
	tail -n +1 -s 0.2 -f "$out/guest.log" &
	tail_pid=$!
	timeout -k 5 "$limit" "${qemu[@]}" -serial "file:$out/console.log" -serial "file:$out/guest.log" \
		-drive "file=$out/result.img,format=raw,if=none,id=result,cache=unsafe" -device virtio-blk-pci,drive=result \
		</dev/null >"$out/qemu.log" 2>&1 &
	machine=$!
	while sleep 1 && kill -0 "$machine" 2>/dev/null; do
		if lost; then kill "$machine" || true; fi
	done
	wait "$machine" || status=$?
	sleep 0.3 # tail's last turn
	kill "$tail_pid" 2>/dev/null || true
	wait "$tail_pid" 2>/dev/null || true
}

log "vm: $kernel kernel $release, $cpus CPUs, ${accel[1]}${icount:+ icount}, $script, at most $limit s"
started=$(date +%s%N)
boot
if lost; then
	log "vm: the emulator lost the timer of a CPU, see $out/console-lost.log; once more"
	mv "$out/console.log" "$out/console-lost.log"
	boot
fi
seconds=$((($(date +%s%N) - started) / 100000000))
seconds=${seconds%?}.${seconds: -1}
rm -f "$out/initramfs"

# The answer: a tar archive on the result disk. Its last member is the exit status.
tar -C "$out" -xf "$out/result.img" 2>/dev/null || true
rm -f "$out/result.img"
guest=$(cat "$out/status" 2>/dev/null || echo none)
logs=("$out/console.log")
[ ! -f "$out/kmemleak" ] || logs+=("$out/kmemleak")
verdict=0
"$NRS_SCRIPTS/log-check.sh" "${logs[@]}" >"$out/trouble" || verdict=90
if [ "$status" = 124 ] || [ "$status" = 137 ]; then
	log "vm: no end within $limit s; the console's last lines:"
	tail -n 15 "$out/console.log" >&2
	verdict=92
elif [ "$guest" = none ]; then
	log "vm: the guest ended without an answer; the console's last lines:"
	tail -n 30 "$out/console.log" "$out/qemu.log" >&2
	verdict=91
elif [ "$guest" != 0 ]; then
	verdict=$guest
fi
if [ -s "$out/trouble" ]; then
	log "vm: trouble in the kernel log (first lines; all of it in $out):"
	head -n 12 "$out/trouble" >&2
fi
log "vm: $name: status $verdict after $seconds s, results in $out"
exit "$verdict"
