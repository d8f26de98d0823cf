#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# title: a zenoh router forwards nothing between two of its peers if gossip is off
# guess: Peers that are connected to a router reach each other through it; gossip only finds
#        shorter ways, and brokering of peers is what the option peers_failover_brokering is for.
# so:    The router takes for granted that its peers know each other. With gossip off they do not:
#        publishers and subscribers are declared, nothing arrives, and no error is reported, with
#        brokering on or off. Clients in place of peers get everything.
# read:  https://zenoh.io/docs/getting-started/deployment/, DEFAULT_CONFIG.json5 of zenoh
#        (routing.router.peers_failover_brokering)
. "${0%/*}/lib.sh"
temporary
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" --quiet install eclipse-zenoh==1.10.2
version eclipse-zenoh "$("$dir/venv/bin/pip" list 2>/dev/null | awk '/zenoh/ { print $2 }')" 1.10.2
cat >"$dir/trial.py" <<'EOF'
import json
import sys
import time

import zenoh


def session(mode, gossip, listen, connect, extra):
    config = zenoh.Config()
    settings = {
        "mode": mode,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": gossip,
        "listen/endpoints": listen,
        "connect/endpoints": connect,
        **extra,
    }
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    return zenoh.open(config)


mode, gossip, brokering, port = sys.argv[1], sys.argv[2] == "on", sys.argv[3] == "on", sys.argv[4]
address = [f"tcp/127.0.0.1:{port}"]
own = ["tcp/127.0.0.1:0"] if mode == "peer" else []
router = session(
    "router", gossip, address, [], {"routing/router/peers_failover_brokering": brokering}
)
sender, receiver = (session(mode, gossip, own, address, {}) for _ in range(2))
received = []
subscriber = receiver.declare_subscriber("finding/key", received.append)
time.sleep(3)
for number in range(10):
    sender.put("finding/key", str(number))
time.sleep(2)
print(len(received))
EOF
# received MODE GOSSIP BROKERING PORT: Prints how many of ten messages arrive.
received() {
	timeout 60 "$dir/venv/bin/python" "$dir/trial.py" "$@"
}
is "of 10 messages, peers, gossip on" "$(received peer on on 17461)" 10
is "peers, gossip off, brokering on" "$(received peer off on 17462)" 0
is "peers, gossip off, brokering off" "$(received peer off off 17463)" 0
is "clients, gossip off" "$(received client off off 17464)" 10
finish
