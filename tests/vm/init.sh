#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Process 1 of the test machine: mounts the file systems and runs /guest/run on the second serial
# line. Then writes a tar archive with /out, the kernel log and the exit status to the first disk.
# The first serial line only has the kernel log. The machine ends by a reset, at which the emulator
# exits, because the debug kernel has no ACPI to power off. With nrs.mode=disk, the system on the
# second disk has process 1; one of its units runs this script as "init answer".

# answer: Runs /guest/run, and writes the archive.
answer() {
	stty -F /dev/ttyS1 -onlcr 2>/dev/null
	cd /tests || exit 1
	bash /guest/run </dev/null >/dev/ttyS1 2>&1
	status=$?
	cd / || exit 1

	# Leaks: an object counts if it is older than five seconds and two scans did not find a
	# reference.
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
}
if [ "${1:-}" = answer ]; then
	answer
	exec systemctl reboot
fi

export PATH=/bin HOME=/root LC_ALL=C NRS_KO=/nrs.ko
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tmpfs run /run
mode=$(sed -n 's/.*nrs\.mode=\([a-z]*\).*/\1/p' /proc/cmdline)
if [ "$mode" = disk ]; then
	modprobe virtio_pci
	modprobe virtio_blk
	mount -o ro /dev/vdb /mnt
	mkdir /run/nrs
	cp -a /init /tests /guest /run/nrs
	for dir in proc sys dev run; do mount --move "/$dir" "/mnt/$dir"; done
	exec switch_root /mnt /sbin/init
fi
mkdir -p /dev/mapper /dev/shm /dev/pts
mount -t devpts devpts /dev/pts 2>/dev/null
mount -t tmpfs tmp /tmp
mount -t tmpfs shm /dev/shm
mount -t tmpfs out /out
mount -t debugfs debugfs /sys/kernel/debug
for module in virtio_pci virtio_blk configfs dm-mod; do modprobe -q "$module"; done
mount -t configfs configfs /sys/kernel/config
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for controller in io memory; do
	echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null
done
ln -sf /proc/self/fd /dev/fd
hostname nrs 2>/dev/null

if [ "$mode" = shell ]; then
	if [ -f /nrs.ko ]; then insmod /nrs.ko && echo "nrs.ko is loaded"; fi
	echo "The test machine's shell. 'reboot -f' ends it; Ctrl-A X ends the emulator."
	cd /tests && setsid -c bash -i </dev/ttyS0 >/dev/ttyS0 2>&1
	reboot -f
fi

answer
reboot -f
