#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: tests/boot.sh
#
# Boots a system with systemd and two disks under nrs from a disk image three times: as installed,
# with another build of the module, and without one of the disks. tests/vm/boot.sh checks each boot
# from inside. The system is a minimal Debian 13 with the packages nrs and nrs-agent and the modules
# of the stock kernel. nrs.ko is that of build/stock, copied to the directory of DKMS, because DKMS
# takes minutes. Ends with the line "N passed, N failed"; results are in build/boot and
# build/vm/boot-*. The system without nrs is kept in $NRS_CACHE/boot-test.
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"
. "$NRS_TOP/tests/vm/lib.sh"
case ${1:-} in
--help | -h) usage && exit ;;
'') ;;
*) die "unknown argument '$1', see --help" ;;
esac
[ "$(id -u)" = 0 ] || die "creating a root needs root privileges"
"$NRS_SCRIPTS/deb.sh"
"$NRS_SCRIPTS/build-module.sh" stock
vars=$("$NRS_SCRIPTS/kernel.sh" --print)
eval "$vars"

base=$NRS_CACHE/boot-test/base work=$NRS_TOP/build/boot
root=$work/root
in_root=$NRS_SCRIPTS/in-root.sh
lock boot-test
rm -rf --one-file-system "$work"
mkdir -p "$work" "${base%/*}"

packages=systemd-sysv,udev,dmsetup,e2fsprogs,kmod
key=$({ trixie_sources && echo "$packages"; } | hash_of)
if ! stamp_is "$base.stamp" "$key"; then
	debian_root boot-test "$work/base.log" "$base" "$packages"
	stamp "$base.stamp" "$key"
fi

# build VERSION: Creates $work/VERSION.ko, the module with that version, as in
# /sys/module/nrs/version.
build() {
	"$in_root" sh -ec 'cd "$1"
		objcopy --dump-section .modinfo=modinfo "$2" "$3.ko"
		printf "version=%s\0" "$3" >>modinfo
		objcopy --update-section .modinfo=modinfo "$3.ko"' \
		sh "$work" "$NRS_TOP/build/stock/nrs.stripped.ko" "$1"
}
build 1
build 2

# Image of the system: one of its units runs the checks after the start.
cp -a "$base" "$root"
NRS_ROOT=$root "$in_root" --rw dpkg --install "$NRS_TOP"/build/deb/nrs{,-agent}_*_amd64.deb \
	>"$work/install.log" 2>&1
mkdir -p "$root/usr/lib/modules"
cp -a "$NRS_MODULES" "$root/usr/lib/modules/"
# The emulator would decompress the modules slowly.
"$in_root" find "$root/usr/lib/modules" -name '*.ko.xz' -exec xz -d {} +
install -D -m 644 "$work/1.ko" "$root/usr/lib/modules/$NRS_KREL/updates/dkms/nrs.ko"
"$in_root" depmod -b "$root" "$NRS_KREL"
# Configures an installed system, not one that boots for the first time; packages may stop services
# in it.
printf '%032x\n' 1 >"$root/etc/machine-id"
rm "$root/usr/sbin/policy-rc.d"
mkdir "$root/out"
ln -s run/nrs/tests run/nrs/guest "$root/"
echo '/dev/disk/by-id/virtio-root / ext4 defaults 0 1' >"$root/etc/fstab"
units=$root/etc/systemd/system
ln -s ../answer.service "$units/multi-user.target.wants/"
cat >"$units/answer.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=exec
ExecStart=/bin/bash /run/nrs/init answer
UNIT
"$in_root" mkfs.ext4 -q -d "$root" "$work/root.img" 512M
rm -rf --one-file-system "$root"
truncate -s 64M "$work/files.img" "$work/mail.img"

# boot NAME DISK...: Boots the system with these disks, and counts the checks made inside.
boot() {
	local name=$1 disk disks=() status=0 out=$NRS_TOP/build/vm/boot-$1
	shift
	for disk in root "$@"; do disks+=(--disk "$work/$disk.img"); done
	# With a clock that counts instructions, no unit is late because the host is busy. The console
	# shows the states of units.
	"$NRS_SCRIPTS/vm.sh" --kernel stock --icount-or-kvm --cpus 2 --timeout 600 --name "boot-$name" \
		--module none --append 'systemd.show_status=1 TERM=dumb' --file "$work/2.ko:/guest/nrs.ko" \
		"${disks[@]}" -- boot.sh "$name" || status=$?
	nrs_passed=$((nrs_passed + $(grep -c '^ok ' "$out/guest.log" || true)))
	nrs_failed=$((nrs_failed + $(grep -c '^not ok ' "$out/guest.log" || true)))
	check_eq "$name: status of the machine" 0 "$status"
	check "$name: devices are removed at shutdown" grep \
		-a 'systemd-shutdown.*All DM devices detached' "$out/console.log"
	for disk in root "$@"; do check "$name: $disk was unmounted" clean "$work/$disk.img"; done
	[ "$name" = third ] || check "$name: no unit failed or timed out" in_time "$out/console.log"
}

# clean IMAGE: Verifies that the file system of the image needs no recovery and has no errors.
clean() {
	"$in_root" dumpe2fs -h "$1" >"$work/super" 2>&1 || return
	if grep needs_recovery "$work/super"; then return 1; fi
	"$in_root" e2fsck -fn "$1"
}

# in_time LOG: Verifies that no unit failed or timed out, from the start of the system to its end.
in_time() {
	local found
	found=$(grep -aE '\[(FAILED| TIME |DEPEND)\]|A (start|stop) job is running' "$1") || return 0
	echo "$found"
	return 1
}

boot first files mail
boot second files mail
boot third files
summary
