#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: tests/machine.sh
#
# Tests that scripts/vm.sh boots a machine once more, and no more than once, after the emulator has
# lost the timer of a CPU. A program that writes the kernel's messages of this case replaces the
# emulator.
set -euo pipefail
. "$(dirname "$0")/vm/lib.sh"

cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Loses the timer as often as the file "times" says; otherwise exits at once, without a result.
cat >"$work/qemu" <<'END'
#!/bin/bash
here=$(dirname "$0")
echo >>"$here/boots"
for arg; do case $arg in file:*console.log) console=${arg#file:} ;; esac; done
times=$(cat "$here/times")
[ "$times" != 0 ] || exit 0
echo $((times - 1)) >"$here/times"
{
	echo '[   27.2] RIP: 0010:pv_native_safe_halt+0xf/0x20'
	echo "[   27.3] rcu: rcu_preempt kthread timer wakeup didn't happen for 5249 jiffies!"
} >"$console"
exec sleep 60
END
chmod +x "$work/qemu"

# boots TIMES: Prints how often a machine is booted that loses its timer TIMES times, and the exit
# status.
boots() {
	local status=0
	: >"$work/boots"
	echo "$1" >"$work/times"
	NRS_QEMU=$work/qemu scripts/vm.sh --kernel stock --module none --name lost-timer \
		-- load.sh >"$work/log" 2>&1 || status=$?
	echo "$(wc -l <"$work/boots") $status"
}

check_eq "no timer lost: one boot" "1 91" "$(boots 0)"
check_eq "timer lost once: two boots" "2 91" "$(boots 1)"
[ -s build/vm/lost-timer/console-lost.log ] && ok "its log is kept" || not_ok "its log is kept"
check_eq "timer lost twice: two boots, failure" "2 91" "$(boots 2)"
summary
