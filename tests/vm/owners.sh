#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Whose a request is, where it is not simply that of a user's task: containers and servers that take other credentials.
. /tests/nrs.sh

# setup: a file on ext4 on a device, readable for all; nothing of it in memory.
setup() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	policy svc 'fairshare uid_fair'
	mkfs.ext4 -q /dev/mapper/a
	mkdir -p /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	dd if=/dev/zero of=/mnt/a/file bs=64k count=16 conv=fsync 2>/dev/null
	chmod 755 /mnt/a
	chmod 644 /mnt/a/file
}

# served UID: requests of the user that were dispatched.
served() {
	awk -v entity="\"uid:$1\"" '$2 == "entity:" { on = $3 == entity } on && $1 == "dispatched:" { n += $2 } END { print n + 0 }' \
		"$(at svc nrs_fairshare_stats)"
}

# reads PATH: reads it in 256 requests.
reads() {
	dd if="$1" of=/dev/null bs=4k count=256 iflag=direct 2>/dev/null
}

# Through an overlay, whose file system is read with the credentials of whoever mounted it.
overlaid() {
	setup
	modprobe overlay
	mkdir -p /mnt/empty /mnt/both
	mount -t overlay overlay -o lowerdir=/mnt/a:/mnt/empty /mnt/both
	local before
	before=$(served 0)
	setpriv --reuid 2001 --clear-groups bash -c "$(declare -f reads); reads /mnt/both/file"
	[ "$(served 2001)" -ge 256 ] || fail "uid 2001: $(served 2001) requests, uid 0: $before before, $(served 0) after"
	[ "$(served 0)" -lt $((before + 16)) ] || fail "uid 0: $before requests before, $(served 0) after"
	umount /mnt/both
}

# Threads of io_uring have the credentials of their task.
ringed() {
	setup
	load a as=2002 --ioengine=io_uring --force_async=1 --number_ios=256 >/dev/null
	[ "$(served 2002)" -ge 256 ] || fail "uid 2002: $(served 2002) requests"
}

# A user's namespace has other numbers.
spaced() {
	setup
	setpriv --reuid 2003 --clear-groups unshare --user --map-root-user bash -c "$(declare -f reads); reads /mnt/a/file"
	[ "$(served 2003)" -ge 256 ] || fail "uid 2003: $(served 2003) requests"
}

# exported: the file system, by the NFS server of the kernel, over the loopback; nobody but this script answers its questions.
exported() {
	local rpc=/proc/net/rpc never=2000000000
	modprobe -a nfsd nfsv4
	ip link set lo up
	[ -e /proc/fs/nfsd/threads ] || mount -t nfsd nfsd /proc/fs/nfsd
	echo -3 >/proc/fs/nfsd/versions
	# The least; clients wait for its end.
	echo 10 >/proc/fs/nfsd/nfsv4gracetime
	echo 'tcp 2049' >/proc/fs/nfsd/portlist
	echo 2 >/proc/fs/nfsd/threads
	# The client 127.0.0.1 may use /mnt/a, which has number 0: the root of NFSv4. The flags: any port, no subtree check, a number.
	echo "nfsd 127.0.0.1 $never local" >$rpc/auth.unix.ip/channel
	echo "local /mnt/a $never $((0x2402)) 65534 65534 0" >$rpc/nfsd.export/channel
	echo "local 1 \\x00000000 $never /mnt/a" >$rpc/nfsd.fh/channel
	mkdir -p /mnt/nfs
	mount -t nfs4 -o addr=127.0.0.1,clientaddr=127.0.0.1,proto=tcp,port=2049,vers=4.2,sec=sys 127.0.0.1:/ /mnt/nfs
}

# By the server of the kernel, for users of its clients.
remote() {
	setup
	exported
	# The server reads through the page cache.
	echo 3 >/proc/sys/vm/drop_caches
	setpriv --reuid 2004 --clear-groups bash -c "$(declare -f reads); reads /mnt/nfs/file"
	umount /mnt/nfs
	echo 0 >/proc/fs/nfsd/threads
	[ "$(served 2004)" -gt 0 ] || fail "$(cat "$(at svc nrs_fairshare_stats)")"
}

try 30 "an overlay: the task's user" overlaid
try 30 "io_uring: the task's user" ringed
try 30 "a user namespace: the user outside" spaced
long try 90 "NFS: the user of the client" remote
summary
