#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Policies and parameters change under load: no request is lost, duplicated or damaged.
. /tests/nrs.sh

# switching N SLOTS: Makes N changes while writers run.
switching() {
	local changes i
	local mover='group all capacity=8MB/s strategy=mover'
	changes=('nrs_policies fairshare' 'nrs_policies crrn'
		'nrs_policies fairshare gid_then_uid_then_size_fair' 'nrs_pop overlap'
		'nrs_fairshare_mode uid_then_gid_fair'
		'nrs_fairshare_weights uid:1001:3,gid:101:2,jobid:f*:7' 'nrs_policies orr'
		'nrs_orr_supported reads_and_writes' 'nrs_orr_quantum 3' 'nrs_policies fairshare nid_fair'
		'nrs_fairshare_delta_ms 10'
		'nrs_policies tbf uid' 'nrs_tbf_rule start r uid={1001} rate=500' 'nrs_policies qbm'
		'nrs_qbm_config by uid;group all capacity=8MB/s;default class=fair_share min=2MB/s'
		"nrs_qbm_config by device;$mover;client a class=mover min=1MB/s"
		'nrs_fairshare_locality 1' 'nrs_policies fifo'
		'nrs_policies fairshare reg jobid_fair' 'nrs_policies trr hp'
		'nrs_trr_supported reg_supported:writes hp_supported:reads_and_writes'
		'nrs_policies trr' 'nrs_pop none' 'nrs_trr_offset_type hp_offset_type:logical'
		'nrs_fairshare_select paper' 'nrs_policies delay'
		'nrs_delay_pct 30' 'nrs_fairshare_weights clear' 'nrs_policies orr'
		'nrs_policies fairshare projid_then_uid_fair'
		'nrs_fairshare_cost_model rpcs' 'nrs_policies crrn reg' 'nrs_crrn_quantum 1'
		'high_priority_sources meta prio'
		'nrs_policies qbm hp' 'nrs_policies fairshare hp uid_fair' 'nrs_fairshare_select deadline'
		'nrs_fairshare_opp_threshold 32' 'nrs_policies tbf'
		'nrs_pop overlap' 'slots 3' 'nrs_policies fairshare' 'nrs_fairshare_select paper'
		'nrs_fairshare_cost_model time'
		'nrs_policies delay' 'nrs_delay_pct 1' 'buffer_max 256' 'nrs_policies crrn'
		'nrs_fairshare_locality 0' 'slots 8'
		'nrs_fairshare_select deadline' 'nrs_fairshare_cross_cpt 0'
		'nrs_fairshare_mode uid_then_jobid_fair weight=uid:1002:5'
		'nrs_policies trr' 'nrs_policies fairshare' 'nrs_fairshare_cost_model pages' 'nrs_pop none'
		'nrs_fairshare_size_source suffix' 'nrs_policies orr hp' 'nrs_fairshare_select deadline'
		'nrs_fairshare_opp_threshold 0'
		'high_priority_sources realtime' 'nrs_policies tbf jobid' 'nrs_policies fifo'
		'nrs_fairshare_cross_cpt 1')
	module
	# The debug kernel is slow, so only a slow disk lets its requests queue.
	lower nb0 memory_backed=1 irqmode=2 completion_nsec="$(slow 1000000 10000000)"
	client a /dev/nb0 svc
	slow 4 1 >"$(at svc slots)"
	set_to svc nrs_delay_min 0
	set_to svc nrs_delay_max 1
	writing a --uid=1001 --gid=101 --name=two --offset=32m --uid=1002 --gid=102 --name=three \
		--offset=64m --uid=1003 --gid=101
	wait_for 20 '[ $(counter a ended) -ge 50 ]'
	for i in $(seq "$1"); do
		set -- "$1" ${changes[i % ${#changes[@]}]}
		set_to svc "$2" "${*:3}"
		# Requests complete under each setting.
		local seen
		seen=$(ended svc)
		wait_for 10 "[ \$(ended svc) -gt $seen ]" ||
			fail "no request completes after ${*:2}: $(status a) $(cat "$(at svc nrs_policies)")"
	done
	written
	balanced a
	[ "$(counter a queued)" -gt 100 ] || fail "few requests were queued: $(status a)"
	# Replaced instances are gone: the shown sums are zero, also for the fallback.
	policy svc fifo
	wait_for 10 "! grep -q 'state: stopping' '$(at svc nrs_policies)'" ||
		fail "$(cat "$(at svc nrs_policies)")"
	! grep -E '(queued|active): +[1-9]' "$(at svc nrs_policies)" ||
		fail "$(cat "$(at svc nrs_policies)")"
}

count=$(slow "$(brief 16 200)" "$(brief 20 65)")
try 120 "$count changes while three users write, all policies" switching "$count"
summary
