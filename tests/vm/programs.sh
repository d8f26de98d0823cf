#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Programs that exit with data in the page cache: the kernel writes it back for them when they have no namespaces any more.
. /tests/nrs.sh

# mounted [WORD...]: ext4 on client a; the words go into the table.
mounted() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc "$@"
	mkfs.ext4 -q /dev/mapper/a
	mkdir -p /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
}

# A shell exits with its output in a file that it has truncated: the last close comes after exit_nsproxy_namespaces.
unflushed() {
	mounted "$@"
	local i
	for i in 1 2 3; do
		echo x >/mnt/a/f
		bash -c 'exec >/mnt/a/f; printf %9000s x'
		[ "$(wc -c </mnt/a/f)" = 9000 ]
	done
	umount /mnt/a
	e2fsck -fn /dev/mapper/a >/tmp/fsck.txt 2>&1 || fail "$(tail -n 5 /tmp/fsck.txt)"
}

# A killed writer of a file that is gone, and of the block device: its last closes come as late.
killed() {
	mounted "$@"
	bash -c 'exec 3>/mnt/a/g; rm /mnt/a/g; head -c 100000 /dev/zero >&3; kill -KILL $$' || true
	umount /mnt/a
	e2fsck -fn /dev/mapper/a >/tmp/fsck.txt 2>&1 || fail "$(tail -n 5 /tmp/fsck.txt)"
	head -c 1048576 /dev/urandom >/tmp/written
	bash -c 'exec 3<>/dev/mapper/a; cat /tmp/written >&3; kill -KILL $$' || true
	cmp -n 1048576 /tmp/written /dev/mapper/a
	dm_remove a
}

for words in '' 'jobid_name %h.%e'; do
	# shellcheck disable=SC2086 # words of a table
	try 30 "a shell exits with unflushed output${words:+, $words}" unflushed $words
	# shellcheck disable=SC2086
	try 30 "a writer is killed${words:+, $words}" killed $words
done
summary
