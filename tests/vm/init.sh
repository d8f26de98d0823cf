#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Process 1 of the test machine: mounts, runs /guest/run on the second serial line, and leaves on the first disk a tar
# archive with /out, the kernel's log and the exit status. The kernel's log alone is on the first serial line. It ends
# the machine by a reset, at which the emulator stops: the debug kernel has no ACPI to switch the power off.
export PATH=/bin HOME=/root LC_ALL=C NRS_KO=/nrs.ko
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/mapper /dev/shm /dev/pts
mount -t devpts devpts /dev/pts 2>/dev/null
mount -t tmpfs tmp /tmp
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t tmpfs out /out
mount -t debugfs debugfs /sys/kernel/debug
for module in virtio_pci virtio_blk configfs dm-mod; do modprobe -q "$module"; done
mount -t configfs configfs /sys/kernel/config
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for controller in io memory; do echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; done
ln -sf /proc/self/fd /dev/fd
hostname nrs 2>/dev/null

mode=$(sed -n 's/.*nrs\.mode=\([a-z]*\).*/\1/p' /proc/cmdline)
if [ "$mode" = shell ]; then
	if [ -f /nrs.ko ]; then insmod /nrs.ko && echo "nrs.ko is loaded"; fi
	echo "The test machine's shell. 'reboot -f' ends it; Ctrl-A X ends the emulator."
	cd /tests && setsid -c bash -i </dev/ttyS0 >/dev/ttyS0 2>&1
	reboot -f
fi

stty -F /dev/ttyS1 -onlcr 2>/dev/null
cd /tests || exit 1
bash /guest/run </dev/null >/dev/ttyS1 2>&1
status=$?
cd / || exit 1

# Leaks: an object counts when it is older than five seconds and two scans did not find it.
if [ -w /sys/kernel/debug/kmemleak ] && ! grep -q nrs.kmemleak=0 /proc/cmdline; then
	echo scan >/sys/kernel/debug/kmemleak
	sleep 5.5
	echo scan >/sys/kernel/debug/kmemleak
	cat /sys/kernel/debug/kmemleak >/kmemleak
fi
dmesg >/dmesg
echo "$status" >/status
files="dmesg out status"
[ ! -s /kmemleak ] || files="kmemleak $files"
# shellcheck disable=SC2086
tar -C / -cf - $files | dd of=/dev/vda bs=64k conv=fsync 2>/dev/null
reboot -f
