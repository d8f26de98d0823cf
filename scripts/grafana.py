#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Prints the dashboard for Grafana, with panels of the metrics of nrsctl exporter.

usage: scripts/grafana.py >grafana-nrs.json
"""

import json
import sys

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SERVICES = "label_values(nrs_service_slots, service)"


def panel(kind, title, description, field, options, targets):
    """Returns a panel without its place."""
    found = []
    for letter, (query, legend) in zip("ABCDE", targets):
        query = query.replace("SELECTED", 'service=~"$service"')
        query = query.replace("[]", "[$__rate_interval]")
        found.append({"datasource": SOURCE, "editorMode": "code", "expr": query,
                      "legendFormat": legend, "range": True, "refId": letter})
    return {"type": kind, "title": title, "description": description, "datasource": SOURCE,
            "fieldConfig": {"defaults": field, "overrides": []}, "options": options,
            "targets": found}


def stat(title, description, unit, target, colors=None):
    """Returns a panel of one number; colors are that below 1 and that from 1."""
    field = {"unit": unit, "custom": {}}
    if colors:
        steps = [{"color": color, "value": value} for color, value in zip(colors, (None, 1))]
        field["thresholds"] = {"mode": "absolute", "steps": steps}
    options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
               "colorMode": "background" if colors else "value", "graphMode": "none"}
    return panel("stat", title, description, field, options, [target])


def lines(title, description, unit, *targets, fill=10, **field):
    """Returns a panel of lines over time."""
    field = {"unit": unit, "custom": {"fillOpacity": fill, "lineWidth": 1}, **field}
    legend = {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull", "max"]}
    options = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    return panel("timeseries", title, description, field, options, targets)


def areas(*arguments, **field):
    """Returns a panel of areas over time, one on top of the other."""
    made = lines(*arguments, fill=40, **field)
    made["fieldConfig"]["defaults"]["custom"]["stacking"] = {"mode": "normal", "group": "A"}
    return made


# Titles of rows, and lines of panels: their height, and the panels, of equal width. A target is a
# query and its legend. SELECTED stands for the label of the services that the reader selects, []
# for the time from one point of a line to the next.
CONTENT = (
    "Now",
    (4,
     stat("Healthy", "1: all services make progress or have nothing to do.", "short",
          ("min(nrs_service_healthy{SELECTED})", "healthy"), ("red", "green")),
     stat("Clients lost", "Clients whose device has not answered since a deadline.", "short",
          ("sum(nrs_service_clients_lost{SELECTED})", "lost"), ("green", "red")),
     stat("Slots in use", "The part of the slots in effect that is in use. 100 %: requests wait for"
          " the device, and the policy decides.", "percentunit",
          ("sum(nrs_service_slots_used{SELECTED}) / sum(nrs_service_slots_limit{SELECTED})",
           "used")),
     stat("Requests waiting", "On both heads.", "short",
          ("sum(nrs_head_queued_requests{SELECTED})", "waiting")),
     stat("Bandwidth", "Bytes of requests that ended, per second.", "Bps",
          ("sum(rate(nrs_client_served_bytes_total{SELECTED}[]))", "served")),
     stat("Module answers", "0: the exporter runs, but the module does not answer.", "short",
          ("min(nrs_up)", "up"), ("red", "green"))),
    "Who gets what",
    (9,
     areas("Share of each entity", "Part of the service of its head that an entity had of the last"
           " second (fairshare).", "percentunit",
           ('nrs_entity_share_ratio{SELECTED,window="1s"}', "{{service}} {{head}} {{entity}}"),
           min=0, max=1),
     areas("Bytes of each entity", "Bytes dispatched, per second.", "Bps",
           ("rate(nrs_entity_served_bytes_total{SELECTED}[])",
            "{{service}} {{policy}} {{head}} {{entity}}"))),
    (8,
     areas("Requests of each entity", "Requests dispatched, per second.", "reqps",
           ("rate(nrs_entity_dispatched_requests_total{SELECTED}[])",
            "{{service}} {{policy}} {{head}} {{entity}}")),
     lines("Share less what it is to have", "Above 0: an entity has more than its part, because"
           " others leave theirs (fairshare).", "percentunit",
           ('nrs_entity_share_ratio{SELECTED,window="60s"} - ignoring(window)'
            " nrs_entity_share_wanted_ratio{SELECTED}", "{{service}} {{head}} {{entity}}"))),
    "Who waits",
    (8,
     lines("Waits, 99th percentile", "Of all requests since the entity is known (fairshare).", "s",
           ('nrs_entity_wait_seconds{SELECTED,quantile="0.99"}',
            "{{service}} {{head}} {{entity}}")),
     areas("Requests that wait", "By policy and head.", "short",
           ("nrs_policy_queued_requests{SELECTED}", "{{service}} {{head}} {{policy}}"))),
    "Who is limited",
    (8,
     lines("Limit hits of rules", "How often the first request of a class had to wait for tokens,"
           " per second (tbf).", "hps",
           ("rate(nrs_rule_limit_hits_total{SELECTED}[])", "{{service}} {{head}} {{rule}}")),
     lines("Limit hits of entities", "The same of each class of tbf and client of qbm.", "hps",
           ("rate(nrs_entity_limit_hits_total{SELECTED}[])",
            "{{service}} {{policy}} {{entity}}"))),
    (8,
     lines("Time under limits", "Time that first requests of classes waited for tokens, per second:"
           " 1 for each class that is held back all the time (tbf).", "short",
           ("rate(nrs_rule_throttled_seconds_total{SELECTED}[])",
            "{{service}} {{head}} {{rule}}")),
     lines("Bandwidth given and used", "What clients of qbm have, and what they use of it.", "Bps",
           ("nrs_entity_allocated_bytes_per_second{SELECTED}", "{{entity}} has"),
           ("nrs_entity_used_bytes_per_second{SELECTED}", "{{entity}} uses"))),
    "Slots, timeouts, health",
    (8,
     lines("Slots", "Set, in effect, in use.", "short",
           ("nrs_service_slots{SELECTED}", "{{service}} set"),
           ("nrs_service_slots_limit{SELECTED}", "{{service}} in effect"),
           ("nrs_service_slots_used{SELECTED}", "{{service}} in use")),
     lines("Timeouts", "Deadlines that passed or were moved, per second.", "ops",
           ("rate(nrs_timeout_requests_total{SELECTED}[])", "{{service}} passed"),
           ("rate(nrs_timeout_early_replies_total{SELECTED}[])", "{{service}} {{result}}")),
     lines("Trouble", "Each is 0 on a service that is well.", "short",
           ("1 - nrs_service_healthy{SELECTED}", "{{service}} unhealthy"),
           ("nrs_service_clients_lost{SELECTED}", "{{service}} clients lost"),
           ("increase(nrs_service_stalls_total{SELECTED}[])", "{{service}} stalls"),
           ("increase(nrs_service_overflow_requests_total{SELECTED}[])",
            "{{service}} without class"),
           ("increase(nrs_client_failed_requests_total{SELECTED}[])",
            "{{service}} {{client}} failed"))),
    (7,
     lines("Devices below", "Requests in flight on each, of those it may have.", "percentunit",
           ("nrs_target_active_requests{SELECTED} / nrs_target_limit_requests{SELECTED}",
            "{{service}} {{target}}")),
     lines("Reading statistics", "How long the exporter takes to read what the module shows.", "s",
           ("nrs_scrape_duration_seconds", "{{instance}}"))),
)


def placed():
    """Returns the rows and panels with their places."""
    found, y = [], 0
    for content in CONTENT:
        if isinstance(content, str):
            height, line = 1, [{"type": "row", "title": content, "collapsed": False, "panels": []}]
        else:
            height, *line = content
        width = 24 // len(line)
        for n, item in enumerate(line):
            place = {"x": n * width, "y": y, "w": width, "h": height}
            found.append({"id": len(found) + 1, "gridPos": place, **item})
        y += height
    return found


def variable(name, label, **more):
    """Returns a list from which the reader selects."""
    return {"name": name, "label": label, "current": {}, "hide": 0, "options": [], "regex": "",
            "skipUrlSync": False, **more}


DASHBOARD = {
    "__comment": "SPDX-License-Identifier: GPL-2.0-only",
    "title": "nrs",
    "uid": "nrs",
    "description": "The network request scheduler nrs: who gets what, who waits, who is limited.",
    "tags": ["nrs", "storage"],
    "schemaVersion": 41,
    "version": 1,
    "editable": True,
    "graphTooltip": 1,
    "refresh": "10s",
    "timezone": "browser",
    "time": {"from": "now-30m", "to": "now"},
    "timepicker": {},
    "annotations": {"list": []},
    "links": [],
    "liveNow": False,
    "fiscalYearStartMonth": 0,
    "id": None,
    "templating": {"list": [
        variable("datasource", "Data source", type="datasource", query="prometheus", refresh=1,
                 includeAll=False, multi=False),
        variable("service", "Service", type="query", datasource=SOURCE, definition=SERVICES,
                 query={"query": SERVICES, "refId": "services"}, refresh=2, sort=1, includeAll=True,
                 multi=True),
    ]},
    "panels": placed(),
}
print(__doc__.strip() if sys.argv[1:] else json.dumps(DASHBOARD, indent=2))
