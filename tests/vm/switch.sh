#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Policies and parameters change under load: no request is lost, done twice or damaged.
. /tests/nrs.sh

# switching N SLOTS: N changes while the writers are at it.
switching() {
	local changes i
	changes=('nrs_policies fairshare' 'nrs_policies fifo' 'nrs_policies fairshare uid_fair' 'nrs_fairshare_mode gid_fair'
		'nrs_policies fairshare nid_fair' 'nrs_fairshare_delta_ms 10' 'nrs_policies fifo' 'nrs_policies fairshare reg jobid_fair'
		'nrs_fairshare_select random' 'nrs_policies fifo' 'nrs_policies fairshare projid_fair' 'nrs_fairshare_cost_model rpcs'
		'nrs_policies fairshare hp uid_fair' 'nrs_fairshare_select paper' 'nrs_fairshare_opp_threshold 32' 'nrs_policies fifo'
		'slots 3' 'nrs_policies fairshare' 'nrs_fairshare_select deadline' 'nrs_fairshare_cost_model pages' 'slots 8'
		'nrs_fairshare_select deadline_memory' 'nrs_fairshare_opp_threshold 0')
	module
	lower nb0 memory_backed=1 irqmode=2 completion_nsec=1000000
	client a /dev/nb0 svc
	echo 4 >"$(at svc slots)"
	writing a --uid=1001 --gid=101 --name=two --offset=32m --uid=1002 --gid=102 --name=three --offset=64m --uid=1003 --gid=101
	wait_for 20 '[ $(counter a ended) -ge 50 ]'
	for i in $(seq "$1"); do
		set -- "$1" ${changes[i % ${#changes[@]}]}
		set_to svc "$2" "${*:3}"
		# Each setting sees requests.
		local seen
		seen=$(ended svc)
		wait_for 10 "[ \$(ended svc) -gt $seen ]" || fail "nothing moves after ${*:2}: $(dm status a) $(cat "$(at svc nrs_policies)")"
	done
	written
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

count=$(slow 200 30)
try 100 "$count changes while three users write" switching "$count"
try 20 "parameters outlive stops and starts" parameters_stay
summary
