#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# usage: scripts/build-module.sh stock|SERIES|debug [--clippy | --rust-analyzer] [--source DIR]
#
# Builds nrs.ko for the stock kernel, for another kernel, such as 7.2 or 7.3-rt
# (scripts/kernel.sh), or for the debug kernel (scripts/debug-kernel.sh). The sources (Kbuild, rust/
# without rust/host, include/) are copied to $NRS_CACHE/module/FLAVOUR/src and built there, so the
# checkout stays clean. Warnings are errors. Nothing is built if the input equals that of the last
# build of any checkout. Results: build/FLAVOUR/nrs.ko and nrs.stripped.ko (without debug
# information, for virtual machines).
#
#   --clippy      run clippy instead of the compiler, with the kernel's lint list; builds no module
#   --rust-analyzer
#                 build, then write rust-project.json and the generated bindings into the checkout,
#                 where editors find them and git ignores them; to edit rust/host as well, list both
#                 rust-project.json and rust/host/Cargo.toml in rust-analyzer.linkedProjects
#   --source DIR  build the module in DIR instead of the checkout's
#                 (result in build/FLAVOUR-NAME, NAME is the name of DIR)
set -euo pipefail
. "$(dirname "$0")/lib.sh"

flavour='' series='' clippy='' analyzer='' source=$NRS_TOP out=''
args=("$@")
while [ $# -gt 0 ]; do
	case $1 in
	--help | -h) usage && exit ;;
	stock | debug) flavour=$1 ;;
	[0-9]*) flavour=$1 series=$1 ;;
	--clippy) clippy=1 ;;
	--rust-analyzer) analyzer=1 ;;
	--source) source=$(cd "$2" && pwd -P) && shift ;;
	*) die "unknown argument '$1', see --help" ;;
	esac
	shift
done
[ -n "$flavour" ] || die "expected stock, debug or a series, see --help"
[ -f "$source/Kbuild" ] || die "$source has no Kbuild"

if [ -z "${NRS_IN_ROOT:-}" ]; then
	"$NRS_SCRIPTS/kernel.sh" $series
	[ "$flavour" != debug ] || "$NRS_SCRIPTS/debug-kernel.sh"
	exec "$NRS_SCRIPTS/in-root.sh" "$0" "${args[@]}"
fi

vars=$("$NRS_SCRIPTS/kernel.sh" $series --print)
eval "$vars"
make=(ARCH=x86_64 "KRUSTFLAGS=-Dwarnings${NRS_RUSTFLAGS:+ $NRS_RUSTFLAGS}")
if [ "$flavour" = debug ]; then
	vars=$("$NRS_SCRIPTS/debug-kernel.sh" --print)
	eval "$vars"
	NRS_KBUILD=$NRS_DBG_KBUILD
	make+=(LLVM=1 NRS_LOTTERY=y)
fi
[ -z "$clippy" ] || make+=(CLIPPY=1)
name=$flavour
[ "$source" = "$NRS_TOP" ] || name+=-$(basename "$source")
out=$NRS_TOP/build/$name work=$NRS_CACHE/module/$name
lock "module/$name"
mkdir -p "$out" "$work/src"

# --checksum without --times: an unchanged file keeps its time, so make does not rebuild it.
inputs=(Kbuild rust)
[ ! -d "$source/include" ] || inputs+=(include)
(cd "$source" && rsync -rlp --checksum --delete --exclude=/rust/host --exclude=target \
	--exclude='*_bindings.rs' --filter='P *.o' --filter='P *.cmd' --filter='P *.d' "${inputs[@]}" \
	"$work/src/")

# Key of a finished build: kernel, flags and input. Clippy has a key of its own.
key=$({
	printf '%s\n' "$NRS_KBUILD" "$(cat "$NRS_KBUILD/include/config/kernel.release")" "${make[@]}"
	cd "$source" &&
		find "${inputs[@]}" -path rust/host -prune -o -type f ! -name '*_bindings.rs' -print0 |
		sort -z | xargs -0 sha256sum
} | hash_of)

# describe: Writes rust-project.json: the crates that the kernel lists, and the module's, which it
# does not find because Kbuild is in another directory. Paths into the toolchain root are those from
# outside.
describe() {
	local root features
	root=$("$NRS_SCRIPTS/root.sh" --print)
	make -C "$NRS_KBUILD" M="$work/src" "${make[@]}" rust-analyzer >"$work/analyzer.log" 2>&1 ||
		die "module ($flavour): no rust-project.json, see $work/analyzer.log"
	cp "$work/src/rust/sys/"*_bindings.rs "$source/rust/sys/"
	mapfile -t features < <(grep -oE 'feature="\w+"' "$work/src/rust/.nrs.o.cmd" | sort -u)
	jq --arg root "${root%/}" --arg rust "$source/rust" '
		walk(if type == "string" and startswith("/usr") then $root + . else . end) |
		.crates as $crates | .crates += [$crates[] | select(.display_name == "kernel") | . + {
			display_name: "nrs",
			root_module: "\($rust)/nrs.rs",
			source: {include_dirs: [$rust], exclude_dirs: ["\($rust)/host"]},
			cfg: (.cfg + $ARGS.positional),
			deps: [$crates | to_entries[] | {crate: .key, name: .value.display_name} |
				select(.name | IN("core", "kernel", "pin_init", "zerocopy", "zerocopy_derive"))]
		}]
	' --args MODULE "${features[@]}" <"$work/src/rust-project.json" >"$source/rust-project.json"
	log "module ($flavour): $source/rust-project.json"
}

# deliver: Copies the finished module to the result directory.
deliver() {
	local file
	[ -z "$clippy" ] || return 0
	for file in nrs.ko nrs.stripped.ko; do
		! cmp -s "$work/$file" "$out/$file" || continue
		cp "$work/$file" "$out/$file.tmp"
		mv "$out/$file.tmp" "$out/$file"
	done
	log "module ($flavour): $out/nrs.ko"
	[ -z "$analyzer" ] || describe
}

stampfile=$work/built${clippy:+-clippy}.stamp
if stamp_is "$stampfile" "$key" && { [ -n "$clippy" ] || [ -f "$work/nrs.ko" ]; }; then
	deliver
	exit
fi

# Clippy replaces the compiler, which make does not notice, so the crate's object is removed first.
if [ -n "$clippy" ] || [ -f "$work/clippy-object" ]; then
	rm -f "$work/src/rust/"*.o "$work/clippy-object"
fi
[ -z "$clippy" ] || : >"$work/clippy-object"
log "module ($flavour): building in $work/src"
if ! make -C "$NRS_KBUILD" M="$work/src" "${make[@]}" "-j$(nproc)" \
	modules >"$work/build.log" 2>&1; then
	grep -vE '^make|^  (CC|RUSTC|BINDGEN|CLIPPY|LD|MODPOST)' "$work/build.log" | head -n 200 >&2
	die "module ($flavour): build failed, whole output in $work/build.log"
fi
grep -E 'warning:' "$work/build.log" >&2 || true
if [ -n "$clippy" ]; then
	stamp "$stampfile" "$key"
	exit
fi
cp "$work/src/nrs.ko" "$work/nrs.ko.tmp"
# A kernel stack has 16 KiB for all functions on it; the debug kernel's checkers need more, and get
# it.
if [ "$flavour" != debug ]; then
	deep=$(objdump -d --no-show-raw-insn "$work/nrs.ko.tmp" |
		sed -nE '/^[0-9a-f]+ <.*>:$/h; /sub +\$0x[1-9a-f][0-9a-f]{3,},%rsp/{G;p}')
	[ -z "$deep" ] || die "module ($flavour): functions with more than 4 KiB on the stack: $deep"
fi
strip -g "$work/nrs.ko.tmp" -o "$work/nrs.stripped.ko.tmp"
mv "$work/nrs.stripped.ko.tmp" "$work/nrs.stripped.ko"
mv "$work/nrs.ko.tmp" "$work/nrs.ko"
stamp "$stampfile" "$key"
deliver
