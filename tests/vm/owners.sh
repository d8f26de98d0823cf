#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: owners.sh [FUNCTION...]
#
# Owner of requests that a user's task does not submit directly: containers, servers that assume
# other credentials, and kernel threads without credentials.
. /tests/nrs.sh

only=$*

# setup: Creates a file on ext4 on a device, readable for all, and not cached.
setup() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	policy svc 'fairshare uid_fair'
	mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/mapper/a
	mkdir -p /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	dd if=/dev/zero of=/mnt/a/file bs=64k count=16 conv=fsync 2>/dev/null
	chmod 755 /mnt/a
	chmod 644 /mnt/a/file
}

# served ID [LEVEL]: Prints the dispatched requests of the user, or of that gid.
served() {
	awk -v entity="\"${2:-uid}:$1\"" \
		'$2 == "entity:" { on = $3 == entity } on && $1 == "dispatched:" { n += $2 }
			END { print n + 0 }' "$(at svc nrs_fairshare_stats)"
}

# reads PATH: Reads the file in 256 requests.
reads() {
	dd if="$1" of=/dev/null bs=4k count=256 iflag=direct 2>/dev/null
}

# Verifies an overlay, whose lower file system is read with the credentials of the user who mounted
# it.
overlaid() {
	setup
	modprobe overlay
	mkdir -p /mnt/empty /mnt/both
	mount -t overlay overlay -o lowerdir=/mnt/a:/mnt/empty /mnt/both
	local before
	before=$(served 0)
	setpriv --reuid 2001 --clear-groups bash -c "$(declare -f reads); reads /mnt/both/file"
	[ "$(served 2001)" -ge 256 ] ||
		fail "uid 2001: $(served 2001) requests, uid 0: $before before, $(served 0) after"
	[ "$(served 0)" -lt $((before + 16)) ] ||
		fail "uid 0: $before requests before, $(served 0) after"
	umount /mnt/both
}

# Verifies that io_uring threads have the credentials of their task, and are in its job.
ringed() {
	setup
	load a as=2002 --ioengine=io_uring --force_async=1 --number_ios=256 >/dev/null
	[ "$(served 2002)" -ge 256 ] || fail "uid 2002: $(served 2002) requests"
	load a as=2012 --ioengine=io_uring --sqthread_poll=1 --number_ios=256 >/dev/null
	[ "$(served 2012)" -ge 256 ] || fail "uid 2012: $(served 2012) requests"
	policy svc 'fairshare jobid_fair'
	load a as=2014 --ioengine=io_uring --force_async=1 --number_ios=256 >/dev/null
	load a as=2014 --ioengine=io_uring --sqthread_poll=1 --number_ios=256 >/dev/null
	[ "$(served fio.2014 jobid)" -ge 512 ] || fail "$(dispatched)"
}

# Verifies a user namespace, which has other numbers.
spaced() {
	setup
	setpriv --reuid 2003 --clear-groups unshare --user --map-root-user bash \
		-c "$(declare -f reads); reads /mnt/a/file"
	[ "$(served 2003)" -ge 256 ] || fail "uid 2003: $(served 2003) requests"
}

# mapped UID MAP COMMAND...: Runs a command in a user namespace that the user creates and the caller
# maps.
mapped() {
	local file
	# shellcheck disable=SC2016
	setpriv --reuid "$1" --regid "$1" --clear-groups unshare --user --keep-caps \
		bash -c 'until grep -q . /proc/$$/gid_map; do sleep 0.05; done; exec "$@"' - "${@:3}" &
	# shellcheck disable=SC2016
	wait_for 10 '[ "$(readlink /proc/$!/ns/user)" != "$(readlink /proc/self/ns/user)" ]'
	for file in uid_map gid_map; do echo "$2" >/proc/$!/$file; done
	wait $!
}

# all_read ID...: Reads the file once as each of the users, with their groups.
all_read() {
	local id
	for id; do
		setpriv --reuid "$id" --regid "$id" --clear-groups bash -c 'reads /mnt/a/file'
	done
}

# Verifies that requests with subordinate ids belong to the user who created the namespace, and that
# ids that root maps are users.
subordinate() {
	local level all='' id
	setup
	declare -fx reads all_read mapped
	for level in uid gid; do
		policy svc "fairshare ${level}_fair"
		mapped 2013 '0 100000 65536' bash -c 'all_read 0 5 6'
		mapped 0 '0 200000 65536' bash -c 'all_read 5 6'
		mapped 0 '0 200000 65536' setpriv --reuid 0 --regid 0 --clear-groups \
			bash -c ". /tests/lib.sh; mapped 7 '0 1000 1000' bash -c 'all_read 5 6'"
		for id in 2013 200005 200006 200007 100000 100005 100006 201005 201006; do
			all+=" $level:$id=$(($(served $id $level) / 256))"
		done
	done
	say "$all"
	[ "$all" = "$(for level in uid gid; do
		printf " $level:%s" 2013=3 200005=1 200006=1 200007=2 100000=0 100005=0 100006=0 \
			201005=0 201006=0
	done)" ]
}

# as UID COMMAND...: Runs a command, or a function of this script, as that user.
as() {
	setpriv --reuid "$1" --clear-groups bash -c "$(declare -f reads)"$'\n"$@"' - "${@:2}"
}

# Verifies that a setuid program of root counts as root, which also owns its files; and that a
# server that assumes a user's id counts as the user.
elevated() {
	setup
	cp /bin/fio /tmp/suid
	chmod 4755 /tmp/suid
	local before what=(
		--filename=/mnt/a/file --rw=read --bs=4k --direct=1 --number_ios=256 --name=a --minimal
	)
	before=$(served 0)
	as 2005 /tmp/suid "${what[@]}" >/dev/null
	[ "$(served 0)" -ge $((before + 256)) ] ||
		fail "suid: uid 0: $before requests before, $(served 0) after"
	[ "$(served 2005)" = 0 ] || fail "suid: uid 2005: $(served 2005) requests"
	setpriv --euid 2006 fio "${what[@]}" >/dev/null
	[ "$(served 2006)" -ge 256 ] || fail "seteuid: uid 2006: $(served 2006) requests"
	rm /tmp/suid
}

# gained UID REQUESTS COMMAND...: Fails unless the command adds about REQUESTS requests of the user,
# and none that the client counts as anonymous.
gained() {
	local uid=$1 wanted=$2 before anonymous got
	shift 2
	# Earlier writes are not requests of the command.
	sync
	before=$(served "$uid") anonymous=$(counter a anonymous)
	"$@"
	got=$(($(served "$uid") - before)) anonymous=$(($(counter a anonymous) - anonymous))
	say "$*: uid $uid: $got requests; anonymous: $anonymous"
	[ "$got" -ge $((wanted * 9 / 10)) ] && [ "$got" -lt $((wanted * 11 / 10 + 64)) ] ||
		fail "$(cat "$(at svc nrs_fairshare_stats)")"
	[ "$anonymous" -lt 16 ] || fail "$(status a)"
}

# writes PATH: Writes over the file in 256 requests.
writes() {
	dd if=/dev/zero of="$1" bs=4k count=256 oflag=direct conv=notrunc 2>/dev/null
}

# dispatched: Prints the dispatched requests of each entity.
dispatched() {
	awk '$2 == "entity:" { who = $3 } $1 == "dispatched:" { n[who] += $2 }
		END { for (who in n) print who, n[who] }' "$(at svc nrs_fairshare_stats)"
}

# belongs ENTITY COMMAND...: Verifies that most requests of the command belong to the entity; for
# one without a user, that the client counts them as anonymous, or as known by their cgroup.
belongs() {
	local want=$1 who count kind='' before
	shift
	case $want in uid:absent*) kind=anonymous ;; cgroup:*) kind=by_cgroup ;; esac
	sync
	# The counters of an entity that was idle for long restart at 0.
	set_to svc nrs_fairshare_stats_reset 1
	before=$(counter a "${kind:-held}")
	"$@"
	read -r who count < <(dispatched | sort -k 2n | tail -n 1)
	say "$*: $count requests of $who"
	[ "$who" = "\"$want\"" ] || fail "not $want: $(dispatched)"
	[ -z "$kind" ] || [ $(($(counter a $kind) - before)) -ge "$count" ] ||
		fail "$kind: $before before, $(counter a $kind) after"
}

# flushed COMMAND...: Runs a command, and lets the kernel write all dirty data back; sync would
# write a part of it itself.
flushed() {
	"$@"
	echo 1 >/proc/sys/vm/dirty_expire_centisecs
	echo 10 >/proc/sys/vm/dirty_writeback_centisecs
	wait_for 20 "awk '/^(Dirty|Writeback):/ { n += \$2 } END { exit n > 0 }' /proc/meminfo"
	echo 3000 >/proc/sys/vm/dirty_expire_centisecs
	echo 500 >/proc/sys/vm/dirty_writeback_centisecs
}

# in_group UID COMMAND...: Runs a command, or a function of this script, as that user, in the cgroup
# test.UID.
in_group() {
	bash -c 'echo $$ >"$1" && shift && exec "$@"' - "/sys/fs/cgroup/test.$1/cgroup.procs" \
		setpriv --reuid "$1" --clear-groups bash -c "$(declare -f reads writes changes)"$'\n"$@"' \
		- "${@:2}"
}

# changes PATH [OPTION...]: Writes over the file in 1 MiB through the page cache.
changes() {
	dd if=/dev/zero of="$1" bs=64k count=16 conv=notrunc "${@:2}" 2>/dev/null
}

# grouped: Creates the client a of the service svc, and cgroups of the users 2007 and 2008. Sets
# $user and $other to these users' entities; $none to the one without owner; and $thread to the one
# of a kernel thread that works for the first user's cgroup, which only the I/O scheduler knows. If
# the other user writes data of that cgroup, the I/O scheduler charges the cgroup.
grouped() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	policy svc 'fairshare uid_then_cgroup_fair'
	mkdir -p /sys/fs/cgroup/test.{2007,2008}
	local group=cgroup:/test.2007
	user=uid:2007/$group none=uid:absent/cgroup:absent thread=$group/$group other=$group/$group
	[ "$front" != dm ] || thread=$none other=uid:2008/cgroup:/test.2008
}

# layer NAME TABLE READER WRITER: Creates a device-mapper device, and verifies the owners of reads
# and writes by user 2007.
layer() {
	dm_create "$1" "0 $2"
	chmod 666 "/dev/mapper/$1"
	belongs "$4" in_group 2007 writes "/dev/mapper/$1"
	belongs "$3" in_group 2007 reads "/dev/mapper/$1"
}

# Verifies layers between a user and nrs.
between() {
	local i m=/dev/mapper/m mode
	grouped
	modprobe -a dm-crypt crypto_null loop raid456 raid1 dm-raid dm-integrity dm-thin-pool \
		dm-snapshot
	for i in 0 1 2 3; do dm_create m$i "0 16384 linear /dev/mapper/a $((i * 16384))"; done
	layer crypt "16384 crypt cipher_null-ecb - 0 ${m}0 0" "$user" "$thread"
	layer inline "16384 crypt cipher_null-ecb - 0 ${m}0 0 2 no_read_workqueue no_write_workqueue" \
		"$user" "$user"
	layer raid1 "16384 raid raid1 2 0 nosync 2 - ${m}0 - ${m}1" "$user" "$user"
	layer bitmap "16384 raid raid1 2 0 nosync 2 ${m}2 ${m}0 ${m}3 ${m}1" "$user" "$thread"
	layer raid5 "32768 raid raid5_ls 2 64 nosync 3 - ${m}0 - ${m}1 - ${m}2" "$user" "$none"
	for i in crypt inline raid1 bitmap raid5; do dm_remove $i; done
	for mode in D J; do
		dd if=/dev/zero of=${m}0 bs=4k count=1 2>/dev/null
		# The first table formats the device.
		dm_create i "0 1 integrity ${m}0 0 4 $mode 1 internal_hash:sha256"
		dm_remove i
		layer i "8192 integrity ${m}0 0 4 $mode 1 internal_hash:sha256" "$none" \
			"$([ $mode = D ] && echo "$user" || echo "$none")"
		dm_remove i
	done
	dd if=/dev/zero of=${m}0 bs=4k count=1 2>/dev/null
	dm_create pool "0 16384 thin-pool ${m}0 ${m}1 128 0"
	dm message pool 0 create_thin 0
	dm_create thin "0 16384 thin /dev/mapper/pool 0"
	chmod 666 /dev/mapper/thin
	belongs "$thread" in_group 2007 changes /dev/mapper/thin oflag=direct
	belongs "$user" in_group 2007 writes /dev/mapper/thin
	dm_remove thin
	dm_remove pool
	dm_create origin "0 16384 snapshot-origin ${m}0"
	dm_create snap "0 16384 snapshot ${m}0 ${m}1 N 8"
	chmod 666 /dev/mapper/origin
	# Each write makes two of a thread for the copy.
	belongs "$none" in_group 2007 writes /dev/mapper/origin
	belongs "$user" in_group 2007 writes /dev/mapper/origin
	dm_remove snap
	dm_remove origin
	looped ${m}0
	belongs "$thread" in_group 2007 reads /dev/loop0
	belongs "$thread" in_group 2007 writes /dev/loop0
	losetup -d /dev/loop0
	losetup --direct-io=off /dev/loop0 ${m}0
	echo 3 >/proc/sys/vm/drop_caches
	belongs "$thread" in_group 2007 reads /dev/loop0
	belongs "$none" flushed in_group 2007 writes /dev/loop0
	losetup -d /dev/loop0
}

# Verifies that data in the page cache belong to the cgroup that has dirtied the file first.
cached() {
	local i
	grouped
	mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/mapper/a
	mkdir -p /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	dd if=/dev/zero of=/mnt/a/file bs=64k count=16 conv=fsync 2>/dev/null
	chmod 666 /mnt/a/file
	belongs "$none" flushed in_group 2007 changes /mnt/a/file
	umount /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	belongs "$thread" flushed in_group 2007 changes /mnt/a/file
	for i in 1 2 3; do belongs "$thread" flushed in_group 2008 changes /mnt/a/file; done
	belongs "$other" in_group 2008 changes /mnt/a/file conv=fsync
	umount /mnt/a
}

# handed_on: Lets user 2008 write a page of a file that user 2007 has changed, and then all of it.
handed_on() {
	in_slice 2007 "${how[@]}" changes /mnt/a/file
	in_slice 2008 dd if=/dev/zero of=/mnt/a/file bs=4k count=1 conv=notrunc,fsync 2>/dev/null
}

# Verifies the user of a slice of systemd, where only the cgroup is known: kernel threads of a loop
# device, and writeback, by a flusher or by the fsync of another user.
sliced() {
	local front=elevator how=(bash -c "$(declare -f reads writes changes)"$'\n"$@"' -)
	slices 2007 2008
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	policy svc 'fairshare uid_fair'
	looped /dev/mapper/a
	belongs uid:2007 in_slice 2007 "${how[@]}" writes /dev/loop0
	belongs uid:2007 in_slice 2007 "${how[@]}" reads /dev/loop0
	[ "$(counter a by_cgroup)" -ge 512 ] || fail "$(status)"
	losetup -d /dev/loop0
	mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/mapper/a
	mkdir -p /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	dd if=/dev/zero of=/mnt/a/file bs=64k count=16 conv=fsync 2>/dev/null
	chmod 666 /mnt/a/file
	umount /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	belongs uid:2007 flushed in_slice 2007 "${how[@]}" changes /mnt/a/file
	belongs uid:2007 handed_on
	# Cgroups that the user makes are no further groups.
	policy svc 'fairshare gid_fair'
	belongs cgroup:/user.slice/user-2007.slice \
		flushed in_slice 2007 "${how[@]}" changes /mnt/a/file
	umount /mnt/a
}

# boxed CGROUP UID COMMAND...: Runs a command as that user in a cgroup of the container.
boxed() {
	# shellcheck disable=SC2016
	bash -c 'echo $$ >"$1" && shift && exec "$@"' - \
		"/sys/fs/cgroup/user.slice/box/$1/cgroup.procs" \
		setpriv --reuid "$2" --clear-groups bash \
		-c "$(declare -f reads writes changes)"$'\n"$@"' - "${@:3}"
}

# Verifies that all requests of a container have the owner in the map, whichever users its tasks
# have, with writeback; and that a changed map counts at once.
named() {
	local box=/sys/fs/cgroup/user.slice/box
	slices 2007
	mkdir $box
	echo '+io +memory' >$box/cgroup.subtree_control
	mkdir $box/{one,two}
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	policy svc 'fairshare uid_fair'
	set_to svc nrs_owners '/user.slice/b?x=33:44 /user.slice/user-2007.slice=34:45'
	belongs uid:33 boxed one 2009 writes /dev/mapper/a
	belongs uid:33 boxed two 0 reads /dev/mapper/a
	[ "$(counter a by_map)" -ge 512 ] || fail "$(status)"
	set_to svc nrs_owners '/user.slice/box/two=35:46'
	belongs uid:35 boxed two 0 reads /dev/mapper/a
	if [ "$front" != dm ]; then
		looped /dev/mapper/a
		belongs uid:33 boxed one 2009 writes /dev/loop0
		belongs uid:34 in_slice 2007 bash -c "$(declare -f reads); reads /dev/loop0"
		losetup -d /dev/loop0
		mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/mapper/a
		mkdir -p /mnt/a
		mount -t ext4 /dev/mapper/a /mnt/a
		mkdir -m 777 /mnt/a/all
		belongs uid:33 flushed boxed one 2009 dd if=/dev/zero of=/mnt/a/all/file bs=64k count=16
		umount /mnt/a
	fi
	policy svc 'fairshare gid_fair'
	belongs gid:44 boxed one 2009 writes /dev/mapper/a
	policy svc 'fairshare jobid_fair'
	belongs jobid:dd.33 boxed one 2009 writes /dev/mapper/a
	policy svc 'fairshare uid_fair'
	set_to svc nrs_owners '-/user.slice/b?x'
	belongs uid:2009 boxed one 2009 writes /dev/mapper/a
	belongs uid:35 boxed two 0 reads /dev/mapper/a
}

# Verifies an NVMe target over the loopback, for a user of its client.
nvme() {
	local target=/sys/kernel/config/nvmet
	grouped
	modprobe nvme-loop
	mkdir -p $target/subsystems/t/namespaces/1 $target/ports/1
	echo 1 >$target/subsystems/t/attr_allow_any_host
	echo -n /dev/mapper/a >$target/subsystems/t/namespaces/1/device_path
	echo 1 >$target/subsystems/t/namespaces/1/enable
	echo loop >$target/ports/1/addr_trtype
	ln -s $target/subsystems/t $target/ports/1/subsystems/t
	echo transport=loop,nqn=t >/dev/nvme-fabrics
	wait_for 10 '[ -b /dev/nvme0n1 ]'
	chmod 666 /dev/nvme0n1
	belongs "$none" in_group 2007 reads /dev/nvme0n1
	echo 1 >/sys/class/nvme/nvme0/delete_controller
	rm $target/ports/1/subsystems/t
	rmdir $target/subsystems/t/namespaces/1 $target/subsystems/t $target/ports/1
}

# Verifies a target of LIO over its loopback, for a user of its client.
lio() {
	local target=/sys/kernel/config/target group
	group=$target/loopback/naa.5000000000000001/tpgt_1
	grouped
	modprobe -a target_core_iblock tcm_loop sd_mod
	mkdir -p $target/core/iblock_0/t
	echo udev_path=/dev/mapper/a >$target/core/iblock_0/t/control
	echo 1 >$target/core/iblock_0/t/enable
	mkdir -p $group/lun/lun_0
	echo naa.5000000000000002 >$group/nexus
	ln -s $target/core/iblock_0/t $group/lun/lun_0/t
	wait_for 10 '[ -b /dev/sda ]'
	chmod 666 /dev/sda
	belongs "$none" in_group 2007 reads /dev/sda
	belongs "$none" in_group 2007 writes /dev/sda
	rm $group/lun/lun_0/t
	rmdir $group/lun/lun_0 $group ${group%/*} $target/loopback
	rmdir $target/core/iblock_0/t $target/core/iblock_0
}

# Verifies the kernel's SMB server, for a user of its client: none for data, and the user of the
# session for listings.
smb() {
	local conf=(-C /tmp/ksmbd.conf -P /tmp/ksmbdpwd.db) \
		mount="mount -t cifs //127.0.0.1/a /mnt/smb -o ip=127.0.0.1,user=smb,pass=secret,cache=none"
	setup
	chmod 666 /mnt/a/file
	modprobe -a ksmbd cifs
	ip link set lo up
	echo 'smb:x:2011:2011::/:/bin/sh' >>/etc/passwd
	echo 'smb:x:2011:' >>/etc/group
	mkdir /mnt/a/dir
	touch /mnt/a/dir/{1..100}
	printf '[a]\n\tpath = /mnt/a\n\tread only = no\n' >/tmp/ksmbd.conf
	rm -f /tmp/ksmbdpwd.db
	ksmbd.adduser "${conf[@]}" -a -p secret smb
	ksmbd.mountd "${conf[@]}"
	mkdir -p /mnt/smb
	$mount
	echo 3 >/proc/sys/vm/drop_caches
	belongs uid:absent reads /mnt/smb/file
	belongs uid:absent flushed writes /mnt/smb/file
	umount /mnt/smb
	# The journal keeps blocks in memory that drop_caches would drop.
	wait_for 10 'umount /mnt/a'
	mount -t ext4 /dev/mapper/a /mnt/a
	$mount
	belongs uid:2011 ls -l /mnt/smb/dir
	umount /mnt/smb
	kill "$(cat /run/ksmbd.lock)"
	wait_for 10 'rmmod ksmbd'
	umount /mnt/a
}

# Time of expiry of the server's answers.
never=2000000000

# exported FLAGS THREADS [PATH]: Exports the file system, default /mnt/a, by the kernel's NFS
# server, and mounts it over the loopback. Only this script answers the server's upcalls. FLAGS as
# in nfsd/export.h.
exported() {
	local rpc=/proc/net/rpc
	trap withdrawn EXIT
	modprobe -a nfsd nfsv4
	ip link set lo up
	[ -e /proc/fs/nfsd/threads ] || mount -t nfsd nfsd /proc/fs/nfsd
	# The minimum; clients wait for the end of the grace period.
	echo 10 >/proc/fs/nfsd/nfsv4gracetime
	if [ -z "$(</proc/fs/nfsd/portlist)" ]; then
		# NFS version 3 needs rpcbind.
		echo -3 >/proc/fs/nfsd/versions
		echo 'tcp 2049' >/proc/fs/nfsd/portlist
	fi
	echo "$2" >/proc/fs/nfsd/threads
	# The clients 127.0.0.1 and 10.9.0.1 may use the path, which has the fsid 0: the root of NFSv4.
	# Any port, no subtree check, an fsid.
	echo "nfsd 127.0.0.1 $never local" >$rpc/auth.unix.ip/channel
	echo "nfsd 10.9.0.1 $never local" >$rpc/auth.unix.ip/channel
	echo "local ${3:-/mnt/a} $never $((0x2402 | $1)) 65534 65534 0" >$rpc/nfsd.export/channel
	echo "local 1 \\x00000000 $never ${3:-/mnt/a}" >$rpc/nfsd.fh/channel
	mkdir -p /mnt/nfs
	mount -t nfs4 -o addr=127.0.0.1,clientaddr=127.0.0.1,proto=tcp,port=2049,vers=4.2,sec=sys \
		127.0.0.1:/ /mnt/nfs
}

# withdrawn: Ends loads, mount and server, at the end of a check that has exported.
withdrawn() {
	killall -q -KILL fio || true
	policy svc fifo
	wait_for 30 '! pidof fio >/dev/null' || true
	# Dirty data is written while the server runs, because sync would wait for the server.
	umount /mnt/nfs || umount -f -l /mnt/nfs || true
	! grep -q ' /mnt/other ' /proc/mounts || umount /mnt/other || umount -f -l /mnt/other || true
	echo 0 >/proc/fs/nfsd/threads
}

# Verifies the kernel's server, for users of its clients.
remote() {
	setup
	exported 0 2
	# The server reads through the page cache.
	echo 3 >/proc/sys/vm/drop_caches
	gained 2004 1 as 2004 reads /mnt/nfs/file
	echo 3 >/proc/sys/vm/drop_caches
	gained 0 1 reads /mnt/nfs/file
	policy svc 'fairshare uid_then_cgroup_fair'
	echo 3 >/proc/sys/vm/drop_caches
	belongs uid:2004/cgroup:absent as 2004 reads /mnt/nfs/file
}

# Verifies an export of an overlay: the user that mounted the overlay.
overlay_exported() {
	setup
	modprobe overlay
	mkdir -p /mnt/a/{lower,upper,work} /mnt/both
	mv /mnt/a/file /mnt/a/lower
	# Nothing is cached then.
	umount /mnt/a
	mount -t ext4 /dev/mapper/a /mnt/a
	mount -t overlay overlay \
		-o lowerdir=/mnt/a/lower,upperdir=/mnt/a/upper,workdir=/mnt/a/work,index=on,nfs_export=on \
		/mnt/both
	exported 0 2 /mnt/both
	belongs uid:0 as 2004 reads /mnt/nfs/file
	withdrawn
	trap - EXIT
	umount /mnt/both
	umount /mnt/a
}

# from ADDRESS: Prints the dispatched requests of that client.
from() {
	awk -v class="\"nid:$1@tcp\"" '$2 == "class:" { on = $3 == class }
		on && $1 == "dispatched:" { n += $2 } END { print n + 0 }' "$(at svc nrs_tbf_stats)"
}

# Verifies that two clients of the kernel's server, with the same user, have rates of their own.
addressed() {
	local dir one two start
	volume
	ip link set lo up
	ip addr add 10.9.0.1/32 dev lo || true
	exported 0 32
	mkdir -p /mnt/other
	mount -t nfs4 -o addr=10.9.0.1,clientaddr=10.9.0.1,proto=tcp,port=2049,vers=4.0,sec=sys \
		10.9.0.1:/ /mnt/other
	policy svc 'tbf nid'
	set_to svc nrs_tbf_rule 'start one nid={127.0.0.1@tcp} rate=20'
	set_to svc nrs_tbf_rule 'start two nid={10.9.0.1@tcp} rate=40'
	# Not the same files: a page that one client waits for would hold up the other.
	for dir in /mnt/nfs/2001 /mnt/other/2002; do
		as 2001 fio --name=a --directory=$dir --size=4m --filename_format='$jobnum' \
			--numjobs=4 --rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=4 \
			--time_based --runtime=600 --minimal >/dev/null 2>&1 &
	done
	wait_for 60 '[ "$(from 127.0.0.1)" -ge 20 ] && [ "$(from 10.9.0.1)" -ge 20 ]' ||
		fail "$(cat "$(at svc nrs_tbf_stats)")"
	start=${EPOCHREALTIME/./} one=$(from 127.0.0.1) two=$(from 10.9.0.1)
	sleep 10
	one=$(($(from 127.0.0.1) - one)) two=$(($(from 10.9.0.1) - two))
	start=$((${EPOCHREALTIME/./} - start))
	say "charged in $((start / 1000)) ms: $one of 127.0.0.1, $two of 10.9.0.1"
	within 6 $((one * 1000000)) $((20 * start)) && within 6 $((two * 1000000)) $((40 * start))
}

# Verifies users that the export squashes, by ROOTSQUASH and ALLSQUASH.
squashed() {
	setup
	exported 12 2
	echo 3 >/proc/sys/vm/drop_caches
	gained 65534 1 as 2004 reads /mnt/nfs/file
}

# volume: Creates files of two users, with all blocks allocated, on a device that takes 32 ms per
# request.
volume() {
	local uid i
	module
	slow_lower nb0 32000000 memory_backed=1 size=160
	client a /dev/nb0 svc
	mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/mapper/a
	mkdir -p /mnt/a
	mount -t ext4 -o noatime /dev/mapper/a /mnt/a
	for uid in 2001 2002; do
		mkdir /mnt/a/$uid
		for i in {0..9}; do dd if=/dev/urandom of=/mnt/a/$uid/$i bs=1M count=4 2>/dev/null; done
		chown -R $uid /mnt/a/$uid
	done
	sync
	echo 3 >/proc/sys/vm/drop_caches
	echo 8 >"$(at svc slots)"
	# Prevents background writeback.
	echo $((400 << 20)) >/proc/sys/vm/dirty_bytes
	echo $((300 << 20)) >/proc/sys/vm/dirty_background_bytes
}

# demand UID JOBS direct|buffered: Starts reads of 4 KiB, 4 at a time, or writes of 16 KiB, with an
# fsync after each 32nd.
demand() {
	local how=(--rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=4)
	[ "$3" = direct ] || how=(--rw=randwrite --bs=16k --ioengine=psync --fsync=32 --fallocate=none)
	# shellcheck disable=SC2016
	setpriv --reuid "$1" --clear-groups fio --name=a --directory="/mnt/nfs/$1" --size=4m \
		--filename_format='$jobnum' --numjobs="$2" "${how[@]}" --time_based --runtime=600 \
		--minimal >/dev/null 2>&1 &
}

# parts SECONDS FILE: Sets $one and $two to what both users were charged in that time, and $time to
# the time, us.
parts() {
	local cpu before after file
	file=$(at svc "$2")
	cpu=$(cpu_time)
	before="${EPOCHREALTIME/./} $(charged "$file")"
	sleep "$1"
	after="${EPOCHREALTIME/./} $(charged "$file")"
	read -r time one two none < \
		<(awk '{ print $5 - $1, $6 - $2, $7 - $3, $8 - $4 }' <<<"$before $after")
	say "charged in $((time / 1000)) ms: $one, $two; without owner $none;" \
		"anonymous $(counter a anonymous); CPUs busy $(busy_since "$cpu") %"
}

# charged FILE: Prints what uid 2001, uid 2002 and requests without owner have been charged.
charged() {
	awk '
		$2 == "entity:" || $2 == "class:" { who = $3 }
		$1 == "cost_pages:" || $1 == "cost:" { n[who] += $2 }
		END { print n["\"uid:2001\""] + 0, n["\"uid:2002\""] + 0, n["\"uid:absent\""] + 0 }' "$1"
}

# shared direct|buffered: Verifies equal shares, although one user has 10 processes and the other
# has 4.
shared() {
	volume
	exported 0 64
	policy svc 'fairshare uid_fair'
	demand 2001 10 "$1"
	demand 2002 4 "$1"
	wait_for 60 '[ "$(served 2001)" -ge 50 ] && [ "$(served 2002)" -ge 50 ]' ||
		fail "$(cat "$(at svc nrs_fairshare_stats)")"
	parts 10 nrs_fairshare_stats
	within 10 "$one" "$two" || fail "$one, $two"
	[ "$none" -lt $((one / 10)) ] || fail "without owner: $none"
}

# limited direct|buffered: Verifies rates in bytes that equal 50 requests/s of one user and 100 of
# the other.
limited() {
	local rate
	volume
	exported 0 64
	rate=$([ "$1" = direct ] && echo 200 || echo 800)
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule "start one uid={2001} rate=${rate}KiB/s"
	set_to svc nrs_tbf_rule "start two uid={2002} rate=$((rate * 2))KiB/s"
	demand 2001 10 "$1"
	demand 2002 4 "$1"
	wait_for 60 '[ "$(counter a held)" -ge 8 ]' || fail "$(status a)"
	sleep 2
	parts 20 nrs_tbf_stats
	within 5 $((one * 1000000)) $((rate * 1024 * time)) || fail "$one B, not $rate KiB/s"
	within 5 $((two * 1000000)) $((rate * 2 * 1024 * time)) ||
		fail "$two B, not $((rate * 2)) KiB/s"
}

# unsynced FLAGS: Prints which owner the server has charged after a user has written a file without
# fsync, the file is closed, and all data is synced.
unsynced() {
	local before after
	volume
	exported "$1" 4
	policy svc 'fairshare uid_fair'
	before=$(charged "$(at svc nrs_fairshare_stats)")
	as 2001 dd if=/dev/zero of=/mnt/nfs/2001/0 bs=64k count=64 conv=notrunc 2>/dev/null
	sync
	after=$(charged "$(at svc nrs_fairshare_stats)")
	read -r one two none < <(awk '{ print $4 - $1, $5 - $2, $6 - $3 }' <<<"$before $after")
	say "charged to the user $one pages, without owner $none"
}

# Verifies that data written without fsync is on the server's disk when the file is closed.
closed() {
	unsynced 0
	[ "$one" -ge 1000 ] && [ "$none" -lt 100 ] || fail "$one, $none"
}

# Verifies that with the flag ASYNC a thread without owner writes the data later.
later() {
	unsynced 16
	[ "$one" -lt 100 ] && [ "$none" -ge 1000 ] || fail "$one, $none"
}

# Verifies that requests stay correct when a client is killed, the number of threads changes and the
# export ends, with requests queued.
torn() {
	volume
	exported 0 32
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'start one uid={2001} rate=2'
	demand 2001 10 direct
	wait_for 30 '[ "$(counter a held)" -ge 20 ]' || fail "$(status a)"
	echo 8 >/proc/fs/nfsd/threads &
	local threads=$!
	# shellcheck disable=SC2046
	kill -KILL $(pidof fio)
	wait_for 30 '! pidof fio >/dev/null' || fail "fio is still active: $(ps)"
	umount -f -l /mnt/nfs
	policy svc fifo
	wait $threads
	withdrawn
	trap - EXIT
	balanced a
	umount /mnt/a
	remove_client a
}

try 30 "an overlay: the task's user" overlaid
try 30 "io_uring: the user and the job of the task" ringed
try 30 "a user namespace: the user outside" spaced
try 60 "subordinate ids: the user who created the namespace" subordinate
try 30 "suid: root; seteuid: the assumed user" elevated
try 30 "a user's slice of systemd: the user" sliced
try 60 "a container in the map of cgroups: its owner" named
long try 60 "layers: the user, the cgroup alone, or none" between
long try 60 "page cache: the cgroup that dirtied the file first, the uid of the caller" cached
long try 60 "NVMe target: no owner" nvme
long try 60 "LIO: no owner" lio
long try 90 "SMB server of the kernel: no owner; listings: the user" smb
long try 90 "NFS: the user of the client, root too" remote
long try 90 "NFS: the user who mounted an exported overlay" overlay_exported
long try 90 "NFS: two clients have rates of their own" addressed
long try 90 "NFS: uid 65534 for squashed users" squashed
long try 90 "NFS: writes without fsync: the user, at close" closed
long try 90 "NFS: writes without fsync to an asynchronous export: no owner" later
for how in direct buffered; do
	long try 120 "NFS, $how: equal shares within 10 %" shared $how
	long try 120 "NFS, $how: rates within 5 %" limited $how
done
long try 90 "NFS: killed, withdrawn, fewer threads while requests are queued" torn
remarks '^(charged|flags|as) '
summary
