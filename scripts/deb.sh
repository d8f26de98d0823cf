#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/deb.sh [--source]
#
# Builds the Debian packages nrs, nrs-agent and nrs-dkms from the checkout, with the tools of the
# toolchain root. They are built in $NRS_CACHE/tree, so the checkout stays clean. The packages
# depend on the sources only, not on time or place. The crates come from cargo's registry. Nothing
# is built if the sources are unchanged. Results: build/deb/nrs_VERSION_amd64.deb,
# build/deb/nrs-agent_VERSION_amd64.deb and build/deb/nrs-dkms_VERSION_all.deb.
#
#   --source  build the source package instead: build/deb/nrs_VERSION.dsc and nrs_VERSION.tar.xz;
#             it contains the crates, so the packages can be built from it without network
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=
case ${1:-} in
--help | -h) usage && exit ;;
--source) source=1 ;;
'') ;;
*) die "unknown argument '$1', see --help" ;;
esac
if [ -z "${NRS_IN_ROOT:-}" ]; then
	"$NRS_SCRIPTS/root.sh"
	exec "$NRS_SCRIPTS/in-root.sh" "$0" "$@"
fi

out=$NRS_TOP/build/deb
mkdir -p "$out"

# up_to_date NAME: Ends the script if NAME was built from the files of this directory; otherwise
# sets $stampfile and $key for the finished build.
up_to_date() {
	stampfile=$out/$1.stamp
	key=$(find . -type f -print0 | sort -z | xargs -0 sha256sum | hash_of)
	if stamp_is "$stampfile" "$key"; then
		log "deb: up to date in $out"
		exit
	fi
	rm -f "$stampfile"
}

if [ -n "$source" ]; then
	version=$(cd "$NRS_TOP" && dpkg-parsechangelog -S Version)
	work=$NRS_CACHE/source
	lock source
	rm -rf "$work"
	mkdir "$work"
	copy_tree "$work/nrs-$version"
	cd "$work/nrs-$version"
	up_to_date source
	rm -f "$out"/nrs_*.{dsc,tar.xz}
	# A cargo home of its own, because cargo vendor waits for other cargo builds and unpacks the
	# crates again.
	mkdir -p "$work/cargo/registry"
	cp -a "$CARGO_HOME"/config.toml "$work/cargo" 2>/dev/null || true
	cp -a "$CARGO_HOME"/registry/{index,cache} "$work/cargo/registry" 2>/dev/null || true
	run_logged "deb: crates" "$out/vendor.log" env CARGO_HOME="$work/cargo" \
		cargo vendor --quiet --locked --versioned-dirs --manifest-path rust/host/Cargo.toml vendor
	# Libraries and objects for Windows leave the crates and their lists of checksums.
	python3 - <<-'EOF'
		import json, pathlib
		for crate in pathlib.Path("vendor").iterdir():
		    path = crate / ".cargo-checksum.json"
		    sums = json.loads(path.read_text())
		    for name in list(sums["files"]):
		        if name.endswith((".a", ".dll", ".lib", ".o")):
		            (crate / name).unlink()
		            del sums["files"][name]
		    path.write_text(json.dumps(sums))
	EOF
	run_logged "deb: source package" "$out/source.log" sh \
		-c "cd .. && dpkg-source --build nrs-$version"
	mv "$work"/nrs_*.{dsc,tar.xz} "$out"
	rm -rf "$work"
	stamp "$stampfile" "$key"
	log "deb: nrs_$version.dsc," \
		"$(du -h "$out/nrs_$version.tar.xz" | cut -f1) nrs_$version.tar.xz in $out"
	exit
fi
shared_tree
cd "$tree"
up_to_date built
version=$(dpkg-parsechangelog -S Version)
rm -f "$out"/*.deb "$NRS_CACHE"/nrs*.deb
log "deb: building $version in $tree"
if ! dpkg-buildpackage --build=binary --no-sign >"$out/build.log" 2>&1 </dev/null; then
	tail -n 40 "$out/build.log" >&2
	die "deb: build failed, whole output in $out/build.log"
fi
mv "$NRS_CACHE"/nrs*.deb "$out"
rm -f "$NRS_CACHE"/nrs_*.{buildinfo,changes}
stamp "$stampfile" "$key"
log "deb: $(cd "$out" && echo *.deb) in $out"
