#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Policies and parameters change under load: no request is lost, done twice or damaged.
. /tests/nrs.sh

# writers: three users write and check until /tmp/stop is there.
writers() {
	local uid at=0 pids=() pid
	for uid in 1001 1002 1003; do
		(
			until [ -e /tmp/stop ]; do
				verified a --name="u$uid" --uid=$uid --gid=$((uid % 2 + 100)) --offset=${at}m --size=4m --bssplit=4k/50:64k/50 \
					--randseed="$RANDOM"
			done
		) &
		pids+=($!)
		at=$((at + 32))
	done
	for pid in "${pids[@]}"; do wait "$pid"; done
}

# switching N SLOTS: N changes while the writers are at it.
switching() {
	local changes i pid
	changes=('nrs_policies fairshare' 'nrs_policies fifo' 'nrs_policies fairshare uid_fair' 'nrs_fairshare_mode gid_fair'
		'nrs_policies fairshare nid_fair' 'nrs_fairshare_delta_ms 10' 'nrs_policies fifo' 'nrs_policies fairshare reg jobid_fair'
		'nrs_fairshare_select random' 'nrs_policies fifo' 'nrs_policies fairshare projid_fair' 'nrs_fairshare_cost_model rpcs'
		'nrs_policies fairshare hp uid_fair' 'nrs_fairshare_select paper' 'nrs_fairshare_opp_threshold 32' 'nrs_policies fifo'
		'slots 3' 'nrs_policies fairshare' 'nrs_fairshare_select deadline' 'nrs_fairshare_cost_model pages' 'slots 8'
		'nrs_fairshare_select deadline_memory' 'nrs_fairshare_opp_threshold 0')
	module
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=200000
	client a /dev/nb0 svc
	echo 4 >"$(at svc slots)"
	rm -f /tmp/stop
	writers &
	pid=$!
	wait_for 20 '[ $(counter a ended) -ge 50 ]'
	for i in $(seq "$1"); do
		set -- "$1" ${changes[i % ${#changes[@]}]}
		set_to svc "$2" "${*:3}"
		kill -0 "$pid" 2>/dev/null || break
		# Each setting sees requests.
		local seen
		seen=$(counter a ended)
		wait_for 10 "[ \$(counter a ended) -gt $seen ]" || fail "nothing moves after ${*:2}: $(dm status a) $(cat "$(at svc nrs_policies)")"
	done
	: >/tmp/stop
	wait "$pid"
	wait_for 10 '[ $(counter a held) = 0 ]' || fail "$(dm status a)"
	[ $(($(counter a passed) + $(counter a queued))) = "$(counter a ended)" ] || fail "$(dm status a)"
	[ "$(counter a failed)" = 0 ]
	[ "$(counter a queued)" -gt 100 ] || fail "hardly anything queued: $(dm status a)"
	# Instances that were replaced are gone: the shown sums are zero, and so they are for the fallback.
	policy svc fifo
	wait_for 10 "! grep -q 'state: stopping' '$(at svc nrs_policies)'" || fail "$(cat "$(at svc nrs_policies)")"
	! grep -E '(queued|active): +[1-9]' "$(at svc nrs_policies)" || fail "$(cat "$(at svc nrs_policies)")"
}

# A parameter outlives the policy's stops and starts.
parameters_stay() {
	module
	lower nb0
	client a /dev/nb0 svc
	set_to svc nrs_fairshare_delta_ms 50
	set_to svc nrs_fairshare_mode gid_fair
	set_to svc high_priority_ratio 7
	policy svc fairshare
	policy svc fifo
	policy svc fairshare
	[ "$(cat "$(at svc nrs_fairshare_delta_ms)")" = 50 ] && [ "$(cat "$(at svc nrs_fairshare_mode)")" = gid_fair ]
	[ "$(cat "$(at svc high_priority_ratio)")" = 7 ]
}

changes=$(slow 200 40)
try 100 "$changes changes while three users write" switching "$changes"
try 20 "parameters outlive stops and starts" parameters_stay
summary
