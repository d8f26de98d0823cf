#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Adaptive timeouts of block devices: a slow device is not lost, a dead one is detected soon, and
# throttling is neither.
. /tests/nrs.sh

# quick MIN INCREMENT: Sets timeouts of a few seconds, and a history of eight.
quick() {
	local name
	for name in "at_early_margin 1" "at_min $1" "at_increment $2" "at_history 8"; do
		set_to svc "${name% *}" "${name#* }"
	done
}

# setup [WORD...]: Creates client a, with these words in its table, on the device lin, which can be
# suspended.
setup() {
	module
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=2000000
	dm_create lin "0 $(sectors /dev/nb0) linear /dev/nb0 0"
	client a /dev/mapper/lin svc "$@"
}

# delayed READ WRITE: Lets the device lin delay reads and writes from now on, ms.
delayed() {
	dm load lin --table "0 $(sectors /dev/nb0) delay /dev/nb0 0 $1 /dev/nb0 0 $2"
	dm suspend --nolockfs lin
	dm resume lin
}

# estimate: Prints the estimate of the service, s.
estimate() {
	awk '$1 == "service" && $4 > max { max = $4 } END { print max + 0 }' "$(at svc timeouts)"
}

# of NAME: Prints a number of at_stats.
of() {
	awk -v name="$1:" '$1 == name { print $2 }' "$(at svc at_stats)"
}

# lives DEVICE: Prints live or lost.
lives() {
	local text
	text=$(dm status "$1")
	text=${text##*state: }
	echo "${text%% *}"
}

# quiet: Verifies that no device was given up.
quiet() {
	[ "$(of timeouts)" = 0 ] && [ "$(of lost)" = 0 ] && [ "$(lives a)" = live ] ||
		fail "given up: $(dm status a) $(tr '\n' ' ' <"$(at svc at_stats)")"
}

# begin [OPTION...]: Starts an endless load, and waits until the device has a history.
begin() {
	load a --time_based --runtime=600 "$@" >/dev/null 2>&1 &
	wait_for 20 '[ $(counter a ended) -ge 64 ]' || fail "$(dm status a)"
}

# since STAMP: Prints the milliseconds since STAMP.
since() {
	echo $(((${EPOCHREALTIME/./} - $1) / 1000))
}

formats() {
	setup
	load a --io_size=1m >/dev/null
	local line
	line=$(head -n 1 "$(at svc timeouts)")
	grep -qE '^   service : cur +5  worst +[0-9]+ \(at [0-9]+, [0-9]+s ago\)( +[0-9]+){4} $' \
		<<<"$line" || fail "'$line'"
	grep -qE '^portal 0   : cur +5  worst ' "$(at svc client_timeouts)"
	dm message a 0 timeouts | grep -qE '^portal 0   : cur +5 '
	set_to svc at_max 0
	[ "$(cat "$(at svc timeouts)")" = 'adaptive timeouts off, using obd_timeout 100' ] ||
		fail "$(cat "$(at svc timeouts)")"
}

# Verifies a device that becomes a hundred times slower, and recovers.
heavy() {
	setup
	quick 1 5
	echo 8 >"$(at svc slots)"
	delayed 20 20
	begin
	[ "$(estimate)" = 1 ] || fail "$(cat "$(at svc timeouts)")"
	delayed 2000 2000
	# Two rounds of eight requests, plus a margin.
	wait_for 60 '[ $(estimate) -ge 3 ]' || fail "$(cat "$(at svc timeouts)")"
	say "slow: $(head -n 1 "$(at svc timeouts)")"
	quiet
	delayed 20 20
	local stamp=${EPOCHREALTIME/./}
	wait_for 40 '[ $(estimate) = 1 ]' || fail "$(cat "$(at svc timeouts)")"
	say "the estimate fell within $(since "$stamp") ms"
	[ "$(since "$stamp")" -le 14000 ] || fail "$(since "$stamp") ms"
	quiet
}

# Verifies that some requests may take longer than the timeout while others show that the device is
# alive.
busy() {
	setup
	quick 1 5
	delayed 20 14000
	begin
	# The history of the device is that it is fast.
	load a --rw=randwrite --iodepth=4 --io_size=16k >/dev/null || fail "a write failed"
	quiet
	[ "$(estimate)" -ge 14 ] || fail "$(cat "$(at svc timeouts)")"
	# Without other completions the device is lost; the write still completes.
	killall fio
	wait_for 20 '! pidof fio >/dev/null' || fail "fio is still active"
	wait_for 40 '[ $(estimate) = 1 ]' || fail "$(cat "$(at svc timeouts)")"
	load a --rw=randwrite --iodepth=4 --io_size=16k >/dev/null || fail "a write failed"
	[ "$(of lost)" = 1 ] && [ "$(of found)" = 1 ] && [ "$(of timeouts)" = 4 ] ||
		fail "$(cat "$(at svc at_stats)")"
}

# Verifies that a discard may exceed the timeout, alone and with a reader that waits for the only
# slot. A write that takes as long is late.
discarded() {
	module
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=2000000 discard=1
	dm_create lin "0 $(sectors /dev/nb0) linear /dev/nb0 0"
	client a /dev/mapper/lin svc
	quick 1 1
	delayed 20 14000
	load a --io_size=1m >/dev/null || fail "a read failed"
	blkdiscard -l 65536 /dev/mapper/a
	quiet
	# A discard does not change the estimate.
	[ "$(estimate)" = 1 ] || fail "$(cat "$(at svc timeouts)")"
	echo 1 >"$(at svc slots)"
	blkdiscard -l 65536 /dev/mapper/a &
	wait_for 5 '[ "$(counter a ost_punch)" = 2 ]' || fail "$(dm status a)"
	load a --io_size=16k >/dev/null || fail "a read failed"
	wait $!
	quiet
	grep -q ^healthy "$(at svc health)" || fail "$(cat "$(at svc health)")"
	load a --rw=randwrite --iodepth=1 --io_size=4k >/dev/null || fail "a write failed"
	[ "$(of lost)" = 1 ] || fail "$(cat "$(at svc at_stats)")"
}

# detected: Prints the time until a device that hangs is given up, ms.
detected() {
	local stamp
	begin
	dm suspend --nolockfs --noflush lin
	stamp=${EPOCHREALTIME/./}
	wait_for 60 '[ "$(lives a)" = lost ]' || fail "not given up: $(dm status a)"
	since "$stamp"
}

# record_uevents: Writes the module's uevents to /tmp/uevents, one per line. A kernel without
# network starts a program for each.
record_uevents() {
	cat >/tmp/hear <<'END'
#!/bin/sh
[ -z "$NRS_EVENT" ] || echo "NRS_CLIENT=$NRS_CLIENT NRS_EVENT=$NRS_EVENT" \
	"NRS_SERVICE=$NRS_SERVICE DM_NOSCAN=$DM_NOSCAN" >>/tmp/uevents
END
	chmod 755 /tmp/hear
	: >/tmp/uevents
	if [ -w /sys/kernel/uevent_helper ]; then
		echo /tmp/hear >/sys/kernel/uevent_helper
	else
		uevent /tmp/hear &
	fi
}

# Verifies that a device that hangs is given up in time, and recovers by itself.
dead() {
	local adaptive fixed
	record_uevents
	setup
	quick 1 1
	adaptive=$(detected)
	# 1.25 times the minimum estimate plus one second, with a margin for the clock.
	[ "$adaptive" -ge 1000 ] && [ "$adaptive" -le $((2250 + $(slow 600 2500))) ] ||
		fail "given up after $adaptive ms"
	[ "$(of lost)" = 1 ] && [ "$(of timeouts)" -ge 1 ] || fail "$(cat "$(at svc at_stats)")"
	# No request in flight was ended.
	[ "$(counter a failed)" = 0 ] || fail "$(dm status a)"
	dm resume lin
	wait_for 20 '[ "$(lives a)" = live ]' || fail "$(dm status a)"
	[ "$(of found)" = 1 ] || fail "$(cat "$(at svc at_stats)")"
	local before
	before=$(counter a ended)
	wait_for 20 '[ $(counter a ended) -gt $((before + 64)) ]' || fail "$(dm status a)"
	wait_for 10 '[ "$(wc -l </tmp/uevents)" -ge 2 ]' || fail "no event"
	say "$(cat /tmp/uevents)"
	grep -q 'NRS_CLIENT=a NRS_EVENT=lost NRS_SERVICE=svc DM_NOSCAN=1' /tmp/uevents
	grep -q 'NRS_CLIENT=a NRS_EVENT=found NRS_SERVICE=svc DM_NOSCAN=$' /tmp/uevents
	# The same with a fixed timeout, which must be as long as under the worst load.
	set_to svc at_max 0
	set_to svc obd_timeout 20
	fixed=$(detected)
	dm resume lin
	wait_for 20 '[ "$(lives a)" = live ]' || fail "$(dm status a)"
	say "given up after $adaptive ms, with a fixed timeout of 20 s after $fixed ms:" \
		"$(awk -v a="$adaptive" -v f="$fixed" 'BEGIN { printf "%.1f", f / a }') times as long"
	[ "$fixed" -ge 19000 ] || fail "$fixed ms"
	# Timeouts are disabled.
	set_to svc obd_timeout 0
	begin
	dm suspend --nolockfs --noflush lin
	sleep 3
	[ "$(lives a)" = live ] || fail "$(dm status a)"
	dm resume lin
}

# Verifies that a device under exceptional load is not lost.
loaded() {
	setup
	quick 1 1
	echo 1 >"$(at svc slots)"
	delayed 150 150
	begin --iodepth=200
	wait_for 60 '[ $(estimate) -ge 25 ]' || fail "$(cat "$(at svc timeouts)")"
	quiet
	grep -q ^healthy "$(at svc health)" || fail "$(cat "$(at svc health)")"
	# The queue would take half a minute, and the killed load would wait for it.
	delayed 2 2
}

# Verifies that queued requests fail at once on a client configured so, and only there.
failing() {
	setup on_timeout fail
	lower nb1 memory_backed=1 irqmode=2 completion_nsec=2000000
	client b /dev/nb1 svc
	dm table a | grep -q 'on_timeout fail' || fail "$(dm table a)"
	quick 1 1
	# So few slots that the CPU keeps them busy.
	echo 4 >"$(at svc slots)"
	load b --time_based --runtime=600 >/dev/null 2>&1 &
	load a --time_based --runtime=600 --iodepth=32 --continue_on_error=all \
		--error_dump=0 >/dev/null 2>&1 &
	saturated a
	dm suspend --nolockfs --noflush lin
	wait_for 20 '[ "$(lives a)" = lost ]' || fail "$(dm status a)"
	# New requests.
	dd if=/dev/mapper/a of=/dev/null bs=4k count=1 iflag=direct 2>/tmp/dd &&
		fail "read from a device that hangs"
	grep -q 'timed out' /tmp/dd || fail "$(cat /tmp/dd)"
	# Queued requests.
	wait_for 10 '[ $(counter a held) = 0 ]' || fail "$(dm status a)"
	[ "$(counter a failed)" -ge 8 ] || fail "$(dm status a)"
	# The other client continues.
	local before
	before=$(counter b ended)
	wait_for 20 '[ $(counter b ended) -gt $((before + 64)) ]' || fail "$(dm status b)"
	[ "$(counter b failed)" = 0 ] && [ "$(lives b)" = live ] || fail "$(dm status b)"
	dm resume lin
	wait_for 20 '[ "$(lives a)" = live ]' || fail "$(dm status a)"
	dd if=/dev/mapper/a of=/dev/null bs=4k count=1 iflag=direct 2>/tmp/dd || fail "$(cat /tmp/dd)"
}

# Verifies that the first write after a refused flush flushes the cache first: device-mapper drops
# the error of a flush that precedes data.
flush_owed() {
	module
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=2000000 cache_size=16
	dm_create lin "0 $(sectors /dev/nb0) linear /dev/nb0 0"
	client a /dev/mapper/lin svc on_timeout fail
	quick 1 1
	load a --time_based --runtime=600 --iodepth=4 --continue_on_error=all \
		--error_dump=0 >/dev/null 2>&1 &
	wait_for 10 '[ $(counter a ended) -gt 0 ]'
	dm suspend --nolockfs --noflush lin
	wait_for 20 '[ "$(lives a)" = lost ]' || fail "$(dm status a)"
	sync -d /dev/mapper/a && fail "flushed a device that hangs"
	dm resume lin
	wait_for 20 '[ "$(lives a)" = live ]' || fail "$(dm status a)"
	killall fio
	local before flushes
	for flushes in 1 0; do
		before=$(awk '{ print $16 }' /sys/block/nb0/stat)
		dd if=/dev/zero of=/dev/mapper/a bs=4k count=1 oflag=direct 2>/tmp/dd ||
			fail "$(cat /tmp/dd)"
		[ $(($(awk '{ print $16 }' /sys/block/nb0/stat) - before)) = $flushes ] ||
			fail "not $flushes flushes: $before, $(awk '{ print $16 }' /sys/block/nb0/stat)"
	done
}

# Verifies that throttled requests are not late, and do not raise the estimate.
throttled_in_time() {
	setup
	quick 1 1
	policy svc 'tbf uid'
	set_to svc nrs_tbf_rule 'change default rate=1'
	load a --io_size=160k --iodepth=40 >/dev/null || fail "a read failed"
	quiet
	# The last request was queued for 40 s. On a free-running clock, a busy host may add some time.
	[ "$(estimate)" -le "$(slow 1 15)" ] ||
		fail "$(cat "$(at svc timeouts)") $(cat "$(at svc at_stats)")"
	[ "$(of withheld_ms)" -ge 300000 ] || fail "$(cat "$(at svc at_stats)")"
	grep -q ^healthy "$(at svc health)" || fail "$(cat "$(at svc health)")"
	# With at_count_policy_delay the throttled time counts.
	set_to svc at_count_policy_delay 1
	load a --io_size=32k --iodepth=8 >/dev/null || fail "a read failed"
	[ "$(estimate)" -ge 6 ] || fail "$(cat "$(at svc timeouts)")"
	quiet
}

# Verifies suspend, replacement and removal of a device that was given up.
leaving() {
	setup
	quick 1 1
	begin
	dm suspend --nolockfs --noflush lin
	wait_for 20 '[ "$(lives a)" = lost ]' || fail "$(dm status a)"
	dm load a --table "0 $(sectors /dev/nb0) nrs /dev/mapper/lin 0 other"
	dm suspend --nolockfs a &
	local suspend=$!
	sleep 0.5
	dm resume lin
	wait "$suspend"
	dm resume a
	[ ! -d /sys/kernel/debug/nrs/svc ] || fail "the old service is still there"
	killall fio
	wait_for 20 '! pidof fio >/dev/null' || fail "fio is still active"
	dm_remove a
	rmmod nrs
}

long try 60 "format of the files" formats
long try 120 "a device becomes a hundred times slower, and recovers" heavy
long try 120 "a busy device is not lost" busy
try 60 "a discard may exceed the timeout" discarded
try 120 "a device that hangs is given up, and recovers" dead
long try 120 "a loaded device is not lost" loaded
long try 90 "queued requests fail, if so configured" failing
long try 60 "a write after a refused flush flushes the cache" flush_owed
long try 120 "throttled requests are not late" throttled_in_time
long try 90 "suspended and removed while given up" leaving
remarks '^(given up after|the estimate fell|slow:)'
summary
