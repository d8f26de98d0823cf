#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# usage: elevator.sh [FUNCTION...]
#
# Lifecycle of a disk whose I/O scheduler is nrs: set, unset, frozen, moved, removed, with and
# without queued requests; its errors; and refused settings. NAME+elevator tests the behaviour that
# this front-end shares with device-mapper.
NRS_FRONT=elevator
. /tests/nrs.sh

only=$*
queue=/sys/block/nb0/queue iosched=/sys/block/nb0/queue/iosched
# Limit for a change of the disk while a rule throttles queued requests, ms.
bound=$(slow 200 5000)

# scheduler NAME: Sets the scheduler of the disk.
scheduler() {
	echo "$1" >$queue/scheduler
}

# took COMMAND...: Runs the command; sets $took to its time, ms.
took() {
	local start=${EPOCHREALTIME/./} status=0
	"$@" || status=$?
	took=$(((${EPOCHREALTIME/./} - start) / 1000))
	say "took $took ms: $*"
	return $status
}

# Verifies that an unconfigured disk gets a service of its own name, and that the scheduler of a
# disk holds the module. Nothing remains after the unload.
life() {
	module
	lower nb0
	local latency=0
	[ ! -e $queue/wbt_lat_usec ] || latency=$(<$queue/wbt_lat_usec)
	grep -qw nrs $queue/scheduler || fail "$(cat $queue/scheduler)"
	[ ! -e /sys/kernel/debug/nrs/nb0 ]
	scheduler nrs
	[ "$(scheduled_disks)" = nb0 ] || fail "$(cat $queue/scheduler)"
	[ "$(<$iosched/service)" = nb0 ]
	[ "$latency" = 0 ] || [ "$(<$queue/wbt_lat_usec)" = 0 ] ||
		fail "writeback throttling: $(<$queue/wbt_lat_usec)"
	[ "$(<"$(at nb0 slots)")" = 64 ] || fail "slots: $(<"$(at nb0 slots)")"
	[ "$(ls $iosched | xargs)" = 'jobid_name policy service status stream' ] ||
		fail "$(ls $iosched | xargs)"
	policy nb0 'fairshare uid_fair'
	[[ $(<$iosched/policy) == *fairshare* ]] || fail "$(<$iosched/policy)"
	chmod 666 /dev/nb0
	ln -s /dev/nb0 /dev/mapper/nb0
	load nb0 as=1001 --io_size=1m >/dev/null
	[ "$(counter nb0 ended)" -ge 256 ] || fail "$(status)"
	grep -q 'uid:1001' "$(at nb0 nrs_fairshare_stats)" ||
		fail "$(cat "$(at nb0 nrs_fairshare_stats)")"
	refused EBUSY rmmod nrs
	scheduler none
	[ ! -e $iosched ] && [ ! -e /sys/kernel/debug/nrs/nb0 ] ||
		fail "left: $(ls $iosched /sys/kernel/debug/nrs)"
	[ "$latency" = 0 ] || [ "$(<$queue/wbt_lat_usec)" = "$latency" ] ||
		fail "writeback throttling: not $latency again"
	load nb0 --io_size=64k >/dev/null
	rmmod nrs
	[ ! -d /sys/module/nrs ] && [ ! -d /sys/kernel/debug/nrs ] && [ ! -d /sys/kernel/config/nrs ] ||
		fail "something is left"
	! grep -w nrs $queue/scheduler || fail "still listed"
	refused EINVAL scheduler nrs
}

# Verifies that the kernel loads the module by the name of the scheduler, which is an alias.
autoload() {
	local modprobe=/proc/sys/kernel/modprobe before
	before=$(<$modprobe)
	module
	rmmod nrs
	lower nb0
	cat >/tmp/modprobe <<-'END'
		#!/bin/bash
		for name; do :; done
		if modinfo -F alias /nrs.ko | grep -qFx "$name"; then exec insmod /nrs.ko; fi
	END
	chmod +x /tmp/modprobe
	echo /tmp/modprobe >$modprobe
	scheduler nrs || { echo "$before" >$modprobe && fail "not loaded"; }
	echo "$before" >$modprobe
	[ "$(scheduled_disks)" = nb0 ]
}

# throttled COUNT RATE [OPTION...]: Starts COUNT reads in the background, which a rule throttles to
# RATE per second.
throttled() {
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule "change default rate=$2"
	load a --iodepth="$1" --io_size=$(($1 * 4))k "${@:3}" >/tmp/reader.txt &
	reader=$!
	saturated $(($1 / 2)) a
}

# all_read COUNT: Verifies that the reads have completed and none is lost; fio needs a moment to
# notice.
all_read() {
	wait_for $(slow 1 10) "! kill -0 $reader 2>/dev/null" || fail "fio waits: $(status)"
	wait "$reader" || fail "fio: status $?: $(cat /tmp/reader.txt)"
	[ "$(terse /tmp/reader.txt 6)" = $(($1 * 4)) ] ||
		fail "read $(terse /tmp/reader.txt 6) KiB of $(($1 * 4))"
}

# resize, regroup, move, …: Perform operations that freeze a disk.
resize() { echo 32 >$queue/nr_requests; }
regroup() { echo 2 >/sys/kernel/config/nullb/nb0/submit_queues; }
move() { adjust $iosched/service other; }

# Verifies that a freeze does not wait for 64 requests at 2 per second, which would take half a
# minute.
freezing() {
	module
	[ "$2" != mq-deadline ] || modprobe -q mq-deadline || true
	lower nb0 irqmode=2
	client a /dev/nb0 svc
	throttled 64 2
	took "$@"
	[ "$took" -le "$bound" ] || fail "took $took ms"
	all_read 64
	if [ "$1" = scheduler ]; then
		[ ! -e "$(at svc slots)" ] || fail "the service still exists"
		scheduler nrs
		adjust $iosched/service svc
	fi
	[ "$1" != move ] || adjust $iosched/service svc
	# Requests are queued again.
	throttled 32 2
	scheduler none
	all_read 32
	[ ! -e "$(at svc slots)" ] || fail "the service still exists"
	rmmod nrs
}

# Verifies that taking a CPU offline does not wait for its queue's requests at 2 per second.
offline() {
	local cpu=/sys/devices/system/cpu/cpu1/online alone
	[ -e $cpu ] || fail "no second CPU that can go"
	switch_cpu() { echo "$1" >$cpu; }
	module
	lower nb0 irqmode=2 submit_queues=2
	client a /dev/nb0 svc
	took switch_cpu 0
	alone=$took
	switch_cpu 1
	throttled 32 2 --cpus_allowed=1
	took switch_cpu 0
	[ "$took" -le $((alone + bound)) ] || fail "took $took ms, $alone without requests"
	all_read 32
	load a --io_size=16k >/dev/null
	switch_cpu 1
	throttled 32 2 --cpus_allowed=1
	policy svc fifo
	scheduler none
	all_read 32
}

# Verifies that the scheduler counts each request of the disk, all as completed when the disk is
# idle, and the bytes read and written.
counted() {
	module
	lower nb0 memory_backed=1 discard=1 submit_queues=2 irqmode=2 completion_nsec=500000
	client a /dev/nb0 svc
	policy svc 'fairshare uid_fair'
	echo 4 >"$(at svc slots)"
	local before after
	# Requests and sectors of the disk.
	disk() { awk '{ print $1 + $5 + $12, $3 + $7 }' /sys/block/nb0/stat; }
	before=$(disk)
	load a --rw=randrw --io_size=2m --numjobs=2 >/dev/null
	blkdiscard -o 0 -l 1048576 /dev/mapper/a
	after=$(disk)
	balanced a
	[ "$(counter a ended)" = $((${after% *} - ${before% *})) ] ||
		fail "the disk has done $((${after% *} - ${before% *})): $(status)"
	[ "$(counter a bytes)" = $(((${after#* } - ${before#* }) * 512)) ] ||
		fail "the disk has done $((${after#* } - ${before#* })) sectors: $(status)"
	local sum
	sum ended " $(<$iosched/status)"
	[ "$sum" = "$(counter a ended)" ] || fail "$(<$iosched/status): $(cat "$(at svc clients)")"
}

# Verifies data of several submitters, with completions in a hard interrupt, a soft interrupt, or by
# the submitter.
data() {
	module
	local size way mode=$1
	size=$(slow "$(brief 1m 4m)" 256k)
	shift
	lower nb0 memory_backed=1 submit_queues=2 cache_size=16 irqmode="$mode" "$@"
	client a /dev/nb0 svc
	policy svc 'fairshare uid_fair'
	echo 3 >"$(at svc slots)"
	verified a --size="$size" --numjobs=2 --offset_increment=16m --bssplit=4k/50:64k/50 \
		--iodepth=8 --fsync=16
	verified a --size="$size" --numjobs=2 --offset_increment=16m --ioengine=io_uring
	# Sequentially, so that requests are merged.
	verified a --size="$size" --rw=write
	verified a --size="$size" --ioengine=io_uring --direct=0 --invalidate=1
	verified a --size="$size" --ioengine=psync --direct=0 --fsync=32 --invalidate=1
	balanced a
	[ "$(counter a queued)" -gt 0 ]
}

# Verifies that flushes do not wait for writes that a rule limits. If a disk has a write cache and
# no FUA, synchronous direct writes are part of flush sequences, and later flushes wait for these.
flushed() {
	module
	lower nb0 memory_backed=1 irqmode=2 cache_size=16 fua=0
	client a /dev/nb0 svc
	policy svc 'tbf uid'
	load a as=1001 --rw=write --ioengine=psync --sync=dsync --numjobs=8 --thinktime=20000 \
		--time_based --runtime=600 >/dev/null &
	wait_for 5 '[ "$(counter a ended)" -gt 0 ]'
	flushing() {
		took fio --name=b --filename=/dev/mapper/a --offset=32m --rw=write --direct=1 \
			--io_size=64k --fsync=4 --minimal >/dev/null
	}
	flushing
	local alone=$took
	set_to svc nrs_tbf_rule 'start slow uid={1001} rate=1'
	flushing
	killall fio
	say "took $took ms for flushes, $alone without the rule"
	[ "$took" -le $((alone + 3000)) ] ||
		fail "flushes took $took ms, without the rule $alone: $(status)"
}

# merging COMMAND...: Sets $requests to the writes that the disk has done, and $merged to the bios
# merged into them.
merging() {
	local before
	writes() { awk '{ print $5, $6 }' /sys/block/nb0/stat; }
	before=$(writes)
	"$@"
	balanced a
	read -r requests merged < <(echo "$before $(writes)" | awk '{ print $3 - $1, $4 - $2 }')
	say "$requests requests, $merged bios merged: $*"
}

# in_order [as=UID] [OPTION...]: Writes sequentially, with one call per request, so that requests
# are not merged before the scheduler.
in_order() {
	load a "$@" --iodepth=32 --iodepth_batch_submit=1 >/dev/null
}

# Verifies that throttled requests are merged, and that rate and counters include each byte.
growing() {
	module
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=500000
	client a /dev/nb0 svc
	local requests merged bytes ended cost size rate
	size=$(slow 4194304 524288) rate=$(slow 2000 64)
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule "change default rate=${rate}KB/s"
	bytes=$(counter a bytes) ended=$(counter a ended)
	took merging in_order --rw=write --io_size=$size
	[ $((requests + merged)) = $((size / 4096)) ] && [ "$requests" -le $((size / 8192)) ] ||
		fail "$requests requests, $merged merged"
	[ "$took" -ge $((size * 95 / 100 / rate)) ] || fail "$size bytes at $rate KB/s took $took ms"
	[ $(($(counter a ended) - ended)) = "$requests" ] &&
		[ $(($(counter a bytes) - bytes)) = "$size" ] || fail "$(status)"
	cost=$(awk '/^classes:/ { exit } $1 == "dispatched:" { n += $2 } $1 == "cost:" { c += $2 }
		END { print n, c }' "$(at svc nrs_tbf_stats)")
	[ "$cost" = "$requests $size" ] || fail "$(cat "$(at svc nrs_tbf_stats)")"
	echo 2 >$queue/nomerges
	merging in_order --rw=write --io_size=64k
	[ "$merged" = 0 ] || fail "$merged merged"
	echo 0 >$queue/nomerges
	verified a --rw=write --iodepth=32 --size=$size
	balanced a
	policy svc 'fairshare uid_fair'
	echo 1 >"$(at svc slots)"
	echo 1 >"$(at svc nrs_fairshare_stats_reset)"
	merging in_order --rw=write --io_size=$size
	cost=$(awk '$1 == "dispatched:" { n += $2 } $1 == "cost_pages:" { c += $2 }
		END { print n, c }' "$(at svc nrs_fairshare_stats)")
	[ "$cost" = "$requests $((size / 4096))" ] || fail "$(cat "$(at svc nrs_fairshare_stats)")"
}

# Verifies that requests are merged with those of another thread of the same submitter. They are not
# merged with those of another user, nor if they must keep their order.
apart() {
	module
	lower nb0 memory_backed=1
	client a /dev/nb0 svc
	local requests merged count every
	count=$(slow 128 32)
	every=(--rw=write:4k --io_size=$((count * 4))k --size=2m)
	threads() { in_order "${every[@]}" --thread --numjobs=2 --offset_increment=4k; }
	users() {
		in_order as=1001 "${every[@]}" &
		in_order as=1002 "${every[@]}" --offset=4k
		wait $!
	}
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule "change default rate=$(slow 200 10)"
	merging threads
	[ "$merged" -gt 0 ] || fail "nothing merged"
	merging users
	[ "$merged" = 0 ] && [ "$requests" = $((count * 2)) ] ||
		fail "$requests requests, $merged merged"
	set_to svc nrs_pop overlap
	merging threads
	[ "$merged" = 0 ] && [ "$requests" = $((count * 2)) ] ||
		fail "$requests requests, $merged merged"
}

# Verifies that errors of bad blocks reach the caller and cost no slot.
failing() {
	module
	lower nb0 memory_backed=1 badblocks=+0-2047
	client a /dev/nb0 svc
	policy svc fairshare
	echo 1 >"$(at svc slots)"
	refused EIO dd if=/dev/mapper/a of=/dev/null bs=4k count=1 iflag=direct
	local way
	for way in randread randwrite write; do
		load a --rw=$way --iodepth=16 --size=1m --io_size=1m --continue_on_error=all \
			--output-format=json >/tmp/fio.txt 2>&1 || true
		# shellcheck disable=SC2016
		[ "$(awk '/"total_err" :/ { gsub(/,/, ""); print $3; exit }' /tmp/fio.txt)" = 256 ] ||
			fail "$way: $(grep total_err /tmp/fio.txt)"
	done
	verified a --offset=1m --size="$(slow 2m 256k)"
	wait_for 10 '[ $(($(counter a passed) + $(counter a queued))) = "$(counter a ended)" ]' ||
		fail "$(status)"
	[ "$(counter a held)" = 0 ] || fail "$(status)"
}

# scsi OPTIONS NTH SIZE [COUNTER]: Verifies data on a disk that fails each NTH request, according to
# the scsi_debug OPTIONS, and counts them. Requests that the block layer or SCSI retries keep their
# slots.
scsi() {
	local disk dir=/sys/bus/pseudo/drivers/scsi_debug
	module
	modprobe sd_mod
	modprobe scsi_debug dev_size_mb=64 submit_queues=2 max_queue=8 ndelay=1000000
	wait_for 10 \
		'ls /sys/bus/pseudo/drivers/scsi_debug/adapter0/host*/target*/*/block/* >/dev/null 2>&1'
	disk=$(echo $dir/adapter0/host*/target*/*/block/*)
	wait_for 10 "[ -b /dev/${disk##*/} ]"
	echo 1 >"$disk/device/timeout"
	echo 4 >"$disk/device/queue_depth"
	client a "/dev/${disk##*/}" svc
	grep -A1 '^- target:' "$(at svc clients)" | grep -qw 'limit: 4' ||
		fail "not the disk's queue depth: $(cat "$(at svc clients)")"
	policy svc 'fairshare uid_fair'
	echo 2 >"$(at svc slots)"
	echo "$1" >$dir/opts
	echo "$2" >$dir/every_nth
	verified a --size="$3" --iodepth=32
	echo 0 >$dir/every_nth
	echo 0 >$dir/opts
	[ -z "${4:-}" ] || [ "$(cat "$disk/device/$4")" != 0x0 ] || fail "the disk failed no request"
	verified a --size=1m --offset=8m --iodepth=32
	balanced a
	[ "$(counter a queued)" -gt 0 ]
}

# Verifies that drains let the suspend of a volume above the disk end, which waits for all requests
# of the volume. The limit would delay it for 20 s.
above() {
	local suspend
	module
	slow_lower nb0 1000000
	client a /dev/nb0 svc
	echo 256 >$queue/nr_requests
	policy svc 'tbf uid'
	echo 'start slow uid={1001} rate=5' >"$(at svc nrs_tbf_rule)"
	dm_create volume "0 $(sectors /dev/nb0) linear /dev/nb0 0"
	chmod 666 /dev/mapper/volume
	begin volume as=1001 --iodepth=100
	wait_for 20 '[ "$(counter a held)" -ge 80 ]' || fail "no backlog: $(status)"
	dm suspend volume &
	suspend=$!
	drained() {
		set_to svc drain 1
		if kill -0 $suspend 2>/dev/null; then return 1; fi
	}
	took wait_for 5 drained || fail "the suspend waits: $(status)"
	wait $suspend
	dm resume volume
}

# state: Prints the visible state of the module.
state() {
	settings svc
	grep -sH '' $iosched/{service,policy,jobid_name,stream} $queue/scheduler || true
	ls /sys/kernel/debug/nrs
}

# Verifies that the requests of a running process are named by a new format at once.
renamed() {
	module
	lower nb0
	client a /dev/nb0 svc jobid_name %e
	policy svc 'fairshare jobid_fair'
	set_to svc slots 1
	load a as=1001 --iodepth=8 --time_based --runtime=600 >/dev/null &
	local fio=$! stats
	stats=$(at svc nrs_fairshare_stats)
	wait_for 20 "grep -q 'jobid:fio' $stats" || fail "$(cat "$stats")"
	adjust $iosched/jobid_name %u
	wait_for 20 "grep -q 'jobid:1001' $stats" || fail "$(cat "$stats")"
	kill $fio
	wait $fio || true
}

# Verifies that refused settings change nothing.
wrong() {
	module
	lower nb0
	client a /dev/nb0 svc jobid_name %e.%g stream none
	local file value errno long
	long=$(printf 'x%.0s' {1..64})
	state >/tmp/before
	while IFS='|' read -r file errno value; do
		expect_errno "$errno" $iosched/"$file" "${value/LONG/$long}"
		state >/tmp/after
		cmp -s /tmp/before /tmp/after ||
			fail "changed by $file='$value': $(diff /tmp/before /tmp/after)"
	done <<-'END'
		service|EINVAL|
		service|EINVAL|a b
		service|EINVAL|.a
		service|EINVAL|a/b
		service|EINVAL|LONG
		jobid_name|EINVAL|
		jobid_name|EINVAL|LONG
		jobid_name|EINVAL|%q
		jobid_name|EINVAL|a b
		stream|EINVAL|
		stream|EINVAL|hints
		stream|EINVAL|hint cgroup
		policy|EACCES|fifo
		status|EACCES|0
	END
	load a --io_size=64k >/dev/null
	balanced a
}

# Verifies the service name of a disk whose name is no valid service name.
named() {
	module
	lower .a%b
	echo nrs >/sys/block/.a%b/queue/scheduler
	[ "$(</sys/block/.a%b/queue/iosched/service)" = -a-b ] ||
		fail "$(</sys/block/.a%b/queue/iosched/service)"
	dd if=/dev/.a%b of=/dev/null bs=4k count=4 iflag=direct
	grep -q 'ended: 4' "$(at -a-b clients)" || fail "$(cat "$(at -a-b clients)")"
	null_blk_remove .a%b
}

# Verifies that a device of type nrs and its disk cannot be clients of one service, in either order.
loop() {
	local part
	module
	lower nb0 memory_backed=1
	# A partition of 1 MiB, in a table of MBR.
	part='\x83\x00\x00\x00\x00\x08\x00\x00\x00\x08\x00\x00'
	printf "\\x00\\x00\\x00\\x00$part" | dd of=/dev/nb0 bs=1 seek=446 conv=notrunc status=none
	printf '\x55\xaa' | dd of=/dev/nb0 bs=1 seek=510 conv=notrunc status=none
	blockdev --rereadpt /dev/nb0
	part="nrs /dev/nb0p1 0 svc"
	dm_create d "0 2048 $part"
	scheduler nrs
	expect_errno ELOOP $iosched/service svc
	dm_remove d
	client a /dev/nb0 svc
	refused ELOOP dm create d --table "0 2048 $part"
	refused ELOOP dm create d --table "0 $(sectors /dev/nb0) nrs /dev/nb0 0 svc"
	dm_create d "0 $(sectors /dev/nb0) nrs /dev/nb0 0 other"
	expect_errno ELOOP $iosched/service other
	[ "$(<$iosched/service)" = svc ]
	load d --io_size=64k >/dev/null
	[ "$(counter d ended)" -ge 16 ] && [ "$(counter a ended)" -ge 16 ] ||
		fail "$(status) $(dm status)"
	dm_remove d
	scheduler none
	dm_create d "0 $(sectors /dev/nb0) nrs /dev/nb0 0 nb0"
	# The block layer reports no other error here.
	refused ENOMEM scheduler nrs
	dmesg | tail -n 3 | grep -q 'nb0 cannot join service nb0: a device-mapper device' ||
		fail "$(dmesg | tail -n 3)"
	[ "$(scheduled_disks)" = '' ]
}

# Verifies that disks of one service join and leave while others are busy, and that a busy disk
# changes its service.
together() {
	module
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=500000
	lower nb1 memory_backed=1 irqmode=2 completion_nsec=500000
	client a /dev/nb0 svc
	client b /dev/nb1 svc
	[ "$(grep -c '^- client: ' "$(at svc clients)")" = 2 ] || fail "$(cat "$(at svc clients)")"
	echo 2 >"$(at svc slots)"
	writing a
	local round seen
	for round in $(seq "$(slow 3 1)"); do
		saturated a
		adjust $iosched/service other
		[ "$(grep -c '^- client: ' "$(at svc clients)")" = 1 ] || fail "$(cat "$(at svc clients)")"
		echo 2 >"$(at other slots)"
		policy other 'fairshare uid_fair'
		verified b --size="$(slow 1m 64k)"
		saturated a
		remove_client b
		[ ! -e "$(at svc slots)" ]
		client b /dev/nb1 svc
		adjust $iosched/service svc
		[ ! -e "$(at other slots)" ]
		echo 2 >"$(at svc slots)"
	done
	seen=$(counter a ended)
	wait_for 5 "[ \$(counter a ended) -gt $seen ]" || fail "$(status)"
	written
	balanced a
	balanced b
}

# Verifies that there are as many slots as the disk's queue depth, also after a change of the number
# of hardware queues.
depth() {
	module
	lower nb0 hw_queue_depth=4
	client a /dev/nb0 svc
	local queues
	for queues in 1 2 1; do
		[ "$queues" = "$(</sys/kernel/config/nullb/nb0/submit_queues)" ] ||
			echo "$queues" >/sys/kernel/config/nullb/nb0/submit_queues
		grep -A1 '^- target:' "$(at svc clients)" | grep -qw "limit: $((queues * 4))" ||
			fail "$queues queues: $(cat "$(at svc clients)")"
	done
}

# Verifies that the disks of an NVMe controller, which share its hardware queues, keep clients,
# counters and settings when the controller connects again with another number of queues. With
# native multipath, the disks that queue requests are hidden below those that have a device file.
connected() {
	local target=/sys/kernel/config/nvmet number name ended=()
	module
	modprobe -a nvmet-tcp nvme-tcp
	ip link set lo up
	mkdir -p $target/subsystems/t $target/ports/1
	echo 1 >$target/subsystems/t/attr_allow_any_host
	for number in 0 1; do
		lower nb$number memory_backed=1 irqmode=2 completion_nsec=500000
		mkdir $target/subsystems/t/namespaces/$((number + 1))
		echo -n /dev/nb$number >$target/subsystems/t/namespaces/$((number + 1))/device_path
		echo 1 >$target/subsystems/t/namespaces/$((number + 1))/enable
	done
	echo tcp >$target/ports/1/addr_trtype
	echo ipv4 >$target/ports/1/addr_adrfam
	echo 127.0.0.1 >$target/ports/1/addr_traddr
	echo 4420 >$target/ports/1/addr_trsvcid
	ln -s $target/subsystems/t $target/ports/1/subsystems/t
	echo transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=t,reconnect_delay=1 >/dev/nvme-fabrics
	disk_of=([a]=nvme0c0n1 [b]=nvme0c0n2)
	for name in a b; do
		wait_for 10 "[ -e /sys/block/${disk_of[$name]}/queue/scheduler ]"
		scheduled "${disk_of[$name]}" $name stream none
		ln -s "/dev/${disk_of[$name]/c0/}" /dev/mapper/$name
		wait_for 10 "[ -b /dev/mapper/$name ]"
	done
	policy a 'fairshare uid_fair'
	echo 2 >"$(at a slots)"
	for number in 1 2; do
		writing a
		saturated a
		ended=("$(counter a ended)" "$(counter b ended)")
		echo $number >$target/subsystems/t/attr_qid_max
		wait_for 20 "[ \$(ls /sys/block/nvme0c0n1/mq | wc -l) = $number ]" ||
			fail "$(ls /sys/block/nvme0c0n1/mq | wc -l) queues"
		wait_for 10 "[ \$(counter a ended) -gt $((ended[0] + 100)) ]" ||
			fail "$(status); the writer: $(cut -c1-300 /tmp/writing.txt | tail -n 3)"
		[ "$(counter b ended)" -ge "${ended[1]}" ] || fail "$(status b)"
		written
		verified b --size=1m --iodepth=32
		for name in a b; do
			balanced $name
			[ "$(<"/sys/block/${disk_of[$name]}/queue/iosched/stream")" = none ]
		done
	done
	remove_client a
	remove_client b
	echo 1 >/sys/class/nvme/nvme0/delete_controller
	rm $target/ports/1/subsystems/t
	rmdir $target/subsystems/t/namespaces/{1,2} $target/subsystems/t $target/ports/1
	rmmod nrs
}

# late FILE VALUE: Writes VALUE while the disk has a request that takes seconds; the change happens
# when the request completes.
late() {
	module
	lower nb0 irqmode=2 completion_nsec=4000000000
	client a /dev/nb0 svc
	dd if=/dev/mapper/a of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null &
	wait_for 5 '[ "$(awk "{ print \$9 }" /sys/block/nb0/stat)" = 1 ]'
	local file=$iosched/$1 after=$2 before
	before=$(<"$file")
	expect_errno ETIMEDOUT "$file" "$after"
	[ "$(<"$file")" = "$before" ] || fail "changed with a request in flight"
	# Only one change at a time.
	expect_errno EAGAIN $iosched/stream none
	wait
	wait_for 5 '[ "$(<"$file")" = "$after" ]' || fail "$1: $(<"$file")"
	[ "$(<$iosched/stream)" = hint ] || fail "a refused write has changed the stream"
	adjust $iosched/stream none
	[ "$(<$iosched/stream)" = none ]
}

# Verifies that the disk joins a service that an administrator made, whose directory cannot be
# removed meanwhile. The null_blk directories used and removed before let lockdep detect configfs
# locks taken under block layer locks.
made_before() {
	module
	lower nb1
	null_blk_remove nb1
	mkdir /sys/kernel/config/nrs/nb0 /sys/kernel/config/nrs/other
	lower nb0
	client a /dev/nb0 nb0
	refused EBUSY rmdir /sys/kernel/config/nrs/nb0
	adjust $iosched/service other
	rmdir /sys/kernel/config/nrs/nb0
	refused EBUSY rmdir /sys/kernel/config/nrs/other
	remove_client a
	rmdir /sys/kernel/config/nrs/other
}

# exact N: Verifies N writes to a file while hardware queues change: an accepted write has changed
# the file, and a refused write has not. Some writes go to an instance other than the one that later
# shows the file.
exact() {
	module
	lower nb0 submit_queues=2
	client a /dev/nb0 svc
	local i error value last accepted=0 refused=0 words=(hint cgroup none) changer
	(
		set +x &&
			while regroup && pause 0.1 && echo 1 >/sys/kernel/config/nullb/nb0/submit_queues &&
			pause 0.1; do
				:
			done
	) &
	changer=$!
	last=$(<$iosched/stream)
	for ((i = 0; i < $1; i++)); do
		value=${words[i % 3]}
		if error=$( (echo "$value" >$iosched/stream) 2>&1); then
			last=$value accepted=$((accepted + 1))
		else
			# Without a scheduler the file is missing for a moment, and cannot be created.
			[[ $error =~ "Resource temporarily unavailable"|"No such"|"Permission denied" ]] ||
				fail "$error"
			refused=$((refused + 1))
		fi
		until value=$(cat $iosched/stream 2>/dev/null); do :; done
		[ "$value" = "$last" ] ||
			fail "write $i: $value, $last was set; accepted $accepted, refused $refused"
	done
	kill $changer
	wait $changer || true
	say "took $accepted of $1 changes"
	[ $accepted -gt $(($1 / 20)) ] || fail "accepted $accepted of $1"
}

# unused N: Removes N unused disks while all CPUs are busy. The last reference to a disk must be
# dropped where a task may sleep; otherwise the kernel log contains a BUG, because zoned disks stop
# a workqueue. The debug kernel has no zoned disks, but reports every call that may sleep in atomic
# context.
unused() {
	local i busy=() zones=()
	[ -n "$debug" ] || zones=(zoned=1 zone_size=4)
	module
	for i in 1 2 3; do
		(while :; do :; done) &
		busy+=($!)
	done
	for ((i = 0; i < $1; i++)); do
		lower nb0 size=64 "${zones[@]}"
		scheduler nrs
		null_blk_remove nb0
	done
	kill "${busy[@]}"
	! dmesg | grep 'BUG:' || fail "see above"
	rmmod nrs
}

# Verifies that removal of a disk with requests queued and in flight ends all of them, and that
# nothing remains.
unplugged() {
	module
	lower nb0 irqmode=2 completion_nsec=1000000 submit_queues=2
	client a /dev/nb0 svc
	echo 2 >"$(at svc slots)"
	if [ "$1" = throttled ]; then throttled 64 2; else
		load a --numjobs=4 --time_based --runtime=60 >/dev/null 2>&1 &
		reader=$!
		saturated a
	fi
	took null_blk_remove nb0
	[ "$took" -le "$(slow 1000 5000)" ] || fail "took $took ms"
	# Processes with requests in flight can exit; fio exits by itself when nothing is left to read.
	if [ "$1" = throttled ]; then all_read 64; else killall -KILL fio; fi
	wait_for 5 '! pidof fio >/dev/null' || fail "fio is still active"
	wait_for 5 '[ ! -d /sys/kernel/debug/nrs/svc ]' || fail "the service still exists"
	rmmod nrs
}

hibernate() { echo disk >/sys/power/state; }

# Verifies hibernation to a disk of nrs and resume, while another disk has a backlog: one that is
# dispatched, and one at 2 requests per second on a CPU that is taken offline meanwhile.
hibernated() {
	local seen
	module
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=500000 submit_queues=2
	lower nb1 memory_backed=1 irqmode=2 size=384
	client a /dev/nb0 svc
	client b /dev/nb1 swap
	echo 2 >"$(at svc slots)"
	mkswap /dev/mapper/b >/dev/null
	swapon /dev/nb1
	echo test_resume >/sys/power/disk
	# The resume looks for an image on this disk, too.
	cat /sys/block/nb1/dev >/sys/power/resume 2>/dev/null || true
	writing a
	saturated a
	took hibernate
	seen=$(counter a ended)
	wait_for 5 "[ \$(counter a ended) -gt $seen ]" || fail "$(status)"
	written
	balanced a
	throttled 32 2 --cpus_allowed=1
	took hibernate
	all_read 32
	swapoff /dev/nb1
}

# Verifies a root file system on nrs: programs are read repeatedly, with little memory, while one of
# them changes the scheduler below.
rooted() {
	local root=/mnt/a group=/sys/fs/cgroup/test.root dir
	module
	lower nb0 memory_backed=1 size=384 irqmode=2 completion_nsec=200000
	scheduler nrs
	mkfs.ext4 -q -J size=8 /dev/nb0
	mkdir -p $root $group
	mount -t ext4 /dev/nb0 $root
	for dir in /*; do
		case $dir in
		/proc | /sys | /dev | /mnt | /out | /tmp | /run | /root) mkdir $root"$dir" ;;
		*) cp -a "$dir" $root ;;
		esac
	done
	for dir in proc sys dev; do mount --rbind /$dir $root/$dir; done
	echo $((48 << 20)) >$group/memory.max
	cat >$root/changes <<-'END'
		set -eu
		queue=/sys/block/nb0/queue nrs=/sys/kernel/debug/nrs
		for round in 1 2 3; do
			for policy in 'fairshare uid_fair' 'tbf uid' fifo; do
				echo "$policy" >$nrs/nb0/nrs_policies
				echo 3 >/proc/sys/vm/drop_caches
				fio --name=root --directory=/root --size=4m --rw=randrw --bs=4k --verify=crc32c \
					--verify_fatal=1 --direct=1 --ioengine=libaio --iodepth=16 \
					--minimal >/tmp/fio.txt
			done
			echo other >$queue/iosched/service
			echo 64 >$queue/nr_requests
			echo none >$queue/scheduler
			sync
			echo nrs >$queue/scheduler
			cat /bin/* >/dev/null
		done
	END
	bash -c "echo \$\$ >$group/cgroup.procs; exec chroot $root /bin/bash /changes" ||
		fail "status $?: $(cat $group/memory.events)"
	for dir in dev sys proc; do umount -l $root/$dir; done
	umount $root
	e2fsck -fn /dev/nb0 >/tmp/fsck.txt 2>&1 || fail "$(cat /tmp/fsck.txt)"
}

try 30 "set and unset; nothing remains" life
debug_long try 30 "the scheduler's name loads the module" autoload
try 30 "64 requests at 2 per second: none" freezing scheduler none
long try 30 "64 requests at 2 per second: mq-deadline" freezing scheduler mq-deadline
long try 30 "64 requests at 2 per second: nr_requests" freezing resize nr_requests
try 30 "64 requests at 2 per second: two hardware queues" freezing regroup queues
long try 30 "64 requests at 2 per second: another service" freezing move service
try 30 "32 requests at 2 per second: their CPU goes offline" offline
try 20 "requests and bytes equal those of the disk" counted
try 40 "data: completion in a hard interrupt" data 2 completion_nsec=100000
long try 40 "data: completion in a soft interrupt" data 1
long try 40 "data: completion by the submitter" data 0
try 30 "flushes do not wait for throttled writes" flushed
try 30 "throttled requests are merged" growing
try 30 "requests are merged with bios of their submitter only" apart
try 30 "bad blocks" failing
try 30 "drains end the suspend of a volume above" above
try 60 "a new name format applies to running processes" renamed
long try 20 "refused settings change nothing" wrong
debug_long try 20 "a disk whose name is no valid service name" named
try 20 "slots follow the number of hardware queues" depth
if modprobe -nq nvmet-tcp; then
	long try 60 "two NVMe disks connect again with other hardware queues" connected
else
	echo "# this kernel has no NVMe over TCP: disks with common hardware queues are not tested"
fi
try 20 "a configured service keeps its directory" made_before
long try 30 "values set while hardware queues change" exact "$(slow "$(brief 40 200)" 20)"
debug_long try 30 "a service is set while the disk is slow" late service other
try 20 "a device of type nrs in the same service" loop
long try 60 "two disks of one service; a busy disk changes its service" together
try 20 "removal of a busy disk" unplugged busy
try 30 "removal of unused disks" unused "$(slow 40 5)"
debug_long try 20 "removal of a disk with throttled requests" unplugged throttled
long try 120 "root file system" rooted
if grep -q test_resume /sys/power/disk 2>/dev/null; then
	long try 120 "hibernation with requests queued" hibernated
else
	echo "# this machine does not hibernate"
fi
if modprobe -nq scsi_debug; then
	try 30 "scsi_debug: commands that fail are repeated" scsi 8 7 1m ioerr_cnt
	long try 30 "scsi_debug: a busy host" scsi 0x8000 5 1m
	long try 120 "scsi_debug: timeouts" scsi 4 40 512k iotmo_cnt
else
	echo "# this kernel has no scsi_debug: retried requests are not tested"
fi
remarks '^took'
summary
