#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Process 1 of the test machine: mounts the file systems and runs /guest/run on the second serial
# line. Then writes a tar archive with /out, the kernel log and the exit status to the first disk.
# The first serial line only has the kernel log. The machine ends by a reset, at which the emulator
# exits, because the debug kernel has no ACPI to power off. With nrs.mode=disk, the system on the
# second disk has process 1; one of its units runs this script as "init answer". Under virtme-ng,
# which has process 1 and runs "init virtme" or "init shell", results stay in the root, a directory
# of the host.

# leaks: Writes what kmemleak finds: an object counts if it is older than five seconds and two scans
# did not find a reference.
leaks() {
	if [ -w /sys/kernel/debug/kmemleak ] && ! grep -q nrs.kmemleak=0 /proc/cmdline; then
		echo scan >/sys/kernel/debug/kmemleak
		sleep 5.5
		echo scan >/sys/kernel/debug/kmemleak
		cat /sys/kernel/debug/kmemleak >/kmemleak
	fi
}

# answer: Runs /guest/run, and writes the archive.
answer() {
	stty -F /dev/ttyS1 -onlcr 2>/dev/null
	cd /tests || exit 1
	bash /guest/run </dev/null >/dev/ttyS1 2>&1
	status=$?
	cd / || exit 1

	leaks
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

# mounted TYPE DIR: Mounts a file system of that type, unless one is there.
mounted() {
	mkdir -p "$2" && { grep -q " $2 " /proc/mounts || mount -t "$1" "$1" "$2" 2>/dev/null; }
}

# prepare: Mounts what the tests need, and loads the modules of their devices.
prepare() {
	local module controller
	mkdir -p /dev/mapper
	mounted devpts /dev/pts
	mounted tmpfs /tmp
	mounted tmpfs /dev/shm
	mounted debugfs /sys/kernel/debug
	for module in virtio_pci virtio_blk configfs dm-mod; do modprobe -q "$module"; done
	mounted configfs /sys/kernel/config
	mounted cgroup2 /sys/fs/cgroup
	for controller in io memory; do
		echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null
	done
	ln -sfn /proc/self/fd /dev/fd
	hostname nrs 2>/dev/null
}

export PATH=/bin HOME=/root LC_ALL=C NRS_KO=/nrs.ko
case ${1:-} in
shell)
	prepare
	[ ! -f /nrs.ko ] || insmod /nrs.ko
	cd /tests && bash
	reboot -f
	;;
virtme)
	prepare
	cd /tests || exit 1
	bash /guest/run </dev/null 2>&1
	status=$?
	leaks
	dmesg >/dmesg
	echo "$status" >/dev/virtio-ports/virtme.ret
	reboot -f
	;;
esac
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
mount -t tmpfs out /out
prepare
answer
reboot -f
