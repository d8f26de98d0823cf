#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# nrsctl status and exporter with the real module, under load. The module's texts are kept in
# /out/texts, and the pages in /out/pages, where tests/exporter.sh checks them with promtool.
. /tests/nrs.sh

url=http://127.0.0.1:9719

# keep NAME: Saves the module's texts about the service svc, and the output of nrsctl for them.
keep() {
	local file to=/out/texts/$1
	mkdir -p "$to" /out/pages
	for file in clients nrs_policies nrs_fairshare_stats nrs_fairshare_weights nrs_tbf_stats \
		nrs_qbm_status nrs_qbm_stats at_stats nrs_concurrency health snapshot summary; do
		cat "$(at svc $file)" >"$to/$file" 2>/dev/null || rm -f "$to/$file"
	done
	# 9: not healthy.
	local status=0
	nrsctl status svc >"/out/status-$1" || status=$?
	[ "$status" = "${2:-0}" ] || fail "exit status $status"
	nrsctl status --json svc >"/out/pages/$1.json" || [ $? = "$status" ]
	nrsctl exporter --once >"/out/pages/$1.prom"
	[ "$(wc -l <"/out/status-$1")" -le 24 ] && [ "$(wc -L <"/out/status-$1")" -le 80 ] ||
		fail "$(cat "/out/status-$1")"
}

# has NAME PATTERN...: Verifies that the output of status matches.
has() {
	local pattern
	for pattern in "${@:2}"; do
		tr -s ' \n' ' ' <"/out/status-$1" | grep -qE "$pattern" ||
			fail "no '$pattern' in: $(cat "/out/status-$1")"
	done
}

# of NAME SERIES: Prints the value of that series; its labels are a pattern.
of() {
	awk -v s="$2" '{ v = $NF; sub(/ [^ ]*$/, "") } $0 ~ "^" s "$" { print v }' "/out/pages/$1.prom"
}

# begin DEVICE [as=UID] [OPTION...]: Starts a load that runs until the check ends.
begin() {
	load "$@" --thread --time_based --runtime=300 >/dev/null 2>&1 &
}

# weights: Prints the wanted shares of users 1001 and 1002, as multiples of the smaller one.
weights() {
	awk '
		/entity:/ { e = $3 }
		$1 == "share_wanted:" && e ~ /uid:1001/ { a = $2 }
		$1 == "share_wanted:" && e ~ /uid:1002/ { b = $2 }
		END { if (a > 0) printf "%.0f %.0f", 1, b / a }' "$(at svc nrs_fairshare_stats)"
}

# Verifies users and jobs under fairshare: one user has a double weight, one is urgent; all kinds of
# names.
share() {
	module
	slow_lower nb0 4000000 memory_backed=1
	client a /dev/nb0 svc
	client b /dev/nb0 svc jobid 'we"ird'
	echo 8 >"$(at svc slots)"
	policy svc 'fairshare uid_then_jobid_fair'
	echo uid:1002:2 >"$(at svc nrs_fairshare_weights)"
	local n name
	for n in 1001 1002 1003; do begin a as=$n; done
	begin b as=1004
	(
		fio() { ionice -c 1 setpriv --reuid 1005 --clear-groups /bin/fio "$@"; }
		load b --thread --bs=64k --iodepth=4 --time_based --runtime=300 >/dev/null 2>&1
	) &
	mkdir -p /tmp/names
	# These loads run to the end, because idle entities are evicted.
	for name in 'a"b' 'b\c' 'c: d' $'\xff\xfe' 'ü' $'p\nq' '{f'; do
		ln -sf /bin/busybox "/tmp/names/$name"
		# shellcheck disable=SC2016
		setpriv --reuid 1006 --clear-groups bash -c 'exec -a dd "$@" 2>/dev/null' bash \
			"/tmp/names/$name" if=/dev/mapper/a of=/dev/null bs=4k iflag=direct &
	done
	wait_for 30 '[ "$(grep -c "entity: .uid:100[1-6]" "$(at svc nrs_fairshare_stats)")" -ge 9 ]' ||
		fail "$(cat "$(at svc nrs_fairshare_stats)")"
	# All names that are not ASCII map to one job.
	wait_for 30 '[ "$(grep -c "entity: .uid:1006/" "$(at svc nrs_fairshare_stats)")" -ge 6 ]' ||
		fail "$(cat "$(at svc nrs_fairshare_stats)")"
	saturated a
	wait_for 30 '[ "$(weights)" = "1 2" ]' || fail "$(cat "$(at svc nrs_fairshare_stats)")"
	keep fairshare
	has fairshare 'users share by weight, jobs within them \(fairshare uid_then_jobid_fair\)' \
		'waiting uid:100.* queued, median .* longest' 'svc: [0-9]+ of [0-9]+ slots in use'
	local before
	before=$(of fairshare \
		'nrs_entity_dispatched_requests_total{.*entity="uid:1002/jobid:fio.1002"}')
	[ "$before" -gt 0 ] || fail "$(cat /out/pages/fairshare.prom)"
	[ "$(of fairshare 'nrs_entity_share_wanted_ratio{.*entity="uid:1002/jobid:fio.1002"}')" != "" ]
	grep -qF 'entity="uid:1006/jobid:a\"b.1006"' /out/pages/fairshare.prom ||
		fail "no name with a quote"
	served "$before"
	policy svc fifo
	wait_for 20 '! grep -q "state: stopping" "$(at svc nrs_policies)"'
	keep fifo
	has fifo 'in order of arrival \(fifo\)' 'waiting client a: [0-9]+ queued'
	rm -r /tmp/names
}

# served COUNT: Verifies the pages over HTTP; COUNT is an earlier value of the entity's counter.
served() {
	ifconfig lo up
	rm -f /tmp/listening
	nrsctl exporter --listen 127.0.0.1:9719 --top 3 >/tmp/listening &
	local exporter=$! page=/out/pages/http.prom
	wait_for 10 'grep -qs listening /tmp/listening'
	wget -q -O "$page" $url/metrics
	grep -q '^nrs_up 1$' "$page" || fail "$(cat "$page")"
	# Three entities of the regular head, and the sum of all others.
	[ "$(grep -c '^nrs_entity_dispatched_requests_total{.*head="regular"' "$page")" = 4 ] ||
		fail "$(cat "$page")"
	grep -q '^nrs_entity_dispatched_requests_total{.*entity="others"' "$page" ||
		fail "$(cat "$page")"
	awk -v before="$1" \
		'/^nrs_entity_dispatched_requests_total.*uid:1002.jobid:fio/ { n = $NF }
			END { exit !(n >= before) }' "$page" || fail "the counter decreased"
	wget -q -O - $url/ | grep -q /metrics || fail "no front page"
	! wget -q -O - $url/other || fail "another page exists"
	! wget -q -O - --post-data x $url/metrics || fail "POST was accepted"
	local before=$SECONDS
	kill -TERM $exporter
	wait $exporter || [ $? = 143 ]
	[ $((SECONDS - before)) -le 5 ] || fail "did not end"
}

# Verifies rules of tbf, also for urgent requests.
limit() {
	module
	slow_lower nb0 2000000
	client a /dev/nb0 svc
	client b /dev/nb0 svc
	echo 16 >"$(at svc slots)"
	policy svc 'tbf uid+jobid'
	echo 'start greedy uid={1002} rate=1MB/s' >"$(at svc nrs_tbf_rule)"
	echo 'start jobs jobid={*.1003} rate=50 borrow=1' >"$(at svc nrs_tbf_rule)"
	begin a as=1001
	begin a as=1002
	begin b as=1003
	(
		fio() { ionice -c 1 setpriv --reuid 1002 --clear-groups /bin/fio "$@"; }
		load b --thread --iodepth=4 --time_based --runtime=300 >/dev/null 2>&1
	) &
	wait_for 20 '[ "$(grep -cE "limit_hits: [1-9][0-9]" "$(at svc nrs_tbf_stats)")" -ge 6 ]' ||
		fail "$(cat "$(at svc nrs_tbf_stats)")"
	keep tbf
	has tbf 'each job and user is limited by rules \(tbf jobid.uid\)' \
		'limited .*greedy \(1MB/s\)' 'greedy \(1MB/s, urgent requests\)' \
		' throttled for .* on average by rule '
	[ "$(of tbf 'nrs_rule_limit_bytes_per_second{service="svc",head="regular",rule="greedy"}')" = \
		1000000 ] || fail "$(cat /out/pages/tbf.prom)"
	[ "$(of tbf 'nrs_rule_limit_requests_per_second{service="svc",head="regular",rule="jobs"}')" = \
		50 ]
	# The text file is always complete.
	mkdir -p /tmp/collector
	nrsctl exporter --textfile /tmp/collector/nrs.prom --every 1 &
	local writer=$! i inode
	wait_for 10 '[ -s /tmp/collector/nrs.prom ]'
	for ((i = 0; i < 20; i++)); do
		[ "$(grep -c '^nrs_up 1$' /tmp/collector/nrs.prom)" = 1 ] &&
			tail -n 1 /tmp/collector/nrs.prom | grep -qE '^nrs_entity_[a-z_]+.* [0-9.]+$' ||
			fail "incomplete file: $(tail -n 3 /tmp/collector/nrs.prom)"
		sleep 0.2
	done
	# Killed right after a write, because a kill during a write leaves the temporary file.
	inode=$(stat -c %i /tmp/collector/nrs.prom)
	wait_for 10 '[ "$(stat -c %i /tmp/collector/nrs.prom)" != "$inode" ]'
	kill $writer
	wait $writer || [ $? = 143 ]
	[ "$(ls -A /tmp/collector)" = nrs.prom ] || fail "left: $(ls -A /tmp/collector)"
}

# Verifies clients of qbm, two of which get less than their guaranteed minimum; without qbm there
# are no groups.
promise() {
	local names=('job"1' 'a\b' '-x:') name i=0
	module
	lower nb0 size=1024 mbps=44 irqmode=2 completion_nsec=500000 hw_queue_depth=1024
	for name in "${names[@]}"; do
		i=$((i + 1))
		dm_create "n$i" "0 $(sectors /dev/nb0) nrs /dev/nb0 0 svc 2 jobid $name"
	done
	echo 8 >"$(at svc slots)"
	printf '%s\n' 'by jobid' 'group all capacity=40MB/s reserve_low_share=2MB/s' \
		'client job"1 class=first_come min=10MB/s max=20MB/s' \
		'default class=fair_share min=20MB/s max=20MB/s' >/tmp/plan
	cat /tmp/plan >"$(at svc nrs_qbm_config)" || fail "$(cat "$(at svc nrs_qbm_config_error)")"
	policy svc qbm
	for i in 1 2 3; do begin n$i --bs=64k; done
	wait_for 20 '[ "$(grep -c "unmet: true" "$(at svc nrs_qbm_status)")" = 2 ]' ||
		fail "$(cat "$(at svc nrs_qbm_status)")"
	keep qbm
	has qbm 'clients have guaranteed bandwidth \(qbm\)' \
		'group all: 38 MB/s of 40 MB/s allocated, 3 clients, 2 below' \
		'jobid:a\\b: allocated 14 MB/s of 20 MB/s'
	[ "$(of qbm 'nrs_group_capacity_bytes_per_second{service="svc",group="all"}')" = 40000000 ] ||
		fail "$(cat /out/pages/qbm.prom)"
	policy svc fifo
	nrsctl exporter --once | grep -q ^nrs_group && fail "groups without qbm"
	:
}

# Verifies the output for a device that hangs.
hung() {
	module
	hangs
	dm suspend --nolockfs lin
	nrsctl monitor svc --count 1 >/tmp/changes &
	local monitor=$!
	load a --time_based --runtime=300 >/dev/null 2>&1 &
	saturated a
	wait_for 30 'grep -q NOT "$(at svc health)"' || fail "$(cat "$(at svc health)")"
	keep hung 9
	wait $monitor
	grep -q 'Z svc: \(health: NOT HEALTHY\|client .*: lost\)$' /tmp/changes ||
		fail "$(cat /tmp/changes)"
	has hung 'warning not healthy: 1[0-9] queued' 'a target may hang'
	[ "$(of hung 'nrs_service_healthy{service="svc"}')" = 0 ]
	dm resume lin
}

# Verifies the output without services, and without the module.
no_service() {
	module
	local rc=0
	[ "$(nrsctl status)" = "no services: clients create services, see the user guide" ] ||
		fail "$(nrsctl status)"
	mkdir /sys/kernel/config/nrs/svc
	keep empty
	rmdir /sys/kernel/config/nrs/svc
	! nrsctl status svc 2>/tmp/said || fail "status 0 without a service"
	grep -q "svc" /tmp/said || fail "$(cat /tmp/said)"
	rmmod nrs
	nrsctl exporter --once 2>/tmp/said || rc=$?
	[ $rc = 6 ] || fail "status $rc without the module: $(cat /tmp/said)"
	ifconfig lo up
	rm -f /tmp/listening
	nrsctl exporter >/tmp/listening &
	local exporter=$!
	wait_for 10 'grep -qs listening /tmp/listening'
	! wget -q -O - $url/metrics || fail "a page without the module"
	printf 'GET /metrics HTTP/1.0\r\n\r\n' | nc 127.0.0.1 9719 >/tmp/answer
	head -n 1 /tmp/answer | grep -q '503 Service Unavailable' && grep -q '^nrs_up 0$' /tmp/answer ||
		fail "$(cat /tmp/answer)"
	module
	wget -q -O - $url/metrics | grep -q '^nrs_up 1$' || fail "no page with the module"
	kill $exporter
	wait $exporter || [ $? = 143 ]
}

long try 60 "fairshare: status, exporter over HTTP" share
long try 60 "tbf: status, exporter into a file" limit
long try 60 "qbm: status, exporter" promise
try 60 "a device that hangs is reported" hung
long try 40 "no service, no module" no_service
summary
