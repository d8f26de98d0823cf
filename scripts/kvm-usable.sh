#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/kvm-usable.sh VMLINUZ
#
# Succeeds if KVM can run a guest here: boots VMLINUZ without a root file system and expects its
# panic message. /dev/kvm may exist and answer, and still fail at the first guest instructions. The
# verdict is cached per boot of this host.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:---help} in --help | -h) usage && exit ;; esac
[ -n "${NRS_IN_ROOT:-}" ] || exec "$NRS_SCRIPTS/in-root.sh" "$0" "$@"

verdict=$NRS_CACHE/kvm-verdict
boot=$(cat /proc/sys/kernel/random/boot_id)
lock kvm-probe
if ! [ -f "$verdict" ] || [ "$(cut -d' ' -f1 "$verdict")" != "$boot" ]; then
	answer=no
	if [ -w /dev/kvm ]; then
		log "kvm: booting a test guest (20 s at most)"
		out=$(timeout -k 1 20 qemu-system-x86_64 -accel kvm -cpu host -m 512 -nodefaults \
			-no-user-config -display none -no-reboot -serial stdio -kernel "$1" \
			-append 'console=ttyS0 panic=-1' </dev/null 2>&1 || true)
		case $out in *'Kernel panic'*) answer=yes ;; esac
	fi
	log "kvm: usable: $answer"
	stamp "$verdict" "$boot $answer"
fi
[ "$(cut -d' ' -f2 "$verdict")" = yes ]
