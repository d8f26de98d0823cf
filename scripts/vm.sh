#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/vm.sh --kernel stock|SERIES|debug [OPTION...] -- GUESTSCRIPT [ARG...]
#
# Boots a virtual machine, runs GUESTSCRIPT (a file of tests/vm, by name or path, or any other
# script) in it, and returns its exit status. Also fails if the kernel log contains errors
# (scripts/log-check.sh: status 90), if the guest ends without a result (91), or if it exceeds the
# time limit (92).
#
# If the emulator loses the timer of a CPU, the machine is booted once more; the first log is kept
# as console-lost.log. If the kernel finds the timers wrong at boot, the machine is booted up to
# four times more.
#
# The guest has tests/vm in /tests, nrs.ko in /nrs.ko, and bash, busybox, fio, dmsetup, e2fsprogs.
# Results are in build/vm/NAME: console.log, guest.log (output of the script), dmesg and the guest's
# /out. The stock kernel runs on a PC. The debug kernel, which has neither PCI nor ACPI, runs on
# QEMU's microvm: the disk is a memory-mapped virtio device, and the second serial line is an ISA
# card.
#
#   --kernel K     stock, a series of scripts/kernel.sh such as 7.2 or 7.3-rt, or debug
#   --cpus N       virtual CPUs (default 2)
#   --mem M        memory, MiB (default 1024; debug 2048)
#   --timeout S    time limit of the whole run, seconds (default 180; debug 420)
#   --icount       time counts instructions: repeatable, no KVM; one CPU, or more that take turns
#   --icount-or-kvm  KVM if it works, otherwise as --icount
#   --append ARGS  append to the kernel command line
#   --file HOST:GUEST  copy a file or directory into the guest
#   --module FILE  use another nrs.ko ("none": no module)
#   --name NAME    name of the results (default KERNEL-SCRIPT)
#   --disk IMAGE   add a disk, /dev/disk/by-id/virtio-NAME for IMAGE NAME.img. The first one, ext4,
#                  contains the system that is booted instead of the guest above; it runs
#                  "/run/nrs/init answer" after its start
#   --net OWN:PEER add a network card, connected only to the card of the machine with
#                  --net PEER:OWN, which is started from the same checkout
#   --more         add git, sqlite3, dbench, fs_mark, stress-ng and XFS to the guest
# NRS_QEMU: program to run instead of qemu-system-x86_64.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$NRS_SCRIPTS/guest.sh"

icount='' either='' append='' disks=() net='' more=''
while [ $# -gt 0 ]; do
	case $1 in
	--help | -h) usage && exit ;;
	--icount) icount=1 ;;
	--icount-or-kvm) icount=1 either=1 ;;
	--append) append=$2 && shift ;;
	--disk) disks+=("$2") && shift ;;
	--net) net=$2 && shift ;;
	--more) more=1 ;;
	--) shift && break ;;
	-*) guest_option "$@" && shift ;;
	*) break ;;
	esac
	shift
done
[ $# -gt 0 ] || die "no guest script, see --help"
guest_kernel
guest_results 180 420 "$kernel-$(basename "$1" .sh)${icount:+-icount}"
mkdir "$out/overlay"

# The variable part of the initramfs, appended to the cached part.
base=$("$NRS_SCRIPTS/initramfs.sh" "$release" "$modules")
overlay=$out/overlay
guest_tree "$overlay" "$module" "${files[@]}" -- "$@"
{
	cat "$base/base.cpio" ${more:+"$base/more.cpio"}
	(cd "$overlay" && find . | cpio -o -H newc --quiet)
} >"$out/initramfs"
rm -rf "$overlay"

if [ -n "$either" ] && "$NRS_SCRIPTS/kvm-usable.sh" "$NRS_VMLINUZ"; then icount=''; fi
# la57=off: with five-level paging, KASAN reports wild accesses while the kernel reads the features
# of its CPU.
if [ -n "$icount" ]; then
	accel=(-accel tcg,thread=single -icount shift=3,sleep=off -cpu max,la57=off) cpus=${cpus:-1}
elif "$NRS_SCRIPTS/kvm-usable.sh" "$NRS_VMLINUZ"; then
	accel=(-accel kvm -cpu host,la57=off)
else
	accel=(-accel tcg,thread=multi -cpu max,la57=off)
fi
cpus=${cpus:-2}
# watchdog_thresh: an emulated CPU may stall for long on a busy host.
cmdline="console=ttyS0 panic=-1 cryptomgr.notests=1 watchdog_thresh=60 printk.devkmsg=on"
cmdline+=" no_hash_pointers kasan_multi_shot"
if [ "$kernel" = debug ]; then
	# Stale pointers in the allocator's per-CPU arrays hide leaks from kmemleak; the allocator's
	# checks disable the arrays.
	cmdline+=" slab_debug=F,kmalloc-*"
	machine_type=microvm,acpi=off disk=virtio-blk-device
	guest_line=(
		-chardev "file,id=guest,path=$out/guest.log" -device isa-serial,index=1,chardev=guest
	)
	# A triple fault resets the machine. To calibrate or watch the time stamp counter, the machine
	# only has a timer that is late on a busy host.
	cmdline+=" reboot=t tsc=reliable"
	[ "${accel[1]}" != tcg,thread=multi ] || cmdline+=" tsc_early_khz=$("$NRS_SCRIPTS/tsc-khz.sh")"
else
	machine_type=pc disk=virtio-blk-pci
	guest_line=(-serial "file:$out/guest.log")
fi
mode=${disks:+disk}
cmdline+=" nrs.mode=$mode $append"
drives=()
for image_file in "${disks[@]}"; do
	id=$(basename "$image_file" .img)
	drives+=(
		-drive "file=$image_file,format=raw,if=none,id=$id,cache=unsafe"
		-device "$disk,drive=$id,serial=$id"
	)
done
card=()
if [ -n "$net" ]; then
	wire=$NRS_TOP/build/vm/net
	mac=$(md5sum <<<"${net%:*}" | sed -E 's/^(..)(..)(..).*/52:54:00:\1:\2:\3/')
	remote=remote.type=unix,remote.path=$wire-${net#*:}
	card=(-netdev "dgram,id=net,local.type=unix,local.path=$wire-${net%:*},$remote"
		-device "virtio-net-pci,netdev=net,mac=$mac,romfile=")
fi
qemu=("${NRS_QEMU:-qemu-system-x86_64}" "${accel[@]}" -M "$machine_type" -smp "$cpus" -m "$mem"
	-nodefaults -no-user-config -display none -no-reboot
	-kernel "$image" -initrd "$out/initramfs" -append "$cmdline" "${card[@]}")

# lost: Returns true if a CPU of the machine has lost its timer interrupts: the kernel logs an
# overdue timer, while the CPU waits for interrupts. QEMU 10.0 with several threads loses a timer
# once in some hundred boots on a busy host, and the machine then hangs.
lost() {
	grep -q "kthread timer wakeup didn't happen" "$out/console.log" 2>/dev/null &&
		grep -q 'RIP: .*native_safe_halt' "$out/console.log"
}

# unsteady: Returns true if the kernel has found the CPUs' timers wrong at boot and has disabled
# them. The kernel compares them with the only other timer of the microvm, which loses ticks on a
# busy host.
unsteady() {
	grep -q 'APIC timer disabled due to verification failure' "$out/console.log" 2>/dev/null
}

# boot: Boots the machine once, until it ends, its time limit expires, or a timer is lost or
# unsteady.
boot() {
	local machine copy
	truncate -s 256M "$out/result.img"
	: >"$out/guest.log"
	: >"$out/console.log"
	status=0
	timeout -k 5 "$limit" "${qemu[@]}" -serial "file:$out/console.log" "${guest_line[@]}" \
		-drive "file=$out/result.img,format=raw,if=none,id=result,cache=unsafe" \
		-device "$disk,drive=result" "${drives[@]}" </dev/null >"$out/qemu.log" 2>&1 &
	machine=$!
	tail -n +1 -s 0.2 --pid "$machine" -f "$out/guest.log" | stamped "$machine" &
	copy=$!
	while sleep 1 && kill -0 "$machine" 2>/dev/null; do
		if lost || unsteady; then kill "$machine" || true; fi
	done
	wait "$machine" || status=$?
	wait "$copy"
}

log "vm: $kernel kernel $release, $cpus CPUs, ${accel[1]}${icount:+ icount}, $1," \
	"at most $limit s"
started=$(date +%s%N)
boot
for again in 1 2 3 4; do
	unsteady || break
	log "vm: the kernel disabled the CPUs' timers at boot; boot $((again + 1))"
	boot
done
if lost; then
	log "vm: the emulator lost the timer of a CPU, see $out/console-lost.log; once more"
	mv "$out/console.log" "$out/console-lost.log"
	boot
fi
seconds=$((($(date +%s%N) - started) / 100000000))
seconds=${seconds%?}.${seconds: -1}
rm -f "$out/initramfs"

# Result of the guest: a tar archive on the result disk. Its last member is the exit status.
tar -C "$out" -xf "$out/result.img" 2>/dev/null || true
rm -f "$out/result.img"
guest=$(cat "$out/status" 2>/dev/null || echo none)
verdict=0
guest_log "$out" || verdict=$?
if [ "$status" = 124 ] || [ "$status" = 137 ]; then
	log "vm: no result within $limit s; last lines of the console:"
	tail -n 15 "$out/console.log" >&2
	verdict=92
elif [ "$guest" = none ]; then
	log "vm: the guest ended without a result; last lines of the console:"
	tail -n 30 "$out/console.log" "$out/qemu.log" >&2
	verdict=91
elif [ "$guest" != 0 ]; then
	verdict=$guest
fi
log "vm: $name: status $verdict after $seconds s, results in $out"
exit "$verdict"
