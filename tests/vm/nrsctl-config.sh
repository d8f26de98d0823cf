#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Configuration files with the real module: check, apply and save, under load, with refusals and
# exit statuses.
. /tests/nrs.sh

# prints WORDS: Verifies that the output contains WORDS.
prints() {
	[[ $said == *"$1"* ]] || fail "'$1' is not in '$said'"
}

# shows FILE TEXT: Verifies that a file of the service svc contains TEXT.
shows() {
	[[ $(<"$(at svc "$1")") == *"$2"* ]] || fail "'$2' is not in $1: $(cat "$(at svc "$1")")"
}

# equal: Verifies that the running configuration equals the file, and also what save writes.
equal() {
	ctl 0 apply /tmp/c.toml
	expect_output 'nothing to change'
	ctl 0 apply --dry-run /tmp/c.toml
	expect_output 'nothing to change'
	ctl 0 save /tmp/saved.toml
	ctl 0 check /tmp/saved.toml
	expect_output '/tmp/saved.toml: ok'
	ctl 0 apply --dry-run /tmp/saved.toml
	expect_output 'nothing to change'
}

everything() {
	cat >/tmp/c.toml <<-'END'
		[module]
		default_slots = 32

		[service.svc]
		cpts = 1
		slots = 8
		policy = "tbf uid"
		high_priority = { policy = "fairshare uid_fair", ratio = 3, sources = "realtime meta" }
		weights = { "uid:1000" = 2, 'jobid:"a b*"' = 3, "jobid:a*" = 7, "nid:10.0.0.7@tcp" = 10000 }

		[service.svc.parameters]
		nrs_fairshare_delta_ms = 50
		nrs_tbf_depth = 9
		nrs_crrn_quantum = { hp = 4 }
		nrs_delay_min = 400
		nrs_delay_max = 500
		nrs_pop = "overlap"
		stall_ms = 5000

		[service.svc.timeouts]
		at_max = 4
		at_min = 3
		at_extra = 2
		at_early_margin = 1
		at_estimator = "average"

		[[service.svc.rule]]
		name = "sure"
		match = "{1001 1002}"
		rate = "200MB/s"
		minrate = "20MB/s"
		also = ["all"]

		[[service.svc.rule]]
		name = "all"
		match = "uid={1003}"
		realtime = true
		borrow = true

		[[service.svc.rule]]
		name = "default"
		rate = 10000000

		[service.svc.qbm]
		by = "device"
		tune = { slow = "20s" }
		default = { class = "fair_share", min = "1%" }
		group = [{ name = "g", capacity = "100MB/s", reserve_mover = "5%" }]
		client = [{ name = "dev*", class = "first_come", min = "10MB/s", group = "g" }]

		[service.other]
		policy = "qbm"
		qbm = { group = [{ name = "all", capacity = "1GB/s" }] }
	END
	ctl 0 check /tmp/c.toml
	expect_output '/tmp/c.toml: ok'
	ctl 8 apply --dry-run /tmp/c.toml
	prints '+[service.svc]'
	complains 'differs'
	[ ! -d /sys/kernel/config/nrs/svc ] || fail "a dry run made it"
	ctl 0 apply /tmp/c.toml
	[ "$(<"$(at svc slots)")" = 8 ]
	[ "$(<"$(at other slots)")" = 32 ]
	[ "$(</sys/module/nrs/parameters/default_slots)" = 32 ]
	[ "$(</sys/kernel/config/nrs/svc/cpts)" = 1 ]
	shows nrs_policies 'name: tbf uid'
	shows nrs_policies 'name: fairshare uid_fair'
	shows nrs_tbf_rule 'sure uid={1001 1002} 200MB/s minrate=20MB/s also=all, ref 0
all uid={1003} 10000 realtime=1 borrow=1, ref 0
default * 10000000, ref 0
high_priority_requests:'
	shows nrs_fairshare_weights 'jobid:"a b*":3
jobid:a*:7'
	shows nrs_qbm_config 'client dev* class=first_come min=10MB/s group=g'
	shows nrs_crrn_quantum 'reg_quantum:8'
	shows nrs_crrn_quantum 'hp_quantum:4'
	shows high_priority_sources 'realtime meta'
	shows at_max 4
	equal
	echo auto >/sys/module/nrs/parameters/default_slots
}

# Verifies that settings missing in the file return to their defaults: manual changes are shown, and
# undone.
by_hand() {
	printf '[service.svc]\nslots = 8\npolicy = "tbf uid"\n' >/tmp/c.toml
	ctl 0 apply /tmp/c.toml
	before=$(settings svc)
	echo 'start hand uid={7} rate=1' >"$(at svc nrs_tbf_rule)"
	echo 'uid:7:7' >"$(at svc nrs_fairshare_weights)"
	echo 'group g capacity=1MB/s' >"$(at svc nrs_qbm_config)"
	echo 500 >"$(at svc stall_ms)"
	ctl 8 apply --dry-run /tmp/c.toml
	prints '-name = "hand"'
	prints '-stall_ms = 500'
	prints '-"uid:7" = 7'
	prints '-[[service.svc.qbm.group]]'
	ctl 0 apply /tmp/c.toml
	unchanged apply
	equal
	# Rules keep their statistics when other rules are added and removed.
	printf '[[service.svc.rule]]\nname = "%s"\nmatch = "uid={%s}"\nrate = %s\n' a 1 5 b 2 \
		6 >>/tmp/c.toml
	ctl 0 apply -v /tmp/c.toml
	prints 'svc: nrs_tbf_rule start a '
	sed -i 's/rate = 6/rate = 7/' /tmp/c.toml
	ctl 0 apply -v /tmp/c.toml
	prints 'svc: nrs_tbf_rule start b uid={2} rate=7'
	prints 'svc: changed'
	equal
	# An error in a file is reported with its position, and nothing is changed.
	before=$(settings svc)
	printf '[service.svc]\nslots = 0\n' >/tmp/c.toml
	ctl 4 apply /tmp/c.toml
	complains '/tmp/c.toml:2:9: service.svc.slots:'
	complains 'nothing was changed'
	unchanged apply
}

# Verifies that a service stays as it was if the module refuses a change. buffer_max can be raised
# only while no request is ordered, so not while throttled writes are queued.
refused() {
	printf '%s\n' '[service.svc]' 'slots = 8' 'policy = "tbf uid"' \
		'parameters = { nrs_pop = "overlap", buffer_max = 256 }' \
		'[[service.svc.rule]]' 'name = "slow"' 'match = "uid={0}"' 'rate = 2' >/tmp/c.toml
	ctl 0 apply /tmp/c.toml
	lower disk
	client one /dev/disk svc opportunity off
	fio --filename=/dev/mapper/one --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=8 \
		--size=8k --time_based --runtime=600 --minimal --name=one >/dev/null 2>&1 &
	saturated 2 one
	before=$(settings svc)
	sed -i 's/slots = 8/slots = 9/; s/buffer_max = 256/buffer_max = 65536, at_min = 7/
		s/rate = 2/rate = 3/' /tmp/c.toml
	ctl 7 apply --wait 1 /tmp/c.toml
	complains 'svc: the configuration was refused: buffer_max '
	complains 'the service was not changed'
	now=$(settings svc)
	[ "$(sed 's/, ref .*//' <<<"$now")" = "$(sed 's/, ref .*//' <<<"$before")" ] ||
		fail "$(diff <(echo "$before") <(echo "$now"))"
	dm message one 0 drain
}

# Changes policies while requests are queued under both: no request is lost, and each configuration
# is reached.
load_changes() {
	local policy policies=('fairshare gid_then_uid_fair' 'tbf uid' qbm fifo)
	[ -z "${NRS_LONG:-}" ] ||
		policies=(
			'fairshare uid_fair' 'tbf uid' 'fairshare gid_then_uid_fair' crrn qbm 'tbf uid+gid' fifo
		)
	slow_lower disk 2000000 memory_backed=1
	slow_lower other 2000000 memory_backed=1
	client one /dev/disk svc opportunity off
	client two /dev/other svc opportunity off
	printf '[service.svc]\nslots = 4\n' >/tmp/c.toml
	ctl 0 apply /tmp/c.toml
	writing one --name=two --filename=/dev/mapper/two
	saturated 1 one two
	for policy in "${policies[@]}"; do
		printf '%s\n' '[service.svc]' 'slots = 4' "policy = \"$policy\"" \
			'[service.svc.parameters]' \
			'nrs_fairshare_delta_ms = 20' 'nrs_fairshare_select = "paper"' \
			'nrs_tbf_rate = 777' 'nrs_tbf_depth = 5' >/tmp/c.toml
		case $policy in
		tbf*)
			printf '[[service.svc.rule]]\nname = "a"\nmatch = "uid={0}"\nrate = 10000000\n' \
				>>/tmp/c.toml
			;;
		esac
		ctl 0 apply /tmp/c.toml
		shows nrs_policies "name: $policy"
		equal
		printf '[service.svc]\nslots = 4\npolicy = "%s"\n' "$policy" >/tmp/c.toml
		ctl 0 apply /tmp/c.toml
		equal
	done
	written
	# A service made by its clients cannot change its partitions, but all other settings.
	printf '[service.svc]\ncpts = 1\n' >/tmp/c.toml
	ctl 7 apply /tmp/c.toml
	complains 'clients created the service'
}

prune() {
	printf '[service.svc]\n[service.gone]\nslots = 3\n[service.used]\n' >/tmp/c.toml
	ctl 0 apply /tmp/c.toml
	lower disk
	client one /dev/disk used
	client two /dev/disk brought
	exec 7</dev/mapper/one 8</dev/mapper/two
	printf '[service.svc]\n' >/tmp/c.toml
	ctl 0 apply /tmp/c.toml
	expect_output 'nothing to change'
	ctl 8 apply --prune --dry-run /tmp/c.toml
	prints '-[service.gone]'
	[ -d /sys/kernel/config/nrs/gone ]
	ctl 0 apply --prune /tmp/c.toml
	prints 'gone: removed'
	[ ! -d /sys/kernel/config/nrs/gone ]
	[ -d /sys/kernel/config/nrs/used ]
	[ -d /sys/kernel/debug/nrs/brought ]
	ctl 0 apply --prune /tmp/c.toml
	expect_output 'nothing to change'
	# Only one service, none of the others.
	printf '[module]\ndefault_slots = 9\n[service.svc]\nslots = 5\n[service.used]\nslots = 5\n' \
		>/tmp/c.toml
	ctl 0 apply --service svc /tmp/c.toml
	[ "$(<"$(at svc slots)")" = 5 ]
	[ "$(<"$(at used slots)")" = auto ]
	[ "$(</sys/module/nrs/parameters/default_slots)" = auto ]
	# Removes unused devices, and the service without clients.
	exec 7<&- 8<&-
	ctl 0 apply --prune /tmp/c.toml
	prints 'one: removed'
	prints 'two: removed'
	[ -z "$(devices)" ]
}

# Verifies a device in a file: created, changed while in use, never moved while in use, and saved.
mapped() {
	local table
	lower disk
	lower other
	printf '[device.one]\ndevice = "/dev/disk"\nservice = "svc"\noffset = 8\nsectors = 1024\n' \
		>/tmp/c.toml
	ctl 8 apply --dry-run /tmp/c.toml
	prints '+[device.one]'
	[ -z "$(devices)" ]
	ctl 0 apply /tmp/c.toml
	prints 'one: created on /dev/disk'
	[[ $(dm table one) == "0 1024 nrs "*" 8 svc 2 jobid_name %e.%u" ]] || fail "$(dm table one)"
	equal
	exec 7</dev/mapper/one
	sed -i 's/svc/two/; s/1024/2048/' /tmp/c.toml
	echo 'size = 4' >>/tmp/c.toml
	ctl 0 apply /tmp/c.toml
	prints 'one: changed'
	table=$(dm table one)
	[[ $table == "0 2048 nrs "*" 8 two 4 jobid_name %e.%u size 4" ]] || fail "$table"
	dd if=/dev/mapper/one of=/dev/null bs=64k iflag=direct 2>/dev/null
	equal
	cp /tmp/c.toml /tmp/used.toml
	for change in 's/2048/1024/' 's/= 8/= 7/' 's:/dev/disk:/dev/other:'; do
		sed "$change" /tmp/used.toml >/tmp/c.toml
		ctl 7 apply /tmp/c.toml
		complains 'the device is in use and can only grow'
		[ "$(dm table one)" = "$table" ]
	done
	# The last change is possible when the device is unused.
	exec 7<&-
	ctl 0 apply /tmp/c.toml
	equal
	# A name of another device, and a missing lower device.
	dm create other --table "0 8 linear /dev/disk 0"
	printf '[device.other]\ndevice = "/dev/other"\nservice = "x"\n' >/tmp/c.toml
	ctl 7 apply /tmp/c.toml
	complains 'with this name exists'
	printf '[device.two]\ndevice = "/dev/nothing"\nservice = "x"\n' >/tmp/c.toml
	ctl 3 apply --wait 1 /tmp/c.toml
	complains '/dev/nothing'
	# A command saves the same contents as a file has.
	mkdir -p /tmp/kept
	ctl 0 device add two /dev/disk svc --sectors 8 --save=/tmp/kept
	ctl 4 device add three /dev/disk svc --offset 7
	complains 'device two overlaps these sectors'
	ctl 0 apply --dry-run /tmp/kept
	expect_output 'nothing to change'
	ctl 0 device remove two --save=/tmp/kept
	[ ! -s /tmp/kept/devices.toml ]
}

modprobe null_blk nr_devices=0
[ ! -d /sys/module/nrs ] || rmmod nrs
load_nrs
try 60 "a complete file: applied, shown, saved; no change the second time" everything
try 60 "settings missing in a section have their defaults" by_hand
try 60 "a refused step: the service is unchanged" refused
long try 180 "policies change under load, no request is lost" load_changes
try 30 "services and devices missing in all files" prune
try 60 "devices of a file: created, changed in use, saved" mapped
summary
