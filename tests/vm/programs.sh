#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Real programs on file systems: some exit with data in the page cache, which the kernel writes back
# after their namespaces are gone; some are killed; some exercise all file system operations, with
# little memory.
. /tests/nrs.sh

# mounted FS [WORD...]: Mounts a file system of that kind on client a, at $dir (default /mnt/a); the
# words are added to the table.
mounted() {
	local fs=$1
	shift
	dir=${dir:-/mnt/a}
	module
	# XFS needs 300 MiB, stress-ng more than one GiB; only written blocks take memory.
	lower nb0 memory_backed=1 size=2048
	client a /dev/nb0 svc "$@"
	case $fs in
	ext4) mkfs.ext4 -q -J size=16 /dev/mapper/a ;;
	xfs)
		modprobe xfs
		mkfs.xfs -q /dev/mapper/a
		;;
	esac
	mkdir -p $dir
	mount -t "$fs" /dev/mapper/a $dir
}

# sound FS: Unmounts and checks the file system.
sound() {
	umount $dir
	case $1 in
	ext4) e2fsck -fn /dev/mapper/a ;;
	xfs) xfs_repair -n /dev/mapper/a ;;
	esac >/tmp/fsck.txt 2>&1 || fail "$(tail -n 5 /tmp/fsck.txt)"
	[ "$(counter a failed)" = 0 ] || fail "requests failed: $(status a)"
	[ "$(counter a held)" = 0 ] || fail "requests wait: $(status a)"
}

# Verifies the output of an exiting shell to a file that it has truncated: the last close follows
# exit_nsproxy_namespaces.
unflushed() {
	mounted ext4 "$@"
	local i
	for i in 1 2 3; do
		echo x >/mnt/a/f
		bash -c 'exec >/mnt/a/f; printf %9000s x'
		[ "$(wc -c </mnt/a/f)" = 9000 ]
	done
	sound ext4
}

# Verifies a killed writer of an unlinked file, and of the block device, whose last closes come as
# late.
killed() {
	mounted ext4 "$@"
	bash -c 'exec 3>/mnt/a/g; rm /mnt/a/g; head -c 100000 /dev/zero >&3; kill -KILL $$' || true
	sound ext4
	head -c 1048576 /dev/urandom >/tmp/written
	bash -c 'exec 3<>/dev/mapper/a; cat /tmp/written >&3; kill -KILL $$' || true
	cmp -n 1048576 /tmp/written /dev/mapper/a
	remove_client a
}

# hard_to_end FS: Kills a writer of a mapped file; lets an exiting program write files without a
# name, or unlinked ones, with a late last close.
hard_to_end() {
	local round pid
	mounted "$1"
	for round in 1 2 3; do
		# fio's job is a thread, so that it has ended once fio was waited for.
		fio --name=mapped --thread --filename=$dir/mapped --ioengine=mmap --rw=randwrite --bs=4k \
			--size=4m --time_based --runtime=60 --minimal >/dev/null 2>&1 &
		pid=$!
		wait_for 20 '[ -s '$dir'/mapped ]'
		pause 0.5
		kill -KILL $pid
		wait $pid || true
		xfs_io -T -c 'pwrite -q -S 0x5a 0 300k' $dir
		bash -c 'exec 3<>'$dir'/named; rm '$dir'/named; cat /tmp/written >&3'
		bash -c 'exec >>'$dir'/added; printf %5000s x; exec >'$dir'/again; printf %7000s y'
		[ "$(wc -c <$dir/added) $(wc -c <$dir/again)" = "$((round * 5000)) 7000" ]
	done
	sound "$1"
}

# On the debug kernel only the programs that mostly exercise the kernel; all six did not finish one
# round in five minutes.
programs=(archives stresses small_files)
[ -n "$debug" ] || programs+=(commits rows clients_of_a_server)

# mix FS POLICY [FILE VALUE]...: Runs these programs of the soak on FS, each with its own user and a
# group with little memory, until each has completed a round; another disk of the service is always
# busy.
mix() {
	local fs=$1 policy=$2 name pids=() dir=/mnt/soak
	shift 2
	. /tests/soak/count.sh
	. /tests/soak/load.sh
	rm -rf $work
	mkdir -p $work/counts
	: >$finds
	seed=1
	mounted "$fs"
	lower nb1 memory_backed=1
	client b /dev/nb1 svc
	policy svc "$policy"
	while [ $# -gt 0 ]; do
		set_to svc "$1" "$2"
		shift 2
	done
	echo 8 >"$(at svc slots)"
	checksums b 1001 &
	pids=($!)
	for name in "${programs[@]}"; do
		$name &
		pids+=($!)
	done
	local kinds='fio run|git gc and fsck|tar archive|sqlite row|dbench run'
	kinds+='|stress-ng run|fs_mark file'
	while [ ! -s $finds ] &&
		[ "$(grep -lE " ($kinds)\$" $work/counts/* | wc -l)" -le ${#programs[@]} ]; do
		sleep 1
	done
	touch $stop
	for name in "${pids[@]}"; do
		wait "$name" || echo "a program ended with status $?" >>$finds
	done
	cat $work/counts/* | awk '{ n = $1; $1 = $2 = ""; print "#" $0 ": " n }' | tee -a /out/mix
	[ ! -s $finds ] || fail "$(cat $finds)"
	[ "$(counter a queued)" -gt 0 ] || fail "nothing waited: $(status a)"
	policy svc fifo
	sound "$fs"
}

for words in '' 'jobid_name %h.%e'; do
	# shellcheck disable=SC2086 # words of a table
	try 30 "a shell exits with unflushed output${words:+, $words}" unflushed $words
	# shellcheck disable=SC2086
	try 60 "a writer is killed${words:+, $words}" killed $words
done
if [ -n "${NRS_LONG:-}" ]; then
	head -c 300000 /dev/urandom >/tmp/written
	for fs in ext4 $(slow xfs ''); do
		try 60 "$fs: killed in a mapping, files without a name" hard_to_end "$fs"
	done
	try 240 "ext4: programs of several users, tbf that throttles" mix ext4 'tbf uid' \
		nrs_tbf_rule 'start slow uid={1007 1008 1009 1011} rate=200'
	if [ -z "$debug" ]; then
		try 240 "ext4: programs of several users, fairshare" mix ext4 'fairshare uid_fair'
		try 240 "xfs: programs of several users, fifo" mix xfs fifo
		try 240 "xfs: programs of several users, qbm" mix xfs qbm \
			nrs_qbm_config 'by uid;group all capacity=40MB/s;default class=fair_share min=1MB/s'
	fi
fi
summary
