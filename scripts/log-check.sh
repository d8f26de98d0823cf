#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/log-check.sh LOG...
#        scripts/log-check.sh --self-test
#
# Searches kernel logs for errors: prints each line that must fail a test run, and returns 1 if
# there is one. Lines that scripts/log-allow.txt allows, with the reason, are ignored.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

bad='WARNING:|BUG:|BUG at|\bOops\b|Kernel panic|general protection fault'
bad+='|Unable to handle|unable to handle'
bad+='|possible recursive locking|possible circular locking|possible irq lock inversion'
bad+='|inconsistent lock state|suspicious RCU usage'
bad+='|INFO: task .* blocked|soft lockup|hard LOCKUP'
bad+='|rcu.*(detected|self-detected) .*stall|rcu.*kthread .*starved'
bad+='|KASAN:|KFENCE:|UBSAN:|kmemleak: [1-9][0-9]* new suspected|unreferenced object|ODEBUG:'
bad+='|list_(add|del) corruption'
bad+='|refcount_t:|sleeping function called from invalid context'
bad+='|scheduling while atomic|bad: scheduling|held lock freed'
bad+='|rust_kernel: panicked|rust_kernel: .*panic|unchecked MSR|Bad page|Out of memory:|segfault at'
bad+='|^(\[[ 0-9.]*\] )? *not ok [0-9]|EXPECTATION FAILED|ASSERTION FAILED|DEBUG_LOCKS_WARN'
bad+='|MAX_LOCKDEP.* too low|Disabling lock debugging|turning off the locking correctness'

# check FILE...: Prints the bad lines that are not allowed, as FILE:NUMBER:LINE. Console logs end
# lines in CR LF.
check() {
	local allow file
	allow=$(grep -vE '^(#|$)' "$NRS_SCRIPTS/log-allow.txt" | paste -sd'|')
	for file; do
		tr -d '\r' <"$file" | grep -naE "$bad" | grep -avE "${allow:-^\$}" | sed "s|^|$file:|" ||
			true
	done
}

# Verifies that each line of the first list is caught, and no line of the second.
self_test() {
	local failed=0 passed=0 line work
	work=$(mktemp)
	# shellcheck disable=SC2064
	trap "rm -f '$work'" EXIT
	while IFS= read -r line; do
		printf '%s\r\n' "$line" >"$work"
		if [ -n "$(check "$work")" ]; then
			passed=$((passed + 1))
		else
			log "not caught: $line" && failed=$((failed + 1))
		fi
	done <<'END'
[    1.0] WARNING: CPU: 0 PID: 1 at kernel/x.c:12 f+0x1/0x2
[    1.0] WARNING: possible circular locking dependency detected
[    1.0] WARNING: possible recursive locking detected
[    1.0] WARNING: suspicious RCU usage
[    1.0] WARNING: inconsistent lock state
[    1.0] BUG: kernel NULL pointer dereference, address: 0000000000000000
[    1.0] BUG: sleeping function called from invalid context at mm/slab.h:1
[    1.0] BUG: KASAN: slab-use-after-free in nrs_map+0x1/0x2
[    1.0] Oops: 0000 [#1] SMP
[    1.0] Oops: general protection fault, probably for non-canonical address 0xdead
[    1.0] Kernel panic - not syncing: VFS
[    1.0] INFO: task fio:77 blocked for more than 60 seconds.
[    1.0] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [fio:77]
[    1.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
[    1.0] rcu: INFO: rcu_preempt self-detected stall on CPU
[    1.0] kmemleak: 2 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
unreferenced object 0xffff888003c4b400 (size 64):
[    1.0] list_del corruption. prev->next should be x
[    1.0] ODEBUG: free active (active state 0) object: x object type: timer_list
[    1.0] refcount_t: underflow; use-after-free.
[    1.0] rust_kernel: panicked at rust/nrs.rs:3:1:
[    1.0] Disabling lock debugging due to kernel taint
[    1.0] not ok 1 nrs_heap
[    1.0]     not ok 3 pops_in_order
    # a test: EXPECTATION FAILED
not ok 2 nrs_slab
END
	while IFS= read -r line; do
		printf '%s\r\n' "$line" >"$work"
		if [ -z "$(check "$work")" ]; then
			passed=$((passed + 1))
		else
			log "wrongly caught: $line" && failed=$((failed + 1))
		fi
	done <<'END'
[    1.0] nrs: loading out-of-tree module taints kernel.
[    1.0]     ok 1 pops_in_order
[    1.0] ok 1 nrs_heap
[    1.0] kmemleak: Kernel memory leak detector initialized (mem pool available: 1)
[    1.0] ... MAX_LOCKDEP_SUBCLASSES:  8
[    1.0] EXT4-fs (dm-0): mounted filesystem
[    1.0] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar
[    1.0] rcu: RCU lockdep checking is enabled.
[    1.0] kasan: KernelAddressSanitizer initialized (generic)
[    1.0] ** NOTICE NOTICE NOTICE **
END
	echo "$passed passed, $failed failed"
	[ "$failed" = 0 ]
}

case ${1:---help} in
--help | -h) usage && exit ;;
--self-test)
	self_test
	exit
	;;
esac
found=$(check "$@")
[ -z "$found" ] && exit
printf '%s\n' "$found" | head -n 100
exit 1
