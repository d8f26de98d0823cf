#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/deb.sh
#
# Builds the Debian packages nrs and nrs-dkms from the checkout, with the tools of the toolchain root. The checkout stays
# clean: they are built in $NRS_CACHE/tree. What is packed depends on the sources only, not on time or place.
# The crates come from cargo's registry, as for every other build here. Unchanged sources do nothing.
# Result: build/deb/nrs_VERSION_amd64.deb and build/deb/nrs-dkms_VERSION_all.deb.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
case ${1:-} in --help | -h) usage && exit ;; '') ;; *) die "unknown argument '$1', see --help" ;; esac
if [ -z "${NRS_IN_ROOT:-}" ]; then
	"$NRS_SCRIPTS/root.sh"
	exec "$NRS_SCRIPTS/in-root.sh" "$0"
fi

out=$NRS_TOP/build/deb
mkdir -p "$out"
shared_tree
cd "$tree"
key=$(find . -type f -print0 | sort -z | xargs -0 sha256sum | hash_of)
if stamp_is "$out/built.stamp" "$key"; then
	log "deb: up to date in $out"
	exit
fi
rm -f "$out/built.stamp" "$out"/*.deb "$NRS_CACHE"/nrs*.deb
version=$(dpkg-parsechangelog -S Version)
log "deb: building $version in $tree"
if ! dpkg-buildpackage --build=binary --no-sign >"$out/build.log" 2>&1 </dev/null; then
	tail -n 40 "$out/build.log" >&2
	die "deb: build failed, whole output in $out/build.log"
fi
mv "$NRS_CACHE"/nrs*.deb "$out"
rm -f "$NRS_CACHE"/nrs_*.{buildinfo,changes}
stamp "$out/built.stamp" "$key"
log "deb: $(cd "$out" && echo *.deb) in $out"
