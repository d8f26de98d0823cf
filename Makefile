# SPDX-License-Identifier: GPL-2.0-only
# The front door: `make` lists the verbs. What they do is in scripts/ and tests/; each script there explains itself with --help.

NRS_CACHE ?= $(HOME)/.cache/nrs
export NRS_CACHE

.PHONY: help setup build deb deb-source deb-test test test-long soak fuzz demo cluster lustre vm bench bench-vm compare sim clean distclean

help:      ## list these verbs (the default)
	@echo "nrs: a network request scheduler for Linux storage servers"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "Builds go to build/; what is downloaded or slow to make is kept in $(NRS_CACHE)."

setup:     ## get the toolchain and the stock kernel, build its Rust metadata (every other verb does it by itself)
	scripts/root.sh
	scripts/kernel.sh
	scripts/fio.sh

build:     ## build nrs.ko for the stock kernel: build/stock/nrs.ko
	scripts/build-module.sh stock

deb:       ## build the Debian packages nrs, nrs-agent and nrs-dkms: build/deb/*.deb
	scripts/deb.sh

deb-source: ## build the source package, with all crates: build/deb/nrs_VERSION.dsc
	scripts/deb.sh --source

deb-test:  ## install, load, upgrade and remove the packages in a Debian root of their own
	scripts/deb-test.sh

test:      ## check the sources and run the tests, on this host and in three virtual machines
	tests/run.sh

test-long: ## all checks of all tests; ROUNDS=N repeats the virtual machines
	tests/run.sh --long

soak:      ## everything at once on the debug kernel, with faults injected: 10 minutes, or MINUTES=N
	scripts/soak.sh --minutes $(or $(MINUTES),10)

fuzz:      ## each parser and wire format fuzzed for a minute, or SECONDS=N
	scripts/fuzz.sh all $(or $(SECONDS),60)

demo:      ## two users on one device: fifo against fairshare, as a table and as demo.svg
	scripts/demo.sh

cluster:   ## two servers with agents, in two virtual machines: shares as a table and as cluster.svg
	scripts/cluster.sh

lustre:    ## policies for a Lustre server, against its configured source: make lustre LUSTRE_SRC=DIR
	scripts/lustre.sh $(LUSTRE_SRC)

vm:        ## a shell in a virtual machine with nrs.ko loaded
	scripts/vm-shell.sh

bench:     ## nanoseconds per decision and bytes per class of every policy, measured on this host
	scripts/bench.sh

bench-vm:  ## instructions per request against dm-linear, mq-deadline and BFQ, counted in a virtual machine
	scripts/bench-vm.sh

compare:   ## nrs against none, mq-deadline, kyber, BFQ, io.max, io.cost and dm-linear, in virtual machines
	scripts/compare.sh

sim:       ## servers and clients in simulated time: ThemisIO's experiments, interference, fairness over many servers
	scripts/sim.sh --all

clean:     ## remove what was built in this tree
	rm -rf build rust/host/target demo.svg cluster.svg

distclean: clean ## clean, and remove the downloaded toolchain and kernels
	@[ ! -e "$(NRS_CACHE)" ] || [ -d "$(NRS_CACHE)/log" ] || { echo "$(NRS_CACHE) does not look like ours; not removed"; exit 1; }
	rm -rf --one-file-system "$(NRS_CACHE)"
