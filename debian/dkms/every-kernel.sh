#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: every-kernel.sh VERSION
#
# Lets DKMS build and install version VERSION of nrs.ko for every kernel whose headers are installed
# and that has no module of this version yet. For a kernel that lacks a package, prints one line
# that names the package. Run by the package's maintainer scripts.
set -eu
case ${1:---help} in
--help | -h) sed -n '/^# usage/,/^[^#]/{/^#/!d;s/^# \{0,1\}//;p}' "$0" && exit ;;
esac
version=$1
here=$(cd "$(dirname "$0")" && pwd -P)
[ ! -e /etc/dkms/no-autoinstall ] || exit 0
status=0
for modules in /lib/modules/*/; do
	release=$(basename "$modules")
	[ -e "$modules/build/.config" ] || continue
	case $(dkms status -m nrs -v "$version" -k "$release") in *": installed"*) continue ;; esac
	"$here/module.sh" --check "$release" || continue
	result=0
	dkms install -m nrs -v "$version" -k "$release" || result=$?
	case $result in
	0 | 77) ;; # built, or no supported kernel
	*)
		status=1
		echo "nrs: error: no module for kernel $release:" \
			"see /var/lib/dkms/nrs/$version/build/make.log" >&2
		;;
	esac
done
exit $status
