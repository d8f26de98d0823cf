#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/vng.sh --kernel stock|debug [OPTION...] [-- GUESTSCRIPT [ARG...]]
#
# Boots a virtual machine with virtme-ng, runs GUESTSCRIPT (as scripts/vm.sh) in it, and returns its
# exit status. Also fails as scripts/vm.sh does, with the same statuses. Without GUESTSCRIPT, starts
# a shell on this terminal, with nrs.ko loaded and tests/vm in /tests; Ctrl-D ends it.
#
# The guest is that of scripts/vm.sh, in the directory build/vm/NAME/root, which it may write:
# results are dmesg and out in it. virtme-ng shares the toolchain root, read-only, of which only
# its own process 1 runs.
#
#   --kernel K     stock, a series of scripts/kernel.sh, or debug
#   --cpus N       virtual CPUs (default 2)
#   --mem M        memory, MiB (default 1024; debug 2048)
#   --timeout S    time limit of the whole run, seconds (default 300; debug 600)
#   --file HOST:GUEST  copy a file or directory into the guest
#   --module FILE  use another nrs.ko ("none": no module)
#   --name NAME    name of the results (default KERNEL-SCRIPT)
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$NRS_SCRIPTS/guest.sh"

while [ $# -gt 0 ]; do
	case $1 in
	--help | -h) usage && exit ;;
	--) shift && break ;;
	*) guest_option "$@" && shift 2 ;;
	esac
done
guest_kernel
guest_results 300 600 "$kernel-$(basename "${1:-shell}" .sh)"
cpus=${cpus:-2}
mkdir "$out/root"

base=$("$NRS_SCRIPTS/initramfs.sh" "$release" "$modules")
(cd "$out/root" && cpio -i --quiet <"$base/base.cpio")
guest_tree "$out/root" "$module" "${files[@]}" -- "$@"

inside="for dir in proc sys dev run; do mount --rbind /\$dir $out/root/\$dir; done
exec chroot $out/root /init"
# The debug kernel knows CPUs from the firmware's table, which has one of each socket.
# init_on_alloc: the root comes from another process, virtiofsd, whose writes to a page the emulator
# does not see; if it had translated code of that page, it would run the old code.
how=(--run "$image" --rw --cpus "$cpus,sockets=$cpus" --memory "${mem}M" --name "$name"
	--append "no_hash_pointers init_on_alloc=1")
"$NRS_SCRIPTS/kvm-usable.sh" "$NRS_VMLINUZ" || how+=(--disable-kvm)
# udev, which systemd-udevd is a link to, would take longer than most tests.
mount --bind /usr/bin/true /usr/bin/systemd-tmpfiles
if [ $# = 0 ]; then
	mount --bind /usr/bin/true /usr/bin/udevadm
	# Read by the shell that virtme-ng starts on the terminal.
	echo "$inside shell" >~/.bashrc
	exec vng "${how[@]}"
fi
# virtme-ng opens its ports by the names that udev would give them.
cat >"$out/udev" <<'EOF'
#!/bin/sh
mkdir -p /dev/virtio-ports
until [ -e /dev/virtio-ports/virtme.ret ]; do
	for port in /sys/class/virtio-ports/*; do
		name=$(cat "$port/name") && ln -sf "../${port##*/}" "/dev/virtio-ports/$name"
	done 2>/dev/null
done
EOF
chmod +x "$out/udev"
mount --bind "$out/udev" /usr/bin/udevadm

log "vng: $kernel kernel $release, $cpus CPUs, $1, at most $limit s"
status=0 started=$SECONDS
timeout -k 5 "$limit" vng "${how[@]}" --verbose --exec "$inside virtme" </dev/null \
	2>"$out/console.log" | stamped | tee "$out/guest.log" || status=$?
case $status in
124 | 137) status=92 && log "vng: no result within $limit s, see $out/console.log" ;;
255) status=91 && log "vng: the guest ended without a result, see $out/console.log" ;;
esac
troubled=0
guest_log "$out/root" || troubled=$?
[ "$status" != 0 ] || status=$troubled
log "vng: $name: status $status after $((SECONDS - started)) s, results in $out"
exit "$status"
